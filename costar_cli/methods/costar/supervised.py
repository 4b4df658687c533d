"""The supervised stage: encoder and outcome predictor trained together on every origin of every subject."""

from collections.abc import Sequence

import torch
from torch import Tensor

from costar_cli.config.models import EncoderConfig, FinetuneConfig
from costar_cli.methods.base import StepLoss
from costar_cli.methods.costar.encode import encode_members
from costar_cli.methods.costar.encoder import CostarEncoder
from costar_cli.methods.costar.predictor import OutcomePredictor
from costar_cli.methods.dropout import MaskSource
from costar_cli.methods.members import Params, call_members, named_params, submodule
from costar_cli.methods.stage import PlainStage
from costar_cli.methods.streams import Stream
from costar_cli.panel.tensors import PanelTensors

__all__ = ["SupervisedStage", "step_weights"]

ENCODER, HEAD = "encoder.", "head."


def step_weights(kind: str, horizon: int) -> Tensor:
    """Return the weight of each step of the horizon, `[H]`, summing to H (spec models A.10)."""
    step = torch.arange(horizon, dtype=torch.float64)
    weight = {
        "uniform": torch.ones_like(step),
        "inverse": 1 / (step + 1),
        "sq_inverse": 1 / (step + 1) ** 2,
        "first_only": (step == 0).to(step.dtype),
    }[kind]
    return horizon * weight / weight.sum()


class Unrolled:
    """Every origin's plan, answer and mask as views of a scaled panel: `[N,T-1,..]` origins by H steps."""

    def __init__(self, panel: PanelTensors, horizon: int) -> None:
        pad = torch.nn.functional.pad
        self.history_NTS = panel.history_NTS[:, :-1]
        self.statics_NV = panel.v_NV
        self.plan_NTAH = pad(panel.a_NTA[:, :-1], (0, 0, 0, horizon - 1)).unfold(1, horizon, 1)
        self.answer_NTYH = pad(panel.y_NTY[:, 1:], (0, 0, 0, horizon - 1)).unfold(1, horizon, 1)
        position = torch.arange(self.history_NTS.shape[1], device=panel.length_N.device)
        active_NT = (position < (panel.length_N - 1)[:, None]).to(panel.y_NTY.dtype)
        self.active_NTH = pad(active_NT, (0, horizon - 1)).unfold(1, horizon, 1)


class SupervisedStage(PlainStage):
    """Squared error of all steps from all origins (spec models A.10); encoder and head move together.

    Args:
        dims: numbers of covariates, treatments, outcomes and statics.
        horizon: H, steps predicted from each origin.
        config: settings of the stage.
        encoder_config: shape of the encoder.
        train: scaled panel to learn from.
        validation: scaled panel to select on.
        start_R: parameters to start from: `encoder.*` (after pretraining), also `head.*` (few-shot), or none.
        drop_last: whether an incomplete last batch is left out (not in few-shot).
        name: what progress and random streams call the stage.
    """

    def __init__(
        self,
        dims: tuple[int, int, int, int],
        horizon: int,
        config: FinetuneConfig,
        encoder_config: EncoderConfig,
        *,
        train: PanelTensors,
        validation: PanelTensors,
        start_R: Params | None = None,
        drop_last: bool = True,
        name: str = "finetune",
    ) -> None:
        self.config, self.drop_last, self.name = config, drop_last, name
        self.encoder = CostarEncoder(dims, encoder_config).to(train.v_NV.device)
        self.head = outcome_head(dims, horizon, encoder_config, config.hidden)
        self._dims, self._horizon, self._start_R = dims, horizon, start_R or {}
        self._parts = {"train": Unrolled(train, horizon), "validation": Unrolled(validation, horizon)}
        self._weight_H = step_weights(config.step_weights, horizon).to(train.y_NTY)
        self.n_train = len(train.length_N)
        self.n_validation = len(validation.length_N)

    def initial(self, member: int) -> tuple[Params, Params]:
        """Return a member: freshly drawn parameters, replaced by those to start from."""
        seed = Stream(self.config.seed, self.name, "initial", member).torch_seed()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            params = named_params(CostarEncoder(self._dims, self.encoder.config), ENCODER)
            params |= named_params(
                outcome_head(self._dims, self._horizon, self.encoder.config, self.config.hidden), HEAD
            )
        return params | {name: value[member] for name, value in self._start_R.items()}, {}

    def loss(self, params_R: Params, state_R: Params, rows_RB: Tensor, streams: Sequence[Stream]) -> StepLoss:
        """Return each member's weighted masked squared error on its mini-batch."""
        history = self._parts["train"].history_NTS
        masks = self.encoder.mask_source(history.shape[1], streams, history)
        error_R, weight_R = self._squared_error("train", params_R, rows_RB, masks)
        return error_R / weight_R.clamp(min=1), state_R

    @torch.no_grad()
    def validation_loss(
        self, params_R: Params, state_R: Params, rows_RB: Tensor, streams: Sequence[Stream]
    ) -> tuple[Tensor, Tensor]:
        """Return `(loss, weight)` of a validation batch, without dropout."""
        error_R, weight_R = self._squared_error("validation", params_R, rows_RB, None)
        return error_R / weight_R.clamp(min=1), weight_R

    def _squared_error(
        self, name: str, params_R: Params, rows_RB: Tensor, masks: MaskSource | None
    ) -> tuple[Tensor, Tensor]:
        part = self._parts[name]
        encoder = submodule(params_R, ENCODER)
        z_RBTD = encode_members(self.encoder, encoder, part.history_NTS[rows_RB], part.statics_NV[rows_RB], masks).z_BTD
        plan_RMHA = part.plan_NTAH[rows_RB].flatten(1, 2).transpose(-1, -2)
        predicted_RMHY = call_members(self.head, submodule(params_R, HEAD), z_RBTD.flatten(1, 2), plan_RMHA)
        answer_RMHY = part.answer_NTYH[rows_RB].flatten(1, 2).transpose(-1, -2)
        active_RMH = part.active_NTH[rows_RB].flatten(1, 2)
        squared_RMH = (predicted_RMHY - answer_RMHY).square().sum(dim=-1)
        error_R = (squared_RMH * active_RMH * self._weight_H).flatten(1).sum(dim=1)
        return error_R, active_RMH.flatten(1).sum(dim=1)


def outcome_head(
    dims: tuple[int, int, int, int], horizon: int, encoder: EncoderConfig, hidden: int
) -> OutcomePredictor:
    """Return the outcome predictor for these dimensions."""
    return OutcomePredictor(dims[1], dims[2], width=encoder.width, horizon=horizon, hidden=hidden)
