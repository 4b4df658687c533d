"""How far hidden confounding could move estimates: bounds of the marginal sensitivity model (spec SENS-1 to 4).

`K` counts shares of the largest, or smallest, outcomes of a distribution, `S` draws of the course under a plan.
"""

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from costar_cli.data import Panel, Queries
from costar_cli.inference.calibration import Calibration
from costar_cli.inference.conformal import GRID, ROUNDING
from costar_cli.inference.estimates import Estimates
from costar_cli.inference.propensity import PropensityModel
from costar_cli.methods.base import FittedModel

GAMMAS: Final = (1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0)
MOST: Final = 100.0  # largest Gamma at which a ranking is looked for that flips
SMALLEST: Final = 1e-60  # share of the outcomes that is still told apart
LEVELS: Final = np.concatenate([GRID[4:960:5], GRID[960:]])  # of the calibration, in steps of .005, then of .001
SHARES: Final = np.concatenate([np.geomspace(SMALLEST, 4e-4, 300), (1 - LEVELS[::-1]) / 2, [0.5]])
LAST: Final = 1.5  # the scale of the tail is that of the errors beyond the last limit that is finite, and half as many
HALVINGS: Final = 40
COURSES: Final = 200  # along which practice is asked how likely the plan's treatments are

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, slots=True)
class Confounded:
    """Estimates of Q plans whose treatments may depend on something hidden.

    `likely_SQH` is the probability that practice gives what the plan gives at each step, along draws of the course.
    `top_KQHY` is what the largest outcomes, as many as `share_K` says (from 0 to a half), add to their mean
    `whole_QHY`, `bottom_KQHY` what the smallest do.
    """

    mean_QHY: Floats
    likely_SQH: Floats
    share_K: Floats
    top_KQHY: Floats
    bottom_KQHY: Floats
    whole_QHY: Floats

    @classmethod
    def of(cls, estimates: Estimates, tails: "Tails", likely_SQH: Floats) -> Self:
        """Take the calibrated errors of a model for the distribution of outcomes under each plan (spec SENS-3)."""
        top_KQHY, bottom_KQHY = _partial(tails.top_KQHY), _partial(tails.bottom_KQHY)
        share_K, whole_QHY = np.append(0.0, SHARES), top_KQHY[-1] + bottom_KQHY[-1]
        return cls(estimates.mean_QHY, likely_SQH, share_K, top_KQHY, bottom_KQHY, whole_QHY)

    @classmethod
    def along(
        cls,
        model: FittedModel,
        panel: Panel,
        queries: Queries,
        estimates: Estimates,
        calibration: Calibration,
        practice: PropensityModel,
    ) -> Self:
        """Ask practice about each plan along draws of its course (spec SENS-2)."""
        binary_Y = np.array([outcome.kind == "binary" for outcome in model.schema.outcomes])
        tails = Tails.of(estimates, calibration, binary_Y)
        course_SQHY = tails.courses()
        count = len(course_SQHY)
        each = queries.take(np.tile(np.arange(len(queries)), count))
        log_MH = practice.log_probability(panel, each, course_SQHY.reshape(-1, *course_SQHY.shape[2:]))
        return cls.of(estimates, tails, np.exp(log_MH).reshape(count, len(queries), -1))

    def bounds(self, gamma: float) -> tuple[Floats, Floats]:
        """Return the smallest and the largest mean `[Q,H,Y]` that a hidden confounder of this strength allows.

        The largest weights are given to the most extreme outcomes on one side, and the smallest to those on the other,
        whatever courses these end.
        """
        low_SQH, high_SQH = (np.sort(weights, axis=0) for weights in weight_bounds(self.likely_SQH, gamma))
        far_KQH = np.minimum(_largest(high_SQH, self.share_K), 1 - _smallest(low_SQH, 1 - self.share_K))
        near_KQH = np.maximum(_smallest(low_SQH, self.share_K), 1 - _largest(high_SQH, 1 - self.share_K))
        # the weight per outcome in each cell of shares, on the side that counts most and on the other
        width_K = np.diff(self.share_K)[:, None, None, None]
        far_KQH1, near_KQH1 = (np.diff(mass_KQH, axis=0)[..., None] / width_K for mass_KQH in (far_KQH, near_KQH))
        top_KQHY, bottom_KQHY = (np.diff(sums_KQHY, axis=0) for sums_KQHY in (self.top_KQHY, self.bottom_KQHY))
        lower_QHY = (far_KQH1 * bottom_KQHY + near_KQH1 * top_KQHY).sum(axis=0) - self.whole_QHY
        upper_QHY = (far_KQH1 * top_KQHY + near_KQH1 * bottom_KQHY).sum(axis=0) - self.whole_QHY
        return self.mean_QHY + np.minimum(lower_QHY, 0.0), self.mean_QHY + np.maximum(upper_QHY, 0.0)

    def difference_bounds(self, plan: int, reference: int, gamma: float) -> tuple[Floats, Floats]:
        """Return bounds `[H,Y]` of the difference of two plans, each as badly confounded as can be (spec SENS-4)."""
        lower_QHY, upper_QHY = self.bounds(gamma)
        return lower_QHY[plan] - upper_QHY[reference], upper_QHY[plan] - lower_QHY[reference]

    def flips_at(self, plan: int, reference: int, step: int, outcome: int) -> float | None:
        """Return the smallest Gamma at which either plan may have the larger outcome; None up to `largest_gamma`."""
        own = (np.array([plan, reference]), slice(step + 1), slice(outcome, outcome + 1))
        top_KQHY, bottom_KQHY = self.top_KQHY[:, *own], self.bottom_KQHY[:, *own]
        likely_SQH, whole_QHY = self.likely_SQH[:, *own[:2]], self.whole_QHY[own]
        pair = type(self)(self.mean_QHY[own], likely_SQH, self.share_K, top_KQHY, bottom_KQHY, whole_QHY)

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


