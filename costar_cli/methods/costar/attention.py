"""Attention and feed-forward units, and the two blocks that a layer is made of (spec models A.3 to A.7)."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from costar_cli.config.models import EncoderConfig
from costar_cli.methods.costar.dropout import Masks, MaskShapes, kept_bytes, masked, masked_relu
from costar_cli.methods.costar.relative_attention import relative_causal_attention

__all__ = ["FeatureBlock", "FeedForward", "LayerNorm", "RelativeTables", "TemporalBlock"]

EPSILON = 1e-12


class LayerNorm(nn.Module):
    """Normalise by mean and *unbiased* sd over the last axis (spec models A.4).

    The framework's fused kernel divides by the biased sd; the constant ratio of the two moves into the gain. Its
    epsilon sits under the root (1e-12) where the spec adds 1e-6 to the sd: the same for constant rows, and within
    1e-6/sd elsewhere.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.ratio = math.sqrt((width - 1) / width)

    def forward(self, u: Tensor) -> Tensor:
        """Return the normalised rows."""
        return functional.layer_norm(u, u.shape[-1:], self.gain * self.ratio, self.bias, EPSILON)


class FeedForward(nn.Module):
    """`LN(drop(W2 drop(relu(W1 u))) + u)`, position by position (spec models A.5)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.inner = nn.Linear(config.width, 4 * config.width)
        self.outer = nn.Linear(4 * config.width, config.width)
        self.norm = LayerNorm(config.width)
        self.per_kept = 256 / kept_bytes(config.dropout)

    def mask_shapes(self, name: str, *lead: int) -> MaskShapes:
        """Return the shapes of the two dropout masks for one sample `[*lead, D]`."""
        width = self.outer.out_features
        return {f"{name}.inner": (*lead, 4 * width), f"{name}.outer": (*lead, width)}

    def forward(self, u: Tensor, masks: Masks, name: str) -> Tensor:
        """Return the transformed rows, in the shape of `u`."""
        scale = 1.0 if masks is None else self.per_kept
        hidden = masked_relu(self.inner(u), masks, f"{name}.inner")
        out = functional.linear(hidden, self.outer.weight * scale**2, self.outer.bias * scale)
        return self.norm(masked(out, masks, f"{name}.outer") + u)  # type: ignore[no-any-return]


class RelativeTables(nn.Module):
    """Trainable keys and values per clipped distance, shared by all layers, heads and features (spec models A.3)."""

    def __init__(self, clip_distance: int, head_width: int) -> None:
        super().__init__()
        self.key = nn.Parameter(nn.init.xavier_uniform_(torch.empty(2 * clip_distance + 1, head_width)))
        self.value = nn.Parameter(nn.init.xavier_uniform_(torch.empty(2 * clip_distance + 1, head_width)))

    def forward(self) -> tuple[Tensor, Tensor]:
        """Return the key and value tables `[2K+1,n]`."""
        return self.key, self.value


class AttentionUnit(nn.Module):
    """Projections, head split and the post-norm residual that both kinds of attention share (spec models A.4)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.head_width = config.width // config.heads
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.norm = LayerNorm(config.width)
        self.per_kept = 256 / kept_bytes(config.dropout)

    def project(self, tokens: Tensor) -> Tensor:
        """Return `[..., 3, H, n]` with queries already divided by `sqrt(n)`."""
        scale = torch.ones(3, device=tokens.device, dtype=self.qkv.weight.dtype)
        scale[0] = self.head_width**-0.5
        scale_E = scale.repeat_interleave(self.heads * self.head_width)
        weight = self.qkv.weight * scale_E[:, None]
        projected = functional.linear(tokens, weight, self.qkv.bias * scale_E)
        return projected.view(*tokens.shape[:-1], 3, self.heads, self.head_width)


def softmax_of_short_rows(score: Tensor) -> Tensor:
    """Return softmax over the last axis, computed with that axis second: kernels are slow on rows of a few entries."""
    return torch.softmax(score.movedim(-1, 1).contiguous(), dim=1).movedim(1, -1)


