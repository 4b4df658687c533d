"""Densities with gradients that the likelihood is made of: of logits, and of effects that are hard to separate.

`K` are the nodes of a quadrature over the intercept's standard deviate, or pairs of treatments.
"""

from dataclasses import dataclass
from itertools import product
from typing import Final, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from costar_cli.methods.mixed.directions import Pairs
from costar_cli.methods.mixed.law import Design, Floats

NODES: Final = 9  # around the mode of each subject, in which the likelihood of a series is nearly normal
NEWTON: Final = 12  # steps to the mode, each of at most `FARTHEST`: the density is log-concave
FARTHEST: Final = 2.0
PSEUDO: Final = 4  # subjects as whom the usual variance counts; with 2, bands of 90 % held 83 % after five odd steps


def marginal(fixed_NT: Tensor, spread: Tensor, y_NT: Tensor, counted_NT: Tensor) -> Tensor:
    """Return each subject's log-likelihood `[N]`, the intercept integrated out by adaptive Gauss-Hermite quadrature.

    Args:
        fixed_NT: logits but for the subject's own intercept.
        spread: sd of that between subjects.
        y_NT: 0 or 1.
        counted_NT: 1 of the steps that count, else 0.
    """
    mode_N, sd_N = _mode(fixed_NT, spread, y_NT, counted_NT)
    node_K, weight_K = np.polynomial.hermite.hermgauss(NODES)
    log_weight_K = torch.from_numpy(np.log(weight_K) + node_K**2 - 0.5 * np.log(np.pi))
    z_NK = mode_N[:, None] + 2**0.5 * sd_N[:, None] * torch.from_numpy(node_K)
    logit_NTK = fixed_NT[..., None] + spread * z_NK[:, None]
    log_NTK = y_NT[..., None] * logit_NTK - functional.softplus(logit_NTK)
    log_NK = (log_NTK * counted_NT[..., None]).sum(dim=1) - 0.5 * z_NK**2 + log_weight_K
    return torch.logsumexp(log_NK, dim=1) + sd_N.log()


@torch.no_grad()
def _mode(fixed_NT: Tensor, spread: Tensor, y_NT: Tensor, counted_NT: Tensor) -> tuple[Tensor, Tensor]:
    """Return where each subject's density of the intercept's standard deviate is largest, and its sd there `[N]`."""
    z_N = torch.zeros_like(fixed_NT[:, 0])
    for _ in range(NEWTON):
        p_NT = torch.sigmoid(fixed_NT + spread * z_N[:, None])
        slope_N = spread * ((y_NT - p_NT) * counted_NT).sum(dim=1) - z_N
        curvature_N = 1 + spread**2 * (p_NT * (1 - p_NT) * counted_NT).sum(dim=1)
        z_N = z_N + (slope_N / curvature_N).clamp(-FARTHEST, FARTHEST)
    return z_N, curvature_N.rsqrt()


def fitted_logits(design: Design, fixed_NT: Floats, spread: float) -> Floats:
    """Return the logits `[N,T]` with the likeliest intercept of each subject, given those without."""
    tensors = (torch.from_numpy(np.asarray(x)) for x in (fixed_NT, spread, design.response_NT, design.counted_NT))
    return np.asarray(fixed_NT + spread * _mode(*tensors)[0].numpy()[:, None])


@dataclass(frozen=True)
class Apart:
    """The directions `[Z,K]` in which effects of such pairs differ, and the variance `[K]` that is usual there."""

    axes_ZK: Tensor
    usual_K: Tensor

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
        return cls(torch.from_numpy(axes_KZ.T.copy()), torch.from_numpy(np.maximum(together_K, usual**2)))

    def loss(self, spread_ZZ: Tensor) -> Tensor:
        """Return minus the log-density of spreads: as if some more subjects had differed by the usual variance.

        How they did has nothing to do with their other effects: `own_K` is what these leave unexplained (MIXED-13).
        """
        if not len(self.usual_K):
            return torch.zeros((), dtype=torch.float64)
        own_K = 1 / (torch.linalg.solve(spread_ZZ, self.axes_ZK) ** 2).sum(dim=0)
        all_K = ((spread_ZZ.T @ self.axes_ZK) ** 2).sum(dim=0)
        loss: Tensor = 0.5 * PSEUDO * (own_K.log() + (self.usual_K + all_K) / own_K).sum()
        return loss
