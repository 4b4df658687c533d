"""How likely treatments were: levels given or not, and doses given with a normal density (spec MSM-2)."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import TreatmentEncoding
from costar_cli.methods.shared.logistic import LogisticModels, fit_logistic, one_thread, whitening

Floats = NDArray[np.float64]

LEAST_SD = 1e-3  # of a dose given its features, in units of about one: nothing is foretold better


@dataclass(frozen=True, slots=True)
class TreatmentModels:
    """Logistic regressions of the factors `[L]` that are given or not, each dose among them, and how much of a dose.

    `first_D` are the factors that tell the doses, `n_levels` factors stand before them. A dose that is given is normal
    about `intercept + coef features`, with its own `sd`.
    """

    given: LogisticModels
    n_levels: int
    first_D: NDArray[np.int64]
    intercept_D: Floats
    coef_DP: Floats
    sd_D: Floats

    @classmethod
    def fit(cls, features_MP: Floats, factor_ML: Floats, encoding: TreatmentEncoding, *, iterations: int) -> Self:
        """Fit models of decisions.

        Args:
            features_MP: what is known before each of them.
            factor_ML: what was given, of `dose_table`.
            encoding: of the treatments.
            iterations: most iterations of the logistic regressions.
        """
        widths = [dose.width for dose in encoding.doses]
        n_levels = factor_ML.shape[1] - sum(widths)
        first_D = n_levels + np.cumsum([0, *widths[:-1]])[: len(widths)]
        given = fit_logistic(features_MP, _given(factor_ML, n_levels, first_D), iterations=iterations)
        intercept_D, sd_D = np.zeros(len(first_D)), np.ones(len(first_D))
        coef_DP = np.zeros((len(first_D), features_MP.shape[1]))
        for d, factor_M in enumerate(factor_ML[:, first_D].T):
            seen_MP, dose_M = features_MP[factor_M != 0], factor_M[factor_M != 0]
            if not len(dose_M):
                continue
            with one_thread("blas"):
                mean_P, axes_PK = whitening(seen_MP)
                weight_K = ((seen_MP - mean_P) @ axes_PK).T @ (dose_M - dose_M.mean()) / len(dose_M)
                coef_P = coef_DP[d] = axes_PK @ weight_K
                intercept = intercept_D[d] = float(dose_M.mean() - mean_P @ coef_P)
                sd_D[d] = max(float(np.std(dose_M - seen_MP @ coef_P - intercept)), LEAST_SD)
        return cls(given, n_levels, first_D, intercept_D, coef_DP, sd_D)

    @property
    def converged(self) -> bool:
        """Return whether all logistic regressions converged."""
        return self.given.converged

    def log_likelihood(self, features_MP: Floats, factor_ML: Floats) -> Floats:
        """Return the logarithm `[M]` of the probability, or density, that all treatments are what they were."""
        log_M = self.given.log_likelihood(features_MP, _given(factor_ML, self.n_levels, self.first_D))
        if not len(self.first_D):
            return log_M
        dose_MD = factor_ML[:, self.first_D]
        away_MD = (dose_MD - features_MP @ self.coef_DP.T - self.intercept_D) / self.sd_D
        density_MD = np.where(dose_MD != 0, -0.5 * away_MD**2 - np.log(self.sd_D), 0.0)
        return np.asarray(log_M + density_MD.sum(axis=1))


def _given(factor_ML: Floats, n_levels: int, first_D: NDArray[np.int64]) -> NDArray[np.bool_]:
    return np.concatenate([factor_ML[:, :n_levels] > 0, factor_ML[:, first_D] != 0], axis=1)
