"""The COSTAR encoder: one causal pass over a subject's series gives a representation of the history at every step."""

import torch
from torch import Tensor, nn

from costar_cli.config.models import EncoderConfig
from costar_cli.methods.costar.attention import FeatureBlock, RelativeTables, TemporalBlock
from costar_cli.methods.costar.embedding import TokenEmbedding
from costar_cli.methods.costar.representation import Dims, HistoryEncoder, Representations
from costar_cli.methods.shared.dropout import Dropout, Masks, MaskShapes

__all__ = ["CostarEncoder"]


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
        self.relative = RelativeTables(config.clip_distance, config.width // config.heads) if temporal else None
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

    def forward(self, history_BTS: Tensor, statics_BV: Tensor, masks: Masks = None) -> Representations:
        """Encode `history_BTS` (`[x_t, a_{t-1}, y_t]`, scaled) and `statics_BV`; without masks there is no dropout.

        Gradients flow to the parameters and statics, not to the history.
        """
        masks = masks or None
        token_XD, n = self.embedding.affine(), 1 + self.layout.n_temporal
        statics = self.embedding(statics_BV, torch.cat([token_XD[:1], token_XD[n:]]))
        tables = None if self.relative is None else self.relative()
        series = history_BTS if tables is not None else self.embedding(history_BTS, token_XD[:n])
        for index, layer in enumerate(self.layer_list):
            if layer.temporal is not None and tables is not None:
                name, by_feature = f"{index}.temporal", series.transpose(1, 2)
                if index == 0:
                    series, statics = layer.temporal.forward_scalars(
                        by_feature, token_XD[:n], statics, tables, masks, name
                    )
                else:
                    series, statics = layer.temporal(by_feature.contiguous(), statics, tables, masks, name)
                series = series.transpose(1, 2).contiguous()  # [B, T, F, D]
            if layer.feature is not None:
                series, statics = layer.feature(series, statics, masks, f"{index}.feature")
        components_CBTD = torch.stack([series[:, :, tokens].mean(dim=2) for tokens in self.layout.pooled])
        z_BTD = series.mean(dim=2) if self.config.pool == "token" else components_CBTD.mean(dim=0)
        return Representations(self.dropout(z_BTD, masks["pool"] if masks else None), components_CBTD)
