"""Estimates of a plan, or of its difference from another, and the limits around them (spec BAND-5 and 7)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from costar_cli.uncertainty import TOO_FEW, Calibration, Estimates, range_of

__all__ = ["Band"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, slots=True)
class Band:
    """Estimates `[H,Y]` and the limits around them `[L,H,Y]`, a level after another; None where a model has none.

    Limits are not a number where the calibration subjects are too few for the level.
    """

    estimate: Floats
    lower: Floats | None = None
    upper: Floats | None = None

    @classmethod
    def around(
        cls, estimates: Estimates, calibration: Calibration | None, levels: Sequence[float], *, clip: bool = True
    ) -> Self:
        """Return the band of a single query; limits that are infinite on either side are none."""
        if calibration is None:
            return cls(estimates.mean_QHY[0])
        found = calibration.bands(estimates, levels, clip=clip)
        lower_LHY, upper_LHY = found.lower_LQHY[:, 0], found.upper_LQHY[:, 0]
        known_LHY = np.isfinite(lower_LHY) & np.isfinite(upper_LHY)
        lower_LHY, upper_LHY = (np.where(known_LHY, limit, np.nan) for limit in (lower_LHY, upper_LHY))
        return cls(estimates.mean_QHY[0], lower_LHY, upper_LHY)

    @classmethod
    def of_range(cls, mean_HY: Floats, members_RHY: Floats, levels: int) -> Self:
        """Return the band of the members' range, which has no level and is in the place of the first of so many."""
        none_LHY = np.full((levels - 1, *mean_HY.shape), np.nan)
        return cls(mean_HY, *(np.concatenate([x[None], none_LHY]) for x in range_of(members_RHY, mean_HY)))

    def without_limits(self, of_Y: NDArray[np.bool_]) -> Self:
        """Return the band without the limits of some outcomes."""
        if self.lower is None or self.upper is None:
            return self
        lower, upper = (np.where(of_Y, np.nan, limit) for limit in (self.lower, self.upper))
        return type(self)(self.estimate, lower, upper)

    def kind(self, kind: str, h: int, k: int) -> str:
        """Return what the limits of an answer are, by that of their model, or why it has none at any level."""
        if kind.startswith("none") or self.lower is None or np.isfinite(self.lower[:, h, k]).any():
            return kind
        return TOO_FEW
