"""Spells: something begins in a week, lasts a number of weeks, and keeps its size meanwhile."""

import numpy as np
from numpy.typing import NDArray

from simulators.retail.chance import Floats, Ints

__all__ = ["spell_starts", "value_in_spell"]


def spell_starts(begins_ISW: NDArray[np.bool_], weeks_ISW: Ints) -> Ints:
    """Return the week in which the spell of each week began `[I,S,W]`, or -1 where there is none.

    Args:
        begins_ISW: where a spell begins, unless one is going on.
        weeks_ISW: how long a spell that begins in a week lasts, 1 or more.
    """
    start_ISW = np.full(begins_ISW.shape, -1)
    left_IS = np.zeros(begins_ISW.shape[:-1], dtype=np.int64)
    start_IS = start_ISW[..., 0].copy()
    for week in range(begins_ISW.shape[-1]):
        left_IS = np.maximum(left_IS - 1, 0)
        fresh_IS = begins_ISW[..., week] & (left_IS == 0)
        left_IS = np.where(fresh_IS, weeks_ISW[..., week], left_IS)
        start_IS = np.where(fresh_IS, week, start_IS)
        start_ISW[..., week] = np.where(left_IS > 0, start_IS, -1)
    return start_ISW


def value_in_spell(value_ISW: Floats, start_ISW: Ints, *, otherwise: float) -> Floats:
    """Return the value of the week in which a spell began, as long as it lasts, and `otherwise` outside."""
    at_start_ISW = np.take_along_axis(value_ISW, np.maximum(start_ISW, 0), axis=-1)
    return np.where(start_ISW >= 0, at_start_ISW, otherwise)
