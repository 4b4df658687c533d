"""The COSTAR encoder: one causal pass over a subject's series gives a representation of the history at every step.

Scalars become tokens by one shared affine map, and a code that says which feature a token is.
"""

import torch
from torch import Tensor, nn

from costar_cli.config.models import EncoderConfig
from costar_cli.methods.costar.attention import FeatureBlock, TemporalBlock
from costar_cli.methods.costar.representation import HistoryEncoder, Representations
from costar_cli.methods.shared.dropout import Dropout, Masks, MaskShapes
from costar_cli.methods.shared.members import Dims
from costar_cli.methods.shared.relative_attention import RelativeTables


class TokenLayout:
    """Which token is which: time-varying tokens in order X, A, Y, then statics V (spec COSTAR-1).

    Args:
        dims: numbers of covariates, treatments, outcomes and statics.
    """

    def __init__(self, dims: Dims) -> None:
        self.dims = dims
        self.n_temporal = sum(dims[:3])
        self.n_static = dims[3]
        self.component = torch.tensor([c for c, size in enumerate(dims) for _ in range(size)], dtype=torch.int64)
        self.index = torch.tensor([index for size in dims for index in range(size)], dtype=torch.int64)

    @property
    def pooled(self) -> list[slice]:
        """Return the tokens of each present component in order Y, A, X (spec COSTAR-7)."""
        dx, da, dy, _ = self.dims
        slices = [slice(dx + da, dx + da + dy), slice(dx, dx + da), slice(0, dx)]
        return [s for s in slices if s.stop > s.start]


class FeatureEncoding(nn.Module):
    """A trainable code per feature: component plus index (`tree`), or one row per token (`absolute`; spec COSTAR-2)."""

    component_F: Tensor
    index_F: Tensor

    def __init__(self, layout: TokenLayout, width: int, kind: str) -> None:
        super().__init__()
        self.kind = kind
        if kind == "tree":
            self.component = nn.Parameter(torch.randn(4, width))
            self.index = nn.Parameter(torch.randn(max(layout.dims), width))
            self.register_buffer("component_F", layout.component, persistent=False)
            self.register_buffer("index_F", layout.index, persistent=False)
        else:
            self.feature = nn.Parameter(torch.randn(sum(layout.dims), width))

    def forward(self) -> Tensor:
        """Return one code per token, `[F,D]`, statics last."""
        if self.kind == "tree":
            return self.component[self.component_F] + self.index[self.index_F]
        return self.feature


class TokenEmbedding(nn.Module):
    """Every scalar times one shared vector, plus bias, plus the feature's code (spec COSTAR-1, COSTAR-2)."""

    def __init__(self, dims: Dims, config: EncoderConfig) -> None:
        super().__init__()
        self.layout = TokenLayout(dims)
        self.scalar = nn.Linear(1, config.width)
        self.feature = FeatureEncoding(self.layout, config.width, config.feature_encoding)

    def affine(self) -> Tensor:
        """Return `[1+F,D]`: the slope that all tokens share, then the offset of each, statics last."""
        return torch.cat([self.scalar.weight.T, self.scalar.bias + self.feature()])

    def forward(self, scalars: Tensor, token_ZD: Tensor) -> Tensor:
        """Return the tokens `[...,F,D]` of scalars `[...,F]` with the rows of `affine` that belong to them."""
        return scalars[..., None] * token_ZD[0] + token_ZD[1:]


class EncoderLayer(nn.Module):
    """A temporal block, then a feature-wise block, each with its own weights (spec COSTAR-6).

    In ablations one of them is missing (spec COSTAR-21): without the temporal block a step sees itself alone, without
    the feature-wise one statics have no say.
    """

    def __init__(self, config: EncoderConfig, *, last: bool) -> None:
        super().__init__()
        self.temporal = TemporalBlock(config) if config.blocks != "feature" else None
        self.feature = FeatureBlock(config, last=last) if config.blocks != "temporal" else None


