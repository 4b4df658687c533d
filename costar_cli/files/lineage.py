"""What an artifact was made from and with: whether it would be made the same again, and what its digest depends on."""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np

from costar_cli.config.version import VERSION
from costar_cli.files.digest import canonical_json, sha256

Making = dict[str, object]  # `device`, `threads`, and a version by the name of each piece of software
NOT_IMPORTED = ("scikit-learn", "scipy", "torch")  # their versions are looked up: importing them takes seconds
SHOWN: Final = "Evaluation"  # the text of a PNG file with the digest of the evaluation that it shows
TOGETHER: Final = "Figures"  # the text of the figure that is drawn last, with the names of all
SOFTWARE = ("costar", "numpy", "torch", "scikit-learn", "scipy")


def fingerprint(kind: str, *, parents: Mapping[str, str], config: Mapping[str, Any]) -> str:
    """Return the SHA-256 of what an artifact is made from: parent digests, resolved config, costar's version.

    Verbs store it as `meta["fingerprint"]`; when it is equal, the work is done already.
    """
    return sha256(canonical_json({"kind": kind, "parents": dict(parents), "config": dict(config), "costar": VERSION}))


def flatten(config: object, prefix: str = "") -> dict[str, object]:
    """Return nested settings with dotted names: `{"encoder.width": 24}`."""
    if not isinstance(config, Mapping):
        return {prefix: config} if prefix else {}
    flat: dict[str, object] = {}
    for name, value in config.items():
        flat |= flatten(value, f"{prefix}.{name}" if prefix else str(name))
    return flat


def shown_in(figure: Path) -> str | None:
    """Return the digest of the evaluation that a PNG file shows, None where it names none or is no PNG file."""
    found = _text_of(figure, SHOWN)
    return found if found and re.fullmatch("[0-9a-f]{64}", found) else None


def drawn_with(figure: Path) -> frozenset[str]:
    """Return the names of all figures that were drawn with the last one, its own among them; of others, nothing."""
    return frozenset((_text_of(figure, TOGETHER) or "").split())


def _text_of(figure: Path, key: str) -> str | None:
    """Return a text of a PNG file, None where it has none or is no PNG file."""
    with figure.open("rb") as file:
        head = file.read(4096)  # texts stand before the pixels
    begin = head.find(b"tEXt" + key.encode() + b"\0")
    if begin < 4:
        return None
    length = int.from_bytes(head[begin - 4 : begin], "big")  # of key and text
    return head[begin + 4 : begin + 4 + length].partition(b"\0")[2].decode("latin-1")


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
        f"{name}: was {making[name]}, now {value}"
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


@cache
def software_versions() -> dict[str, str]:
    """Return the versions that a file records."""
    versions = {
        "costar": VERSION,
        "h5py": h5py.version.version,
        "hdf5": h5py.version.hdf5_version,
        "numpy": np.__version__,
        "python": ".".join(str(part) for part in sys.version_info[:3]),
    }
    for name in NOT_IMPORTED:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return {name: version.replace(" ", "")[:40] for name, version in versions.items()}
