"""Attention of the few steps of a plan: to each other, and back to a long history (spec EDCT-2, EDCT-3).

Letters beside the project's: `J` steps of the plan, `W` steps of the history, `h` heads, `n` head width, `r` width of
the history's representations, `E` distances. Under both lies a function whose tensors lead with a group axis G: 1, or
the members under `vmap`.
"""

from typing import Any

import torch
from torch import Tensor

from costar_cli.methods.shared.relative_attention import HIDDEN, apply_to_groups, one_dtype


def short_causal_attention(
    q_BJhn: Tensor, k_BJhn: Tensor, v_BJhn: Tensor, key_JJn: Tensor, value_JJn: Tensor, mask_BhJJ: Tensor | None
) -> Tensor:
    """Return `sum_k mask p (v_k + value_jk)` with `p = softmax(q_j . (k_k + key_jk))` over `k <= j`, `[B,J,h,n]`.

    For few and narrow steps: with the samples on the innermost axis, sums of elementwise products are many times faster
    on a CPU than matrix products of a few rows each.
    """
    n_samples, steps, heads, width = q_BJhn.shape
    q, k, v = (x.permute(1, 3, 0, 2).reshape(1, steps, width, -1) for x in (q_BJhn, k_BJhn, v_BJhn))
    mask = None if mask_BhJJ is None else mask_BhJJ.permute(2, 3, 0, 1).reshape(1, steps, steps, -1)
    with one_dtype(q.device):
        output: Tensor = _ShortAttention.apply(  # type: ignore[no-untyped-call]
            q, k, v, key_JJn[None].to(q.dtype), value_JJn[None].to(q.dtype), mask
        )[0].squeeze(0)
    return output.view(steps, width, n_samples, heads).permute(2, 0, 3, 1)


class _ShortAttention(torch.autograd.Function):
    """`q k v [G,J,n,M]`, tables `[G,J,J,n]`, mask `[G,J,J,M]`; M counts samples and heads."""

    @staticmethod
    def forward(
        q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        steps = q.shape[1]
        causal_JJ1 = torch.full((steps, steps), HIDDEN, device=q.device, dtype=q.dtype).triu_(1)[..., None]
        score = (k[:, None] + keys[..., None]).mul_(q[:, :, None]).sum(dim=3).add_(causal_JJ1)
        p = torch.softmax(score, dim=2)
        dropped = p if mask is None else p * mask
        o = (v[:, None] + values[..., None]).mul_(dropped[:, :, :, None]).sum(dim=2)
        return o, p, dropped

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:  # noqa: ANN401
        _, p, dropped = output
        ctx.mark_non_differentiable(p, dropped)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs, p, dropped)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        q, k, v, keys, values, mask, p, dropped = ctx.saved_tensors
        grad = grads[0][:, :, None]
        grad_p = (v[:, None] + values[..., None]).mul_(grad).sum(dim=3)
        to_values = dropped[:, :, :, None] * grad
        if mask is not None:
            grad_p.mul_(mask)
        grad_score = torch._softmax_backward_data(grad_p, p, 2, p.dtype)[:, :, :, None]
        grad_q = (k[:, None] + keys[..., None]).mul_(grad_score).sum(dim=2)
        to_keys = grad_score * q[:, :, None]
        return grad_q, to_keys.sum(dim=1), to_values.sum(dim=1), to_keys.sum(dim=-1), to_values.sum(dim=-1), None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Tensor | None) -> tuple[Any, Any]:  # noqa: ANN401
        return apply_to_groups(_ShortAttention, info.batch_size, in_dims, args)


