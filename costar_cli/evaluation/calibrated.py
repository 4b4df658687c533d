"""What an evaluation says of a model's bands: at the reported levels, of the whole distribution, and by group."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

import numpy as np

from costar_cli.evaluation.calibration import Floats, share_over_subjects, shares
from costar_cli.evaluation.metrics import PerStep, Truth, average_over_steps, finite
from costar_cli.evaluation.sums import LEVELS, REPORTED, Sums, columns_of
from costar_cli.inference import SUPPORT_LEVELS

WINDOWS: Final = "windows"  # factual rolling-origin windows of test subjects, beside counterfactual query sets

Kind = Truth | Literal["windows"]  # of questions


@dataclass(frozen=True, slots=True)
class LevelScores:
    """Bands of one level: their coverage with a 95 % interval (None of few units), mean width and interval score.

    All are None where a band is infinite: too few calibration subjects for the level.
    """

    coverage: PerStep
    coverage_lower: PerStep
    coverage_upper: PerStep
    width: PerStep
    interval_score: PerStep


def of_bands(calibration: Mapping[str, LevelScores]) -> dict[str, LevelScores]:
    """Return scores by level with the coverage of bands alone, where files of older versions have one of none, too."""
    names = ("coverage", "coverage_lower", "coverage_upper")
    return {
        level: replace(scores, **{name: getattr(scores, name).where(scores.width) for name in names})
        for level, scores in calibration.items()
    }


@dataclass(frozen=True, slots=True)
class LightScores:
    """How answers of each light did, over all steps: shares, RMSE and coverage of the 90 % band; None where unknown.

    Answers that a light does not judge, as precision does not where a model says nothing of it, are not among them.
    `rmse` is that of all answers, `rmse_without_red` of those that are left when red ones are left out.
    """

    answers: int
    share: dict[str, float | None]
    rmse_by_light: dict[str, float | None]
    coverage: dict[str, float | None]
    rmse: float | None
    rmse_without_red: float | None


@dataclass(frozen=True, slots=True)
class GroupCoverage:
    """The answers of one group: subjects that have any, error of the prediction, coverage by level; None if unknown.

    `by` says what groups differ in; subjects count once (spec SCORE-14), and steps are averaged.
    """

    by: str
    group: str
    subjects: int
    rmse: float | None
    coverage: dict[str, float | None]


@dataclass(frozen=True, slots=True)
class BandDetails:
    """The whole distribution, averaged over steps where nothing else is said.

    `answers` counts informative answers per step, of `subjects` subjects; `reliability` is the coverage at every level
    of 0.05 to 0.95, None where there is no band; `pit` the shares of its 40 bins, none where any level has no band.
    `absorbed_answers` are those where the outcome has died out, over all steps, with their own coverage by level (None
    where there are none, or no band); `absorbed_share` is how many of all there are to such questions, scored or not
    (spec SCORE-19).
    """

    subjects: int
    answers: tuple[int, ...]
    crps: PerStep
    reliability: dict[str, float | None]
    pit: tuple[float, ...]
    absorbed_answers: int
    absorbed_share: float
    absorbed_coverage: dict[str, float | None]
    groups: tuple[GroupCoverage, ...] = ()
    lights: dict[str, LightScores] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Calibrated:
    """How the bands of one model did on some queries, by level (`"0.9"`) and in detail."""

    calibration: dict[str, LevelScores]
    details: BandDetails


def folder_of(kind: Kind, grouping: str | None = None) -> str:
    """Return where the sums of bands are, or those of the groups of a grouping."""
    return f"bands/scores/{kind}" + (f"/groups/{grouping.replace(' ', '_')}" if grouping else "")


def band_summary(
    sums: Sums, kind: Kind, *, factor: float, groups: Mapping[str, Sequence[str]], absorbed_share: Mapping[Kind, float]
) -> Calibrated | None:
    """Return what bands do on a kind of question, None without bands.

    Args:
        sums: the columns of a row.
        kind: of the questions.
        factor: of the report's unit, in the unit of the sums.
        groups: the labels of each grouping.
        absorbed_share: how many answers say nothing, scored or not, by kind of question.
    """
    own = columns_of(sums, folder_of(kind))
    if not own:
        return None
    subjects_H = own["mass"].sum(axis=0)

    def mean(values_NH: Floats) -> PerStep:
        with np.errstate(invalid="ignore"):
            mean_H = factor * values_NH.sum(axis=0) / subjects_H
        return PerStep.of(mean_H, float(average_over_steps(mean_H)))

    unit_N = own["cluster"] if "cluster" in own else np.arange(len(own["count"]))
    levels = {
        str(level): LevelScores(
            *share_over_subjects(own["coverage"][k], own["mass"], unit_N), mean(own["width"][k]), mean(own["score"][k])
        )
        for k, level in enumerate(REPORTED)
    }
    reliability_L, pit_B = (average_over_steps(shares(own[name], subjects_H)) for name in ("reliability", "pit"))
    # of answers that say little, each subject and step that has any counts once
    cells = int((own["absorbed"] > 0).sum())
    absorbed_K = shares(own["absorbed_coverage"].sum(axis=(1, 2)), max(cells, 1))
    details = BandDetails(
        subjects=int((own["count"] > 0).any(axis=1).sum()),
        answers=tuple(int(n) for n in own["count"].sum(axis=0)),
        crps=mean(own["crps"]),
        reliability={str(level): finite(share) for level, share in zip(LEVELS, reliability_L, strict=True)},
        pit=tuple(float(share) for share in pit_B if np.isfinite(share)),
        absorbed_answers=int(own["absorbed"].sum()),
        absorbed_share=absorbed_share[kind],
        absorbed_coverage={
            str(level): finite(s) if cells else None for level, s in zip(REPORTED, absorbed_K, strict=True)
        },
        groups=tuple(
            row
            for name, labels in groups.items()
            for row in _groups(name, labels, columns_of(sums, folder_of(kind, name)), factor)
        ),
        lights=rating_summary(sums, kind, factor),
    )
    return Calibrated(levels, details)


def _groups(by: str, labels: Sequence[str], sums: Sums, factor: float) -> list[GroupCoverage]:
    coverage_KG = average_over_steps(shares(sums["coverage"], sums["subjects"]))
    with np.errstate(invalid="ignore", divide="ignore"):
        rmse_G = factor * average_over_steps(np.sqrt(sums["squares"] / sums["subjects"]))
    return [
        GroupCoverage(
            by=by,
            group=label,
            subjects=round(float(sums["subjects"][g].max())),
            rmse=finite(rmse_G[g]),
            coverage={str(level): finite(coverage_KG[k, g]) for k, level in enumerate(REPORTED)},
        )
        for g, label in enumerate(labels)
    ]


def rating_summary(sums: Sums, kind: Kind, factor: float) -> dict[str, LightScores]:
    """Return errors and coverage by rating, all steps together, by kind of rating; `factor` is as in `band_summary`."""
    found = {}
    for name, column in columns_of(sums, f"bands/lights/{kind}/sums").items():
        subjects_H = column[1].sum(axis=0)
        weight_C, square_C, covered_C = (column[1:] / np.maximum(subjects_H, 1)).sum(axis=-1)
        with np.errstate(invalid="ignore", divide="ignore"):
            of_rating = weight_C / weight_C.sum(), factor * np.sqrt(square_C / weight_C), covered_C / weight_C
            every, kept = (factor * float(np.sqrt(square_C[:n].sum() / weight_C[:n].sum())) for n in (3, 2))
        share, rmse, coverage = (
            dict(zip(SUPPORT_LEVELS, map(finite, of_C.tolist()), strict=True)) for of_C in of_rating
        )
        found[name] = LightScores(int(column[0].sum()), share, rmse, coverage, finite(every), finite(kept))
    return found
