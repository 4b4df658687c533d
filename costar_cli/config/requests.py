"""What models are asked, spelt once: the command line, the Python API and fingerprints read these fields.

Nothing heavy is imported, so that `--help` stays instant.
"""

from dataclasses import dataclass
from typing import Annotated

__all__ = ["Flag", "WhatIfRequest"]


@dataclass(frozen=True)
class Flag:
    """How the command line shows a field: its help, flags where they differ from its name, metavar and panel."""

    help: str
    names: tuple[str, ...] = ()
    metavar: str | None = None
    panel: str | None = None


@dataclass(frozen=True, kw_only=True)
class WhatIfRequest:
    """The options of a question about plans, whoever is asked about: `costar whatif` and the functions beside it."""

    average: Annotated[bool, Flag("Mean outcomes and effects over the cohort, intervals where known")] = False
    by: Annotated[
        str | None, Flag("Groups of averages: a static, or an outcome at the origin (`NAME:3`: in thirds)")
    ] = None
    origin: Annotated[
        str | int | None,
        Flag(
            "Last observed step, from 0, K steps before the last, or at a date (default: that of plans, or last)",
            metavar="last|N|all|-K|DATE",
        ),
    ] = None
    reference: Annotated[str | None, Flag("Plan to compare with (default: the first)")] = None
    levels: Annotated[
        tuple[float, ...],
        Flag("Share of new subjects that a band covers; may be given again (default: 0.9)", ("--level",)),
    ] = (0.9,)
    truth: Annotated[bool, Flag("Add the simulated truth and the errors")] = False
    unsupported: Annotated[bool, Flag("Also answer plans with treatments that no training subject received")] = False
    sensitivity: Annotated[bool, Flag("How strong a hidden confounder would change which plan is better")] = False
    abstain: Annotated[bool, Flag("Leave out the numbers of answers that the data do not support")] = False
    widen: Annotated[bool, Flag("Wider bands, for plans under another policy than the one that was followed")] = False
