"""What both verbs of ICU data share: the options that say which stays they take, and reading a file's digest."""

from pathlib import Path
from typing import Annotated

import typer

from costar_cli.steps.dataset import read_inputs
from costar_cli.steps.session import Session

__all__ = [
    "PATIENTS",
    "FewShotOpt",
    "HoursOpt",
    "MinHoursOpt",
    "SourceAboveOpt",
    "SourceToOpt",
    "TargetAboveOpt",
    "TargetToOpt",
    "read_extract_digest",
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
        "--few-shot", help="Share of the target's training patients for few-shot training", rich_help_panel=PATIENTS
    ),
]
MinHoursOpt = Annotated[
    int | None,
    typer.Option("--min-hours", help="Minimum length of a stay; shorter ones are excluded", rich_help_panel=PATIENTS),
]
HoursOpt = Annotated[
    int | None, typer.Option("--hours", help="Hours kept from the start of each stay", rich_help_panel=PATIENTS)
]


def read_extract_digest(session: Session, path: Path) -> dict[str, str]:
    """Return the digest of a file of MIMIC-Extract by its role, and say that it is read.

    Raises:
        DataError: file not found.
        StorageError: it cannot be read.
    """
    return read_inputs(
        session, {"mimic_extract": path}, form="hdf5", expected="give MIMIC-Extract's all_hourly_data.h5"
    )
