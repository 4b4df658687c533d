"""CT with the structured decoder in place of its walk into plans (spec NET-21): its streams, one stage."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from costar_cli.data import PanelSchema
from costar_cli.methods.shared.balancing import Balancer
from costar_cli.methods.shared.covariate_transition import Reach
from costar_cli.methods.shared.dropout import Masks, MaskSource, largest_mask, masked, per_kept
from costar_cli.methods.shared.members import Params, call_members, submodule
from costar_cli.methods.shared.outcome_forms import OutcomeForm
from costar_cli.methods.shared.rolled import RolledNetwork
from costar_cli.methods.shared.rolled_model import RolledModel
from costar_cli.methods.shared.streams import Stream
from costar_cli.methods.shared.windows import Windows
from costar_cli.methods.transformers.ct_network import CtStreams
from costar_cli.methods.transformers.settings import CausalTransformerConfig


class MeanOfStreams(CtStreams):
    """The streams of CT and the mean of them, all covariates visible."""

    def forward(self, history_BTS: Tensor, statics_BV: Tensor, masks: Masks = None) -> Tensor:
        """Return the mean `[B,T,D]` of the streams after the last block."""
        masks = masks or None
        mean_BTD = self.walk(history_BTS, statics_BV, None, masks)[-1].mean(dim=0)
        return mean_BTD if masks is None else masked(mean_BTD, masks, "mean") * per_kept(self.config.dropout)


class RolledStreams(RolledNetwork):
    """The streams of CT, its representation, and the decoder of that.

    Args:
        schema: columns of the panel.
        config: settings of the method.
        forms: one per outcome.
        reach: smallest and largest covariates and statics that were learned from.
    """

    def __init__(
        self, schema: PanelSchema, config: CausalTransformerConfig, forms: Sequence[OutcomeForm], reach: Reach
    ) -> None:
        super().__init__(schema, forms, reach)
        (dx, da, dy, dv), shape = schema.dims, config.network
        self.streams = MeanOfStreams((dx, da, 3 * dy, dv), shape)
        self.head = Balancer(shape.width, shape.representation, shape.hidden, n_treatments=da)
        self.decoder = self.make_decoder(shape.representation, config.outputs)

    @property
    def elements_per_position(self) -> int:
        """Return how many numbers one position of one row takes at its widest, in series of 64 steps."""
        return largest_mask(self.streams.mask_shapes(64)) // 64

    def states(self, params_R: Params, series: Windows, streams: Sequence[Stream] | None = None) -> Tensor:
        """Return the representations `[R,B,T,D]` of members at every position."""
        dx, known = self.schema.dims[0], self.known(series)
        history = torch.cat([known[..., :dx], series.column("previous"), self.outcomes(series)], dim=-1)
        inputs: tuple[Any, ...] = (history, known[:, :, 0, dx:])
        if streams is not None:
            shapes, rate = self.streams.mask_shapes(history.shape[2]), self.streams.config.dropout
            source = MaskSource(shapes, rate, streams, device=history.device, dtype=history.dtype)
            inputs += (source.draw(history.shape[1])(),)
        mean: Tensor = call_members(self.streams, submodule(params_R, "streams."), *inputs)
        z_RBTD: Tensor = call_members(self.head, submodule(params_R, "head."), mean)
        return z_RBTD


@dataclass(frozen=True, kw_only=True)
class RolledStreamsModel(RolledModel):
    """A fitted CT whose outcomes are rolled out."""

    def make(self) -> RolledStreams:
        """Return the network, freshly initialised."""
        return RolledStreams(self.schema, self.settings, self.forms, self.reach)
