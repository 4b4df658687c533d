"""Causal attention with relative keys and values, without a vector per pair of steps (spec NET-6 to 7).

Distances at or beyond K share one vector. Subtracted from the others, it leaves a band of K diagonals: as a key it
shifts whole rows of scores, which softmax ignores; as a value it adds to every value. The band of a row-major
`[T,T]` matrix is a strided view: row t, entry j is column `t - W + 1 + j`. Where that column is negative the view
reaches into the future part of row t - 1, which softmax has zeroed or will; row 0 alone must be left out.
"""

import contextlib
from typing import Any

import torch
from torch import Tensor, nn

HIDDEN = -1e9  # added to the score of a key that nobody may see, such as one in the query's future


class RelativeTables(nn.Module):
    """Trainable keys and values per clipped distance, `[rows,n]` each (spec NET-6, COSTAR-3)."""

    def __init__(self, rows: int, head_width: int) -> None:
        super().__init__()
        # The specification gives no initial values for these tables; Xavier is common, and was not tuned.
        self.key = nn.Parameter(nn.init.xavier_uniform_(torch.empty(rows, head_width)))
        self.value = nn.Parameter(nn.init.xavier_uniform_(torch.empty(rows, head_width)))

    def forward(self) -> tuple[Tensor, Tensor]:
        """Return keys and values."""
        return self.key, self.value


def one_dtype(device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Return the context in which autocast changes no dtype: what goes forward in one must come back in it."""
    if not torch.amp.is_autocast_available(device.type):
        return contextlib.nullcontext()
    return torch.autocast(device.type, enabled=False)


def relative_causal_attention(
    q_MTn: Tensor, k_MTn: Tensor, v_MTn: Tensor, key_table: Tensor, value_table: Tensor, mask_MTT: Tensor | None
) -> Tensor:
    """Return `sum_k mask p (v_k + value[k - q])` with `p = softmax(q . (k + key[k - q]))` over `k <= q`, `[M,T,n]`.

    Args:
        q_MTn: queries, already divided by `sqrt(n)`.
        k_MTn: keys.
        v_MTn: values.
        key_table: `[2K+1,n]`, row `clip(k - q, -K, K) + K`; rows beyond K belong to the future and are never read.
        value_table: `[2K+1,n]`, likewise.
        mask_MTT: dropout factors of the attention probabilities, or none.
    """
    clip_distance = key_table.shape[0] // 2
    width = min(clip_distance, q_MTn.shape[1])
    near = slice(clip_distance - width + 1, clip_distance + 1)
    key_table, value_table = key_table.to(q_MTn.dtype), value_table.to(q_MTn.dtype)
    key_band, value_band = key_table[near] - key_table[0], value_table[near] - value_table[0]
    mask = None if mask_MTT is None else mask_MTT[None].to(q_MTn.dtype)
    with one_dtype(q_MTn.device):
        values = (v_MTn + value_table[0])[None]
        output: Tensor = _BandedAttention.apply(  # type: ignore[no-untyped-call]
            q_MTn[None], k_MTn[None], values, key_band[None], value_band[None], mask
        )[0]
    return output[0]


def band_of(matrix_GMTT: Tensor, width: int) -> Tensor:
    """Return the view `[G, M, T-1, W]` of the last `width` diagonals up to the main one, rows 1 to T-1."""
    g, m, t, _ = matrix_GMTT.shape
    return matrix_GMTT.as_strided(
        (g, m, t - 1, width), (m * t * t, t * t, t + 1, 1), matrix_GMTT.storage_offset() + t + 2 - width
    )


class _BandedAttention(torch.autograd.Function):
    """All tensors lead with a group axis G: 1, or the members under `vmap`."""

    @staticmethod
    def forward(
        q: Tensor, k: Tensor, v: Tensor, key_band: Tensor, value_band: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        n_steps, width = q.shape[2], key_band.shape[1]
        causal_TT = torch.full((n_steps, n_steps), HIDDEN, device=q.device, dtype=q.dtype).triu_(1)
        score = torch.baddbmm(causal_TT, q.flatten(0, 1), k.flatten(0, 1).transpose(1, 2)).view(*q.shape[:3], n_steps)
        band_of(score, width).add_(q[:, :, 1:] @ key_band[:, None].transpose(-1, -2))
        p = torch.softmax(score, dim=-1)
        dropped = p if mask is None else p * mask
        o = torch.bmm(dropped.flatten(0, 1), v.flatten(0, 1)).view(v.shape)
        o[:, :, 1:] += band_of(dropped, width) @ value_band[:, None]
        o[:, :, 0] += dropped[:, :, 0, :1] * value_band[:, None, -1]
        return o, p, dropped

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:  # noqa: ANN401
        q, k, v, key_band, value_band, mask = inputs
        _, p, dropped = output
        ctx.mark_non_differentiable(p, dropped)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(q, k, v, key_band, value_band, mask, p, dropped)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        q, k, v, key_band, value_band, mask, p, dropped = ctx.saved_tensors
        grad = grads[0].contiguous()
        width = key_band.shape[1]
        flat = grad.flatten(0, 1)
        grad_p = torch.bmm(flat, v.flatten(0, 1).transpose(1, 2)).view(p.shape)
        band_of(grad_p, width).add_(grad[:, :, 1:] @ value_band[:, None].transpose(-1, -2))
        grad_p[:, :, 0, 0] += (grad[:, :, 0] * value_band[:, None, -1]).sum(dim=-1)
        if mask is not None:
            grad_p.mul_(mask)
        grad_score = torch._softmax_backward_data(grad_p, p, -1, p.dtype)
        grad_q = torch.bmm(grad_score.flatten(0, 1), k.flatten(0, 1)).view(q.shape)
        band = band_of(grad_score, width)
        grad_q[:, :, 1:] += band @ key_band[:, None]
        grad_k = torch.bmm(grad_score.flatten(0, 1).transpose(1, 2), q.flatten(0, 1)).view(k.shape)
        grad_v = torch.bmm(dropped.flatten(0, 1).transpose(1, 2), flat).view(v.shape)
        grad_key_band = torch.einsum("gmtw,gmtn->gwn", band, q[:, :, 1:])
        grad_value_band = torch.einsum("gmtw,gmtn->gwn", band_of(dropped, width), grad[:, :, 1:])
        grad_value_band[:, -1] += (dropped[:, :, 0, :1] * grad[:, :, 0]).sum(dim=1)
        return grad_q, grad_k, grad_v, grad_key_band, grad_value_band, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Tensor | None) -> tuple[Any, Any]:  # noqa: ANN401
        return apply_to_groups(_BandedAttention, info.batch_size, in_dims, args)


def apply_to_groups(
    function: type[torch.autograd.Function], n_members: int, in_dims: tuple[int | None, ...], args: tuple[Any, ...]
) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    """Apply a function whose tensors lead with a group axis to members under `vmap`: they become its groups."""

    def grouped(value: Any, dim: int | None) -> Any:  # noqa: ANN401 - tensors, and settings that all share
        if not isinstance(value, Tensor):
            return value
        lead = value.expand(n_members, *value.shape) if dim is None else value.movedim(dim, 0)
        return lead.flatten(0, 1).contiguous()

    outputs = function.apply(*map(grouped, args, in_dims))  # type: ignore[no-untyped-call]
    return tuple(o.view(n_members, -1, *o.shape[1:]) for o in outputs), (0,) * len(outputs)
