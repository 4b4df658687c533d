"""Attention units, and the two blocks that a layer is made of (spec NET-7, COSTAR-4, COSTAR-5)."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from costar_cli.config.models import EncoderConfig
from costar_cli.methods.costar.feed_forward import FeedForward, LayerNorm
from costar_cli.methods.costar.scalar_attention import (
    near_band,
    scalar_attention_summary,
    score_coefficients,
    summary_weights,
)
from costar_cli.methods.shared.dropout import Dropout, Masks, MaskShapes
from costar_cli.methods.shared.relative_attention import one_dtype, relative_causal_attention


class AttentionUnit(nn.Module):
    """Projections, head split and the post-norm residual that both kinds of attention share (spec NET-7)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.head_width = config.width // config.heads
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.norm = LayerNorm(config.width)
        self.dropout = Dropout(config.dropout)

    def scaled(self) -> tuple[Tensor, Tensor]:
        """Return weight and bias of the projections, those of the queries divided by `sqrt(n)`."""
        scale = self.qkv.weight.new_ones(3, 1)
        scale[0].fill_(self.head_width**-0.5)  # on its device: a list would be copied to a GPU at every call
        weight = self.qkv.weight.view(3, -1) * scale
        return weight.view(self.qkv.weight.shape), (self.qkv.bias.view(3, -1) * scale).flatten()

    def project(self, tokens: Tensor) -> Tensor:
        """Return `[..., 3, h, n]` with queries already divided by `sqrt(n)`."""
        projected = functional.linear(tokens, *self.scaled())
        return projected.view(*tokens.shape[:-1], 3, self.heads, self.head_width)

    def project_affine(self, token_ZD: Tensor) -> tuple[Tensor, ...]:
        """Return queries, keys and values `[1+F,h,n]` of tokens given as slope (first row, no bias) and offsets."""
        weight, bias = self.scaled()
        projected = torch.cat([token_ZD[:1] @ weight.T, functional.linear(token_ZD[1:], weight, bias)])
        return projected.view(-1, 3, self.heads, self.head_width).unbind(1)

    def over_time(self, tokens_GTD: Tensor, tables: tuple[Tensor, Tensor], drawn: Tensor | None) -> Tensor:
        """Return what causal attention within each series gives, `[G,T,D]`, before residual and norm.

        Args:
            tokens_GTD: G series.
            tables: relative keys and values.
            drawn: bytes of the dropout mask, `[...,h,T,T]` for G leading entries, or none.
        """
        qkv = self.project(tokens_GTD)  # [G, T, 3, h, n]
        q, k, v = qkv.permute(2, 0, 3, 1, 4).flatten(1, 2).unbind(0)  # each [Gh, T, n]
        key_table, value_table = tables
        mask_MTT = None
        if drawn is not None:
            mask_MTT = self.dropout.factors(drawn, v.dtype).flatten(0, -3)
            v, value_table = v * self.dropout.per_kept, value_table * self.dropout.per_kept
        o = relative_causal_attention(q, k, v, key_table, value_table, mask_MTT)
        return o.view(len(tokens_GTD), self.heads, -1, self.head_width).transpose(1, 2).flatten(-2)


