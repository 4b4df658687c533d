"""Patient-clustered bootstrap: subjects are resampled, with all their queries, without scoring again.

Where subjects belong to larger units, such as the yearly series of one item, the units are resampled.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costar_cli.evaluate.metrics import SquaredErrors, average_over_steps

__all__ = [
    "FEWEST_UNITS",
    "INTERVAL_KIND",
    "Interval",
    "PairedDifference",
    "bootstrap_interval",
    "paired_difference",
    "paired_differences",
]

INTERVAL_KIND = "patient-clustered percentile bootstrap of the mean RMSE over members, given the trained members"

Floats = NDArray[np.float64]

_CHUNK_WEIGHTS = 4_000_000  # weights held at once: 32 MB
_FEWEST_REPLICATES = 20  # below this, percentiles mean nothing
FEWEST_UNITS = 20  # below this, resampled units vary too little: percentile intervals are too narrow


@dataclass(frozen=True, slots=True)
class Interval:
    """Bounds per step `[H]` and of the average over steps."""

    level: float
    lower: Floats
    upper: Floats
    average: tuple[float, float]


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """RMSE of one method minus that of another on the same queries, per step `[H]` and on average.

    `p_value` is the two-sided bootstrap p-value of the average difference.
    """

    steps: Floats
    average: float
    interval: Interval
    p_value: float


def bootstrap_interval(errors: SquaredErrors, *, level: float, replicates: int, seed: int) -> Interval | None:
    """Return the interval of the mean RMSE over members, or None where it would mean nothing.

    The same seed and number of subjects give the same resamples, whatever the method: intervals are comparable.
    None: fewer than two subjects with scored steps, or too few replicates (0 switches the bootstrap off).
    """
    return _interval(_replicates([errors], replicates=replicates, seed=seed)[0], level=level)


def paired_difference(
    first: SquaredErrors, second: SquaredErrors, *, level: float, replicates: int, seed: int
) -> PairedDifference | None:
    """Return the difference `first - second` with both resampled alike, or None where no interval can be had.

    Raises:
        ValueError: the two were not scored on the same queries of the same subjects.
    """
    return paired_differences([(first, second)], level=level, replicates=replicates, seed=seed)


def paired_differences(
    pairs: Sequence[tuple[SquaredErrors, SquaredErrors]], *, level: float, replicates: int, seed: int
) -> PairedDifference | None:
    """Return the mean over data sets of the difference `first - second`; subjects are resampled within each data set.

    Raises:
        ValueError: a pair was not scored on the same queries of the same subjects.
    """
    steps, replicated = [], []
    for index, (first, second) in enumerate(pairs):
        if not np.array_equal(first.count, second.count):
            raise ValueError("the two methods were not scored on the same queries")
        first_BH, second_BH = _replicates([first, second], replicates=replicates, seed=seed, index=index)
        replicated.append(first_BH - second_BH)
        steps.append(first.rmse().mean(axis=0) - second.rmse().mean(axis=0))
    difference_BH = np.mean(replicated, axis=0)
    interval = _interval(difference_BH, level=level)
    if interval is None:
        return None
    mean_H: Floats = np.mean(steps, axis=0)
    return PairedDifference(
        steps=mean_H,
        average=float(average_over_steps(mean_H)),
        interval=interval,
        p_value=_two_sided(average_over_steps(difference_BH)),
    )


def _two_sided(differences_B: Floats) -> float:
    """Return how often a resampled difference falls on the rarer side of zero, twice."""
    finite = differences_B[np.isfinite(differences_B)]
    tail = 1 + min(int((finite <= 0).sum()), int((finite >= 0).sum()))
    return min(1.0, 2 * tail / (1 + len(finite)))


def _interval(replicates_BH: Floats, *, level: float) -> Interval | None:
    """Return percentile bounds; replicates in which a step lost all its queries are left out of that step."""
    values_BK = np.column_stack([replicates_BH, average_over_steps(replicates_BH)])
    bounds_K = [_percentiles(column, level) for column in values_BK.T]
    if all(np.isnan(lower) for lower, _ in bounds_K):
        return None
    lower, upper = (np.array(bound) for bound in zip(*bounds_K, strict=True))
    return Interval(level=level, lower=lower[:-1], upper=upper[:-1], average=(float(lower[-1]), float(upper[-1])))


def _percentiles(values_B: Floats, level: float) -> tuple[float, float]:
    finite = values_B[np.isfinite(values_B)]
    if len(finite) < _FEWEST_REPLICATES:
        return np.nan, np.nan
    lower, upper = np.quantile(finite, [(1 - level) / 2, (1 + level) / 2])
    return float(lower), float(upper)


def _replicates(many: list[SquaredErrors], *, replicates: int, seed: int, index: int = 0) -> list[Floats]:
    """Return the mean RMSE over members `[B,H]` of each method under the same resamples of subjects.

    Data sets of another `index` are resampled independently of this one.
    """
    many = [errors.by_cluster() for errors in many]
    used = np.flatnonzero(many[0].count.any(axis=1))
    results: list[Floats] = [np.full((replicates, errors.horizon), np.nan) for errors in many]
    if len(used) < 2:
        return results
    sums = [errors.members[:, used].sum(axis=-1) for errors in many]
    count_NH = many[0].count[used].astype(np.float64)
    start = 0
    for weights_BN in _weights(len(used), replicates, [seed, len(used), *[index] * (index > 0)]):
        stop = start + len(weights_BN)
        counts_BH = weights_BN @ count_NH
        for result, sums_RNH in zip(results, sums, strict=True):
            sums_RBH = weights_BN @ sums_RNH
            empty = np.full_like(sums_RBH, np.nan)
            mean_RBH = np.divide(sums_RBH, counts_BH, out=empty, where=np.broadcast_to(counts_BH > 0, empty.shape))
            result[start:stop] = np.sqrt(mean_RBH).mean(axis=0)
        start = stop
    return results


def _weights(subjects: int, replicates: int, key: int | list[int]) -> Iterator[Floats]:
    """Yield multinomial weights `[b,N]`: how often each subject was drawn in N draws with replacement."""
    rng = np.random.default_rng(np.random.SeedSequence(key))
    chunk = max(1, _CHUNK_WEIGHTS // subjects)
    for start in range(0, replicates, chunk):
        rows = min(chunk, replicates - start)
        drawn = rng.integers(subjects, size=(rows, subjects)) + subjects * np.arange(rows)[:, None]
        counted = np.bincount(drawn.ravel(), minlength=rows * subjects)
        yield counted.reshape(rows, subjects).astype(np.float64)
