"""Where figures come from: the machine and what else it did, the commit of the working tree, the versions."""

import os
import platform
import subprocess
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import numpy as np
import psutil
import torch

__all__ = ["ROOT", "commit", "is_busy", "load_before_and_after", "machine", "machine_slug", "versions"]

ROOT = Path(__file__).resolve().parent.parent
MARGIN: Final = 0.25  # of load: what starting and timing the work needs beside its threads
MEASURED: Final = ("costar_cli", "simulators", "benchmarks", ":!benchmarks/results")  # what figures depend on
PACKAGES: Final = ("costar", "torch", "numpy", "scipy", "h5py", "polars")


def machine() -> dict[str, Any]:
    """Describe where the figures come from."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "gpu": gpu,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "threads": torch.get_num_threads(),
    }


def machine_slug(described: Mapping[str, Any]) -> str:
    """Return a name for files: `amd-epyc-2-cores`, with the GPU where there is one."""
    text = f"{described['cpu']} {described['cores']} cores {described['gpu'] or ''}".lower()
    return "-".join("".join(c if c.isalnum() else " " for c in text).split())


def versions() -> dict[str, str]:
    """Return the versions that figures may depend on; a package that is not installed is left out."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def load_before_and_after(document: Mapping[str, Any]) -> tuple[float | None, float]:
    """Return the load average of a stored document over the minute before it began and before it ended.

    Documents of earlier versions know only the end.
    """
    load = document.get("load", {})
    return load.get("before"), load.get("after", document["load_average"][0])


def is_busy(document: Mapping[str, Any]) -> bool:
    """Return whether more ran on the machine than the benchmark's own threads: its times are upper bounds then."""
    before, after = load_before_and_after(document)
    return max(before or 0.0, after) > float(document["machine"]["threads"]) + MARGIN


def commit() -> str:
    """Return the commit, with a plus sign when there are changes on top; nothing outside a repository.

    Results do not count: those of the benchmarks that ran before do not change what is measured.
    """

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", *MEASURED)
        return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")
    except OSError:
        return ""


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
