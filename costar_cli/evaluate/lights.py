"""Errors and coverage by light, and what leaving out red answers gains (spec SCORE-20)."""

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from costar_cli.evaluate.metrics import known
from costar_cli.uncertainty import LIGHTS, Lights

LEVEL: Final = 0.9  # of the bands whose coverage is told

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class LightScores:
    """How answers of each light did, over all steps: shares, RMSE and coverage of the 90 % band; None where unknown.

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
    """Sums by kind of light over answers: their number, squared errors, and how many the band covers, `[3]` each."""

    sums: dict[str, Floats]

    def add(self, lights: Lights, square_QHY: Floats, covered_QHY: Bools, counts_QHY: Bools) -> None:
        """Add answers, in place.

        Args:
            lights: of the queries.
            square_QHY: squared errors, divided by each outcome's denominator.
            covered_QHY: whether the band covers the answer.
            counts_QHY: which answers are scored and say something.
        """
        practice_QHY = np.broadcast_to(lights.practice_QH[..., None], counts_QHY.shape)
        marks = {"precision": lights.precision_QHY, "practice": practice_QHY, "support": lights.light_QHY}
        values = np.stack([np.ones(counts_QHY.sum()), square_QHY[counts_QHY], covered_QHY[counts_QHY]])
        for name, mark_QHY in marks.items():
            by_light = [np.bincount(mark_QHY[counts_QHY], weights=row, minlength=len(LIGHTS)) for row in values]
            self.sums[name] = self.sums.get(name, np.zeros((3, len(LIGHTS)))) + np.asarray(by_light, dtype=np.float64)

    def summary(self, factor: float) -> dict[str, LightScores]:
        """Return what the sums say, in a unit of `factor` times the denominator's."""
        return {name: _scores(*sums, factor=factor) for name, sums in self.sums.items()}

    @classmethod
    def empty(cls) -> Self:
        """Return sums to which nothing was added yet."""
        return cls({})


def _scores(count_G: Floats, square_G: Floats, covered_G: Floats, *, factor: float) -> LightScores:
    with np.errstate(invalid="ignore", divide="ignore"):
        rmse_G, coverage_G = factor * np.sqrt(square_G / count_G), covered_G / count_G
        share_G = count_G / count_G.sum()
        every, kept = (factor * float(np.sqrt(square_G[:n].sum() / count_G[:n].sum())) for n in (3, 2))
    return LightScores(
        answers=int(count_G.sum()),
        share=_named(share_G),
        rmse_by_light=_named(rmse_G),
        coverage=_named(coverage_G),
        rmse=known(every),
        rmse_without_red=known(kept),
    )


def _named(values_G: Floats) -> dict[str, float | None]:
    return {name: known(float(value)) for name, value in zip(LIGHTS, values_G, strict=True)}
