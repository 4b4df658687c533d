"""Split conformal quantiles of grouped scores, each subject with a total weight of one (spec BAND-3 to 4).

`L` counts levels, `B` bins of the parameter share, `M` scores.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

GRID: Final = np.arange(1, 1000) / 1000  # levels whose quantiles are kept; others take the next larger one
EDGES: Final = (0.5, 0.75, 0.9)  # between bins of the share of the variance that parameters have
LEAST_UNITS: Final = 40  # in a bin; bins with fewer are merged with their neighbours
ROUNDING: Final = 1e-9

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def bins_of(share_QHY: Floats) -> Ints:
    """Return the bin of each share."""
    return np.searchsorted(EDGES, share_QHY, side="right")


def radii(score_M: Floats, unit_M: Ints, levels: Floats = GRID) -> Floats:
    """Return for each level the score that a new unit's stays below with that probability, on average (spec BAND-3).

    Each unit's scores have a total weight of one, and one more unit has an infinite score: the result is infinite where
    there are too few units for the level.

    Args:
        score_M: errors in units of their scale; not a number counts as infinite.
        unit_M: whose each is.
        levels: in (0, 1).
    """
    _, row_M, count = np.unique(unit_M, return_inverse=True, return_counts=True)
    score_M = np.where(np.isnan(score_M), np.inf, score_M)
    order = np.argsort(score_M, kind="stable")
    passed_M = np.cumsum(1 / count[row_M[order]])
    at_L = np.searchsorted(passed_M, levels * (len(count) + 1) - ROUNDING)
    return np.append(score_M[order], np.inf)[at_L]


def merged(unit_M: Ints, bin_M: Ints, *, bins: int = len(EDGES) + 1, least: int = LEAST_UNITS) -> Ints:
    """Return the group of each bin: neighbours are merged, from the left, until each group has `least` units.

    What is left over at the right joins the last group. Units in several bins of a group count once.
    """
    groups, group, have = [], 0, set[int]()
    for b in range(bins):
        groups.append(group)
        have |= set(unit_M[bin_M == b].tolist())
        if len(have) >= least:
            group, have = group + 1, set()
    last = max(group - (len(have) < least), 0)
    return np.minimum(groups, last)


def table(score_M: Floats, unit_M: Ints, bin_M: Ints, *, bins: int = len(EDGES) + 1) -> tuple[Floats, Ints]:
    """Return quantiles `[L,B]` of the scores of each bin, or of the bins that it is merged with, and units `[B]`."""
    group_B = merged(unit_M, bin_M, bins=bins)
    radius_LB, count_B = np.empty((len(GRID), bins)), np.empty(bins, dtype=np.int64)
    for group in np.unique(group_B):
        mine_M = group_B[bin_M] == group
        radius_LB[:, group_B == group] = radii(score_M[mine_M], unit_M[mine_M])[:, None]
        count_B[group_B == group] = len(np.unique(unit_M[mine_M]))
    return radius_LB, count_B
