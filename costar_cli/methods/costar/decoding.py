"""From representation and plan to outcomes: which head there is, and what its numbers mean (spec COSTAR-25 to 26)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self, cast

import torch
from torch import Tensor, nn

from costar_cli.config.choices import CovariatesName, DecoderName, OutputName
from costar_cli.config.models import EncoderConfig
from costar_cli.data import TreatmentEncoding
from costar_cli.data.tensors import PanelTensors
from costar_cli.methods.costar.predictor import (
    DEFAULT_DECODER,
    AutoregressivePredictor,
    OutcomePredictor,
    known_decoder,
    outcome_head,
)
from costar_cli.methods.shared.covariate_transition import Rates, Reach
from costar_cli.methods.shared.doses import dose_table
from costar_cli.methods.shared.gaps import GapColumn
from costar_cli.methods.shared.members import Dims, Params, call_members
from costar_cli.methods.shared.outcome_forms import OutcomeForm
from costar_cli.methods.shared.outcome_scale import OutcomeScale
from costar_cli.methods.shared.structured import Predicted, StructuredDecoder, predict_ahead
from costar_cli.methods.shared.windows import Windows


@dataclass(frozen=True)
class DecoderShape:
    """What a model's file says of its head.

    Attributes:
        decoder: which head.
        output: what its numbers mean.
        hidden: hidden units.
        carry_overs: learnt decays per treatment factor, of the structured decoder.
        forms: one per outcome; none where nothing is relative.
        reach: smallest and largest covariates that were learned from, where the structured decoder forecasts them.
    """

    decoder: DecoderName = DEFAULT_DECODER
    output: OutputName = "level"
    hidden: int = 0
    carry_overs: int = 1
    forms: tuple[OutcomeForm, ...] = ()
    reach: Reach | None = None

    @property
    def covariates(self) -> CovariatesName:
        """Return whether covariates are forecast."""
        return "none" if self.reach is None else "forecast"

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Self:
        """Read what `to_facts` returned, and what older files say."""
        return cls(
            known_decoder(facts.get("decoder", DEFAULT_DECODER)),
            facts.get("output", "level"),
            int(facts.get("hidden", 0)),
            int(facts.get("carry_overs", 1)),
            tuple(OutcomeForm(**form) for form in facts.get("forms", ())),
            (facts["reach"][0], facts["reach"][1]) if "reach" in facts else None,
        )

    def to_facts(self) -> dict[str, Any]:
        """Return what a model's file records; what older versions did not have only where it says something."""
        facts: dict[str, Any] = {"hidden": self.hidden, "decoder": self.decoder}
        facts |= {"output": self.output} if self.output != "level" else {}
        facts |= {"carry_overs": self.carry_overs} if self.decoder == "structured" else {}
        facts |= {"reach": list(self.reach)} if self.reach else {}
        return facts | ({"forms": [form.to_meta() for form in self.forms]} if self.forms else {})


class CostarStates(NamedTuple):
    """What is known of a panel before any plan: `z [R,N,T,D]`, and what predictions from each origin start from.

    Outcomes `[N,T,Y]` and covariates are standardised, the units of changes in sds; `exposure_RNTJ` is what is left of
    earlier doses. What a decoder does not need is None.
    """

    z_RNTD: Tensor
    y_NTY: Tensor
    x_NTX: Tensor
    unit_NTY: Tensor | None
    exposure_RNTJ: Tensor | None


class DecoderInput(NamedTuple):
    """Queries as the histories and plans that occur in them, and which of both each query has."""

    subject_U: Tensor
    origin_U: Tensor
    plan_PHA: Tensor
    history_Q: Tensor
    plan_Q: Tensor