class TemporalBlock(nn.Module):
    """Causal attention over time within each feature, then feed-forward; statics only pass the latter (spec A.6).

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
        self, series_BFTD: Tensor, statics_BVD: Tensor, tables: tuple[Tensor, Tensor], masks: Masks, name: str
    ) -> tuple[Tensor, Tensor]:
        """Return series and statics after the block, in the same shapes."""
        batch, n_temporal, n_steps, width = series_BFTD.shape
        qkv = self.unit.project(series_BFTD).flatten(0, 1)  # [BF, T, 3, H, n]
        q, k, v = qkv.permute(2, 0, 3, 1, 4).flatten(1, 2).unbind(0)  # each [BFH, T, n]
        key_table, value_table = tables
        mask_MTT = None
        if masks is not None:
            mask_MTT = masks[f"{name}.attention"].flatten(0, 2)
            v, value_table = v * self.unit.per_kept, value_table * self.unit.per_kept
        o = relative_causal_attention(q, k, v, key_table, value_table, mask_MTT)
        o_BFTD = o.view(batch, n_temporal, -1, n_steps, self.unit.head_width).transpose(2, 3)
        series_BFTD = self.unit.norm(o_BFTD.reshape(batch, n_temporal, n_steps, width) + series_BFTD)
        return (
            self.feed_forward(series_BFTD, masks, f"{name}.series"),
            self.feed_forward(statics_BVD, masks, f"{name}.statics"),
        )


class FeatureBlock(nn.Module):
    """Attention over features within each step, statics as further keys, then feed-forward (spec models A.7)."""

    head_mask: Tensor  # [H, 1, D]: which columns belong to which head

    def __init__(self, config: EncoderConfig, *, last: bool) -> None:
        super().__init__()
        self.unit = AttentionUnit(config)
        self.feed_forward = FeedForward(config)
        head_of_column = torch.arange(config.width) // self.unit.head_width
        mask_H1D = (head_of_column == torch.arange(config.heads)[:, None, None]).float()
        self.register_buffer("head_mask", mask_H1D, persistent=False)
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
        batch, n_steps, n_temporal, width = series_BTFD.shape
        q, k, v = self.unit.project(series_BTFD).flatten(-2).unbind(-2)  # each [B, T, F, D]
        q_V, k_V, v_V = self.unit.project(statics_BVD).flatten(-2).unbind(-2)  # each [B, V, D]
        # Heads by masking instead of splitting: a few more products, but no copies and no tiny matrices.
        q_BTMD = (q[:, :, None] * self.head_mask).flatten(2, 3)  # M = H * F
        score_BTMK = q_BTMD @ k.transpose(-1, -2)
        score_static = (q_BTMD.flatten(1, 2) @ k_V.transpose(-1, -2)).view(*q_BTMD.shape[:3], statics_BVD.shape[1])
        p = masked(softmax_of_short_rows(torch.cat([score_BTMK, score_static], dim=-1)), masks, f"{name}.attention")
        o_static = (p[..., n_temporal:].flatten(1, 2) @ v_V).view(q_BTMD.shape)
        o_BTHFD = (p[..., :n_temporal] @ v + o_static).view(batch, n_steps, -1, n_temporal, width)
        own_columns = self.head_mask if masks is None else self.head_mask * self.unit.per_kept
        o_BTFD = (o_BTHFD * own_columns).sum(dim=2)
        series_BTFD = self.feed_forward(self.unit.norm(o_BTFD + series_BTFD), masks, f"{name}.series")
        if self.last:
            return series_BTFD, statics_BVD
        q_BHVD = q_V[:, None] * self.head_mask
        p_V = masked(torch.softmax(q_BHVD @ k_V[:, None].transpose(-1, -2), -1), masks, f"{name}.static_attention")
        o_BVD = (p_V @ v_V[:, None] * own_columns).sum(dim=1)
        return series_BTFD, self.feed_forward(self.unit.norm(o_BVD + statics_BVD), masks, f"{name}.statics")
