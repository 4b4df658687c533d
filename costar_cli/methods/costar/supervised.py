"""The supervised stage: encoder and outcome predictor trained together on every origin of every subject."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, cast

import torch
from torch import Tensor, nn

from costar_cli.config.models import EncoderConfig, FinetuneConfig
from costar_cli.data import TreatmentEncoding
from costar_cli.data.tensors import PanelTensors
from costar_cli.methods.base import StepLoss
from costar_cli.methods.costar.architectures import make_encoder
from costar_cli.methods.costar.decoding import DecoderShape, make_decoder
from costar_cli.methods.costar.inputs import EncoderInputs
from costar_cli.methods.costar.predictor import DEFAULT_DECODER, OutcomePredictor
from costar_cli.methods.costar.representation import encode_members, members_at_once
from costar_cli.methods.shared.balancing import LEAST_WEIGHT, squared_error, sum_of_observed
from costar_cli.methods.shared.dropout import MaskSource
from costar_cli.methods.shared.members import Dims, Params, submodule
from costar_cli.methods.shared.outcome_scale import OutcomeScale
from costar_cli.methods.shared.stage import PlainStage, initial_params
from costar_cli.methods.shared.streams import Stream
from costar_cli.methods.shared.windows import SubjectRows

ENCODER, HEAD = "encoder.", "head."
NEARLY_NOTHING: Final = 0.01  # weights of a last layer at first, where the remainder of another model is learned


def step_weights(kind: str, horizon: int) -> Tensor:
    """Return the weight of each step of the horizon, `[H]`, summing to H (spec COSTAR-16)."""
    step = torch.arange(horizon, dtype=torch.float64)
    weight = {
        "uniform": torch.ones_like(step),
        "inverse": 1 / (step + 1),
        "sq_inverse": 1 / (step + 1) ** 2,
        "first_only": (step == 0).to(step.dtype),
    }[kind]
    return horizon * weight / weight.sum()


class SupervisedStage(PlainStage):
    """The error of all steps from all origins (spec COSTAR-17, COSTAR-27); encoder and head move together.

    An autoregressive decoder learns each step after the true outcomes before it, or the first step alone (spec
    COSTAR-22). It is selected on what it predicts after its own.

    Args:
        dims: numbers of covariates, treatments, outcomes and statics.
        horizon: H, steps predicted from each origin.
        config: settings of the stage.
        encoder_config: shape of the encoder.
        train: scaled panel to learn from.
        validation: scaled panel to select on.
        shape: which decoder; by default the one of the settings, predicting levels.
        treatments: how they are encoded, which the structured decoder asks.
        start_R: parameters to start from: `encoder.*` (after pretraining), also `head.*` (few-shot), or none.
        drop_last: whether an incomplete last batch is left out (not in few-shot).
        name: what progress and random streams call the stage.
        base: predictions `[N,T-1,H,dy]` of another model from every position, of `train` and `validation`, whose
            remainder is learned (spec COSTAR-32).
    """

    def __init__(
        self,
        dims: Dims,
        horizon: int,
        config: FinetuneConfig,
        encoder_config: EncoderConfig,
        *,
        train: PanelTensors,
        validation: PanelTensors,
        shape: DecoderShape | None = None,
        treatments: TreatmentEncoding | None = None,
        start_R: Params | None = None,
        drop_last: bool = True,
        name: str = "finetune",
        base: Mapping[str, Tensor] | None = None,
    ) -> None:
        self.config, self.drop_last, self.name = config, drop_last, name
        shape = shape or DecoderShape(config.decoder or DEFAULT_DECODER, hidden=config.hidden)
        inputs = EncoderInputs(dims, encoder_config.inputs, shape.forms)
        self._make_encoder = partial(make_encoder, inputs.token_dims, encoder_config)
        self._make_decoder = partial(make_decoder, shape, dims, horizon, encoder_config, treatments)
        self.encoder, self.decoder = self._make_encoder().to(train.v_NV.device), self._make_decoder()
        self._scale = OutcomeScale(shape.forms) if config.loss == "relative_huber" else None
        self._start_R, self._base = start_R, base
        self._rows = {"train": SubjectRows(train), "validation": SubjectRows(validation)}
        self._history = {name: inputs.history(rows.panel)[:, :-1].contiguous() for name, rows in self._rows.items()}
        steps = {"train": 1 if shape.decoder == "autoregressive_one_step" else horizon, "validation": horizon}
        self._weights = {name: step_weights(config.step_weights, n).to(train.y_NTY) for name, n in steps.items()}
        self.n_train, self.n_validation = (len(rows) for rows in self._rows.values())
        self.members_at_once = members_at_once(self.encoder, config.batch_size, self._history["train"].shape[1])

    def initial(self, member: int) -> tuple[Params, Params]:
        """Return a member: freshly drawn parameters, replaced by those to start from."""

        def make() -> nn.Module:
            network = nn.ModuleDict({ENCODER[:-1]: self._make_encoder(), HEAD[:-1]: self._make_decoder().head})
            if self._base is not None:
                _, last = cast("OutcomePredictor", network[HEAD[:-1]]).layers
                last.weight.data.mul_(NEARLY_NOTHING)
                last.bias.data.zero_()
            return network

        return initial_params(make, self.config, self.name, member, self._start_R), {}

    def loss(self, params_R: Params, state_R: Params, rows_RB: Tensor, streams: Sequence[Stream]) -> StepLoss:
        """Return each member's weighted masked error on its mini-batch."""
        panel = self._rows["train"].panel
        masks = self.encoder.mask_source(panel.y_NTY.shape[1] - 1, streams, panel.y_NTY)
        error_R, weight_R = self._error("train", params_R, rows_RB, masks)
        return error_R / weight_R.clamp(min=LEAST_WEIGHT), state_R

    @torch.no_grad()
    def validation_loss(
        self, params_R: Params, state_R: Params, rows_RB: Tensor, streams: Sequence[Stream]
    ) -> tuple[Tensor, Tensor]:
        """Return `(loss, weight)` of a validation batch, without dropout."""
        error_R, weight_R = self._error("validation", params_R, rows_RB, None)
        return error_R / weight_R.clamp(min=LEAST_WEIGHT), weight_R

    def _error(self, name: str, params_R: Params, rows_RB: Tensor, masks: MaskSource | None) -> tuple[Tensor, Tensor]:
        """Return each member's weighted sum of errors, and of weights."""
        series = self._rows[name].batch(rows_RB, torch.arange(len(rows_RB), device=rows_RB.device))
        encoder, head = submodule(params_R, ENCODER), submodule(params_R, HEAD)
        history_RBTS = self._history[name][rows_RB]
        z_RBTD = encode_members(self.encoder, encoder, history_RBTS, series.statics_RBV, masks).z_BTD
        weight_H = self._weights[name]
        ahead = series.unrolled(len(weight_H))
        answer_RMHY, counts_RMH = ahead.target.flatten(1, 2), ahead.weight.flatten(1, 2)
        given_RMHY = answer_RMHY if name == "train" else None
        from_RMHY = None if self._base is None else self._base[name][rows_RB].flatten(1, 2)[:, :, : len(weight_H)]
        predicted = self.decoder.predict(head, z_RBTD, series, ahead, given_RMHY, from_RMHY)
        observed_RMHY = None if ahead.observed is None else ahead.observed.flatten(1, 2)
        error_RMH = self._errors(predicted.outcomes, answer_RMHY, series.column("outcomes"), observed_RMHY)
        if predicted.beside is not None:
            error_RMH = error_RMH + predicted.beside
        error_R = (error_RMH * counts_RMH * weight_H).flatten(1).sum(dim=1)
        return error_R, counts_RMH.flatten(1).sum(dim=1)

    def _errors(self, predicted: Tensor, answer: Tensor, y_RBTY: Tensor, observed: Tensor | None) -> Tensor:
        """Return the errors `[R,M,H]` of outcomes predicted from every origin."""
        if self._scale is None:
            return squared_error(predicted, answer, observed)
        scale: OutcomeScale = self._scale.to(y_RBTY)
        unit_RMY = scale.error_unit(y_RBTY, scale.units(y_RBTY)).flatten(1, 2)
        return sum_of_observed(scale.penalty(predicted, answer, unit_RMY[..., None, :]), observed)
