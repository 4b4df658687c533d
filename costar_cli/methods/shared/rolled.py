"""Networks whose states become effects that are rolled out step by step, and the stage that trains them.

A method says how its network makes states of histories (`RolledNetwork.states`); what they read, what is minimised and
how queries are answered (`rolled_model.py`) is the same for all of them (spec GROWTH-4 to 7, NET-21).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeVar

import torch
from torch import Tensor, nn

from costar_cli.data import PanelSchema, TreatmentMode
from costar_cli.methods.base import StepLoss
from costar_cli.methods.shared.balancing import (
    Balancer,
    masked_mean,
    reverse_gradient,
    treatment_cross_entropy,
    unknown_treatment,
)
from costar_cli.methods.shared.covariate_transition import Reach, reach_of_covariates
from costar_cli.methods.shared.doses import dose_table
from costar_cli.methods.shared.gaps import GapColumn
from costar_cli.methods.shared.members import Params, call_members, submodule
from costar_cli.methods.shared.outcome_forms import OutcomeForm
from costar_cli.methods.shared.settings import OutputsConfig
from costar_cli.methods.shared.stage import AlphaSchedule, NetworkStage, NetworkTraining
from costar_cli.methods.shared.streams import Stream
from costar_cli.methods.shared.structured import StructuredDecoder, predict_ahead
from costar_cli.methods.shared.windows import Windows


class RolledNetwork(nn.Module, ABC):
    """Parameters of one member: the network's own, and `decoder.*`.

    Args:
        schema: columns of the panel.
        forms: one per outcome.
        reach: smallest and largest covariates and statics that were learned from, of `reach_of`: those of other
            subjects are clipped to them.
    """

    low_I: Tensor
    high_I: Tensor
    decoder: StructuredDecoder

    def __init__(self, schema: PanelSchema, forms: Sequence[OutcomeForm], reach: Reach) -> None:
        super().__init__()
        for name, values in zip(("low_I", "high_I"), reach, strict=True):
            self.register_buffer(name, torch.tensor(values, dtype=torch.float32), persistent=False)
        self.schema, self.forms, self.reach = schema, tuple(forms), reach
        dx, da, dy, dv = schema.dims
        self.n_inputs = dx + da + 3 * dy + dv

    def make_decoder(self, width: int, outputs: OutputsConfig, *, fading: int = 0) -> StructuredDecoder:
        """Return a fresh decoder of states of that width."""
        forecast = outputs.covariates == "forecast"
        return StructuredDecoder(
            width,
            self.forms,
            dose_table(self.schema.treatments, timeless=True),
            carry_overs=outputs.carry_overs,
            fading=fading,
            hidden=outputs.hidden,
            covariates=reach_of_covariates(self.reach, self.schema.dims[0]) if forecast else None,
            gaps=GapColumn.of(self.schema.treatments),
        )

    @property
    @abstractmethod
    def elements_per_position(self) -> int:
        """Return how many numbers one position of one row takes at its widest."""

    @abstractmethod
    def states(self, params_R: Params, series: Windows, streams: Sequence[Stream] | None = None) -> Tensor:
        """Return the states `[R,B,T,D]` of members at every position, differentiable by their parameters.

        Args:
            params_R: of the network.
            series: positions of subjects, from the first on.
            streams: from which masks of dropout are drawn; None for no dropout.
        """

    def known(self, series: Windows) -> Tensor:
        """Return covariates and statics at every position, no further than those learned from: `[R,B,T,X+V]`."""
        known = torch.cat([series.column("covariates"), series.column("statics")], dim=-1)
        return torch.minimum(torch.maximum(known, self.low_I.to(known)), self.high_I.to(known))

    def outcomes(self, series: Windows) -> Tensor:
        """Return what is read of the outcomes, `[R,B,T,3Y]`: no raw level where they are relative (spec GROWTH-5)."""
        y, scale = series.column("outcomes"), self.decoder.scale
        return scale.columns(y, scale.units(y))

    def inputs(self, series: Windows, mask_RBI: Tensor | None = None) -> Tensor:
        """Return all that is read at every position, `[R,B,T,I]`; covariates and statics times a mask, if any."""
        known = self.known(series)
        if mask_RBI is not None:
            known = known * mask_RBI[:, :, None]
        return torch.cat([known, series.column("previous"), self.outcomes(series)], dim=-1)


RolledT = TypeVar("RolledT", bound=RolledNetwork)
BalanceKind = Literal["reversal", "confusion"]


@dataclass(frozen=True)
class Balance:
    """A loss that keeps states from telling the treatment, with a `Balancer` named `head` (spec NET-21).

    `reversal` of the gradient (spec NET-12), or `confusion` (spec NET-13), here without averaged weights.
    """

    kind: BalanceKind
    schedule: AlphaSchedule
    mode: TreatmentMode

    @classmethod
    def over(cls, kind: BalanceKind, alpha: float, training: NetworkTraining[Any], mode: TreatmentMode) -> Self:
        """Return the loss of a training, whose weight rises to alpha."""
        return cls(kind, AlphaSchedule.over(alpha, training.config, len(training.train), drop_last=False), mode)

    def loss(self, head: Balancer, params_R: Params, z_RBTD: Tensor, series: Windows, updates_R: Tensor) -> Tensor:
        """Return each member's balancing loss `[R]`."""
        alpha_R, guessing = self.schedule.alpha(updates_R), submodule(params_R, "head.treatment.")
        if self.kind == "reversal":
            seen = reverse_gradient(z_RBTD, alpha_R.view(-1, 1, 1, 1))
            return self._cross_entropy(head, guessing, seen, series)
        fixed = {name: value.detach() for name, value in guessing.items()}
        guess_R = self._cross_entropy(head, guessing, z_RBTD.detach(), series)
        return alpha_R * (guess_R + self._cross_entropy(head, fixed, z_RBTD, series, unknown=True))

    def _cross_entropy(
        self, head: Balancer, params_R: Params, z_RBTD: Tensor, series: Windows, *, unknown: bool = False
    ) -> Tensor:
        logits = call_members(head.treatment, params_R, z_RBTD)
        treatment = unknown_treatment(logits, self.mode) if unknown else series.treatment
        return masked_mean(treatment_cross_entropy(logits, treatment, self.mode), series.active)


