"""Rates of ends per unit of time, where steps are of any length (spec SURV-9).

`E` counts ends, `P` columns of a regression, `K` those of them that are uncorrelated, `M` steps at risk.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

from costar_cli.methods.shared.logistic import one_thread, whitening

ITERATIONS: Final = 100
HALVINGS: Final = 30  # of a step that does not better the fit
ENOUGH: Final = 1e-9  # change of the mean loss at which the fit is done
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
            fit = _fit(white_MK[learnt_M], ended_M[learnt_M], time_M[learnt_M], ridge)
            return _loss(white_MK[~learnt_M], ended_M[~learnt_M], time_M[~learnt_M], *fit)

        ridge = min(ridges, key=loss)
    return _fit(white_MK, ended_M, time_M, ridge)


def _fit(white_MK: Floats, ended_M: Floats, time_M: Floats, ridge: float) -> tuple[float, Floats]:
    """Return the fit of the largest penalised likelihood, by Newton's method."""
    design_MK = np.column_stack([np.ones(len(white_MK)), white_MK])
    penalty_K = np.append(0.0, np.full(white_MK.shape[1], ridge))
    at_K = np.append(np.log(ended_M.sum() / time_M.sum()), np.zeros(white_MK.shape[1]))

    def objective(at_K: Floats) -> float:
        return _loss(white_MK, ended_M, time_M, float(at_K[0]), at_K[1:]) + float(penalty_K @ at_K**2) / 2

    best = objective(at_K)
    for _ in range(ITERATIONS):
        expected_M = np.exp(np.minimum(design_MK @ at_K, MOST_LOG)) * time_M
        slope_K = design_MK.T @ (expected_M - ended_M) + penalty_K * at_K
        curve_KK = (design_MK * expected_M[:, None]).T @ design_MK + np.diag(penalty_K + ENOUGH)
        step_K = np.linalg.solve(curve_KK, slope_K)
        tries = (at_K - step_K * 0.5**halved for halved in range(HALVINGS))
        near_K = next((tried_K for tried_K in tries if objective(tried_K) < best), at_K)
        gained, at_K, best = best - objective(near_K), near_K, objective(near_K)
        if gained <= ENOUGH * len(white_MK):
            break
    return float(at_K[0]), at_K[1:]


def _loss(white_MK: Floats, ended_M: Floats, time_M: Floats, intercept: float, coef_K: Floats) -> float:
    """Return minus the logarithm of the likelihood of ends at their times, but for what no rate changes."""
    log_M = np.minimum(white_MK @ coef_K + intercept, MOST_LOG)
    return float((np.exp(log_M) * time_M).sum() - (ended_M * log_M).sum())
