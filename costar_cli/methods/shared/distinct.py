"""What queries share: a history, or a plan."""

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Plans

Indices = NDArray[np.int64]


def runs(*columns_Q: NDArray[np.generic]) -> tuple[Indices, Indices]:
    """Return where each run of equal rows begins, and the run that each row belongs to."""
    starts = np.zeros(len(columns_Q[0]), dtype=bool)
    starts[:1] = True
    for column in columns_Q:
        starts[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(starts), np.cumsum(starts) - 1


def distinct_plans(plan_QHA: Plans) -> tuple[Indices, Indices]:
    """Return one index of each distinct plan, and which of these each query has."""
    return distinct_rows(rows_as_bytes(plan_QHA))


def rows_as_bytes(*arrays_Q: NDArray[np.generic]) -> NDArray[np.uint8]:
    """Return rows of arrays beside each other as bytes, `[Q,B]`."""
    rows = [np.ascontiguousarray(array).reshape(len(array), -1).view(np.uint8) for array in arrays_Q]
    return np.concatenate(rows, axis=1)


def distinct_rows(rows_QB: NDArray[np.uint8]) -> tuple[Indices, Indices]:
    """Return one index of each distinct row of bytes, and which of these each row equals."""
    n_rows, width = rows_QB.shape
    words_QW = np.zeros((n_rows, -(-width // 8)), dtype=np.uint64)
    words_QW.view(np.uint8)[:, :width] = rows_QB
    odd_W = np.random.default_rng(0).integers(2**63, size=words_QW.shape[1], dtype=np.uint64) * 2 + 1
    _, first, inverse = np.unique(words_QW @ odd_W, return_index=True, return_inverse=True)
    if not np.array_equal(words_QW[first[inverse]], words_QW):  # two rows share a hash
        return np.arange(n_rows), np.arange(n_rows)
    return first, inverse
