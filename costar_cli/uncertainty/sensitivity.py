"""How far hidden confounding could move estimates: bounds of the marginal sensitivity model (spec SENS-1 to 4).

`K` counts shares of the largest, or smallest, outcomes of a distribution.
"""

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from costar_cli.uncertainty.calibration import Calibration
from costar_cli.uncertainty.conformal import GRID
from costar_cli.uncertainty.estimates import Estimates

GAMMAS: Final = (1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0)
MOST: Final = 100.0  # largest Gamma at which a ranking is looked for that flips
SMALLEST: Final = 1e-60  # share of the outcomes that is still told apart
LEVELS: Final = np.concatenate([GRID[4:960:5], GRID[960:]])  # of the calibration, in steps of .005, then of .001
SHARES: Final = np.concatenate([np.geomspace(SMALLEST, 4e-4, 300), (1 - LEVELS[::-1]) / 2, [0.5]])
LAST: Final = 1.5  # the scale of the tail is that of the errors beyond the last limit that is finite, and half as many
HALVINGS: Final = 40

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, slots=True)
class Confounded:
    """Estimates of Q plans whose treatments may depend on something hidden.

    `likely_QH` is the probability that practice gives what the plan gives at each step. `top_KQHY` is what the largest
    outcomes, as many as `share_K` says (from 0 to at least a half), add to their mean `whole_QHY`, `bottom_KQHY` what
    the smallest do.
    """

    mean_QHY: Floats
    likely_QH: Floats
    share_K: Floats
    top_KQHY: Floats
    bottom_KQHY: Floats
    whole_QHY: Floats

    @classmethod
    def of(cls, estimates: Estimates, calibration: Calibration, likely_QH: Floats) -> Self:
        """Take the calibrated errors of a model for the distribution of outcomes under each plan (spec SENS-3).

        Beyond the largest limit that is known they have the tail of a normal distribution.
        """
        bands = calibration.bands(estimates, LEVELS.tolist(), clip=False)
        radius_KQHY = _with_tails((bands.upper_LQHY[::-1] - estimates.mean_QHY) / estimates.sd_QHY)
        away_KQHY, mean_QHY, clip = radius_KQHY * estimates.sd_QHY, estimates.mean_QHY, calibration.facts.clip
        top_KQHY = _partial(np.maximum(clip(mean_QHY + away_KQHY), mean_QHY))
        bottom_KQHY = _partial(np.minimum(clip(mean_QHY - away_KQHY), mean_QHY))
        share_K = np.append(0.0, SHARES)
        return cls(mean_QHY, likely_QH, share_K, top_KQHY, bottom_KQHY, top_KQHY[-1] + bottom_KQHY[-1])

    def bounds(self, gamma: float) -> tuple[Floats, Floats]:
        """Return the smallest and the largest mean `[Q,H,Y]` that a hidden confounder of this strength allows."""
        low_QH, high_QH = weight_bounds(self.likely_QH, gamma)
        spread_QH = high_QH - low_QH
        share_QH = np.divide(1 - low_QH, spread_QH, out=np.zeros_like(low_QH), where=spread_QH > 0)
        whole_QHY, low, high = self.whole_QHY, low_QH[..., None], high_QH[..., None]

        def tilted(sums_KQHY: Floats) -> Floats:
            extreme_QHY = _at_share(self.share_K, sums_KQHY, share_QH)
            return np.asarray(self.mean_QHY + high * extreme_QHY + low * (whole_QHY - extreme_QHY) - whole_QHY)

        return tilted(self.bottom_KQHY), tilted(self.top_KQHY)

    def difference_bounds(self, plan: int, reference: int, gamma: float) -> tuple[Floats, Floats]:
        """Return bounds `[H,Y]` of the difference of two plans, each as badly confounded as can be (spec SENS-4)."""
        lower_QHY, upper_QHY = self.bounds(gamma)
        return lower_QHY[plan] - upper_QHY[reference], upper_QHY[plan] - lower_QHY[reference]

    def flips_at(self, plan: int, reference: int, step: int, outcome: int) -> float | None:
        """Return the smallest Gamma at which either plan may have the larger outcome; None up to `largest_gamma`."""

        pair = self._part(np.array([plan, reference]), step + 1, outcome)

        def is_open(gamma: float) -> bool:
            lower_HY, upper_HY = pair.difference_bounds(0, 1, gamma)
            return bool(lower_HY[step, 0] <= 0 <= upper_HY[step, 0])

        most = largest_gamma(step + 1)
        low, high = 0.0, float(np.log(most))
        if not is_open(most):
            return None
        if is_open(1.0):
            return 1.0
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            low, high = (low, middle) if is_open(float(np.exp(middle))) else (middle, high)
        return float(np.exp(high))

    def _part(self, of_Q: NDArray[np.integer], steps: int, outcome: int) -> Self:
        """Return what is known of some plans, their first steps and one outcome."""
        own = (of_Q, slice(steps), slice(outcome, outcome + 1))
        top_KQHY, bottom_KQHY = self.top_KQHY[:, *own], self.bottom_KQHY[:, *own]
        likely_QH, whole_QHY = self.likely_QH[own[:2]], self.whole_QHY[own]
        return type(self)(self.mean_QHY[own], likely_QH, self.share_K, top_KQHY, bottom_KQHY, whole_QHY)


