"""Errors and coverage by light, and what leaving out red answers gains (spec SCORE-20)."""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from costar_cli.evaluation.calibration import weights
from costar_cli.evaluation.metrics import known
from costar_cli.inference import LIGHTS, NOT_JUDGED, SupportRatings

LEVEL: Final = 0.9  # of the bands whose coverage is told
KINDS: Final = ("precision", "practice", "support")  # in the order in which they are shown

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


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
class LightSums:
    """Sums by kind of light, light and step `[4,3,H]`: answers, their weights, squared errors, and what bands cover.

    `horizon` is H.
    """

    horizon: int
    sums: dict[str, Floats] = field(default_factory=dict)

    def add(
        self,
        subject_Q: NDArray[np.integer],
        lights: SupportRatings,
        square_QHY: Floats,
        covered_QHY: Floats,
        counts_QHY: Bools,
        stay_QH: Floats | None = None,
    ) -> None:
        """Add answers, in place; all answers of a subject and step are added together.

        Args:
            subject_Q: whose they are; each has a weight of one at every step.
            lights: of the queries.
            square_QHY: squared errors, divided by each outcome's denominator.
            covered_QHY: 1 where the band covers the answer, 0 where it does not; not a number where there is no band.
            counts_QHY: which answers are scored and say something.
            stay_QH: weights against dropout, one by default.
        """
        practice_QHY = np.broadcast_to(lights.practice_QH[..., None], counts_QHY.shape)
        marks = dict(zip(KINDS, (lights.precision_QHY, practice_QHY, lights.light_QHY), strict=True))
        weight_QHY, _ = weights(subject_Q, counts_QHY, int(subject_Q.max(initial=-1)) + 1)
        weight_QHY = weight_QHY if stay_QH is None else weight_QHY * stay_QH[..., None]
        square_M, covered_M, weight_M = (values[counts_QHY] for values in (square_QHY, covered_QHY, weight_QHY))
        rows = (np.ones(len(weight_M)), weight_M, weight_M * square_M, weight_M * covered_M)
        step_M = np.broadcast_to(np.arange(counts_QHY.shape[1])[:, None], counts_QHY.shape)[counts_QHY]
        shape = len(LIGHTS), self.horizon
        for name, mark_QHY in marks.items():
            mark_M = mark_QHY[counts_QHY].astype(np.int64)
            judged_M = mark_M != NOT_JUDGED
            cell_J = (mark_M * self.horizon + step_M)[judged_M]
            found = [
                np.bincount(cell_J, weights=row[judged_M], minlength=shape[0] * shape[1]).reshape(shape) for row in rows
            ]
            self.sums[name] = self.sums.get(name, np.zeros((len(rows), *shape))) + np.asarray(found, dtype=np.float64)

    def summary(self, factor: float) -> dict[str, LightScores]:
        """Return what the sums say, in a unit of `factor` times the denominator's."""
        return {name: _scores(sums, factor=factor) for name, sums in self.sums.items()}


def _scores(sums: Floats, *, factor: float) -> LightScores:
    subjects_H = sums[1].sum(axis=0)
    weight_G, square_G, covered_G = (sums[1:] / np.maximum(subjects_H, 1)).sum(axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        rmse_G, coverage_G = factor * np.sqrt(square_G / weight_G), covered_G / weight_G
        share_G = weight_G / weight_G.sum()
        every, kept = (factor * float(np.sqrt(square_G[:n].sum() / weight_G[:n].sum())) for n in (3, 2))
    return LightScores(
        answers=int(sums[0].sum()),
        share=_named(share_G),
        rmse_by_light=_named(rmse_G),
        coverage=_named(coverage_G),
        rmse=known(every),
        rmse_without_red=known(kept),
    )


def _named(values_G: Floats) -> dict[str, float | None]:
    return {name: known(float(value)) for name, value in zip(LIGHTS, values_G, strict=True)}
