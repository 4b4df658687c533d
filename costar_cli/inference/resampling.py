"""Units of sampling drawn with replacement."""

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

FEWEST_UNITS: Final = 20  # below this neither intervals nor tests keep their level, however they are made
CHUNK_WEIGHTS: Final = 400_000  # weights held at once: 3 MB, and as much again per step

Floats = NDArray[np.float64]


def moved_means(sums_UK: Floats, counts_UK: Floats, *, replicates: int, seed: int) -> Floats:
    """Return how far means move where units are drawn with replacement `[B,K]`; nothing known is not a number.

    Args:
        sums_UK: each unit's sum of what is averaged.
        counts_UK: how many it has, in one column where all means have the same.
        replicates: how often units are drawn, B.
        seed: of it.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        mean_K = sums_UK.sum(axis=0) / counts_UK.sum(axis=0)
        chunks = weights(len(sums_UK), replicates, seed)
        return np.concatenate([(w_BU @ sums_UK) / (w_BU @ counts_UK) - mean_K for w_BU in chunks])


def weights(subjects: int, replicates: int, key: int | list[int]) -> Iterator[Floats]:
    """Yield multinomial weights `[b,N]`: how often each subject was drawn in N draws with replacement."""
    rng = np.random.default_rng(np.random.SeedSequence(key))
    chunk = max(1, CHUNK_WEIGHTS // subjects)
    for start in range(0, replicates, chunk):
        rows = min(chunk, replicates - start)
        drawn = rng.integers(subjects, size=(rows, subjects)) + subjects * np.arange(rows)[:, None]
        counted = np.bincount(drawn.ravel(), minlength=rows * subjects)
        yield counted.reshape(rows, subjects).astype(np.float64)
