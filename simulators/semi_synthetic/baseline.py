"""What treatment cannot change: untreated outcomes, and what covariates add to the treatment logits (spec ICU-6)."""

from dataclasses import dataclass, fields
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from simulators.icu import COVARIATES
from simulators.semi_synthetic.draws import PatientSeeds, draw_path_normals, draw_trend_classes
from simulators.semi_synthetic.fourier import CovariateFunctions
from simulators.semi_synthetic.mechanism import OUTCOMES, TREATMENTS
from simulators.semi_synthetic.trend import gaussian_paths, matern_covariance, trend_classes

__all__ = ["TREND_HOURS", "Baseline", "simulate_baseline", "systematic_outcomes"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

TREND_HOURS: Final = 100  # hours that the trend spans: the longest series after the loader's cropping


@dataclass(frozen=True, slots=True)
class Baseline:
    """N patients over T hours: all that a simulation needs besides the treatments.

    `untreated [N,T,2]` is Z, the outcomes had nothing ever been given. `logit [N,T,3]` is the part of the treatment
    logits that does not depend on outcomes: bias + covariate_weight f(X). `length [N]` counts observed hours; hours
    beyond hold zeros.
    """

    untreated: Floats
    logit: Floats
    length: Ints

    def __len__(self) -> int:
        return int(self.length.shape[0])

    @property
    def n_steps(self) -> int:
        """Return T."""
        return int(self.untreated.shape[1])

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_] | slice) -> Self:
        """Return the given patients, in that order."""
        return type(self)(*(getattr(self, field.name)[rows] for field in fields(self)))


def simulate_baseline(
    functions: CovariateFunctions,
    seeds: PatientSeeds,
    covariates: NDArray[np.floating],
    length: NDArray[np.integer],
    *,
    trend_hours: int = TREND_HOURS,
) -> Baseline:
    """Simulate what treatment cannot change.

    Each patient draws a trend class and a path per outcome from child seeds of its own.

    Args:
        functions: the data set's functions of covariates.
        seeds: the data set's seed and the patients' identifiers `[N]`.
        covariates: standardised covariates `[N,T,25]` in the order of `COVARIATES`; hours beyond `length` are not read.
        length: observed hours `[N]`, 1 to T.
        trend_hours: span of the trends. The reference takes the longest series of each subset, which is this one for
            all but tiny cohorts; a constant keeps patients independent of each other.

    Raises:
        ValueError: arrays that disagree, covariates that are not finite, or series longer than T or `trend_hours`.
    """
    length_N = np.asarray(length, dtype=np.int64)
    n = len(seeds)
    if covariates.ndim != 3 or covariates.shape[0] != n or covariates.shape[2] != len(COVARIATES):
        raise ValueError(f"covariates have shape {covariates.shape}, expected ({n}, hours, {len(COVARIATES)})")
    n_hours = int(covariates.shape[1])
    if length_N.shape != (n,) or (n and not 1 <= length_N.min() <= length_N.max() <= n_hours):
        raise ValueError(f"lengths must be {n} numbers of hours from 1 to {n_hours}")
    if n and length_N.max() > trend_hours:
        raise ValueError(f"a series of {length_N.max()} hours is longer than the trends of {trend_hours} hours")
    active_NT = np.arange(n_hours) < length_N[:, None]
    x_MX, hour_M = covariates[active_NT], np.nonzero(active_NT)[1]
    if not np.isfinite(x_MX).all():
        raise ValueError("covariates must be imputed and finite in all observed hours")
    trend_CT = trend_classes(trend_hours)
    class_N2 = draw_trend_classes(seeds)
    normal_NT2 = draw_path_normals(seeds, length_N, int(length_N.max(initial=0)))
    untreated = np.zeros((n, n_hours, len(OUTCOMES)))
    for j, outcome in enumerate(OUTCOMES):
        covariance_TT = matern_covariance(trend_hours, length_hours=outcome.path_hours, noise=outcome.path_noise)
        path_M = gaussian_paths(normal_NT2[:, :, j], covariance_TT)[active_NT[:, : normal_NT2.shape[1]]]
        trend_M = trend_CT[class_N2[:, j].repeat(length_N), hour_M]
        untreated[active_NT, j] = (
            outcome.covariate_weight * functions.outcomes[j](x_MX)
            + outcome.path_weight * path_M
            + outcome.trend_weight * trend_M
        )
    logit = np.zeros((n, n_hours, len(TREATMENTS)))
    for k, treatment in enumerate(TREATMENTS):
        logit[active_NT, k] = treatment.bias + treatment.covariate_weight * functions.treatments[k](x_MX)
    return Baseline(untreated, logit, length_N)


def systematic_outcomes(
    functions: CovariateFunctions,
    seeds: PatientSeeds,
    covariates: NDArray[np.floating],
    length: NDArray[np.integer],
    *,
    trend_hours: int = TREND_HOURS,
) -> Floats:
    """Return the untreated outcomes `[N,T,2]` of `simulate_baseline` without the patients' own paths (spec ICU-6)."""
    active_NT = np.arange(covariates.shape[1]) < np.asarray(length, dtype=np.int64)[:, None]
    (row_M, hour_M), x_MX = np.nonzero(active_NT), covariates[active_NT]
    trend_CT, class_N2 = trend_classes(trend_hours), draw_trend_classes(seeds)
    systematic = np.zeros((*covariates.shape[:2], len(OUTCOMES)))
    for j, outcome in enumerate(OUTCOMES):
        trend_M = trend_CT[class_N2[row_M, j], hour_M]
        from_covariates_M = outcome.covariate_weight * functions.outcomes[j](x_MX)
        systematic[active_NT, j] = from_covariates_M + outcome.trend_weight * trend_M
    return systematic
