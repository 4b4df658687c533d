"""Bands for plans under another policy: held-out windows count by how unlikely their treatments were (spec BAND-8)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from costar_cli.inference.conformal import GRID, Binning
from costar_cli.inference.estimates import Estimates
from costar_cli.inference.floor import HeldOut
from costar_cli.inference.propensity import PropensityModel

CLIPPED: Final = 0.99  # quantile above which weights are cut: without, one subject outweighs all others within 6 steps
LEAST_EFFECTIVE: Final = 30  # subjects that the weights must leave
ARRAYS: Final = "calibration/plans_"

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, slots=True)
class PlanTable:
    """Quantiles for plans that give each combination of treatments as often, whatever the course.

    `radius_LHYB` is as that of a calibration and nowhere smaller; `effective_HYB` counts the subjects (or clusters)
    that the weights leave.
    """

    radius_LHYB: Floats
    effective_HYB: Floats

    def effective(self, estimates: Estimates, by: Binning) -> Floats:
        """Return how many subjects each estimate's quantiles rest on, `[Q,H,Y]`; `by` is that of the calibration."""
        _, steps, outcomes = estimates.mean_QHY.shape
        return self.effective_HYB[np.arange(steps)[:, None], np.arange(outcomes), estimates.bins(by)]

    def to_arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return the arrays that a model's artifact holds."""
        return {
            f"{ARRAYS}radius": self.radius_LHYB.astype(np.float32),
            f"{ARRAYS}effective": self.effective_HYB.astype(np.float32),
        }

    @classmethod
    def read(cls, arrays: Mapping[str, NDArray[np.generic]], cells: tuple[int, ...]) -> Self | None:
        """Read what `to_arrays` returned, for so many steps, outcomes and bins; None from files that have none.

        Raises:
            ValueError: it does not fit.
            KeyError: one of the two is missing.
        """
        if not any(name.startswith(ARRAYS) for name in arrays):
            return None
        radius, effective = (np.asarray(arrays[ARRAYS + name], dtype=np.float64) for name in ("radius", "effective"))
        check_quantiles(radius, cells)
        if effective.shape != cells or not (np.isfinite(effective) & (effective >= 0)).all():
            raise ValueError("effective numbers of subjects have another shape, are negative or not finite")
        return cls(radius, effective)


def check_quantiles(radius: Floats, cells: tuple[int, ...]) -> None:
    """See that quantiles are what they say.

    Raises:
        ValueError: they do not fit, or are none.
    """
    if radius.shape != (len(GRID), *cells):
        raise ValueError(f"quantiles are {list(radius.shape)} instead of {[len(GRID), *cells]}")
    if not (radius >= 0).all() or (radius[1:] < radius[:-1]).any():
        raise ValueError("quantiles are negative, not numbers or not in order")


def log_ratios(practice: PropensityModel, held: HeldOut) -> Floats:
    """Return the logarithm of the inverse probability of the treatments of each window up to each step, `[Q,H]`.

    The course is the observed one; a model's predictions stand for outcomes that were not.
    """
    windows = held.windows
    assert windows.queries.outcomes is not None  # noqa: S101 - rolling origins have answers
    course_QHY = np.where(windows.observed_QHY, windows.queries.outcomes, held.estimates.mean_QHY)
    return -practice.log_probability(windows.panel, windows.asked, course_QHY).cumsum(axis=1)


def weights_of(log_M: Floats) -> Floats:
    """Return weights with a mean of one, cut at their `CLIPPED` quantile."""
    if not len(log_M):
        return log_M
    cut_M = np.minimum(log_M, np.quantile(log_M, CLIPPED))  # before exp: all but the largest may be 0 beside that
    weight_M = np.exp(cut_M - cut_M.max())
    return np.asarray(weight_M / weight_M.mean())
