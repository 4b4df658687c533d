"""Studentised bootstrap of whole test subjects, with all their queries, without scoring again (spec SCORE-7).

Where subjects belong to larger units, such as the yearly series of one item, the units are resampled. A few of them
carry most of an RMSE, so that percentiles of resampled RMSEs are too narrow. What is resampled here is the distance
from the estimate in standard errors, and its absolute value decides both the interval and the p-value (Hall 1988,
"On symmetric bootstrap confidence intervals"); how often that errs is in docs/benchmark-tables.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from costar_cli.evaluation.metrics import AVERAGED_STEPS, PerStep, SquaredErrors, average_over_steps
from costar_cli.inference.resampling import FEWEST_UNITS, weights

INTERVAL_KIND = (
    "symmetric studentised bootstrap of the logarithm of the mean RMSE over members, over test subjects or their "
    "clusters; excludes training variability"
)

Floats = NDArray[np.float64]

ENOUGH_UNITS = 100  # from here on no caution is said
# In how many percent of cases equal methods were called different at 5 %, by units (docs/benchmark-tables.md).
_CALLED_DIFFERENT = {FEWEST_UNITS: 12, 50: 10}
_FEWEST_REPLICATES = 20  # below this, quantiles mean nothing
_ROUNDING = 1e-9  # of the RMSEs that are compared: what is smaller is rounding


@dataclass(frozen=True, slots=True)
class Interval:
    """Bounds per step `[H]` and of the average over steps; infinite where a few units carry everything."""

    level: float
    lower: Floats
    upper: Floats
    average: tuple[float, float]


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """RMSE of one method minus that of another on the same queries, per step `[H]` and on average.

    `p_value` tests the average difference against zero, two-sided; it is at most one minus the interval's level exactly
    where the interval of the average leaves out zero.
    """

    steps: Floats
    average: float
    interval: Interval
    p_value: float


def too_few_units(many: Sequence[SquaredErrors]) -> str | None:
    """Return in words why nothing can be said about other subjects, or None where there are enough units.

    The data set with the fewest units decides: units are resampled within each.
    """
    fewest = min(many, key=lambda errors: errors.units)
    if fewest.units >= FEWEST_UNITS:
        return None
    return f"{_in_words(fewest)}, {FEWEST_UNITS} are needed"


def caution_about_units(many: Sequence[SquaredErrors]) -> str | None:
    """Return in words how far intervals and tests can be trusted, or None where there are none or units enough.

    The data set with the fewest units decides.
    """
    fewest = min(many, key=lambda errors: errors.units)
    if not FEWEST_UNITS <= fewest.units < ENOUGH_UNITS:
        return None
    percent = next(share for units, share in reversed(_CALLED_DIFFERENT.items()) if units <= fewest.units)
    often = f"such tests find false differences in up to {percent} % of cases instead of 5 %"
    return f"only {_in_words(fewest)}: {often}"


def _in_words(errors: SquaredErrors) -> str:
    kind = "subject" if errors.cluster is None else "cluster"
    return f"{errors.units} {kind}{'s' * (errors.units != 1)}"


def bootstrap_interval(errors: SquaredErrors, *, level: float, replicates: int, seed: int) -> Interval | None:
    """Return the interval of the mean RMSE over members, or None where it would mean nothing.

    The same seed and number of subjects give the same resamples, whatever the method: intervals are comparable.
    None: too few units with scored steps (`too_few_units`), or too few replicates (0 switches the bootstrap off).
    """
    if too_few_units([errors]) or replicates < _FEWEST_REPLICATES:
        return None
    resampled = _resample([(errors, 1)], replicates=replicates, seed=seed).logarithm()
    width_K = resampled.half_width(level)
    return _interval(np.exp(resampled.value_K - width_K), np.exp(resampled.value_K + width_K), level)


def standard_error(errors: SquaredErrors, factor: float) -> PerStep | None:
    """Return the standard error of the mean RMSE over members, `factor` times in the unit of errors (spec LIMIT-8).

    It is over test subjects, or their clusters, which are units of sampling; None of fewer than two with scored steps.
    """
    if errors.units < 2:
        return None
    errors = errors.by_cluster()
    used = errors.count.any(axis=1)
    sums_RNH, divisor_NH = errors.members[:, used].sum(axis=-1), errors.divisor[used]
    _, error_1K = _estimate([(sums_RNH, divisor_NH, 1)], np.ones((1, len(divisor_NH))))
    error_K = factor * error_1K[0]
    return PerStep.of(error_K[:-1], float(error_K[-1]))


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

    None: a data set has too few units (`too_few_units`), or there are too few replicates.

    Raises:
        ValueError: a pair was not scored on the same queries of the same subjects.
    """
    if not all(np.array_equal(first.count, second.count) for first, second in pairs):
        raise ValueError("the two methods were not scored on the same queries")
    if too_few_units([first for first, _ in pairs]) or replicates < _FEWEST_REPLICATES:
        return None
    resampled = _Resampled.mean_of(
        [
            _resample([(first, 1), (second, -1)], replicates=replicates, seed=seed, index=index)
            for index, (first, second) in enumerate(pairs)
        ]
    )
    value_K, width_K = resampled.value_K, resampled.half_width(level)
    return PairedDifference(
        steps=value_K[:-1],
        average=float(value_K[-1]),
        interval=_interval(value_K - width_K, value_K + width_K, level),
        p_value=resampled.p_value(),
    )


