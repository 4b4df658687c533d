"""The network of the growth GRU, and the stage that trains it (spec GROWTH-5, GROWTH-6)."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from costar_cli.methods.base import StepLoss
from costar_cli.methods.growth.gru import run_gru
from costar_cli.methods.growth.settings import GrowthNetworkConfig
from costar_cli.methods.shared.balancing import masked_mean
from costar_cli.methods.shared.doses import dose_table
from costar_cli.methods.shared.dropout import MaskSource, per_kept
from costar_cli.methods.shared.members import Params, submodule
from costar_cli.methods.shared.outcome_forms import OutcomeForm
from costar_cli.methods.shared.stage import NetworkStage, NetworkTraining
from costar_cli.methods.shared.streams import Stream
from costar_cli.methods.shared.structured import Reach, StructuredDecoder, predict_ahead, reach_of_covariates
from costar_cli.methods.shared.windows import Windows
from costar_cli.panel import PanelSchema

__all__ = ["GrowthNetwork", "GrowthStage"]


class GrowthNetwork(nn.Module):
    """Parameters of one member: `gru.*` and `decoder.*`.

    Args:
        schema: columns of the panel.
        forms: one per outcome.
        reach: smallest and largest covariates and statics that were learned from, of `reach_of`: those of other
            subjects are clipped to them.
        config: sizes.
    """

    low_I: Tensor
    high_I: Tensor

    def __init__(
        self, schema: PanelSchema, forms: Sequence[OutcomeForm], reach: Reach, config: GrowthNetworkConfig
    ) -> None:
        super().__init__()
        for name, values in zip(("low_I", "high_I"), reach, strict=True):
            self.register_buffer(name, torch.tensor(values, dtype=torch.float32), persistent=False)
        dx, da, dy, dv = schema.dims
        self.gru = nn.GRU(dx + da + 3 * dy + dv, config.width)
        self.decoder = StructuredDecoder(
            config.width,
            forms,
            dose_table(schema.treatments),
            carry_overs=config.carry_overs,
            fading=config.fading,
            hidden=config.hidden,
            covariates=reach_of_covariates(reach, dx) if config.covariates == "forecast" else None,
        )

    def inputs(self, series: Windows, mask_RBI: Tensor | None = None) -> Tensor:
        """Return what the GRU reads at every position, `[R,B,T,I]`: no raw level where outcomes are relative.

        Covariates and statics are times a mask, where there is one.
        """
        y = series.column("outcomes")
        columns = self.decoder.scale.columns(y, self.decoder.scale.units(y))
        known = torch.cat([series.column("covariates"), series.column("statics")], dim=-1)
        known = torch.minimum(torch.maximum(known, self.low_I.to(known)), self.high_I.to(known))
        if mask_RBI is not None:
            known = known * mask_RBI[:, :, None]
        return torch.cat([known, series.column("previous"), columns], dim=-1)

    def states(self, params_R: Params, series: Windows, mask_RBI: Tensor | None = None) -> Tensor:
        """Return the states `[R,B,T,D]` of members at every position, differentiable by their parameters."""
        inputs_RTBI = self.inputs(series, mask_RBI).transpose(1, 2)
        return run_gru(submodule(params_R, "gru."), inputs_RTBI).transpose(1, 2)


class GrowthStage(NetworkStage[GrowthNetwork]):
    """All steps of the horizon from all origins of every subject, each error in the scale of its origin."""

    def __init__(self, training: NetworkTraining[GrowthNetwork], horizon: int) -> None:
        super().__init__(training)
        self._horizon = horizon
        self._input_dropout: float = training.network.input_dropout

    def loss(self, params_R: Params, state_R: Params, rows_RB: Tensor, streams: Sequence[Stream]) -> StepLoss:
        """Return each member's mean penalty on its mini-batch."""
        series = self.train.batch(rows_RB, state_R["member"].long())
        known = self._mask(self._input_dropout, (len(self.network.low_I),), series, streams)
        states = self._mask(self.dropout, (series.at.shape[2], self.network.gru.hidden_size), series, streams)
        penalty, weight = self._penalty(params_R, series, known, states)
        return masked_mean(penalty, weight), state_R

    def _mask(self, rate: float, shape: tuple[int, ...], series: Windows, streams: Sequence[Stream]) -> Tensor | None:
        """Return a mask `[R,B,..]` that keeps the mean, None where nothing is dropped."""
        like = series.panel.y_NTY
        source = MaskSource({"mask": shape}, rate, streams, device=like.device, dtype=like.dtype)
        mask = source.draw(series.at.shape[1])().get("mask")
        return None if mask is None else mask * per_kept(rate)

    @torch.no_grad()
    def validation_loss(
        self, params_R: Params, state_R: Params, rows_RB: Tensor, streams: Sequence[Stream]
    ) -> tuple[Tensor, Tensor]:
        """Return `(loss, weight)` of a validation batch, without dropout."""
        series = self.validation.batch(rows_RB, state_R["member"].long())
        penalty, weight = self._penalty(params_R, series)
        return masked_mean(penalty, weight), weight.flatten(1).sum(dim=1)

    def _penalty(
        self,
        params_R: Params,
        series: Windows,
        known: Tensor | None = None,
        states: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the penalty and the weight of every step from every origin, `[R,B,T,H]`, under masks of dropout."""
        decoder, ahead = self.network.decoder, series.unrolled(self._horizon)
        z = self.network.states(params_R, series, known)
        if states is not None:
            z = z * states
        y = series.column("outcomes")
        predicted = predict_ahead(decoder, submodule(params_R, "decoder."), z, series, ahead)
        penalty = decoder.penalty(predicted.outcomes, ahead.target, y, decoder.scale.units(y), ahead.observed)
        return penalty if predicted.beside is None else penalty + predicted.beside, ahead.weight
