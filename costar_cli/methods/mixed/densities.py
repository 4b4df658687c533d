"""Densities and their slopes that the likelihood is made of: of logits, and of effects that are hard to separate.

`K` are the nodes of a quadrature over the intercept's standard deviate, or pairs of treatments.
"""

from dataclasses import dataclass
from itertools import product
from typing import Final, Self

import numpy as np
from scipy.special import expit, logsumexp

from costar_cli.methods.mixed.directions import Pairs
from costar_cli.methods.mixed.law import Design, Floats

NODES: Final = 9  # around the mode of each subject, in which the likelihood of a series is nearly normal
NEWTON: Final = 12  # steps to the mode, each of at most `FARTHEST`: the density is log-concave
FARTHEST: Final = 2.0
PSEUDO: Final = 4  # subjects as whom the usual variance counts; with 2, bands of 90 % held 83 % after five odd steps


def marginal(fixed_NT: Floats, spread: float, y_NT: Floats, counted_NT: Floats) -> tuple[Floats, Floats, float]:
    """Return each subject's log-likelihood `[N]`, the intercept integrated out by adaptive Gauss-Hermite quadrature.

    Beside it, the slopes of their sum by `fixed_NT` and by `spread`.

    Args:
        fixed_NT: logits but for the subject's own intercept.
        spread: sd of that between subjects.
        y_NT: 0 or 1.
        counted_NT: 1 of the steps that count, else 0.
    """
    mode_N, sd_N = _mode(fixed_NT, spread, y_NT, counted_NT)
    node_K, weight_K = np.polynomial.hermite.hermgauss(NODES)
    log_weight_K = np.log(weight_K) + node_K**2 - 0.5 * np.log(np.pi)
    z_NK = mode_N[:, None] + 2**0.5 * sd_N[:, None] * node_K
    logit_NTK = fixed_NT[..., None] + spread * z_NK[:, None]
    log_NTK = y_NT[..., None] * logit_NTK - np.logaddexp(0.0, logit_NTK)
    log_NK = (log_NTK * counted_NT[..., None]).sum(axis=1) - 0.5 * z_NK**2 + log_weight_K
    log_N = logsumexp(log_NK, axis=1)
    # Nodes stand still: a quadrature hardly depends on where they are.
    toward_NTK = (y_NT[..., None] - expit(logit_NTK)) * counted_NT[..., None]
    toward_NTK *= np.exp(log_NK - log_N[:, None])[:, None]
    return log_N + np.log(sd_N), toward_NTK.sum(axis=2), float((toward_NTK.sum(axis=1) * z_NK).sum())


def _mode(fixed_NT: Floats, spread: float, y_NT: Floats, counted_NT: Floats) -> tuple[Floats, Floats]:
    """Return where each subject's density of the intercept's standard deviate is largest, and its sd there `[N]`."""
    z_N = np.zeros(len(fixed_NT))
    for _ in range(NEWTON):
        p_NT = expit(fixed_NT + spread * z_N[:, None])
        slope_N = spread * ((y_NT - p_NT) * counted_NT).sum(axis=1) - z_N
        curvature_N = 1 + spread**2 * (p_NT * (1 - p_NT) * counted_NT).sum(axis=1)
        z_N = z_N + (slope_N / curvature_N).clip(-FARTHEST, FARTHEST)
    return z_N, curvature_N**-0.5


def fitted_logits(design: Design, fixed_NT: Floats, spread: float) -> Floats:
    """Return the logits `[N,T]` with the likeliest intercept of each subject, given those without."""
    mode_N, _ = _mode(fixed_NT, spread, design.response_NT, design.counted_NT)
    return np.asarray(fixed_NT + spread * mode_N[:, None])


@dataclass(frozen=True)
class Apart:
    """The directions `[Z,K]` in which effects of such pairs differ, and the variance `[K]` that is usual there."""

    axes_ZK: Floats
    usual_K: Floats

    @classmethod
    def of(cls, pairs: Pairs, spread_ZZ: Floats, decay_CL: Floats, usual: float) -> Self:
        """Return them, each carry-over's for itself: as different as effects usually are, or as what both do together.

        Args:
            pairs: of factors.
            spread_ZZ: factor of the covariance of effects between subjects.
            decay_CL: of exposures, whose effects are the last of these.
            usual: sd of effects of doses around zero.
        """
        z, (carry_overs, factors) = len(spread_ZZ), decay_CL.shape
        axes_KZ = np.zeros((carry_overs * len(pairs), z))
        for k, (carry_over, (one, other)) in enumerate(product(range(carry_overs), pairs)):
            first = z - decay_CL.size + carry_over * factors
            axes_KZ[k, [first + one, first + other]] = np.array([1, -1]) / np.sqrt(2)
        together_K = np.square(abs(axes_KZ) @ spread_ZZ).sum(axis=1)
        return cls(axes_KZ.T.copy(), np.maximum(together_K, usual**2))

    def loss(self, spread_ZZ: Floats) -> tuple[float, Floats]:
        """Return minus the log-density of spreads, as if some more subjects had differed by the usual variance.

        How they did has nothing to do with their other effects: `own_K` is what these leave unexplained (MIXED-13).
        Beside it, its slope.
        """
        if not len(self.usual_K):
            return 0.0, np.zeros_like(spread_ZZ)
        solved_ZK, along_ZK = np.linalg.solve(spread_ZZ, self.axes_ZK), spread_ZZ.T @ self.axes_ZK
        own_K, all_K = 1 / (solved_ZK**2).sum(axis=0), (along_ZK**2).sum(axis=0)
        loss = 0.5 * PSEUDO * (np.log(own_K) + (self.usual_K + all_K) / own_K).sum()
        of_own_ZZ = (np.linalg.solve(spread_ZZ.T, solved_ZK) * (own_K - self.usual_K - all_K)) @ solved_ZK.T
        slope_ZZ: Floats = PSEUDO * (of_own_ZZ + (self.axes_ZK / own_K) @ along_ZK.T)
        return float(loss), slope_ZZ
