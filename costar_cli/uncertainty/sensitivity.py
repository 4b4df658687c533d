"""How far hidden confounding could move estimates: bounds of the marginal sensitivity model (spec SENS-1 to 4).

`K` counts equally likely outcomes of a distribution.
"""

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from costar_cli.uncertainty.calibration import Calibration
from costar_cli.uncertainty.estimates import Estimates

GAMMAS: Final = (1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0)
MOST: Final = 100.0  # largest Gamma at which a ranking is looked for that flips
OUTCOMES: Final = 400  # that stand for a distribution
HALVINGS: Final = 40

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, slots=True)
class Confounded:
    """Estimates of Q plans whose treatments may depend on something hidden.

    `likely_QH` is the probability that practice gives what the plan gives at each step, `top_KQHY` the sum of the
    largest 0, 1, ... of the equally likely outcomes divided by their number, `bottom_KQHY` that of the smallest.
    """

    mean_QHY: Floats
    likely_QH: Floats
    top_KQHY: Floats
    bottom_KQHY: Floats

    @classmethod
    def of(cls, estimates: Estimates, calibration: Calibration, likely_QH: Floats) -> Self:
        """Take the calibrated errors of a model for the distribution of outcomes under each plan (spec SENS-3).

        Outcomes beyond the largest error that was seen often enough are taken to lie there.
        """
        levels = (2 * np.arange(OUTCOMES // 2) + 1) / OUTCOMES
        bands = calibration.bands(estimates, levels.tolist())
        lower, upper = (_last_finite(side) for side in (bands.lower_LQHY, bands.upper_LQHY))
        outcome_KQHY = np.concatenate([lower[::-1], upper])
        return cls(estimates.mean_QHY, likely_QH, _sums(outcome_KQHY[::-1]), _sums(outcome_KQHY))

    def bounds(self, gamma: float) -> tuple[Floats, Floats]:
        """Return the smallest and the largest mean `[Q,H,Y]` that a hidden confounder of this strength allows."""
        low_QH, high_QH = weight_bounds(self.likely_QH, gamma)
        spread_QH = high_QH - low_QH
        share_QH = np.divide(1 - low_QH, spread_QH, out=np.zeros_like(low_QH), where=spread_QH > 0)
        whole_QHY, low, high = self.top_KQHY[-1], low_QH[..., None], high_QH[..., None]

        def tilted(sums_KQHY: Floats) -> Floats:
            extreme_QHY = _at_share(sums_KQHY, share_QH)
            return np.asarray(self.mean_QHY + high * extreme_QHY + low * (whole_QHY - extreme_QHY) - whole_QHY)

        return tilted(self.bottom_KQHY), tilted(self.top_KQHY)

    def difference_bounds(self, plan: int, reference: int, gamma: float) -> tuple[Floats, Floats]:
        """Return bounds `[H,Y]` of the difference of two plans, each as badly confounded as can be (spec SENS-4)."""
        lower_QHY, upper_QHY = self.bounds(gamma)
        return lower_QHY[plan] - upper_QHY[reference], upper_QHY[plan] - lower_QHY[reference]

    def flips_at(self, plan: int, reference: int, step: int, outcome: int) -> float | None:
        """Return the smallest Gamma at which either plan may have the larger outcome; None up to 100."""

        def is_open(gamma: float) -> bool:
            lower_HY, upper_HY = self.difference_bounds(plan, reference, gamma)
            return bool(lower_HY[step, outcome] <= 0 <= upper_HY[step, outcome])

        low, high = 0.0, float(np.log(MOST))
        if not is_open(MOST):
            return None
        if is_open(1.0):
            return 1.0
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            low, high = (low, middle) if is_open(float(np.exp(middle))) else (middle, high)
        return float(np.exp(high))


def weight_bounds(likely_QH: Floats, gamma: float) -> tuple[Floats, Floats]:
    """Return the smallest and the largest weight of an outcome after each step (spec SENS-2)."""
    low_QH, high_QH = (np.cumprod(likely_QH + (1 - likely_QH) * factor, axis=1) for factor in (1 / gamma, gamma))
    return np.asarray(low_QH), np.asarray(high_QH)


def _sums(outcome_KQHY: Floats) -> Floats:
    """Return sums over the first 0, 1, ... of K outcomes, divided by K."""
    sums = outcome_KQHY.cumsum(axis=0) / len(outcome_KQHY)
    return np.concatenate([np.zeros_like(sums[:1]), sums])


def _at_share(sums_KQHY: Floats, share_QH: Floats) -> Floats:
    """Return the sum over the first share of the outcomes, of the one that the share ends in in proportion."""
    place_QHY = np.broadcast_to(share_QH[..., None] * (len(sums_KQHY) - 1), sums_KQHY.shape[1:])
    before = np.minimum(place_QHY.astype(np.int64), len(sums_KQHY) - 2)
    first, second = (np.take_along_axis(sums_KQHY, row[None], axis=0)[0] for row in (before, before + 1))
    return np.asarray(first + (place_QHY - before) * (second - first))


def _last_finite(side_LQHY: Floats) -> Floats:
    """Return limits in which those that are infinite are the last finite one before."""
    known = np.isfinite(side_LQHY)
    last = np.maximum.accumulate(np.where(known, np.arange(len(side_LQHY)).reshape(-1, 1, 1, 1), 0), axis=0)
    return np.take_along_axis(side_LQHY, last, axis=0)
