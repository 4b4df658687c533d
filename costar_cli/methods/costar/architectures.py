"""Which encoder a configuration means: COSTAR's own, or one of the ablations that stand here."""

from collections.abc import Mapping
from typing import Final

import torch
from torch import Tensor, nn

from costar_cli.config.choices import ArchitectureName
from costar_cli.config.models import EncoderConfig
from costar_cli.methods.costar.attention import AttentionUnit
from costar_cli.methods.costar.encoder import CostarEncoder
from costar_cli.methods.costar.feed_forward import FeedForward
from costar_cli.methods.costar.representation import HistoryEncoder, Representations
from costar_cli.methods.shared.dropout import Masks, MaskShapes, masked, per_kept
from costar_cli.methods.shared.members import Dims
from costar_cli.methods.shared.relative_attention import RelativeTables
from costar_cli.methods.transformers.ct_network import CtStreams
from costar_cli.methods.transformers.settings import TransformerConfig


class VanillaLayer(nn.Module):
    """Causal self-attention with an output projection, then feed-forward, each with a post-norm residual."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.unit = AttentionUnit(config)
        self.output = nn.Linear(config.width, config.width)
        self.feed_forward = FeedForward(config)

    def mask_shapes(self, name: str, n_steps: int) -> MaskShapes:
        """Return the dropout masks of one sample."""
        return {
            f"{name}.attention": (self.unit.heads, n_steps, n_steps),
            f"{name}.output": (n_steps, self.output.out_features),
            **self.feed_forward.mask_shapes(name, n_steps),
        }

    def forward(self, tokens_BTD: Tensor, tables: tuple[Tensor, Tensor], masks: Masks, name: str) -> Tensor:
        """Return the tokens after the layer, in the same shape."""
        drawn = (None, None) if masks is None else (masks[f"{name}.attention"], masks[f"{name}.output"])
        attended_BTD = self.output(self.unit.over_time(tokens_BTD, tables, drawn[0]))
        tokens_BTD = self.unit.norm(self.unit.dropout(attended_BTD, drawn[1]) + tokens_BTD)
        return self.feed_forward(tokens_BTD, masks, name)  # type: ignore[no-any-return]


class VanillaEncoder(HistoryEncoder):
    """One affine map of `[x_t, a_{t-1}, y_t, v]`, then L layers; without positions it cannot tell the order of steps.

    The architecture `vt_relative` has COSTAR's relative keys and values in every layer. There are no components.
    """

    statics_are_series = True

    def __init__(self, dims: Dims, config: EncoderConfig) -> None:
        super().__init__(dims, config)
        self.tokens = nn.Linear(sum(dims), config.width)
        has_positions = config.architecture == "vt_relative"
        self.relative = (
            RelativeTables(2 * config.clip_distance + 1, config.width // config.heads) if has_positions else None
        )
        self.layer_list = [VanillaLayer(config) for _ in range(config.layers)]
        self.layers = nn.ModuleList(self.layer_list)

    @property
    def n_components(self) -> int:
        """Return 0: a token holds all features."""
        return 0

    def mask_shapes(self, n_steps: int) -> MaskShapes:
        """Return the shape of every dropout mask of one sample."""
        shapes: MaskShapes = {}
        for index, layer in enumerate(self.layer_list):
            shapes |= layer.mask_shapes(str(index), n_steps)
        return shapes

    def forward(self, history_BTS: Tensor, statics_BV: Tensor, masks: Masks = None) -> Representations:
        """Encode histories and statics; without masks there is no dropout."""
        statics_BTV = statics_BV[:, None].expand(-1, history_BTS.shape[1], -1)
        z_BTD = self.tokens(torch.cat([history_BTS, statics_BTV], dim=-1))
        if self.relative is None:  # without positions, keys and values of distance 0 alone, which are zero
            zeros = z_BTD.new_zeros(3, self.config.width // self.config.heads)
            tables = zeros, zeros
        else:
            tables = self.relative()
        for index, layer in enumerate(self.layer_list):
            z_BTD = layer(z_BTD, tables, masks or None, str(index))
        return Representations(z_BTD, z_BTD[None][:0])


class StreamEncoder(HistoryEncoder):
    """Streams of treatments, outcomes and, where there are any, covariates, without a balancing head."""

    takes_bytes = False

    def __init__(self, dims: Dims, config: EncoderConfig) -> None:
        super().__init__(dims, config)
        shared = ("width", "layers", "heads", "clip_distance", "dropout")
        self.streams = CtStreams(dims, TransformerConfig(**config.model_dump(include=set(shared))))

    @property
    def n_components(self) -> int:
        """Return the number of streams."""
        return self.streams.streams

    def mask_shapes(self, n_steps: int) -> MaskShapes:
        """Return the shape of every dropout mask of one sample."""
        return self.streams.mask_shapes(n_steps)

    def forward(self, history_BTS: Tensor, statics_BV: Tensor, masks: Masks = None) -> Representations:
        """Encode histories and statics; without masks there is no dropout."""
        masks = masks or None
        *_, streams_SBTD = self.streams.walk(history_BTS, statics_BV, None, masks)
        treatments_outcomes, covariates = streams_SBTD[:2], streams_SBTD[2:]
        components_CBTD = torch.cat([treatments_outcomes.flip(0), covariates])
        z_BTD = components_CBTD.mean(dim=0)
        if masks is not None:
            z_BTD = masked(z_BTD, masks, "mean") * per_kept(self.config.dropout)
        return Representations(z_BTD, components_CBTD)


_ARCHITECTURES: Final[Mapping[ArchitectureName, type[HistoryEncoder]]] = {
    "costar": CostarEncoder,
    "vt": VanillaEncoder,
    "vt_relative": VanillaEncoder,
    "ct": StreamEncoder,
}


def make_encoder(dims: Dims, config: EncoderConfig) -> HistoryEncoder:
    """Return a freshly initialised encoder.

    Args:
        dims: numbers of covariates, treatments, outcomes and statics; covariates and statics may be 0.
        config: its architecture and shape.
    """
    return _ARCHITECTURES[config.architecture](dims, config)
