"""Outcomes that are 0 or 1: logits with an intercept that differs between subjects (spec MIXED-14).

`K` are the nodes of a quadrature over the intercept's standard deviate.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit

from costar_cli.methods.mixed.law import Design, Floats

if TYPE_CHECKING:
    from costar_cli.methods.mixed.effects import Effects

GRID: Final = np.linspace(-6.0, 6.0, 61)  # of posteriors: series of a hundred steps are wider than its spacing


def stratified(shape: tuple[int, ...], n: int, seed: int) -> Floats:
    """Return n uniform numbers for each element of a shape, `[...,S]`, one in each of n parts of (0, 1)."""
    rng = np.random.default_rng(seed)
    order = rng.permuted(np.broadcast_to(np.arange(n), (int(np.prod(shape)), n)), axis=1)
    return ((order + rng.random(order.shape)) / n).reshape(*shape, n)


@dataclass(frozen=True)
class LogitPosterior:
    """What histories say of their subjects' intercepts, in sums over the transitions before each step.

    `exposure_NTJ` is what is left of earlier doses before each step's own, `logit_NT` the logits of the subject's
    expected effects beforehand, with `phi_NTP` the columns; `log_NTK` the log-density at the nodes of `GRID`.
    """

    effects: "Effects"
    prior_NP: Floats
    exposure_NTJ: Floats
    phi_NTP: Floats
    logit_NT: Floats
    log_NTK: Floats

    @classmethod
    def of(cls, design: Design, effects: "Effects", prior_NP: Floats, before_NTJ: Floats) -> "LogitPosterior":
        """Sum up the transitions of subjects."""
        phi_NTP = design.columns(effects.decay) * design.counted_NT[..., None]
        logit_NT = np.einsum("ntp,np->nt", phi_NTP, prior_NP)
        logit_NTK = logit_NT[..., None] + effects.spread[0, 0] * GRID
        log_NTK = design.response_NT[..., None] * logit_NTK + log_expit(-logit_NTK)
        summed_NTK = (log_NTK * design.counted_NT[..., None]).cumsum(axis=1)
        return cls(effects, prior_NP, before_NTJ, phi_NTP, logit_NT, np.pad(summed_NTK, [(0, 0), (1, 0), (0, 0)]))

    def at(self, row_M: NDArray[np.integer], step_M: NDArray[np.integer]) -> tuple[Floats, Floats]:
        """Return expected effects `[M,P]` from steps before `step`, and a factor `[M,Z,Z]` of their covariance."""
        spread, z = self.effects.spread[0, 0], self.effects.n_random
        log_MK = self.log_NTK[row_M, step_M] - 0.5 * GRID**2
        weight_MK = np.exp(log_MK - log_MK.max(axis=1, keepdims=True))
        weight_MK /= weight_MK.sum(axis=1, keepdims=True)
        mean_M = weight_MK @ GRID
        mean_MP, factor_MZZ = self.prior_NP[row_M].copy(), np.zeros((len(row_M), z, z))
        mean_MP[:, 0] += spread * mean_M
        factor_MZZ[:, 0, 0] = spread * np.sqrt((weight_MK @ GRID**2 - mean_M**2).clip(min=0))
        return mean_MP, factor_MZZ

    def moves(self, row_U: NDArray[np.integer], step_U: NDArray[np.integer]) -> Floats:
        """Return the derivatives `[U,P,P]` of expected effects by the means of all subjects: those of the mode."""
        mean_UP, factor_UZZ = self.at(row_U, step_U)
        phi_UTP = self.phi_NTP[row_U] * (np.arange(self.phi_NTP.shape[1]) < step_U[:, None])[..., None]
        p_UT = expit(self.logit_NT[row_U] + (mean_UP[:, 0] - self.prior_NP[row_U, 0])[:, None])
        moves_UPP = np.tile(np.eye(mean_UP.shape[1]), (len(row_U), 1, 1))
        moves_UPP[:, 0] -= factor_UZZ[:, :1, 0] ** 2 * np.einsum("ut,utp->up", p_UT * (1 - p_UT), phi_UTP)
        return moves_UPP