class _DotsOfRows(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(a: Tensor, b: Tensor) -> Tensor:
        return torch.bmm(a, b.transpose(1, 2))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:  # noqa: ANN401, ARG004
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        a, b = ctx.saved_tensors
        (grad,) = grads
        return torch.bmm(grad.to(b.dtype), b), torch.bmm(grad.to(a.dtype).transpose(1, 2), a)


def dots_of_rows(a_PMD: Tensor, b_PKD: Tensor) -> Tensor:
    """Return `a b^T`, `[P,M,K]`; the framework's own gradient of b comes out transposed, four times slower."""
    result: Tensor = _DotsOfRows.apply(a_PMD, b_PKD)  # type: ignore[no-untyped-call]
    return result


WIDE = 64  # keys of a step, features and statics: from here on heads are split, and rows of scores are long (measured)


class TemporalBlock(nn.Module):
    """Causal attention over time within each feature, then feed-forward; statics only pass the latter (spec COSTAR-4).

    Steps beyond a subject's length need no mask of their own: they come last, so causality hides them from every
    real step, and what is computed at them is never used.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.unit = AttentionUnit(config)
        self.feed_forward = FeedForward(config)

    def mask_shapes(self, name: str, n_steps: int, layout: tuple[int, int]) -> MaskShapes:
        """Return the dropout masks of one sample; `layout` is (temporal tokens, static tokens)."""
        n_temporal, n_static = layout
        return {
            f"{name}.attention": (n_temporal, self.unit.heads, n_steps, n_steps),
            **self.feed_forward.mask_shapes(f"{name}.series", n_temporal, n_steps),
            **self.feed_forward.mask_shapes(f"{name}.statics", n_static),
        }

    def forward(
        self,
        series_BFTD: Tensor,
        statics_BVD: Tensor,
        tables: tuple[Tensor, Tensor],
        masks: Masks,
        name: str,
        *,
        step_B: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return series and statics after the block, in the same shapes; with `step_B` at one step of each series."""
        drawn = None if masks is None else masks[f"{name}.attention"]
        attended = self.unit.over_time(series_BFTD.flatten(0, 1), tables, drawn)
        series_BFTD = attended.view(series_BFTD.shape) + series_BFTD
        if step_B is not None:
            series_BFTD = series_BFTD[torch.arange(len(step_B), device=step_B.device), :, step_B, None]
        series_BFTD = self.unit.norm(series_BFTD)
        return (
            self.feed_forward(series_BFTD, masks, f"{name}.series"),
            self.feed_forward(statics_BVD, masks, f"{name}.statics"),
        )

    def forward_scalars(
        self,
        series_BFT: Tensor,
        token_ZD: Tensor,
        statics_BVD: Tensor,
        tables: tuple[Tensor, Tensor],
        masks: Masks,
        name: str,
        *,
        step_B: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the same for the tokens of the first layer, given as scalars with `token_ZD`, their slope and offsets.

        `scalar_attention` tells why this is cheaper. It computes with the features first.
        """
        n_steps = series_BFT.shape[2]
        drawn = None if masks is None else masks[f"{name}.attention"]
        with one_dtype(token_ZD.device):
            series_BFT = series_BFT.to(token_ZD.dtype)
            q_Zhn, k_Zhn, v_Zhn = self.unit.project_affine(token_ZD)
            coefficients = score_coefficients(q_Zhn, k_Zhn[0], near_band(tables[0], n_steps))
            summary_FBTC = scalar_attention_summary(series_BFT, coefficients, drawn, self.unit.dropout.keep)
            scale = 1.0 if masks is None else self.unit.dropout.per_kept
            weights_FCD = summary_weights(
                v_Zhn[0] * scale, (v_Zhn[1:] + tables[1][0]) * scale, near_band(tables[1], n_steps) * scale, token_ZD
            )
            if step_B is not None:
                summary_FBTC = summary_FBTC[:, torch.arange(len(step_B), device=step_B.device), step_B, None]
            sum_FMD = torch.bmm(summary_FBTC.flatten(1, 2), weights_FCD)
        series_FBTD = self.unit.norm(sum_FMD.view(*summary_FBTC.shape[:3], -1))
        if masks is not None:
            flipped = (f"{name}.series.inner", f"{name}.series.outer")
            masks = dict(masks) | {key: masks[key].transpose(0, 1) for key in flipped}
        return (
            self.feed_forward(series_FBTD, masks, f"{name}.series").transpose(0, 1),
            self.feed_forward(statics_BVD, masks, f"{name}.statics"),
        )


class FeatureBlock(nn.Module):
    """Attention over features within each step, statics as further keys, then feed-forward (spec COSTAR-5)."""

    head_mask: Tensor  # [h, 1, D]: which columns belong to which head

    def __init__(self, config: EncoderConfig, *, last: bool) -> None:
        super().__init__()
        self.unit = AttentionUnit(config)
        self.feed_forward = FeedForward(config)
        cpu = torch.device("cpu")  # also where parameters have no values: arithmetic there imports PyTorch's compiler
        head_of_column = torch.arange(config.width, device=cpu) // self.unit.head_width
        mask_h1D = (head_of_column == torch.arange(config.heads, device=cpu)[:, None, None]).float()
        self.register_buffer("head_mask", mask_h1D, persistent=False)
        self.last = last  # nothing reads the statics after the last layer: they are not pooled

    def mask_shapes(self, name: str, n_steps: int, layout: tuple[int, int]) -> MaskShapes:
        """Return the dropout masks of one sample; `layout` is (temporal tokens, static tokens)."""
        n_temporal, n_static = layout
        heads = self.unit.heads
        shapes = {
            f"{name}.attention": (n_steps, heads * n_temporal, n_temporal + n_static),
            **self.feed_forward.mask_shapes(f"{name}.series", n_steps, n_temporal),
        }
        if not self.last:
            shapes[f"{name}.static_attention"] = (heads, n_static, n_static)
            shapes |= self.feed_forward.mask_shapes(f"{name}.statics", n_static)
        return shapes

    def forward(self, series_BTFD: Tensor, statics_BVD: Tensor, masks: Masks, name: str) -> tuple[Tensor, Tensor]:
        """Return series `[B,T,F,D]` and statics `[B,V,D]` after the block."""
        width, own_columns = series_BTFD.shape[-1], self.head_mask
        if masks is not None:
            own_columns = own_columns * self.unit.dropout.per_kept
        qkv, qkv_V = self.unit.project(series_BTFD), self.unit.project(statics_BVD)
        drawn = None if masks is None else masks[f"{name}.attention"]
        of_heads = self._split_heads if qkv.shape[2] + qkv_V.shape[1] >= WIDE else self._masked_heads
        o_BTFD = of_heads(qkv, qkv_V, drawn, own_columns)
        series_BTFD = self.feed_forward(self.unit.norm(o_BTFD + series_BTFD), masks, f"{name}.series")
        if self.last:
            return series_BTFD, statics_BVD
        q_V, k_V, v_V = torch.split(qkv_V.flatten(-3), width, dim=-1)
        q_BhVD = q_V[:, None] * self.head_mask
        p_V = torch.softmax(q_BhVD @ k_V[:, None].transpose(-1, -2), -1)
        if masks is not None:
            p_V = p_V * self.unit.dropout.factors(masks[f"{name}.static_attention"], p_V.dtype)
        o_BVD = (p_V @ v_V[:, None] * own_columns).sum(dim=1)
        return series_BTFD, self.feed_forward(self.unit.norm(o_BVD + statics_BVD), masks, f"{name}.statics")

    def _masked_heads(self, qkv: Tensor, qkv_V: Tensor, drawn: Tensor | None, own_columns: Tensor) -> Tensor:
        """Return what attention over few features gives, `[B,T,F,D]`, before residual and norm.

        Heads by masking instead of splitting: a few more products, but no copies and no tiny matrices.
        """
        batch, n_steps, n_temporal, _, heads, n = qkv.shape
        width = heads * n
        q, kv = torch.split(qkv.flatten(-3), [width, 2 * width], dim=-1)  # [B, T, F, D or 2D]
        kv_V = qkv_V.flatten(-3)[..., width:]
        kv = torch.cat([kv, kv_V[:, None].expand(-1, n_steps, -1, -1)], dim=2).flatten(0, 1)
        k, v = torch.split(kv, width, dim=-1)
        q_PMD = (q[:, :, None] * self.head_mask).flatten(2, 3).flatten(0, 1)  # P = B * T, M = h * F
        # Over the last axis, but with that axis second: kernels are slow on rows of a few entries. Scores have no name,
        # which would keep them in memory.
        p = torch.softmax(
            dots_of_rows(q_PMD, k).view(batch, n_steps, q_PMD.shape[1], -1).movedim(-1, 1).contiguous(), dim=1
        ).movedim(1, -1)
        if drawn is not None:
            p = p * self.unit.dropout.factors(drawn, p.dtype)
        o_BThFD = torch.bmm(p.flatten(0, 1), v).view(batch, n_steps, -1, n_temporal, width)
        return (o_BThFD * own_columns).sum(dim=2)

    def _split_heads(self, qkv: Tensor, qkv_V: Tensor, drawn: Tensor | None, own_columns: Tensor) -> Tensor:
        """Return the same of many features: half the products of two heads, and softmax over rows as they lie."""
        batch, n_steps, n_temporal, _, heads, n = qkv.shape
        q_LFn = qkv[:, :, :, 0].transpose(2, 3).flatten(0, 2)  # L = B * T * h
        kv = torch.cat([qkv[:, :, :, 1:], qkv_V[:, None, :, 1:].expand(-1, n_steps, -1, -1, -1, -1)], dim=2)
        k_LKn, v_LKn = kv.permute(3, 0, 1, 4, 2, 5).flatten(1, 3).unbind(0)
        p_LFK = torch.softmax(dots_of_rows(q_LFn, k_LKn), dim=-1)
        if drawn is not None:
            p_LFK = p_LFK * self.unit.dropout.factors(drawn, p_LFK.dtype).view(p_LFK.shape)
        o_LFn = torch.bmm(p_LFK, v_LKn)
        o_BTFD = o_LFn.view(batch, n_steps, heads, n_temporal, n).transpose(2, 3).flatten(-2)
        return o_BTFD * own_columns.sum(dim=0)
