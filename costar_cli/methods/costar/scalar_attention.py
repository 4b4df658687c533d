"""Temporal attention of the first layer, whose tokens are one scalar each: no token, query, key or value is built.

A token of feature f is `s w + offset_f`, so queries, keys and values are affine in the scalar, and up to constants of a
row (which softmax ignores) the score of query t and key u is `s_u (s_t a_h + c_fh) + s_t A_h[t-u] + C_fh[t-u]`, with
`a = qw.kw`, `c = qo_f.kw` and A, C the same queries times the relative keys. What the attention returns is affine in
`sum p s`, `sum p` and the probabilities of the near steps (the band of `relative_attention`): a matrix product with
coefficients that depend on the parameters alone. Only elementwise work on the T x T probabilities remains.
"""

from typing import Any

import torch
from torch import Tensor

from costar_cli.methods.costar.relative_attention import HIDDEN, apply_to_groups, band_of

__all__ = ["near_band", "scalar_attention_summary", "score_coefficients", "summary_weights"]


def near_band(table: Tensor, n_steps: int) -> Tensor:
    """Return the rows `[W,n]` of a relative table for distances W-1 to 0, less the row that all far steps share."""
    clip_distance = table.shape[0] // 2
    width = min(clip_distance, n_steps)
    return table[clip_distance - width + 1 : clip_distance + 1] - table[0]


def score_coefficients(query_XHn: Tensor, key_Hn: Tensor, key_band_Wn: Tensor) -> Tensor:
    """Return `[1+F,H,1+W]`: scores of the slope (first row) and the offsets of queries with key slope and near keys."""
    keys_HKn = torch.cat([key_Hn[:, None], key_band_Wn.expand(key_Hn.shape[0], -1, -1)], dim=1)
    return torch.einsum("xhn,hkn->xhk", query_XHn, keys_HKn)


def summary_weights(value_Hn: Tensor, offset_FHn: Tensor, value_band_Wn: Tensor, token_XD: Tensor) -> Tensor:
    """Return `[F,H(2+W)+2,D]`, which turn summaries into attention output plus token.

    Args:
        value_Hn: what `sum p s` is multiplied with.
        offset_FHn: what `sum p` is multiplied with.
        value_band_Wn: relative values of the near steps.
        token_XD: slope of the tokens, then their offsets, `[1+F,D]`.
    """
    n_features, heads, n = offset_FHn.shape
    lead = (n_features, heads, -1, n)
    own_FHKn = torch.cat([value_Hn[:, None].expand(lead), offset_FHn[:, :, None], value_band_Wn.expand(lead)], dim=2)
    heads_HH = torch.eye(heads, dtype=value_Hn.dtype, device=value_Hn.device)
    rows_FCD = (own_FHKn[:, :, :, None] * heads_HH[:, None, :, None]).reshape(n_features, -1, heads * n)
    tokens_F2D = torch.stack([token_XD[:1].expand(n_features, -1), token_XD[1:]], dim=1)
    return torch.cat([rows_FCD, tokens_F2D], dim=1)


def scalar_attention_summary(series_BFT: Tensor, coefficients_XHK: Tensor, mask_BFHTT: Tensor | None) -> Tensor:
    """Return `[F,B,T,H(2+W)+2]`: per head `sum p s`, `sum p` and near probabilities, then the scalar and one.

    Args:
        series_BFT: the scalars; they get no gradient.
        coefficients_XHK: `score_coefficients`.
        mask_BFHTT: dropout factors of the attention probabilities, or none.
    """
    mask = None if mask_BFHTT is None else mask_BFHTT[None]
    output: Tensor = _ScalarAttention.apply(series_BFT[None], coefficients_XHK[None], mask)[0]  # type: ignore[no-untyped-call]
    return output[0]


def with_ones(series_GBFT: Tensor) -> Tensor:
    """Return `[GBF,2,T]`: scalars above ones. Products of few rows are several times faster in this layout."""
    return torch.stack([series_GBFT, torch.ones_like(series_GBFT)], dim=-2).flatten(0, 2)


def near_of(matrix: Tensor, width: int) -> Tensor:
    """Return the view `[G,B,F,H,T-1,W]` of the near diagonals of `[G,B,F,H,T,T]`."""
    band = band_of(matrix.view(matrix.shape[0], -1, *matrix.shape[-2:]), width)
    return band.view(*matrix.shape[:-2], *band.shape[-2:])