def weight_bounds(likely_QH: Floats, gamma: float) -> tuple[Floats, Floats]:
    """Return the smallest and the largest weight of an outcome after each step (spec SENS-2)."""
    low_QH, high_QH = (np.cumprod(likely_QH + (1 - likely_QH) * factor, axis=1) for factor in (1 / gamma, gamma))
    return np.asarray(low_QH), np.asarray(high_QH)


def largest_gamma(steps: int) -> float:
    """Return the largest Gamma that is looked at: 100, fewer where its weights after so many steps are too large."""
    return float(min(MOST, SMALLEST ** (-1 / steps)))


def _with_tails(radius_LQHY: Floats) -> Floats:
    """Return the multiple of the scale that each of `SHARES` lies beyond, from those at `LEVELS`, the largest first.

    Where these are infinite the tail is normal, with the largest scale that the last finite ones have.
    """
    beyond_K, known_K = -ndtri(SHARES)[:, None, None, None], slice(len(SHARES) - len(LEVELS) - 1, -1)
    share_L111, finite_LQHY = SHARES[known_K, None, None, None], np.isfinite(radius_LQHY)
    last_QHY = np.where(finite_LQHY, share_L111, np.inf).min(axis=0)
    near_LQHY = finite_LQHY & (share_L111 <= LAST * last_QHY)
    scale_QHY = np.where(near_LQHY, radius_LQHY / beyond_K[known_K], 0.0).max(axis=0)
    radius_KQHY = beyond_K * scale_QHY
    radius_KQHY[known_K] = np.where(finite_LQHY, radius_LQHY, radius_KQHY[known_K])
    return np.asarray(radius_KQHY)


def _partial(outcome_KQHY: Floats) -> Floats:
    """Return what the most extreme outcomes add to the mean, none of them first, by the trapezoid rule over shares."""
    width_K = np.diff(SHARES)[:, None, None, None]
    first, rest = SHARES[0] * outcome_KQHY[:1], width_K * (outcome_KQHY[1:] + outcome_KQHY[:-1]) / 2
    return np.concatenate([np.zeros_like(first), np.concatenate([first, rest]).cumsum(axis=0)])


def _at_share(share_K: Floats, sums_KQHY: Floats, share_QH: Floats) -> Floats:
    """Return the sum over the first share of the outcomes, between those that are known."""
    after_QH = np.clip(np.searchsorted(share_K, share_QH), 1, len(share_K) - 1)
    part_QH1 = ((share_QH - share_K[after_QH - 1]) / (share_K[after_QH] - share_K[after_QH - 1]))[..., None]
    first, second = (
        np.take_along_axis(sums_KQHY, row_QH[None, ..., None], axis=0)[0] for row_QH in (after_QH - 1, after_QH)
    )
    return np.asarray(first + part_QH1 * (second - first))