@dataclass(frozen=True, eq=False, slots=True)
class Tails:
    """The outcomes beyond which shares `SHARES` of a distribution lie, on either side."""

    top_KQHY: Floats
    bottom_KQHY: Floats

    @classmethod
    def of(cls, estimates: Estimates, calibration: Calibration, binary_Y: NDArray[np.bool_]) -> Self:
        """Return those of a model's calibrated errors, and of outcomes that are 0 or 1 those of their probability.

        Beyond the largest limit that is known errors have the tail of a normal distribution, with the largest scale
        that the last finite ones have.
        """
        bands = calibration.bands(estimates, LEVELS.tolist(), clip=False)
        radius_LQHY = (bands.upper_LQHY[::-1] - estimates.mean_QHY) / estimates.sd_QHY  # the largest limit first
        beyond_K, known_K = -ndtri(SHARES)[:, None, None, None], slice(len(SHARES) - len(LEVELS) - 1, -1)
        share_L111, finite_LQHY = SHARES[known_K, None, None, None], np.isfinite(radius_LQHY)
        last_QHY = np.where(finite_LQHY, share_L111, np.inf).min(axis=0)
        near_LQHY = finite_LQHY & (share_L111 <= LAST * last_QHY)
        radius_KQHY = beyond_K * np.where(near_LQHY, radius_LQHY / beyond_K[known_K], 0.0).max(axis=0)
        radius_KQHY[known_K] = np.where(finite_LQHY, radius_LQHY, radius_KQHY[known_K])
        away_KQHY, mean_QHY, clip = radius_KQHY * estimates.sd_QHY, estimates.mean_QHY, calibration.facts.clip
        top_KQHY = np.maximum(clip(mean_QHY + away_KQHY), mean_QHY)
        bottom_KQHY = np.minimum(clip(mean_QHY - away_KQHY), mean_QHY)
        share_K111 = SHARES[:, None, None, None]
        top_KQHY = np.where(binary_Y, share_K111 <= mean_QHY, top_KQHY)
        return cls(top_KQHY, np.where(binary_Y, share_K111 > 1 - mean_QHY, bottom_KQHY))

    def courses(self, n: int = COURSES, seed: int = 0) -> Floats:
        """Return n courses `[S,Q,H,Y]` that keep their place among all others over the steps, drawn by outcome.

        Where a higher outcome makes the planned treatment more likely at every step, or less likely at every step, no
        other dependence of steps on each other makes the products of SENS-2 differ more between courses.
        """
        share_S = (np.arange(n) + 0.5) / n
        at_S = np.searchsorted(SHARES, np.minimum(share_S, 1 - share_S) - ROUNDING)
        course_SQHY = np.where((share_S < 0.5)[:, None, None, None], self.top_KQHY[at_S], self.bottom_KQHY[at_S])
        rng = np.random.default_rng(seed)
        for o in range(1, course_SQHY.shape[-1]):
            course_SQHY[..., o] = course_SQHY[rng.permutation(n), ..., o]
        return course_SQHY


def weight_bounds(likely: Floats, gamma: float) -> tuple[Floats, Floats]:
    """Return the smallest and the largest weight `[...,H]` of an outcome after each step (spec SENS-2)."""
    low, high = (np.cumprod(likely + (1 - likely) * factor, axis=-1) for factor in (1 / gamma, gamma))
    return np.asarray(low), np.asarray(high)


def largest_gamma(steps: int) -> float:
    """Return the largest Gamma that is looked at: 100, fewer where its weights after so many steps are too large."""
    return float(min(MOST, SMALLEST ** (-1 / steps)))


def _partial(outcome_KQHY: Floats) -> Floats:
    """Return what the most extreme outcomes add to the mean, none of them first, by the trapezoid rule over shares."""
    width_K = np.diff(SHARES)[:, None, None, None]
    first, rest = SHARES[0] * outcome_KQHY[:1], width_K * (outcome_KQHY[1:] + outcome_KQHY[:-1]) / 2
    return np.concatenate([np.zeros_like(first), np.concatenate([first, rest]).cumsum(axis=0)])


def _smallest(sorted_SQH: Floats, share_K: Floats) -> Floats:
    """Return what the smallest weights, as many as each share says, come to `[K,Q,H]`, all having a mass of one."""
    count = len(sorted_SQH)
    sums_SQH = np.concatenate([np.zeros_like(sorted_SQH[:1]), sorted_SQH.cumsum(axis=0)]) / count
    before_K = np.minimum((share_K * count).astype(np.int64), count - 1)
    part_K11 = (share_K * count - before_K)[:, None, None]
    return np.asarray(sums_SQH[before_K] + part_K11 * sorted_SQH[before_K] / count)


def _largest(sorted_SQH: Floats, share_K: Floats) -> Floats:
    """Return the same of the largest."""
    return _smallest(sorted_SQH[::-1], share_K)
