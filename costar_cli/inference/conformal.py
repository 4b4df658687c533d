"""Split conformal quantiles of grouped scores, each subject with a total weight of one (spec BAND-3, 4 and 8).

`L` counts levels, `B` bins, `M` scores.
"""

from collections.abc import Mapping
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

GRID: Final = np.arange(1, 1000) / 1000  # levels whose quantiles are kept; others take the next larger one
Binning = Literal["share", "history"]
EDGES: Final = (0.5, 0.75, 0.9)  # between bins of the share of the variance that parameters have
LENGTHS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)  # between bins of the steps before the origin
BINS: Final[Mapping[Binning, int]] = {"share": len(EDGES) + 1, "history": len(LENGTHS) + 1}
LEAST_UNITS: Final = 40  # in a bin; bins with fewer are merged with their neighbours
HEAVIEST: Final = 0.1  # share of a bin's weight, with one more such unit, that a unit may have for 90 % bands to exist
ROUNDING: Final = 1e-9

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def bins_of(share_QHY: Floats) -> Ints:
    """Return the bin of each share."""
    return np.searchsorted(EDGES, share_QHY, side="right")


def bins_of_length(origin_Q: NDArray[np.integer]) -> Ints:
    """Return the bin of each history, the longest first: bins with few windows join shorter ones, which err more."""
    return len(LENGTHS) - np.searchsorted(LENGTHS, origin_Q, side="right")


def radii(score_M: Floats, unit_M: Ints, levels: Floats = GRID, weight_M: Floats | None = None) -> Floats:
    """Return for each level the score that a new unit's stays below with that probability, on average (spec BAND-3).

    Each unit's scores have a total weight of one, or their mean weight, and one more unit, which weighs as much as the
    heaviest, has an infinite score: the result is infinite where there are too few units for the level, or none that
    weighs anything.

    Args:
        score_M: errors in units of their scale; not a number counts as infinite.
        unit_M: whose each is.
        levels: in (0, 1).
        weight_M: how much each counts; the same by default.
    """
    own_U, share_M = _shares(unit_M, weight_M)
    score_M = np.where(np.isnan(score_M), np.inf, score_M)
    order = np.argsort(score_M, kind="stable")
    whole = own_U.sum() + own_U.max(initial=0.0)
    if not whole:
        return np.full(len(levels), np.inf)
    at_L = np.searchsorted(np.cumsum(share_M[order]), levels * whole - ROUNDING)
    found_L: Floats = np.append(score_M[order], np.inf)[at_L]
    return found_L


def effective(unit_M: Ints, weight_M: Floats | None = None) -> float:
    """Return how many units of equal weight say as much as these: their number, where weights are the same."""
    return _effective(_shares(unit_M, weight_M)[0])


def _effective(own_U: Floats) -> float:
    return float(own_U.sum() ** 2 / (own_U**2).sum()) if own_U.any() else 0.0


def merged(
    unit_M: Ints, bin_M: Ints, weight_M: Floats | None = None, *, bins: int = BINS["share"], least: int = LEAST_UNITS
) -> Ints:
    """Return the group of each bin: neighbours are merged, from the left, until each group has `least` units.

    What is left over at the right joins the last group. Units in several bins of a group count once, and all as
    `effective` counts them; none has more than `HEAVIEST` of the weight.
    """
    weight_M = np.ones(len(unit_M)) if weight_M is None else weight_M
    unit_M = np.unique(unit_M, return_inverse=True)[1]  # so that none of the groups below is sorted

    def suffices(mine_M: NDArray[np.bool_]) -> bool:
        own_U = _weights(unit_M[mine_M], _scaled(weight_M[mine_M]))
        heaviest = own_U.max(initial=0.0)
        return _effective(own_U) >= least and bool(heaviest <= HEAVIEST * (own_U.sum() + heaviest))

    groups, group, first = [], 0, 0
    for b in range(bins):
        groups.append(group)
        if suffices((first <= bin_M) & (bin_M <= b)):
            group, first = group + 1, b + 1
    group_B, last = np.array(groups), max(group - 1, 0)
    while last and not suffices(group_B[bin_M] >= last):  # what is left over may weigh much more than the others
        last -= 1
    return np.asarray(np.minimum(group_B, last))


def table(
    score_M: Floats, unit_M: Ints, bin_M: Ints, weight_M: Floats | None = None, *, bins: int = BINS["share"]
) -> tuple[Floats, Floats]:
    """Return quantiles `[L,B]` of the scores of each bin, or of the bins that it is merged with, and units `[B]`.

    Units are counted as `effective` counts them.
    """
    weight_M = np.ones(len(score_M)) if weight_M is None else weight_M
    group_B = merged(unit_M, bin_M, weight_M, bins=bins)
    radius_LB, count_B = np.empty((len(GRID), bins)), np.empty(bins)
    for group in np.unique(group_B):
        mine_M = group_B[bin_M] == group
        radius_LB[:, group_B == group] = radii(score_M[mine_M], unit_M[mine_M], GRID, weight_M[mine_M])[:, None]
        count_B[group_B == group] = effective(unit_M[mine_M], weight_M[mine_M])
    return radius_LB, count_B


def _shares(unit_M: Ints, weight_M: Floats | None) -> tuple[Floats, Floats]:
    """Return the weight of each unit, the mean of its scores' weights, and what each score has of it."""
    weight_M = None if weight_M is None else _scaled(weight_M)
    _, row_M, count_U = np.unique(unit_M, return_inverse=True, return_counts=True)
    share_M = (1.0 if weight_M is None else weight_M) / count_U[row_M]
    return _weights(row_M, weight_M), np.asarray(share_M)


def _weights(row_M: Ints, weight_M: Floats | None) -> Floats:
    """Return the mean weight of each unit that has scores; units are numbered from 0."""
    count_U = np.bincount(row_M)
    there_U = count_U > 0
    return np.asarray(np.bincount(row_M, weight_M)[there_U] / count_U[there_U])


def _scaled(weight_M: Floats) -> Floats:
    """Return weights scaled so that the largest is between 1 and 2: those of a bin may all be tiny."""
    return np.asarray(np.ldexp(weight_M, 1 - np.frexp(weight_M.max(initial=0.0))[1]))  # exact
