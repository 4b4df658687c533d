"""The causal transformer as COSTAR's encoder, for ablations: its streams are the components (spec COSTAR-20)."""

import torch
from torch import Tensor

from costar_cli.config.models import EncoderConfig
from costar_cli.config.transformers import TransformerConfig
from costar_cli.methods.costar.representation import Dims, HistoryEncoder, Representations
from costar_cli.methods.shared.dropout import Masks, MaskShapes, masked, per_kept
from costar_cli.methods.transformers.ct_network import CtStreams

__all__ = ["StreamEncoder"]


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
