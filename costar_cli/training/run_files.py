"""The files of run states: which stages have one, and forgetting them; what is fitted without torch has none."""

from pathlib import Path
from typing import Final

from costar_cli.errors import ArtifactError
from costar_cli.files import read_header
from costar_cli.methods.shared import processes

START_OVER: Final = "`--fresh`"  # a benchmark has another flag


def stage_checkpoint(path: Path, index: int) -> Path:
    """Return the file of the run state of a fit's stage."""
    return path if index == 0 else path.with_name(f"{path.stem}.{index}{path.suffix}")


def forget_runs(path: Path, *, unless: str | None = None) -> bool:
    """Remove the run states of all stages, and return whether there were any.

    Args:
        path: file of the first stage.
        unless: keep them if they are of the run with this fingerprint.
    """
    if processes.rank() or (unless is not None and _is_of_run(path, unless)):
        return False
    found = [file for file in (path, *path.parent.glob(f"{path.stem}.*{path.suffix}")) if file.exists()]
    for file in found:
        file.unlink(missing_ok=True)
    return bool(found)


def _is_of_run(path: Path, fingerprint: str) -> bool:
    try:
        return str(read_header(path).meta["fingerprint"]).partition("/")[0] == fingerprint
    except (ArtifactError, OSError):
        return False
