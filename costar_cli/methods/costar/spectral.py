"""The generalised spectral contrastive loss (spec THEORY-1 to 3): positive pairs close, directions uncorrelated."""

import torch
from torch import Tensor

__all__ = ["spectral_loss"]


def spectral_loss(
    z1_NK: Tensor, z2_NK: Tensor, sigma: float = 1.0, *, active_N: Tensor | None = None, unbiased: bool = False
) -> Tensor:
    """Return `mean ||z1 - z2||^2 + sigma * ||C - I||_F^2` of two views, with C the second moments of both.

    Gradients flow through both views; no momentum encoder is needed, as the second term keeps representations from
    collapsing. Leading axes (members, kinds of representations) are batched.

    Args:
        z1_NK: representations of one view, `[...,N,K]`.
        z2_NK: representations of the other view of the same histories.
        sigma: weight of the second term, above 0.
        active_N: which histories count, `[...,N]`; all by default. Others must hold finite numbers.
        unbiased: estimate the second term from two disjoint halves, `tr((C_a - I)(C_b - I))`, whose mean over batches
            of independent histories is the population's; it can be negative. The halves are the first and the second
            half of the histories that count, so that neighbours of one subject stay on one side.

    Returns:
        The loss, `[...]`.
    """
    weight_N = torch.ones_like(z1_NK[..., 0]) if active_N is None else active_N.to(z1_NK.dtype)
    pull = ((z1_NK - z2_NK).square().sum(dim=-1) * weight_N).sum(dim=-1) / _count(weight_N)
    if not unbiased:
        return pull + sigma * _excess(z1_NK, z2_NK, weight_N).square().sum(dim=(-2, -1))
    first_N = weight_N * (weight_N.cumsum(dim=-1) <= weight_N.sum(dim=-1, keepdim=True) / 2)
    one, other = (_excess(z1_NK, z2_NK, half_N) for half_N in (first_N, weight_N - first_N))
    return pull + sigma * (one * other).sum(dim=(-2, -1))


def _excess(z1_NK: Tensor, z2_NK: Tensor, weight_N: Tensor) -> Tensor:
    """Return the second moments of both views less the identity, `[...,K,K]`."""
    moments = sum(
        (z_NK * weight_N[..., None]).transpose(-1, -2) @ z_NK / (2 * _count(weight_N)[..., None, None])
        for z_NK in (z1_NK, z2_NK)
    )
    return moments - torch.eye(z1_NK.shape[-1], dtype=z1_NK.dtype, device=z1_NK.device)


def _count(weight_N: Tensor) -> Tensor:
    return weight_N.sum(dim=-1).clamp(min=1)
