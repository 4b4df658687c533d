"""Inverse probability weights of the observed treatments, and what describes them (spec MSM-3, RMSN-2, 3 and 5).

The weight of a step is the ratio of two likelihoods of the treatment that was given: with earlier treatments alone, and
with the whole history. Treatments count as independent binaries, also where exactly one of them is given. Regressions
weigh decisions with arrays; networks have `network_weights`.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

LARGEST = 100.0  # logarithm of a weight: beyond any use, and far from where squares of weights overflow
TRUNCATED = "truncated_share"  # what meta calls it

Floats = NDArray[np.float64]


def cumulative_weights(
    log_ratio_NT: Floats, subject_M: NDArray[np.integer], origin_M: NDArray[np.integer], step: int
) -> Floats:
    """Return the products `[M]` of the weights of steps origin to origin + step.

    Args:
        log_ratio_NT: logarithm of each decision's own weight, 0 where there is none.
        subject_M: rows.
        origin_M: first steps.
        step: how many steps follow the first.
    """
    total_NT = np.concatenate([np.zeros((len(log_ratio_NT), 1)), log_ratio_NT.cumsum(axis=1)], axis=1)
    log_M = total_NT[subject_M, origin_M + step + 1] - total_NT[subject_M, origin_M]
    return np.asarray(np.exp(log_M.clip(-LARGEST, LARGEST)))


def clip_to_quantiles(weight_M: Floats, share: float) -> Floats:
    """Return the weights with the lowest and highest `share` of them moved to the quantiles there."""
    if not len(weight_M) or share <= 0:
        return weight_M
    low, high = np.quantile(weight_M, [share, 1 - share])
    return weight_M.clip(low, high)


def truncated_share(raw_M: Floats, clipped_M: Floats) -> float:
    """Return by which share of their total clipping changed the weights, in [0, 1): little where all are near one."""
    return float(np.abs(raw_M - clipped_M).sum() / raw_M.sum())


def effective_share(weight_M: Floats) -> float:
    """Return the share of rows that equally weighted ones would need for the same precision, in (0, 1]."""
    return float(weight_M.sum() ** 2 / (weight_M**2).sum() / len(weight_M)) if len(weight_M) else 1.0


def describe_weights(raw_M: Floats, clipped_M: Floats) -> Mapping[str, float]:
    """Return what a reader needs to judge overlap: the mean and extremes before clipping, and the effective share."""
    return {
        "mean": float(raw_M.mean()),
        "smallest": float(raw_M.min()),
        "largest": float(raw_M.max()),
        "effective_share": effective_share(clipped_M),
    }
