"""What both verbs of ICU data share: the options that say which stays they take, and reading a file's digest."""

import hashlib
from pathlib import Path
from typing import Annotated

import typer

from costar_cli.commands.session import Session
from costar_cli.errors import DataError, StorageError

__all__ = [
    "PATIENTS",
    "FewShotOpt",
    "HoursOpt",
    "MinHoursOpt",
    "SourceAboveOpt",
    "SourceToOpt",
    "TargetAboveOpt",
    "TargetToOpt",
    "read_digest",
]

PATIENTS = "Patients"

SourceAboveOpt = Annotated[
    float | None,
    typer.Option("--source-above", help="Source patients are older than this, in years", rich_help_panel=PATIENTS),
]
SourceToOpt = Annotated[
    float | None, typer.Option("--source-to", help="Source patients are at most this old", rich_help_panel=PATIENTS)
]
TargetAboveOpt = Annotated[
    float | None, typer.Option("--target-above", help="Target patients are older than this", rich_help_panel=PATIENTS)
]
TargetToOpt = Annotated[
    float | None, typer.Option("--target-to", help="Target patients are at most this old", rich_help_panel=PATIENTS)
]
FewShotOpt = Annotated[
    float | None,
    typer.Option(
        "--few-shot", help="Share of the target's training patients to fine-tune on", rich_help_panel=PATIENTS
    ),
]
MinHoursOpt = Annotated[
    int | None, typer.Option("--min-hours", help="Shorter stays are left out", rich_help_panel=PATIENTS)
]
HoursOpt = Annotated[
    int | None, typer.Option("--hours", help="Hours kept of each stay, the first ones", rich_help_panel=PATIENTS)
]


def read_digest(session: Session, path: Path) -> dict[str, str]:
    """Return the digest of a file of MIMIC-Extract by its role, and say that it is read.

    Raises:
        DataError: there is no such file.
        StorageError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except (FileNotFoundError, IsADirectoryError):
        fix = "give MIMIC-Extract's all_hourly_data.h5"
        raise DataError("there is no such file", where=str(path), fix=fix) from None
    except OSError as error:
        raise StorageError(f"the file cannot be read: {error.strerror or error}", where=str(path)) from error
    session.out.read("mimic_extract", path, digest, "hdf5")
    return {"mimic_extract": digest}
