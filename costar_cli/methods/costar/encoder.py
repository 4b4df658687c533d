"""The COSTAR encoder: one causal pass over a subject's series gives a representation of the history at every step."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from costar_cli.config.models import EncoderConfig
from costar_cli.methods.costar.attention import FeatureBlock, RelativeTables, TemporalBlock
from costar_cli.methods.costar.dropout import Dropout, Masks, MaskShapes, MaskSource
from costar_cli.methods.costar.embedding import TokenEmbedding
from costar_cli.methods.streams import Stream

__all__ = ["CostarEncoder", "Representations"]


class Representations(NamedTuple):
    """What the encoder knows at each step: overall `z_BTD`, and per component `[C,B,T,D]` in order Y, A, X."""

    z_BTD: Tensor
    components_CBTD: Tensor


class EncoderLayer(nn.Module):
    """A temporal block, then a feature-wise block, each with its own weights (spec models A.6, A.7)."""

    def __init__(self, config: EncoderConfig, *, last: bool) -> None:
        super().__init__()
        self.temporal = TemporalBlock(config)
        self.feature = FeatureBlock(config, last=last)


class CostarEncoder(nn.Module):
    """Scalar tokens, L layers, pooling (spec models A.1 to A.8).

    Args:
        dims: numbers of covariates, treatments, outcomes and statics; covariates and statics may be 0.
        config: shape of the encoder.
    """

    def __init__(self, dims: tuple[int, int, int, int], config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = TokenEmbedding(dims, config)
        self.layout = self.embedding.layout
        self.relative = RelativeTables(config.clip_distance, config.width // config.heads)
        self.layer_list = [EncoderLayer(config, last=index == config.layers - 1) for index in range(config.layers)]
        self.layers = nn.ModuleList(self.layer_list)
        self.dropout = Dropout(config.dropout)

    def mask_shapes(self, n_steps: int) -> MaskShapes:
        """Return the shape of every dropout mask of one sample."""
        shapes: MaskShapes = {}
        layout = (self.layout.n_temporal, self.layout.n_static)
        for index, layer in enumerate(self.layer_list):
            shapes |= layer.temporal.mask_shapes(f"{index}.temporal", n_steps, layout)
            shapes |= layer.feature.mask_shapes(f"{index}.feature", n_steps, layout)
        return shapes | {"pool": (n_steps, self.config.width)}

    def mask_source(self, n_steps: int, streams: Sequence[Stream], like: Tensor) -> MaskSource:
        """Return what draws the bytes of every mask for passes over `n_steps` steps, on the device of a tensor."""
        shapes = self.mask_shapes(n_steps)
        return MaskSource(shapes, self.config.dropout, streams, device=like.device, dtype=like.dtype, raw=True)

    def forward(self, history_BTS: Tensor, statics_BV: Tensor, masks: Masks = None) -> Representations:
        """Encode `history_BTS` (`[x_t, a_{t-1}, y_t]`, scaled) and `statics_BV`; without masks there is no dropout.

        Gradients flow to the parameters and statics, not to the history.
        """
        masks = masks or None
        token_XD, n = self.embedding.affine(), 1 + self.layout.n_temporal
        statics = self.embedding(statics_BV, torch.cat([token_XD[:1], token_XD[n:]]))
        tables, series = self.relative(), history_BTS.transpose(1, 2)  # [B, F, T]
        for index, layer in enumerate(self.layer_list):
            name = f"{index}.temporal"
            if index == 0:
                series, statics = layer.temporal.forward_scalars(series, token_XD[:n], statics, tables, masks, name)
            else:
                series, statics = layer.temporal(series, statics, tables, masks, name)
            series = series.transpose(1, 2).contiguous()  # [B, T, F, D]
            series, statics = layer.feature(series, statics, masks, f"{index}.feature")
            if index < len(self.layer_list) - 1:
                series = series.transpose(1, 2).contiguous()
        components_CBTD = torch.stack([series[:, :, tokens].mean(dim=2) for tokens in self.layout.pooled])
        z_BTD = series.mean(dim=2) if self.config.pool == "token" else components_CBTD.mean(dim=0)
        return Representations(self.dropout(z_BTD, masks["pool"] if masks else None), components_CBTD)
