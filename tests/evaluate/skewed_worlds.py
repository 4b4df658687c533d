"""Errors of two methods that are equally good: skewed, clustered, of unequal units, as scored test subjects are."""

from collections.abc import Iterator

import numpy as np

from costar_cli.evaluation.metrics import SquaredErrors

STEPS = 3


def equally_good(units: int, rng: np.random.Generator, *, alike: bool, spread: float) -> list[SquaredErrors]:
    """Return the errors of two methods, of one expected RMSE: 1.

    A unit has one to eight subjects of four queries. Its size is log-normal, shared by both methods (a large tumour
    stays large); each method has its own luck with it.

    Args:
        units: number of clusters.
        rng: draws everything.
        alike: the methods can be exchanged; otherwise the second errs relatively more where errors are large.
        spread: sd of the logarithm of a unit's size.
    """
    count_NH = 4 * rng.integers(1, 9, size=(units, 1)).repeat(STEPS, axis=1)
    size_N1 = rng.normal(size=(units, 1))
    found = []
    for power in (spread, spread if alike else 1.15 * spread):
        luck_N1 = 2 * 0.3 * rng.normal(size=(units, 1))
        scale_N1 = np.exp(2 * power * size_N1 - 2 * power**2 + luck_N1 - 2 * 0.3**2)
        squares_NH = scale_N1 * rng.gamma(count_NH / 4, 4.0)  # as if a quarter of the queries were independent
        found.append(SquaredErrors(squares_NH[None, ..., None], squares_NH[..., None], count_NH))
    return found


def worlds(units: int, number: int, *, alike: bool, spread: float) -> Iterator[list[SquaredErrors]]:
    """Yield such pairs, the same on every run."""
    rng = np.random.default_rng([units, alike])
    for _ in range(number):
        yield equally_good(units, rng, alike=alike, spread=spread)
