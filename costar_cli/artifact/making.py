"""What an artifact's digest depends on beside its seed and settings: device, threads and versions."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from costar_cli.artifact.write import software_versions

__all__ = ["Making", "known_threads", "making_differences", "making_here", "making_text", "makings_of"]

Making = dict[str, object]  # `device`, `threads`, and a version by the name of each piece of software

SOFTWARE = ("costar", "numpy", "torch")


def making_here(device: str, threads: int) -> Making:
    """Return what trains in this process."""
    versions = software_versions()
    return {"device": device, "threads": threads, **{name: versions[name] for name in SOFTWARE if name in versions}}


def makings_of(meta: Mapping[str, Any]) -> list[Making]:
    """Return what an artifact was trained with: several where a run was continued with others, none in older files."""
    stored = meta.get("made_with")
    return [making for making in stored if isinstance(making, dict)] if isinstance(stored, list) else []


def known_threads(chosen: int | None) -> int | None:
    """Return the number of threads that training would use, as far as that is known without starting it."""
    text = os.environ.get("OMP_NUM_THREADS", "")
    return chosen or (int(text) if text.isdecimal() else None)


def making_differences(there: Sequence[Mapping[str, object]], here: Mapping[str, object]) -> list[str]:
    """Return a line for each fact, such as `threads: 2 there, 1 here`, in which what is known here is another."""
    lines = [
        f"{name}: {making[name]} there, {value} here"
        for making in there
        for name, value in here.items()
        if value is not None and name in making and making[name] != value
    ]
    return list(dict.fromkeys(lines))


def making_text(making: Mapping[str, object]) -> str:
    """Return what trained in one line."""
    threads = making.get("threads")
    versions = ", ".join(f"{name} {making[name]}" for name in SOFTWARE if name in making)
    return f"{making.get('device')}, {threads} thread{'s' * (threads != 1)}, {versions}"