def look_back(
    asking_BJhr: Tensor, near_BJhE: Tensor, memory_BWr: Tensor, hidden_BW: Tensor, mask_BhJW: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return what attention with `p = softmax(asking . memory + near)` finds in the memory.

    Memory carries no gradient. Its youngest step is the last, at distance j from step j of the plan.

    Args:
        asking_BJhr: queries, already mapped to the memory's space and scaled.
        near_BJhE: what is added to the score at distance `E - 1`, ..., 0; nothing is added beyond.
        memory_BWr: the history.
        hidden_BW: 1 where there was no such step.
        mask_BhJW: dropout factors of p, or none.

    Returns:
        The sums over the history `[B,J,h,r]` of mask p memory, the same mask p by distance `[B,J,h,E]`, 0 where there
        is no such step, and its sum `[B,J,h,1]`.
    """
    with one_dtype(asking_BJhr.device):
        dtype = asking_BJhr.dtype
        bias_B1W = (hidden_BW * HIDDEN)[:, None].to(dtype)
        seen, near, total, _ = _LookBack.apply(  # type: ignore[no-untyped-call]
            asking_BJhr[None],
            near_BJhE[None].to(dtype),
            memory_BWr[None].to(dtype),
            bias_B1W[None],
            None if mask_BhJW is None else mask_BhJW[None].to(dtype),
        )
    return seen.squeeze(0), near.squeeze(0), total.squeeze(0)


def _by_distance(near_NJhE: Tensor, count: int) -> Tensor:
    """Return the view `[N,J,h,S]` of the last `count` steps of the history in an array by distance `E-1, ..., 0`."""
    n, steps, heads, distances = near_NJhE.shape
    row = heads * distances
    first = near_NJhE.storage_offset() + steps - 1
    return near_NJhE.as_strided((n, steps, heads, count), (steps * row, row - 1, distances, 1), first)


class _LookBack(torch.autograd.Function):
    """All tensors lead with the group axis; see `look_back`."""

    @staticmethod
    def forward(
        asking: Tensor, near: Tensor, memory: Tensor, bias: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        lead, (steps, heads, width) = asking.shape[:2], asking.shape[2:]
        memory_NWr, count = memory.flatten(0, 1), near.shape[-1] - steps + 1
        score = torch.bmm(asking.reshape(-1, steps * heads, width), memory_NWr.transpose(1, 2))
        score += bias.flatten(0, 1)
        p = score.view(-1, steps, heads, score.shape[-1])
        p[..., -count:] += _by_distance(near.contiguous().flatten(0, 1), count)
        p = torch.softmax(p, dim=-1)
        dropped = p if mask is None else p * mask.flatten(0, 1).transpose(1, 2)
        seen = torch.bmm(dropped.flatten(1, 2), memory_NWr).view(asking.shape)
        by_distance = torch.zeros_like(near, memory_format=torch.contiguous_format)
        _by_distance(by_distance.flatten(0, 1), count).copy_(dropped[..., -count:])
        total, p = (x.view(*lead, *x.shape[1:]) for x in (dropped.sum(dim=-1, keepdim=True), p))
        return seen, by_distance, total, p

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:  # noqa: ANN401
        asking, near, memory, _, mask = inputs
        ctx.mark_non_differentiable(output[3])
        ctx.set_materialize_grads(False)  # all three are always used; the others are long
        ctx.near = near.shape
        ctx.asking = asking.shape
        ctx.save_for_backward(memory, mask, output[3])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        memory, mask, p = ctx.saved_tensors
        steps, heads, width = ctx.asking[2:]
        memory_NWr, count = memory.flatten(0, 1), ctx.near[-1] - steps + 1
        grad = torch.bmm(grads[0].reshape(-1, steps * heads, width), memory_NWr.transpose(1, 2))
        grad_p = grad.view(-1, steps, heads, grad.shape[-1]).add_(grads[2].flatten(0, 1))
        grad_p[..., -count:] += _by_distance(grads[1].contiguous().flatten(0, 1), count)
        if mask is not None:
            grad_p.mul_(mask.flatten(0, 1).transpose(1, 2))
        grad_score = torch._softmax_backward_data(grad_p, p.flatten(0, 1), -1, p.dtype)
        grad_asking = torch.bmm(grad_score.flatten(1, 2), memory_NWr).view(ctx.asking)
        grad_near = torch.zeros(ctx.near, device=p.device, dtype=p.dtype)
        _by_distance(grad_near.flatten(0, 1), count).copy_(grad_score[..., -count:])
        return grad_asking, grad_near, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Tensor | None) -> tuple[Any, Any]:  # noqa: ANN401
        return apply_to_groups(_LookBack, info.batch_size, in_dims, args)
