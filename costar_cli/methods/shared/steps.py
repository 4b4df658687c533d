"""The steps of some subjects that a model of one step learns from (spec GCOMP-3 and 5)."""

from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from costar_cli.data.panel import Panel
from costar_cli.methods.shared.course import Course, Floats, Scales, along
from costar_cli.methods.shared.grow import spread_rows
from costar_cli.methods.shared.simulated import count_quantiles

POWER: Final = {"local": 1.0}  # of the unit, by which a row counts; 0 for other kinds
RESIDUALS: Final = 4_096  # rows whose residuals are kept
HALF: Final = 0.5  # between the values of a binary variable
LEAST_DISPERSION, MOST_DISPERSION = 1e-3, 1e3


def learnable(panel: Panel) -> NDArray[np.bool_]:
    """Return which values `[N,T,E]` were observed, so that the step before them says something."""
    from_NT1 = (np.arange(panel.n_steps) >= (0 if panel.since is None else panel.since[:, None]))[..., None]
    covariates_NTX = panel.observed_covariates
    never_X = ~covariates_NTX[:, 1:].any(axis=(0, 1))  # what it was filled with is all there is
    return np.concatenate([panel.targets, (covariates_NTX | never_X) & from_NT1], axis=2)


def weight_of(unit_M: Floats, scales: Scales, e: int) -> Floats:
    """Return how much rows of a variable count."""
    return np.asarray((unit_M / scales.sd_E[e]) ** POWER.get(scales.kinds[e], 0.0))


class Steps:
    """The steps of some subjects to learn from, or to stop on: M of them, with what was observed after each."""

    def __init__(self, panel: Panel, table_AL: Floats, scales: Scales, *, lags: int, rows: int, seed: int) -> None:
        """Take at most so many rows, spread evenly over subjects; the table is of the factors of treatments."""
        self.scales = scales
        dose_NTL, seen_NTE = panel.treatments.astype(np.float64) @ table_AL, learnable(panel)
        subject_M, step_M = np.nonzero(panel.decided)
        answered_M = panel.targets[subject_M, step_M + 1].any(axis=1)  # an outcome may be a rare measurement
        kept = [
            some[spread_rows(subject_M[some], rows, seed)] for some in map(np.flatnonzero, (answered_M, ~answered_M))
        ]
        kept_M = np.sort(np.concatenate(kept))
        self.subject_M, step_M = subject_M[kept_M], step_M[kept_M]
        course = along(panel, self.scales, lags, dose_NTL)
        self.course: Course = course.take(step_M * panel.n_subjects + self.subject_M)
        self.after_ME: Floats = course.now_ME[(step_M + 1) * panel.n_subjects + self.subject_M]
        self.unit_ME = self.course.unit(self.scales)
        self.seen_ME = seen_NTE[self.subject_M, step_M + 1]
        self.dose_ML: Floats = dose_NTL[self.subject_M, step_M]

    def answers(self, e: int) -> tuple[NDArray[np.bool_], Floats, Floats]:
        """Return after which rows `[M]` a variable was observed, and of these its change (or 0 and 1), and weights."""
        seen_M, kind = self.seen_ME[:, e], self.scales.kinds[e]
        unit_M, after_M = self.unit_ME[seen_M, e], self.after_ME[seen_M, e]
        if kind == "binary":
            return seen_M, (after_M > HALF).astype(np.float64), np.ones(len(after_M))
        low_E, high_E = self.scales.limits
        change_M = (after_M - self.course.now_ME[seen_M, e]) / unit_M
        return seen_M, change_M.clip(low_E[e], high_E[e]), weight_of(unit_M, self.scales, e)

    def residuals(self, e: int, seen_M: NDArray[np.bool_], predicted_M: Floats, seed: int) -> tuple[Floats, float]:
        """Return what subjects held out differ from their predictions by `[M]`, and a count's dispersion (GCOMP-5).

        Of binary variables and counts it is a quantile that the value leaves open: of a 1 above the probability of 0.
        """
        scales, after_M, unit_M = self.scales, self.after_ME[seen_M, e], self.unit_ME[seen_M, e]
        u_M = np.random.default_rng([seed, 3, e]).random(len(after_M))
        if scales.kinds[e] == "binary":
            zero_M = expit(-predicted_M)
            return np.where(after_M > HALF, zero_M + (1 - zero_M) * u_M, zero_M * u_M), 1.0
        expected_M = self.course.now_ME[seen_M, e] + unit_M * predicted_M
        if scales.whole_E[e]:
            mean_M = expected_M.clip(0, None)
            excess = ((after_M - mean_M) ** 2 - mean_M).sum() / max((mean_M**2).sum(), LEAST_DISPERSION)
            dispersion = float(np.clip(excess, LEAST_DISPERSION, MOST_DISPERSION))
            return count_quantiles(after_M, mean_M, dispersion, u_M), dispersion
        # the sd of what is never negative and returns from zero grows with the root of its size
        size_M = np.sqrt(unit_M * scales.sd_E[e]) if scales.kinds[e] == "local" else unit_M
        return np.asarray((after_M - expected_M) / size_M), 1.0


def whole_residuals(
    residual_ME: Floats, subject_M: NDArray[np.int64], quantile_E: NDArray[np.bool_], seed: int
) -> Floats:
    """Return residuals of steps `[R,E]`, those of one step together; one that was not observed is any other step's.

    Quantiles keep their order and become evenly spaced, the rest is centred: what is drawn has the predicted mean.
    """
    rng = np.random.default_rng([seed, 4])
    known_M = ~np.isnan(residual_ME[:, 0])
    residual_RE, subject_R = residual_ME[known_M], subject_M[known_M]
    for column_R, column_M in zip(residual_RE.T, residual_ME.T, strict=True):
        lacking_R = np.isnan(column_R)
        column_R[lacking_R] = rng.choice(column_M[~np.isnan(column_M)], size=int(lacking_R.sum()))
    residual_RE = residual_RE[spread_rows(subject_R, RESIDUALS, seed)]
    rank_RE = residual_RE.argsort(axis=0, kind="stable").argsort(axis=0, kind="stable")
    return np.where(quantile_E, (rank_RE + HALF) / len(rank_RE), residual_RE - residual_RE.mean(axis=0))
