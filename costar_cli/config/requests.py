"""What models are asked: a field is a flag of the command line, and what answers depend on is in their fingerprints.

The Python API fills the same fields from arguments of its own, which its signatures spell.

Nothing heavy is imported, so that `--help` stays instant.
"""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Final

from costar_cli.config.choices import LearnerName, ProtocolName, RankingName

OBJECTIVE: Final = "Objective"
CONSTRAINTS: Final = "Constraints"
EXPERT: Final = "Expert settings"


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

    def __post_init__(self) -> None:
        """Keep each level once."""
        object.__setattr__(self, "levels", tuple(dict.fromkeys(self.levels)))

    @property
    def identity(self) -> dict[str, object]:
        """Return what answers depend on, of what is not the default: part of their fingerprint."""
        shown = ("average", "by", "sensitivity", "origin")  # the same answers, gathered or shown; moments say origins
        names = [field.name for field in fields(self) if field.name not in shown]
        return {name: value for name in names if (value := getattr(self, name)) != getattr(WhatIfRequest(), name)}


@dataclass(frozen=True, kw_only=True)
class EffectRequest:
    """The options of a question about effects on average: `costar effect` and `estimate_effects`."""

    estimator: Annotated[
        tuple[str, ...],
        Flag("sdr, tmle, gformula, ipw, or all; may be repeated (default: sdr, doubly robust)", ("--estimator", "-e")),
    ] = ("sdr",)
    outcome: Annotated[tuple[str, ...], Flag("Outcome or event; may be repeated (default: all)")] = ()
    measure: Annotated[
        tuple[str, ...],
        Flag("mean, difference, ratio; of events risk, risk-difference, risk-ratio, rmst; may be repeated"),
    ] = ()
    origin: Annotated[
        str | int | None,
        Flag("Step at which trials start, from 0, or a date (default: that of plans, or 0)", metavar="N|-K|DATE"),
    ] = None
    when: Annotated[
        str | None, Flag("Eligibility: a trial starts at every step at which this holds, such as 'sofa >= 6'")
    ] = None
    once: Annotated[bool, Flag("Only the first trial of each subject")] = False
    protocol: Annotated[
        ProtocolName, Flag("Follow plans to their end, or assign their first step and let usual treatment go on")
    ] = "per-protocol"
    grace: Annotated[int, Flag("Steps by which a plan's first treatment may start later")] = 0
    by: Annotated[str | None, Flag("Groups: a static, or an outcome at the origin (`NAME:3`: in thirds)")] = None
    reference: Annotated[str | None, Flag("Plan to compare with (default: the first)")] = None
    levels: Annotated[tuple[float, ...], Flag("Confidence level; may be given again (default: 0.9)", ("--level",))] = (
        0.9,
    )
    learner: Annotated[
        LearnerName,
        Flag("Regressions of outcomes, trees, both weighted by held-out errors (super-learner), or auto: the better"),
    ] = "auto"
    probability: Annotated[
        tuple[str, ...],
        Flag("TREATMENT=COLUMN: a covariate with the known probability of a randomised treatment; may be repeated"),
    ] = ()
    truncate: Annotated[float, Flag("Quantile at which weights are cut (1: never)", panel=EXPERT)] = 0.99
    folds: Annotated[int, Flag("Folds of subjects for cross-fitting", panel=EXPERT)] = 5
    seed: Annotated[int, Flag("Random seed of the folds", panel=EXPERT)] = 0
    unsupported: Annotated[bool, Flag("Also answer for plans that nobody follows to the end")] = False


@dataclass(frozen=True)
class ObjectiveWords:
    """What a plan is to make small or large, and what treatments cost, in words."""

    minimise: Annotated[
        tuple[str, ...],
        Flag(
            'What to make small: "OUTCOME at end", "at step N", "mean", "maximum" (Cmax), "minimum" (Cmin), "AUC", '
            '"time above X", "time below X" or "time in X to Y"; several are added up',
            ("--minimise", "--minimize"),
            panel=OBJECTIVE,
        ),
    ] = ()
    maximise: Annotated[
        tuple[str, ...], Flag("What to make large, likewise", ("--maximise", "--maximize"), panel=OBJECTIVE)
    ] = ()
    cost: Annotated[
        tuple[str, ...],
        Flag(
            'What each use of a treatment costs, in units of the objective: "TREATMENT 0.5"; may be repeated',
            panel=OBJECTIVE,
        ),
    ] = ()


@dataclass(frozen=True)
class SearchWords(ObjectiveWords):
    """An objective and constraints in words, such as `tumour_volume at end` and `chemotherapy 2`: what is searched.

    `only_from` and `reference` are plans as the caller has them: files, or what the Python API takes.
    """

    at_most: Annotated[tuple[str, ...], Flag('"TREATMENT 2": steps that may give it', panel=CONSTRAINTS)] = ()
    at_least: Annotated[tuple[str, ...], Flag('"TREATMENT 1": steps that must give it', panel=CONSTRAINTS)] = ()
    not_consecutive: Annotated[
        tuple[str, ...], Flag("Treatment never given at two steps in a row", panel=CONSTRAINTS)
    ] = ()
    not_with: Annotated[
        tuple[str, ...], Flag('"TREATMENT OTHER": never given at the same step', panel=CONSTRAINTS)
    ] = ()
    levels: Annotated[
        tuple[str, ...],
        Flag(
            "Doses to choose from (default: some over the range of the data)",
            metavar="'DOSE 0,5,10'",
            panel=CONSTRAINTS,
        ),
    ] = ()
    only_from: Annotated[Path | Any | None, Flag("File of the plans to choose from", panel=CONSTRAINTS)] = None
    steps: Annotated[int | None, Flag("Steps of the plans (default: the horizon)", panel=CONSTRAINTS)] = None
    beam: Annotated[
        int | None,
        Flag("Search with a beam this wide (default: exhaustively, up to a million plans)", panel=CONSTRAINTS),
    ] = None
    reference: Annotated[Path | Any | None, Flag("File of the plan to compare with (default: no treatment)")] = None
    by: Annotated[RankingName, Flag("What makes a plan best: its estimate, or a limit of its interval")] = "estimate"
    level: Annotated[float, Flag("Share of new subjects that an interval covers")] = 0.9
    unsupported: Annotated[bool, Flag("Also consider plans that the data do not support")] = False