class Decoder:
    """A published head: all steps from z and the plan, its numbers levels, or changes from the origin in some unit.

    Args:
        shape: which head, and what its numbers mean.
        head: freshly initialised.
    """

    def __init__(self, shape: DecoderShape, head: nn.Module) -> None:
        self.shape, self.head = shape, head
        self.scale = OutcomeScale(shape.forms) if shape.forms else None

    def units(self, y_MTY: Tensor) -> Tensor | None:
        """Return the units of changes from every origin, `[...,T,Y]` in sds, of outcomes from the first step on."""
        return None if self.scale is None else self.scale.to(y_MTY).units(y_MTY)

    def predict(
        self,
        params_R: Params,
        z_RBTD: Tensor,
        series: Windows,
        ahead: Windows,
        given_RMHY: Tensor | None = None,
        from_RMHY: Tensor | None = None,
    ) -> Predicted:
        """Return what is predicted from every origin of a batch, M = B T.

        Args:
            params_R: of the head.
            z_RBTD: representations.
            series: every position of the subjects, from the first on.
            ahead: the steps from each position on.
            given_RMHY: true outcomes, after which an autoregressive head predicts each step in training.
            from_RMHY: outcomes from which changes are predicted, where that is not the level at the origin.
        """
        y_RBTY = series.column("outcomes")
        unit_RBTY = self.units(y_RBTY)
        start = self._start(y_RBTY.flatten(1, 2), None if unit_RBTY is None else unit_RBTY.flatten(1, 2))
        if from_RMHY is not None and start is not None:
            start = from_RMHY, start[1]
        given: tuple[Tensor, ...] = ()
        if given_RMHY is not None and isinstance(self.head, AutoregressivePredictor):
            given = (given_RMHY if start is None else (given_RMHY - start[0]) / start[1],)
        number: Tensor = call_members(self.head, params_R, z_RBTD.flatten(1, 2), ahead.treatment.flatten(1, 2), *given)
        return Predicted(number if start is None else start[0] + start[1] * number)

    def answers(self, heads: Sequence[nn.Module], states: CostarStates, asked: DecoderInput, elements: int) -> Tensor:
        """Return standardised outcomes `[R,Q,H,Y]` of queries.

        Args:
            heads: of the members, each with its parameters.
            states: of the panel.
            asked: the queries.
            elements: how many numbers to compute at once.
        """
        at = asked.subject_U, asked.origin_U
        answers_R = []
        start = self._start(states.y_NTY[at], None if states.unit_NTY is None else states.unit_NTY[at])
        for member, head in enumerate(cast("Sequence[OutcomePredictor]", heads)):
            rows = max(1, elements // (asked.plan_PHA.shape[1] * head.hidden))
            pairs = head.pairs(states.z_RNTD[member][at], *asked[2:], rows=rows)
            parts = [
                number_QHY if start is None else start[0][histories] + start[1][histories] * number_QHY
                for number_QHY, histories in zip(pairs, torch.split(asked.history_Q, rows), strict=True)
            ]
            answers_R.append(torch.cat(parts))
        return torch.stack(answers_R)

    def exposures(self, heads: Sequence[nn.Module], panel: PanelTensors) -> Tensor | None:
        """Return what is left of earlier doses at every origin, `[R,N,T,J]`, where heads go on from there."""
        return None

    def _start(self, y_MY: Tensor, unit_MY: Tensor | None) -> tuple[Tensor, Tensor] | None:
        """Return what is added to the head's numbers and what they are multiplied with, `[M,1,Y]`; None for neither."""
        if self.shape.output == "level":
            return None
        if self.shape.output == "increment" or self.scale is None or unit_MY is None:
            return y_MY[..., None, :], torch.ones_like(y_MY)[..., None, :]
        size_MY = torch.where(self.scale.is_local_Y, unit_MY, self.scale.error_unit(y_MY, unit_MY))
        return y_MY[..., None, :], (self.scale.sd_Y * size_MY)[..., None, :]


class RolledDecoder(Decoder):
    """The structured decoder: effects of z, rolled out step by step over exposures (spec GROWTH-4)."""

    head: StructuredDecoder

    def units(self, y_MTY: Tensor) -> Tensor:
        """Return the units of a step at every origin, `[...,T,Y]` in sds."""
        return self.head.to(y_MTY).scale.units(y_MTY)

    def predict(
        self,
        params_R: Params,
        z_RBTD: Tensor,
        series: Windows,
        ahead: Windows,
        given_RMHY: Tensor | None = None,
        from_RMHY: Tensor | None = None,
    ) -> Predicted:
        """Return what is predicted from every origin of a batch; each step from the truth before it with covariates."""
        head = self.head.to(series.panel.y_NTY)
        outcomes, beside = predict_ahead(head, params_R, z_RBTD, series, ahead)
        return Predicted(outcomes.flatten(1, 2), None if beside is None else beside.flatten(1, 2))

    def answers(self, heads: Sequence[nn.Module], states: CostarStates, asked: DecoderInput, elements: int) -> Tensor:
        """Return standardised outcomes `[R,Q,H,Y]` of queries, of all members together."""
        rolled_R, at = cast("Sequence[StructuredDecoder]", heads), (asked.subject_U, asked.origin_U)
        assert states.unit_NTY is not None  # noqa: S101 - this decoder's states have both
        assert states.exposure_RNTJ is not None  # noqa: S101
        # Unlike in training, members are one array: for arrays of this size calls cost more than caches save.
        one, z_RUD, rates = rolled_R[0], states.z_RNTD[:, *at], Rates.of_members(rolled_R)
        theta_RUYP = torch.stack([head.theta(z_UD) for head, z_UD in zip(rolled_R, z_RUD, strict=True)])
        start = theta_RUYP, states.y_NTY[at], states.unit_NTY[at], states.exposure_RNTJ[:, *at]
        drift_R = [head.covariates.drift(z_UD) for head, z_UD in zip(rolled_R, z_RUD, strict=True) if head.covariates]
        covariates = (states.x_NTX[at], torch.stack(drift_R)) if drift_R else ()
        rows = max(1, elements // (len(heads) * one.n_effects * one.n_outcomes))
        rolled = []
        for histories, plans in zip(torch.split(asked.history_Q, rows), torch.split(asked.plan_Q, rows), strict=True):
            plan_QHA = asked.plan_PHA.index_select(0, plans)
            rolled.append(one.roll(*start, plan_QHA, *covariates, history_Q=histories, rates=rates))
        return torch.cat(rolled, dim=1)

    def exposures(self, heads: Sequence[nn.Module], panel: PanelTensors) -> Tensor:
        """Return what is left of earlier doses at every origin, `[R,N,T,J]`."""
        previous_NTA = panel.history_NTS[..., panel.x_NTX.shape[-1] : -panel.y_NTY.shape[-1]]
        with torch.no_grad():
            return torch.stack([cast("StructuredDecoder", head).exposures(previous_NTA) for head in heads])


def make_decoder(
    shape: DecoderShape, dims: Dims, horizon: int, encoder: EncoderConfig, treatments: TreatmentEncoding | None
) -> Decoder:
    """Return a decoder with a freshly initialised head.

    Args:
        shape: which head, and what its numbers mean.
        dims: numbers of covariates, treatments, outcomes and statics.
        horizon: H, steps predicted from each origin.
        encoder: shape of the encoder.
        treatments: how they are encoded, which only the structured decoder asks.
    """
    if shape.decoder != "structured":
        return Decoder(shape, outcome_head(dims, horizon, encoder, shape.hidden, decoder=shape.decoder))
    if treatments is None:
        raise TypeError("the structured decoder decodes treatments")
    forms = shape.forms
    if shape.output == "increment":
        forms = tuple(replace(form, kind="additive") for form in forms)
    doses = dose_table(treatments, timeless=True)
    head = StructuredDecoder(
        encoder.width,
        forms,
        doses,
        carry_overs=shape.carry_overs,
        hidden=shape.hidden,
        covariates=shape.reach if dims[0] else None,
        gaps=GapColumn.of(treatments),
    )
    return RolledDecoder(shape, head)