@dataclass(frozen=True, slots=True)
class _Resampled:
    """An estimate `[K]` and its replicates `[B,K]` with their standard errors; the last of K = H + 1 is the average.

    Differences of at most `rounding_K` are none.
    """

    value_K: Floats
    error_K: Floats
    value_BK: Floats
    error_BK: Floats
    rounding_K: Floats

    @classmethod
    def mean_of(cls, parts: Sequence[Self]) -> Self:
        """Return the mean of independent estimates."""
        return cls(
            value_K=np.mean([part.value_K for part in parts], axis=0),
            error_K=np.sqrt(np.sum([part.error_K**2 for part in parts], axis=0)) / len(parts),
            value_BK=np.mean([part.value_BK for part in parts], axis=0),
            error_BK=np.sqrt(np.sum([part.error_BK**2 for part in parts], axis=0)) / len(parts),
            rounding_K=np.mean([part.rounding_K for part in parts], axis=0),
        )

    def logarithm(self) -> "_Resampled":
        """Return the logarithm of positive estimates; that of zero is minus infinity, without error."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return _Resampled(
                value_K=np.log(self.value_K),
                error_K=np.where(self.value_K == 0, 0.0, self.error_K / self.value_K),
                value_BK=np.log(self.value_BK),
                error_BK=np.where(self.value_BK == 0, 0.0, self.error_BK / self.value_BK),
                rounding_K=np.full_like(self.rounding_K, _ROUNDING),
            )

    def half_width(self, level: float) -> Floats:
        """Return how far the interval reaches to either side `[K]`, NaN where too few replicates have the step."""
        with np.errstate(invalid="ignore"):
            distances_BK = self._distance(np.abs(self.value_BK - self.value_K), self.error_BK)
        half_K = np.zeros(len(self.error_K))
        for k, error in enumerate(self.error_K):
            # the distance that a p-value of one minus the level belongs to is an order statistic
            known = np.sort(distances_BK[~np.isnan(distances_BK[:, k]), k])
            rank = int(np.ceil(level * (len(known) + 1) - 1e-9))
            if error != 0 and len(known) < _FEWEST_REPLICATES:
                half_K[k] = np.nan
            elif error != 0:
                half_K[k] = error * (known[rank - 1] if rank <= len(known) else np.inf)
        return half_K

    def p_value(self) -> float:
        """Return how often a replicate's average lies at least as far from the estimate's as that from zero.

        Distances are in standard errors, each in its own. The estimate itself counts as a replicate.
        """
        with np.errstate(invalid="ignore"):
            replicated = self._distance(np.abs(self.value_BK - self.value_K), self.error_BK)[:, -1]
        found = self._distance(np.abs(self.value_K), self.error_K)[-1]
        known = replicated[~np.isnan(replicated)]
        return float((1 + (known >= found).sum()) / (1 + len(known)))

    def _distance(self, apart: Floats, error: Floats) -> Floats:
        """Return differences in standard errors; one without an error is infinitely far, none is no distance."""
        apart = np.where(apart <= self.rounding_K, 0.0, apart)
        distance = np.divide(apart, error, out=np.full(apart.shape, np.inf), where=error != 0)
        return np.where(apart == 0, 0.0, np.where(np.isnan(apart), np.nan, distance))


def _interval(lower_K: Floats, upper_K: Floats, level: float) -> Interval:
    average = (float(lower_K[-1]), float(upper_K[-1]))
    return Interval(level=level, lower=lower_K[:-1], upper=upper_K[:-1], average=average)


def _resample(signed: Sequence[tuple[SquaredErrors, int]], *, replicates: int, seed: int, index: int = 0) -> _Resampled:
    """Return the signed sum of the methods' mean RMSEs over members under the same resamples of units.

    Data sets of another `index` are resampled independently of this one.
    """
    signed = [(errors.by_cluster(), sign) for errors, sign in signed]
    used = np.flatnonzero(signed[0][0].count.any(axis=1))
    parts = [(errors.members[:, used].sum(axis=-1), errors.divisor[used], sign) for errors, sign in signed]
    value_1K, error_1K = _estimate(parts, np.ones((1, len(used))))
    chunks = weights(len(used), replicates, [seed, len(used), *[index] * (index > 0)])
    values, errors_of = zip(*(_estimate(parts, weights_BN) for weights_BN in chunks), strict=True)
    return _Resampled(
        value_K=value_1K[0],
        error_K=error_1K[0],
        value_BK=np.concatenate(values),
        error_BK=np.concatenate(errors_of),
        rounding_K=np.full(value_1K.shape[1], _ROUNDING * np.nanmax([_scale(*part[:2]) for part in parts])),
    )


def _scale(sums_RNH: Floats, count_NH: Floats) -> float:
    return float(np.sqrt(sums_RNH.sum() / (len(sums_RNH) * max(count_NH.sum(), 1.0))))


def _estimate(parts: Sequence[tuple[Floats, Floats, int]], weights_BN: Floats) -> tuple[Floats, Floats]:
    """Return estimates and standard errors `[B,K]` of units weighted like this.

    The standard error is that of the mean of the units' influences: how fast the estimate moves with a unit's weight.
    """
    shape = len(weights_BN), parts[0][1].shape[1]
    total_BH, influence_HBN = np.zeros(shape), np.zeros((*shape[::-1], weights_BN.shape[1]))
    for sums_RNH, count_NH, sign in parts:
        counts_BH = weights_BN @ count_NH
        sums_RBH = weights_BN @ sums_RNH
        mean_RBH = np.divide(sums_RBH, counts_BH, out=np.full_like(sums_RBH, np.nan), where=counts_BH > 0)
        rmse_RBH = np.sqrt(mean_RBH)
        # what one more of each unit would add to the mean over members
        steep = 2 * len(sums_RNH) * counts_BH * rmse_RBH
        slope_RBH = np.divide(1.0, steep, out=np.where(np.isnan(steep), np.nan, 0.0), where=steep > 0)
        own_HBN = slope_RBH.transpose(2, 1, 0) @ sums_RNH.transpose(2, 0, 1)
        mean_HB1 = (slope_RBH * mean_RBH).sum(axis=0).T[..., None]
        total_BH += sign * rmse_RBH.mean(axis=0)
        influence_HBN += sign * (own_HBN - mean_HB1 * count_NH.T[:, None])
    value_BK = np.column_stack([total_BH, average_over_steps(total_BH)])
    influence_KBN = np.concatenate([influence_HBN, influence_HBN[:AVERAGED_STEPS].mean(axis=0)[None]])
    squares_BK = (influence_KBN**2 * weights_BN).sum(axis=-1).T
    error_BK = np.sqrt(squares_BK)
    largest = max(_scale(sums, count) for sums, count, _ in parts)
    return value_BK, np.where(error_BK <= _ROUNDING * largest, 0.0, error_BK)