class CostarEncoder(HistoryEncoder):
    """Scalar tokens, L layers, pooling (spec COSTAR-1 to 7).

    Args:
        dims: numbers of covariates, treatments, outcomes and statics; covariates and statics may be 0.
        config: shape of the encoder.
    """

    def __init__(self, dims: Dims, config: EncoderConfig) -> None:
        super().__init__(dims, config)
        self.embedding = TokenEmbedding(dims, config)
        self.layout = self.embedding.layout
        temporal = config.blocks != "feature"
        self.relative = RelativeTables(2 * config.clip_distance + 1, config.width // config.heads) if temporal else None
        self.layer_list = [EncoderLayer(config, last=index == config.layers - 1) for index in range(config.layers)]
        self.layers = nn.ModuleList(self.layer_list)
        self.dropout = Dropout(config.dropout)

    @property
    def n_components(self) -> int:
        """Return how many of covariates, treatments and outcomes there are."""
        return len(self.layout.pooled)

    def mask_shapes(self, n_steps: int) -> MaskShapes:
        """Return the shape of every dropout mask of one sample."""
        shapes: MaskShapes = {}
        layout = (self.layout.n_temporal, self.layout.n_static)
        for index, layer in enumerate(self.layer_list):
            if layer.temporal is not None:
                shapes |= layer.temporal.mask_shapes(f"{index}.temporal", n_steps, layout)
            if layer.feature is not None:
                shapes |= layer.feature.mask_shapes(f"{index}.feature", n_steps, layout)
        return shapes | {"pool": (n_steps, self.config.width)}

    def forward(
        self, history_BTS: Tensor, statics_BV: Tensor, masks: Masks = None, *, step_B: Tensor | None = None
    ) -> Representations:
        """Encode `history_BTS` (`[x_t, a_{t-1}, y_t]`, scaled) and `statics_BV`; without masks there is no dropout.

        Gradients flow to the parameters and statics, not to the history. With `step_B` the result is of one step of
        each series, T = 1: what the last layer does beyond its attention over time is not done for the others.
        """
        masks = masks or None
        token_ZD, n = self.embedding.affine(), 1 + self.layout.n_temporal
        statics = self.embedding(statics_BV, torch.cat([token_ZD[:1], token_ZD[n:]]))
        tables = None if self.relative is None else self.relative()
        series = history_BTS if tables is not None else self.embedding(history_BTS, token_ZD[:n])
        for index, layer in enumerate(self.layer_list):
            only = step_B if index == len(self.layer_list) - 1 else None
            if layer.temporal is not None and tables is not None:
                name, by_feature = f"{index}.temporal", series.transpose(1, 2)
                if index == 0:
                    series, statics = layer.temporal.forward_scalars(
                        by_feature, token_ZD[:n], statics, tables, masks, name, step_B=only
                    )
                else:
                    series, statics = layer.temporal(by_feature.contiguous(), statics, tables, masks, name, step_B=only)
                series = series.transpose(1, 2).contiguous()  # [B, T, F, D]
            elif only is not None:
                series = series[torch.arange(len(only), device=only.device), only, None]
            if layer.feature is not None:
                series, statics = layer.feature(series, statics, masks, f"{index}.feature")
        components_CBTD = torch.stack([series[:, :, tokens].mean(dim=2) for tokens in self.layout.pooled])
        z_BTD = series.mean(dim=2) if self.config.pool == "token" else components_CBTD.mean(dim=0)
        return Representations(self.dropout(z_BTD, masks["pool"] if masks else None), components_CBTD)

    def at(self, history_BTS: Tensor, statics_BV: Tensor, step_B: Tensor) -> Tensor:
        """Return `z [B,1,D]` of one step of each series."""
        z_B1D: Tensor = self(history_BTS, statics_BV, step_B=step_B).z_BTD
        return z_B1D
