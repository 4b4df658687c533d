"""Who was treated: one logistic regression per binary treatment (spec MSM-2)."""

import warnings
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_expit

from costar_cli.errors import Termination
from costar_cli.methods.shared.cores import side_by_side

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

Floats = NDArray[np.float64]

RANK = 1e-10  # of the largest eigenvalue: directions with less variance are no directions


@dataclass(frozen=True, slots=True)
class LogisticModels:
    """One logistic regression per binary treatment: `intercept [B]`, `coef [B,P]`; zeros where none could be fitted."""

    intercept_L: Floats
    coef_LP: Floats
    fitted_L: NDArray[np.bool_]
    converged: bool = True

    def log_likelihood(self, features_MP: Floats, given_ML: NDArray[np.bool_]) -> Floats:
        """Return the logarithm `[M]` of the probability that all treatments are what they were."""
        logit_ML = features_MP @ self.coef_LP.T + self.intercept_L
        return np.asarray(log_expit(np.where(given_ML, logit_ML, -logit_ML)).sum(axis=1))


def fit_logistic(
    features_MP: Floats, given_ML: NDArray[np.bool_], *, iterations: int, ridge: float = 0.0
) -> LogisticModels:
    """Fit one logistic regression per treatment.

    Features are rotated and scaled to uncorrelated ones first: the maximum is the same, and is found in a few
    iterations whatever the units; features that say nothing new drop out. A treatment that all rows or none received
    has no model. The treatments are fitted side by side, each on one core.

    Args:
        features_MP: features of each decision.
        given_ML: treatments given.
        iterations: most iterations of the optimiser.
        ridge: half of this times the sum of squared coefficients of the uncorrelated features is added to the loss.
    """
    from sklearn.exceptions import ConvergenceWarning  # noqa: PLC0415  # a second to import, needed here alone
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415

    n_labels, n_features = given_ML.shape[1], features_MP.shape[1]
    intercept_L, coef_LP = np.zeros(n_labels), np.zeros((n_labels, n_features))
    fitted_L = np.asarray(given_ML.any(axis=0) & ~given_ML.all(axis=0))
    if not fitted_L.any():
        return LogisticModels(intercept_L, coef_LP, fitted_L)
    with one_thread("blas"):
        mean_P, axes_PK = whitening(features_MP)
    if not axes_PK.shape[1]:
        share_L = given_ML.mean(axis=0)
        intercept_L[fitted_L] = np.log(share_L[fitted_L] / (1 - share_L[fitted_L]))
        return LogisticModels(intercept_L, coef_LP, fitted_L)
    white_MK = (features_MP - mean_P) @ axes_PK

    def fit(label: int) -> tuple[int, LogisticRegression]:
        with one_thread("openmp"):  # a setting of each thread
            model = LogisticRegression(C=1 / ridge if ridge else np.inf, max_iter=iterations, tol=1e-6)
            return label, model.fit(white_MK, given_ML[:, label])

    with warnings.catch_warnings(record=True) as caught, one_thread("blas"):
        warnings.simplefilter("always", ConvergenceWarning)
        for label, model in side_by_side(fit, np.flatnonzero(fitted_L).tolist()):
            Termination.stop_if_signalled()
            coef_LP[label] = axes_PK @ model.coef_[0]
            intercept_L[label] = model.intercept_[0] - mean_P @ coef_LP[label]
    converged = not any(issubclass(warning.category, ConvergenceWarning) for warning in caught)
    return LogisticModels(intercept_L, coef_LP, fitted_L, converged)


def one_thread(api: Literal["blas", "openmp"]) -> AbstractContextManager[object]:
    """Return the context in which libraries of this kind use one thread.

    Matrices of a few hundred columns leave several threads nothing to do but wait for each other: with other work on
    the machine, that took ten times as long.
    """
    limits: AbstractContextManager[object] = _libraries().limit(limits=1, user_api=api)
    return limits


@cache
def _libraries() -> "ThreadpoolController":
    """Return the loaded libraries that have threads: to look for them takes as long as a small fit."""
    import sklearn.linear_model  # noqa: F401, PLC0415  # brings the last of them
    from threadpoolctl import ThreadpoolController  # noqa: PLC0415

    return ThreadpoolController()


def whitening(features_MP: Floats) -> tuple[Floats, Floats]:
    """Return the means `[P]`, and axes `[P,K]` along which centred features are uncorrelated with variance one."""
    mean_P = features_MP.mean(axis=0)
    sd_P = features_MP.std(axis=0)
    scale_P = np.where(sd_P > 0, sd_P, 1.0)
    centred_MP = (features_MP - mean_P) / scale_P
    values, vectors = np.linalg.eigh(centred_MP.T @ centred_MP / max(len(features_MP), 1))
    keep = values > RANK * max(values.max(initial=0.0), RANK)
    return mean_P, vectors[:, keep] / np.sqrt(values[keep]) / scale_P[:, None]
