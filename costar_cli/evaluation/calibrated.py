"""What an evaluation says of a model's bands: at the reported levels, of the whole distribution, and by group."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, Self

import numpy as np

from costar_cli.evaluation.calibration import (
    LEVELS,
    REPORTED,
    BandScores,
    Floats,
    GroupScores,
    share_over_subjects,
    shares,
)
from costar_cli.evaluation.lights import LightScores, LightSums
from costar_cli.evaluation.metrics import PerStep, average_over_steps, known

WINDOWS: Final = "windows"  # factual rolling-origin windows of test subjects, beside counterfactual query sets

Told = Literal["counterfactual", "factual"]
Asked = Told | Literal["windows"]


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

    @property
    def of_bands(self) -> "LevelScores":
        """Return the scores with the coverage of bands alone, of which files of older versions tell where none is."""
        names = ("coverage", "coverage_lower", "coverage_upper")
        return replace(self, **{name: getattr(self, name).where(self.width) for name in names})


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

    @classmethod
    def of(
        cls,
        sums: BandScores,
        *,
        factor: float,
        groups: Mapping[str, Sequence[str]],
        absorbed_share: float,
        lights: Mapping[str, LightScores],
    ) -> Self:
        """Return what sums over subjects say, in the report's unit; `groups` names the groups of each grouping."""
        subjects_H = sums.mass.sum(axis=0)

        def mean(values_NH: Floats) -> PerStep:
            with np.errstate(invalid="ignore"):
                mean_H = factor * values_NH.sum(axis=0) / subjects_H
            return PerStep.of(mean_H, float(average_over_steps(mean_H)))

        levels = {}
        for k, level in enumerate(REPORTED):
            share = share_over_subjects(sums.coverage[k], sums.mass, sums.units)
            levels[str(level)] = LevelScores(
                coverage=PerStep.of(share.steps, share.average),
                coverage_lower=PerStep.of(share.lower, share.bounds[0]),
                coverage_upper=PerStep.of(share.upper, share.bounds[1]),
                width=mean(sums.width[k]),
                interval_score=mean(sums.score[k]),
            )
        reliability_L, pit_B = (average_over_steps(shares(of, subjects_H)) for of in (sums.reliability, sums.pit))
        details = BandDetails(
            subjects=int((sums.count > 0).any(axis=1).sum()),
            answers=tuple(int(n) for n in sums.count.sum(axis=0)),
            crps=mean(sums.crps),
            reliability={str(level): known(share) for level, share in zip(LEVELS, reliability_L, strict=True)},
            pit=tuple(float(share) for share in pit_B if np.isfinite(share)),
            absorbed_answers=int(sums.absorbed.sum()),
            absorbed_share=absorbed_share,
            lights=dict(lights),
            absorbed_coverage=_absorbed(sums),
            groups=tuple(
                row for name, labels in groups.items() for row in _groups(name, labels, sums.groups[name], factor)
            ),
        )
        return cls(levels, details)


def _absorbed(sums: BandScores) -> dict[str, float | None]:
    """Return the coverage of answers that say little, each subject and step that has any counting once."""
    cells = int((sums.absorbed > 0).sum())
    covered_K = shares(sums.absorbed_coverage.sum(axis=(1, 2)), max(cells, 1))
    return {str(level): known(s) if cells else None for level, s in zip(REPORTED, covered_K, strict=True)}


def _groups(by: str, labels: Sequence[str], sums: GroupScores, factor: float) -> list[GroupCoverage]:
    coverage_KG = average_over_steps(shares(sums.coverage, sums.subjects))
    with np.errstate(invalid="ignore", divide="ignore"):
        rmse_G = factor * average_over_steps(np.sqrt(sums.squares / sums.subjects))
    return [
        GroupCoverage(
            by=by,
            group=label,
            subjects=round(float(sums.subjects[g].max())),
            rmse=known(rmse_G[g]),
            coverage={str(level): known(coverage_KG[k, g]) for k, level in enumerate(REPORTED)},
        )
        for g, label in enumerate(labels)
    ]


@dataclass(frozen=True, eq=False, slots=True)
class BandSums:
    """Sums, by kind of question, of how the bands and lights of one model did on a test part.

    A model without a calibration has no bands, one that knows nothing of practice no lights. `absorbed_share` is that
    of answers that say nothing, scored or not; `labels` names the groups of each grouping.
    """

    scores: Mapping[Asked, BandScores]
    lights: Mapping[Asked, LightSums]
    absorbed_share: Mapping[Asked, float]
    labels: Mapping[str, Sequence[str]]

    def light_scores(self, truth: Told, factor: float) -> dict[Told, dict[str, LightScores]]:
        """Return errors by light, of a kind of question and of windows; `factor` is as in `summary`."""
        kinds: dict[Told, Asked] = {truth: truth, "factual": WINDOWS if WINDOWS in self.lights else "factual"}
        return {kind: self.lights[asked].summary(factor) for kind, asked in kinds.items() if asked in self.lights}

    def summary(self, asked: Asked, factor: float) -> Calibrated | None:
        """Return what bands, if any, do on a kind of question, in a unit of `factor` times the denominator's."""
        if asked not in self.scores:
            return None
        lights = self.lights[asked].summary(factor) if asked in self.lights else {}
        share = self.absorbed_share[asked]
        return Calibrated.of(self.scores[asked], factor=factor, groups=self.labels, absorbed_share=share, lights=lights)
