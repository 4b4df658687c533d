"""Losses of pretraining: InfoNCE over all active positions (spec COSTAR-10), and the spectral one (spec THEORY-1 to 3).

InfoNCE never holds the N x N logits. The gradient of `logsumexp(q K^T) - q . k_i` with respect to q is
`softmax(q K^T) K - k_i`, and the keys carry no gradient. One attention call with the keys as values therefore yields
both: its log-sum-exp is the loss, its output the gradient. A chunked version serves where the fused operator does not,
and its tests.
"""

from typing import Any

import torch
from torch import Tensor

from costar_cli.methods.shared.microbatches import operators_on, worker_count

# The fused operator has one signature on the CPU alone: across CUDA versions and precisions it has several.
CHUNK_ELEMENTS = 2**24  # logits held at once by the chunked version, over all pairs


def attend_to_keys_chunked(q_PND: Tensor, k_PND: Tensor, hidden_PN: Tensor) -> tuple[Tensor, Tensor]:
    """Return `softmax(q k^T + hidden) k` and its log-sum-exp, a slice of queries at a time.

    Args:
        q_PND: queries, P pairs of N vectors.
        k_PND: keys.
        hidden_PN: added to the logits of each key: 0, or a large negative number for keys that do not count.
    """
    rows = max(1, CHUNK_ELEMENTS // (k_PND.shape[0] * k_PND.shape[1]))
    outputs, lses = [], []
    for q in torch.split(q_PND, rows, dim=1):
        logits = torch.baddbmm(hidden_PN[:, None], q, k_PND.transpose(1, 2))
        lse = torch.logsumexp(logits, dim=-1)
        outputs.append(torch.bmm(logits.sub_(lse[..., None]).exp_(), k_PND))
        lses.append(lse)
    return torch.cat(outputs, dim=1), torch.cat(lses, dim=1)


def attend_to_keys_fused(q_PND: Tensor, k_PND: Tensor, hidden_PN: Tensor) -> tuple[Tensor, Tensor]:
    """Return the same from the framework's fused CPU attention."""
    mask = hidden_PN[:, None, None].expand(-1, 1, q_PND.shape[1], -1) if bool((hidden_PN != 0).any()) else None
    fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    with operators_on(worker_count()):  # it is one large operator, between microbatches
        output, lse = fused(q_PND[:, None], k_PND[:, None], k_PND[:, None], attn_mask=mask, scale=1.0)
    return output[:, 0], lse.reshape(q_PND.shape[:2])


def attend_to_keys(q_PND: Tensor, k_PND: Tensor, hidden_PN: Tensor) -> tuple[Tensor, Tensor]:
    """Return the attention of queries to keys by the fastest means on this device."""
    has_fused = hasattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu")
    if q_PND.device.type == "cpu" and q_PND.dtype in {torch.float32, torch.float64} and has_fused:
        return attend_to_keys_fused(q_PND, k_PND, hidden_PN)
    return attend_to_keys_chunked(q_PND, k_PND, hidden_PN)


def units(vectors_PND: Tensor, length: float) -> tuple[Tensor, Tensor]:
    """Return vectors scaled to a length, in single precision at least, and the factors `[P,N,1]`."""
    vectors = vectors_PND.to(torch.promote_types(vectors_PND.dtype, torch.float32))
    factor = length / torch.linalg.vector_norm(vectors, dim=-1, keepdim=True).clamp_min(1e-12)
    return vectors * factor, factor


class _KeysAsValues(torch.autograd.Function):
    """Cross-entropies `[P,N]` of the logits `cos(q, k) / temperature`; the gradient is a by-product."""

    @staticmethod
    def forward(ctx: Any, q_PND: Tensor, k_PND: Tensor, hidden_PN: Tensor, temperature: float) -> Tensor:  # noqa: ANN401
        (q, factor), (k, _) = (units(vectors, temperature**-0.5) for vectors in (q_PND, k_PND))
        output, lse = attend_to_keys(q, k, hidden_PN)
        own = torch.linalg.vecdot(q, k)
        if ctx.needs_input_grad[0]:
            slope = output.sub_(k)  # with respect to the scaled query; its part along the query is lost in scaling
            along = torch.linalg.vecdot(q, slope)[..., None] * temperature
            ctx.save_for_backward(slope.addcmul_(q, along, value=-1).mul_(factor))
            ctx.dtype = q_PND.dtype
        loss: Tensor = lse - own
        return loss

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:  # noqa: ANN401
        (slope,) = ctx.saved_tensors
        return (slope * grads[0][..., None]).to(ctx.dtype), None, None, None


def info_nce(q_PND: Tensor, k_PND: Tensor, active_PN: Tensor, temperature: float) -> Tensor:
    """Return `2 temp * mean CE` per pair, `[P]`: each query must find its own key among active ones (spec COSTAR-10).

    The factor 2 temp is MoCo-v3's; it only rescales the loss. Random guessing gives `2 temp log N`.

    Args:
        q_PND: queries, any length; gradients flow here.
        k_PND: keys at the same positions; treated as constants.
        active_PN: whether a position counts, as query and as key.
        temperature: divides the cosine similarities.
    """
    dtype = torch.promote_types(q_PND.dtype, torch.float32)
    hidden_PN = torch.where(active_PN, 0.0, -1e9).to(dtype)
    loss_PN: Tensor = _KeysAsValues.apply(q_PND, k_PND.detach(), hidden_PN, temperature)  # type: ignore[no-untyped-call]
    weight_PN = active_PN.to(dtype)
    return 2 * temperature * (loss_PN * weight_PN).sum(dim=1) / weight_PN.sum(dim=1).clamp(min=1)


def log_n_reference(n_active: Tensor, temperature: float, *, components: bool) -> Tensor:
    """Return the loss of random guessing: `4 temp log N`, or `8 temp log N` with component losses (spec COSTAR-12)."""
    return (8 if components else 4) * temperature * n_active.clamp(min=1).log()


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
