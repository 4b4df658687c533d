"""How the course that hazards see goes on after an origin, and how far courses lie from that (spec SURV-10).

`P` counts columns of a regression (those of `Hazards`), `M` steps, `K` kept errors, `C` outcomes and covariates.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from costar_cli.methods.shared.logistic import one_thread, whitening

MOST_ERRORS: Final = 200  # kept of each lead: the mean hazard over them is then known to some percent

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, slots=True)
class Transition:
    """A linear regression of standardised outcomes and covariates on what is known a step before, and their range.

    `intercept_C`, `coef_CP`, and `range_2C`, the least and greatest values of the training subjects.
    """

    intercept_C: Floats
    coef_CP: Floats
    range_2C: Floats

    @classmethod
    def fit(
        cls,
        columns_MP: Floats,
        next_MC: Floats,
        subject_M: NDArray[np.integer],
        *,
        ridges: Sequence[float],
        seen_MC: NDArray[np.bool_],
    ) -> Self:
        """Fit the regression, with the penalty by which subjects of even number predict those of odd number best.

        Args:
            columns_MP: what is known of a step, its outcomes, covariates and treatments among it.
            next_MC: outcomes and covariates a step later.
            subject_M: whose steps they are.
            ridges: the penalties.
            seen_MC: which to learn from; all of a column where that would leave fewer than there are coefficients.
        """
        learnt_MC = seen_MC | (seen_MC.sum(axis=0) <= columns_MP.shape[1])
        intercept_C, coef_CP = np.zeros(next_MC.shape[1]), np.zeros((next_MC.shape[1], columns_MP.shape[1]))
        range_2C = np.zeros((2, next_MC.shape[1]))
        patterns, which_C = np.unique(learnt_MC, axis=1, return_inverse=True)
        for number, rows_M in enumerate(patterns.T):
            own_C = which_C.reshape(-1) == number
            known_MC = next_MC[np.ix_(rows_M, own_C)]
            best = _best_ridge(columns_MP[rows_M], known_MC, subject_M[rows_M], ridges)
            intercept_C[own_C], coef_CP[own_C] = _linear(columns_MP[rows_M], known_MC, best)
            range_2C[:, own_C] = known_MC.min(axis=0), known_MC.max(axis=0)
        return cls(intercept_C, coef_CP, range_2C)

    def after(self, columns_QP: Floats) -> Floats:
        """Return outcomes and covariates `[Q,C]` a step later."""
        return np.asarray(np.clip(columns_QP @ self.coef_CP.T + self.intercept_C, *self.range_2C))


def least_squares_share(model_MY: Floats, other_MY: Floats, known_MY: Floats) -> Floats:
    """Return the share `[Y]`, 0 to 1, of a model's predictions in the mix with others that is nearest to the known."""
    apart_MY = model_MY - other_MY
    square_Y, with_Y = (apart_MY**2).sum(axis=0), (apart_MY * (known_MY - other_MY)).sum(axis=0)
    share_Y = np.divide(with_Y, square_Y, out=np.ones_like(with_Y), where=square_Y > 0)
    return np.asarray(np.clip(share_Y, 0.0, 1.0))


@dataclass(frozen=True, eq=False, slots=True)
class CourseErrors:
    """How far the courses of held-out subjects lay from the mean ones, K of each step 1, 2, ... after an origin.

    `share_HY` is the share of the model's own predictions in the mean course, beside those of the transition.
    `outcome_HKY` are errors of standardised outcomes, or of their standardised logarithms where they have one;
    `logit_HKE` is what errors of covariates do to the logits of ends, or to the logarithms of their rates.
    """

    share_HY: Floats
    outcome_HKY: Floats
    logit_HKE: Floats

    @classmethod
    def of(
        cls,
        share_HY: Floats,
        outcome_QHY: Floats,
        logit_QHE: Floats,
        counts_QH: NDArray[np.bool_],
        shift_QH: Floats,
    ) -> Self | None:
        """Keep errors of those that count, evenly spread by how far they shift the hazard; None where none counts.

        A step at which none counts has those of the last one that has some.
        """
        rows_HK = []
        for counts_Q, shift_Q in zip(counts_QH.T, shift_QH.T, strict=True):
            own_M = np.flatnonzero(counts_Q)
            if not len(own_M):
                break
            places = ((np.arange(MOST_ERRORS) + 0.5) / MOST_ERRORS * len(own_M)).astype(np.int64)
            rows_HK.append(own_M[np.argsort(shift_Q[own_M], kind="stable")][places])
        if not rows_HK:
            return None
        step_H = np.minimum(np.arange(counts_QH.shape[1]), len(rows_HK) - 1)
        at = np.stack(rows_HK)[step_H], step_H[:, None]
        return cls(share_HY, outcome_QHY[at], logit_QHE[at])


def _best_ridge(columns_MP: Floats, next_MC: Floats, subject_M: NDArray[np.integer], ridges: Sequence[float]) -> float:
    """Return the penalty by which subjects of even number predict those of odd number best."""
    even_M = subject_M % 2 == 0
    if even_M.all() or not even_M.any():
        return ridges[-1]

    def loss(ridge: float) -> float:
        intercept_C, coef_CP = _linear(columns_MP[even_M], next_MC[even_M], ridge)
        return float(((columns_MP[~even_M] @ coef_CP.T + intercept_C - next_MC[~even_M]) ** 2).sum())

    return min(ridges, key=loss)


def _linear(columns_MP: Floats, next_MC: Floats, ridge: float) -> tuple[Floats, Floats]:
    """Return intercepts `[C]` and coefficients `[C,P]`."""
    with one_thread("blas"):
        mean_P, axes_PK = whitening(columns_MP)
        white_MK = (columns_MP - mean_P) @ axes_PK
        coef_KC = white_MK.T @ next_MC / (len(next_MC) + ridge)  # uncorrelated columns of variance one
    coef_CP = (axes_PK @ coef_KC).T
    return next_MC.mean(axis=0) - coef_CP @ mean_P, coef_CP