class RolledStage(NetworkStage[RolledT]):
    """All steps of the horizon from all origins of every subject, each error in the scale of its origin.

    Args:
        training: the network and its rows.
        horizon: H.
        weigh: returns how much each step from each origin counts in training, `[R,B,T,H]`; by default the same.
        balance: what keeps states from telling the treatment, if anything.
    """

    def __init__(
        self,
        training: NetworkTraining[RolledT],
        horizon: int,
        *,
        weigh: Callable[[Windows], Tensor] | None = None,
        balance: Balance | None = None,
    ) -> None:
        super().__init__(training)
        self._horizon, self._weigh, self._balance = horizon, weigh, balance
        self.scheduled = balance is not None

    def loss(self, params_R: Params, state_R: Params, rows_RB: Tensor, streams: Sequence[Stream]) -> StepLoss:
        """Return each member's mean penalty on its mini-batch, weighted and balanced where these are asked for."""
        series = self.train.batch(rows_RB, state_R["member"].long())
        z = self.network.states(params_R, series, streams)
        penalty, weight = self._penalty(params_R, z, series)
        if self._weigh is not None:
            penalty = penalty * self._weigh(series)
        loss_R = masked_mean(penalty, weight)
        head = getattr(self.network, "head", None)
        if self._balance is not None and isinstance(head, Balancer):
            loss_R = loss_R + self._balance.loss(head, params_R, z, series, state_R["updates"])
        return loss_R, state_R | {"updates": state_R["updates"] + 1}

    @torch.no_grad()
    def validation_loss(
        self, params_R: Params, state_R: Params, rows_RB: Tensor, streams: Sequence[Stream]
    ) -> tuple[Tensor, Tensor]:
        """Return `(loss, weight)` of a validation batch: the plain penalty, without dropout."""
        series = self.validation.batch(rows_RB, state_R["member"].long())
        penalty, weight = self._penalty(params_R, self.network.states(params_R, series), series)
        return masked_mean(penalty, weight), weight.flatten(1).sum(dim=1)

    def _penalty(self, params_R: Params, z: Tensor, series: Windows) -> tuple[Tensor, Tensor]:
        """Return the penalty and the weight of every step from every origin, `[R,B,T,H]`."""
        decoder, ahead = self.network.decoder, series.unrolled(self._horizon)
        y = series.column("outcomes")
        predicted = predict_ahead(decoder, submodule(params_R, "decoder."), z, series, ahead)
        penalty = decoder.penalty(predicted.outcomes, ahead.target, y, decoder.scale.units(y), ahead.observed)
        return penalty if predicted.beside is None else penalty + predicted.beside, ahead.weight