def by_head(summary: Tensor, heads: int) -> Tensor:
    """Return the view `[G,B,F,H,T,2+W]` of `[G,F,B,T,H(2+W)+2]`, without the scalar and one."""
    own = summary[..., :-2]
    return own.view(*own.shape[:-1], heads, -1).permute(0, 2, 1, 4, 3, 5)


def scores(series: Tensor, ones: Tensor, coefficients: Tensor) -> Tensor:
    """Return the scores `[G,B,F,H,T,T]`, up to constants of a row."""
    g, batch, n_features, t = series.shape
    heads, width = coefficients.shape[2], coefficients.shape[3] - 1
    lead = (g, batch, n_features, heads)
    pairs = torch.stack([coefficients[:, :1].expand_as(coefficients[:, 1:]), coefficients[:, 1:]], dim=2)
    pairs = pairs.transpose(3, 4)[:, None].expand(-1, batch, -1, -1, -1, -1)  # [G, B, F, 2, 1 + W, H]
    of_query = torch.bmm(ones.transpose(1, 2), pairs.reshape(-1, 2, (1 + width) * heads))
    of_query = of_query.view(g, batch, n_features, t, 1 + width, heads).permute(0, 1, 2, 5, 3, 4)
    hidden = torch.full((t, t), HIDDEN, dtype=series.dtype, device=series.device).triu_(1)
    score = torch.baddbmm(hidden.repeat(heads, 1), of_query[..., 0].reshape(-1, heads * t, 1), ones[:, :1])
    score = score.view(*lead, t, t)
    near_of(score, width).add_(of_query[..., 1:, 1:])
    return score


class _ScalarAttention(torch.autograd.Function):
    """All tensors lead with a group axis G: 1, or the members under `vmap`."""

    @staticmethod
    def forward(series: Tensor, coefficients: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        g, batch, n_features, t = series.shape
        heads, width = coefficients.shape[2], coefficients.shape[3] - 1
        ones = with_ones(series)
        score = scores(series, ones, coefficients)
        p = torch.softmax(score, dim=-1)
        dropped = p if mask is None else torch.mul(p, mask, out=score)
        sums = torch.bmm(ones, dropped.view(-1, heads * t, t).transpose(1, 2)).view(g, batch, n_features, 2, heads, t)
        summary = series.new_empty(g, n_features, batch, t, heads * (2 + width) + 2)
        own = by_head(summary, heads)
        own[..., :2] = sums.movedim(3, -1)
        own[..., 1:, 2:] = near_of(dropped, width)
        own[..., 0, 2:-1] = 0
        own[..., 0, -1] = dropped[..., 0, 0]
        summary[..., -2] = series.transpose(1, 2)
        summary[..., -1] = 1
        return summary, p

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:  # noqa: ANN401
        series, coefficients, mask = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(series, mask, output[1])
        ctx.width = coefficients.shape[3] - 1

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor, None]:  # noqa: ANN401
        series, mask, p = ctx.saved_tensors
        g, batch, n_features, heads, t, _ = p.shape
        width, ones = ctx.width, with_ones(series)
        own = by_head(grads[0], heads)
        grad_p = torch.bmm(own[..., :2].reshape(-1, heads * t, 2), ones).view(p.shape)
        near_of(grad_p, width).add_(own[..., 1:, 2:])  # step 0 sees itself alone: its probability is constant
        if mask is not None:
            grad_p.mul_(mask)
        grad_score = torch._softmax_backward_data(grad_p, p, -1, p.dtype)
        grad_query = torch.bmm(ones[:, :1], grad_score.view(-1, heads * t, t).transpose(1, 2))
        of_slope_key = torch.bmm(grad_query.view(-1, heads, t), ones.transpose(1, 2))
        rows = ones[:, None, :, 1:].expand(-1, heads, -1, -1).flatten(0, 1)
        of_near_keys = torch.bmm(rows, near_of(grad_score, width).flatten(0, 3))
        lead = (g, batch, n_features, heads, 2)
        slopes = torch.cat([of_slope_key.view(*lead, 1), of_near_keys.view(*lead, width)], dim=-1).sum(dim=1)
        return None, torch.cat([slopes[..., 0, :].sum(dim=1, keepdim=True), slopes[..., 1, :]], dim=1), None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Tensor | None) -> tuple[Any, Any]:  # noqa: ANN401
        return apply_to_groups(_ScalarAttention, info.batch_size, in_dims, args)
