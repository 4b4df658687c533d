"""Rates of ends per unit of time, where steps are of any length (spec SURV-9).

`E` counts ends, `P` columns of a regression, `K` those of them that are uncorrelated, `M` steps at risk.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, xlogy

from costar_cli.methods.shared.logistic import one_thread, whitening

ITERATIONS: Final = 100
ENOUGH: Final = 1e-9  # slope of the mean loss at which the fit is done
LEAST: Final = 1e-12  # expected ends in a step: an end may come in no time, which no rate divides by
ANCHOR_SD: Final = 2.0  # of the logit by which hazards of a few subjects may differ from those of others
ANCHOR_STEPS: Final = 25  # of Newton's method, of at most one logit each
MOST_LOG: Final = 30.0  # of a rate, so that it stays a number

Floats = NDArray[np.float64]


def fit_rates(
    columns_MP: Floats,
    ended_ME: NDArray[np.bool_],
    time_M: Floats,
    subject_M: NDArray[np.integer],
    *,
    ridges: Sequence[float],
) -> tuple[Floats, Floats]:
    """Return intercepts `[E]` and coefficients `[E,P]` of the logarithms of rates, which are constant within a step.

    Args:
        columns_MP: what is known of a step.
        ended_ME: which end came in it; its time is then that until the end.
        time_M: how long the step is, times the steps that it stands for.
        subject_M: whose steps they are.
        ridges: penalties, of which each end has the one that predicts the subjects of odd number best.
    """
    # Not a column of the regression: in the step in which somebody dies its length is the time until the death, which
    # tells that death comes. A complementary log-log is right where deaths are found at planned visits alone.
    with one_thread("blas"):
        mean_P, axes_PK = whitening(columns_MP)
        white_MK = (columns_MP - mean_P) @ axes_PK
        fits = [
            _best(white_MK, ended_M.astype(np.float64), time_M, subject_M % 2 == 0, ridges) for ended_M in ended_ME.T
        ]
    coef_EP = np.stack([axes_PK @ coef_K for _, coef_K in fits])
    return np.array([intercept for intercept, _ in fits]) - coef_EP @ mean_P, coef_EP


def ends_in(log_rate_QHE: Floats, time_QH: Floats) -> Floats:
    """Return the probability `[Q,H,E]` that each end comes within a time, of such rates side by side."""
    rate_QHE = np.exp(np.minimum(log_rate_QHE, MOST_LOG))
    total_QH1 = rate_QHE.sum(axis=-1, keepdims=True)
    share_QHE = np.divide(rate_QHE, total_QH1, out=np.zeros_like(rate_QHE), where=total_QH1 > 0)
    return np.asarray(share_QHE * -np.expm1(-total_QH1 * time_QH[..., None]))


def expected_ends(ends: Floats) -> Floats:
    """Return how many ends `[...,E]` rates expect in a time in which each comes with this probability."""
    any_end = ends.sum(axis=-1, keepdims=True)
    total = -np.log1p(-np.minimum(any_end, 1 - np.finfo(np.float64).eps))
    return np.asarray(ends * np.divide(total, any_end, out=np.ones_like(any_end), where=any_end > 0))


def loss_of_rates(rate_ME: Floats, time_M1: Floats, ended_ME: NDArray[np.bool_]) -> Floats:
    """Return minus the logarithm `[M]` of the likelihood of ends at their own times."""
    return np.asarray(
        (rate_ME * time_M1 - xlogy(ended_ME, np.maximum(rate_ME, np.finfo(np.float64).tiny))).sum(axis=-1)
    )


def _best(
    white_MK: Floats, ended_M: Floats, time_M: Floats, learnt_M: NDArray[np.bool_], ridges: Sequence[float]
) -> tuple[float, Floats]:
    """Return intercept and coefficients; a constant rate, as if half an end more had come, where none did."""
    if not ended_M.any():
        return float(np.log(0.5 / time_M.sum())), np.zeros(white_MK.shape[1])
    ridge = ridges[-1]
    if ended_M[learnt_M].any() and ended_M[~learnt_M].any():

        def loss(ridge: float) -> float:
            """Return minus the logarithm of the likelihood of the others' ends, but for what no rate changes."""
            intercept, coef_K = _fit(white_MK[learnt_M], ended_M[learnt_M], time_M[learnt_M], ridge)
            log_M = np.minimum(white_MK[~learnt_M] @ coef_K + intercept, MOST_LOG)
            return float((np.exp(log_M) * time_M[~learnt_M]).sum() - (ended_M[~learnt_M] * log_M).sum())

        ridge = min(ridges, key=loss)
    return _fit(white_MK, ended_M, time_M, ridge)


def _fit(white_MK: Floats, ended_M: Floats, time_M: Floats, ridge: float) -> tuple[float, Floats]:
    """Return the fit of the largest penalised likelihood: a Poisson regression of ends per time, weighted by time.

    Times are counted in those in which one end is expected, so that the tolerance means the same in any unit.
    """
    from sklearn.linear_model import PoissonRegressor  # noqa: PLC0415  # a second to import, needed here alone

    mean = ended_M.sum() / time_M.sum()
    if white_MK.shape[1] == 0:
        return float(np.log(mean)), np.zeros(0)
    expected_M = np.maximum(time_M * mean, LEAST)
    fit = PoissonRegressor(alpha=ridge / ended_M.sum(), solver="newton-cholesky", tol=ENOUGH, max_iter=ITERATIONS)
    with np.errstate(over="ignore", invalid="ignore"):  # of a step that is too long, which it halves
        fit.fit(white_MK, ended_M / expected_M, sample_weight=expected_M)
    return float(fit.intercept_ + np.log(mean)), np.asarray(fit.coef_)


def level_shift(logit_M: Floats, ended_M: NDArray[np.bool_], time_M: Floats | None) -> float:
    """Return by how much logits, or logarithms of rates over times, are to be moved to fit ends, by Newton's method.

    It has a normal prior of sd `ANCHOR_SD`, so that without an end it is no larger than that.
    """
    moved = 0.0
    for _ in range(ANCHOR_STEPS):
        if time_M is None:
            expected_M = expit(logit_M + moved)
            curve = float((expected_M * (1 - expected_M)).sum())
        else:
            expected_M = np.exp(np.minimum(logit_M + moved, MOST_LOG)) * time_M
            curve = float(expected_M.sum())
        slope = float(expected_M.sum() - ended_M.sum()) + moved / ANCHOR_SD**2
        moved -= float(np.clip(slope / (curve + 1 / ANCHOR_SD**2), -1.0, 1.0))
    return moved
