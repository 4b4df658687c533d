"""The supervised stage: encoder and outcome predictor trained together on every origin of every subject."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from costar_cli.config.models import EncoderConfig, FinetuneConfig
from costar_cli.methods.base import StepLoss
from costar_cli.methods.costar.architectures import make_encoder
from costar_cli.methods.costar.predictor import DEFAULT_DECODER, AutoregressivePredictor, outcome_head
from costar_cli.methods.costar.representation import Dims, encode_members
from costar_cli.methods.shared.balancing import LEAST_WEIGHT, squared_error, target_weight
from costar_cli.methods.shared.dropout import MaskSource
from costar_cli.methods.shared.members import Params, call_members, named_params, submodule
from costar_cli.methods.shared.stage import PlainStage
from costar_cli.methods.shared.streams import Stream
from costar_cli.panel.tensors import PanelTensors

__all__ = ["SupervisedStage", "step_weights"]

ENCODER, HEAD = "encoder.", "head."


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


class Unrolled:
    """Every origin's plan, answer and mask as views of a scaled panel: `[N,T-1,..]` origins by H steps.

    `observed_NTYH` says which outcomes of an answer were observed; it is None where none was filled.
    """

    def __init__(self, panel: PanelTensors, horizon: int) -> None:
        pad = torch.nn.functional.pad
        self.history_NTS = panel.history_NTS[:, :-1]
        self.statics_NV = panel.v_NV
        self.plan_NTAH = pad(panel.a_NTA[:, :-1], (0, 0, 0, horizon - 1)).unfold(1, horizon, 1)
        self.answer_NTYH = pad(panel.y_NTY[:, 1:], (0, 0, 0, horizon - 1)).unfold(1, horizon, 1)
        self.active_NTH = pad(panel.active_NT, (0, horizon - 1)).unfold(1, horizon, 1)
        self.observed_NTYH: Tensor | None = None
        if panel.observed_NTY is not None:
            self.observed_NTYH = pad(panel.observed_NTY[:, 1:], (0, 0, 0, horizon - 1)).unfold(1, horizon, 1)


class SupervisedStage(PlainStage):
    """Squared error of all steps from all origins (spec COSTAR-17); encoder and head move together.

    An autoregressive decoder learns each step after the true outcomes before it, or the first step alone (spec
    COSTAR-22). It is selected on what it predicts after its own.

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
        dims: Dims,
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
        self.encoder = make_encoder(dims, encoder_config).to(train.v_NV.device)
        decoder = config.decoder or DEFAULT_DECODER
        self._make_head = partial(outcome_head, dims, horizon, encoder_config, config.hidden, decoder=decoder)
        self.head = self._make_head()
        self._start_R = start_R or {}
        self._is_taught = isinstance(self.head, AutoregressivePredictor)  # trained after true outcomes
        self._parts = {"train": Unrolled(train, horizon), "validation": Unrolled(validation, horizon)}
        steps = {"train": 1 if decoder == "autoregressive_one_step" else horizon, "validation": horizon}
        self._weights = {name: step_weights(config.step_weights, n).to(train.y_NTY) for name, n in steps.items()}
        self.n_train = len(train.length_N)
        self.n_validation = len(validation.length_N)

    def initial(self, member: int) -> tuple[Params, Params]:
        """Return a member: freshly drawn parameters, replaced by those to start from."""
        seed = Stream(self.config.seed, self.name, "initial", member).torch_seed()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            params = named_params(make_encoder(self.encoder.dims, self.encoder.config), ENCODER)
            params |= named_params(self._make_head(), HEAD)
        return params | {name: value[member] for name, value in self._start_R.items()}, {}

    def loss(self, params_R: Params, state_R: Params, rows_RB: Tensor, streams: Sequence[Stream]) -> StepLoss:
        """Return each member's weighted masked squared error on its mini-batch."""
        history = self._parts["train"].history_NTS
        masks = self.encoder.mask_source(history.shape[1], streams, history)
        error_R, weight_R = self._squared_error("train", params_R, rows_RB, masks)
        return error_R / weight_R.clamp(min=LEAST_WEIGHT), state_R

    @torch.no_grad()
    def validation_loss(
        self, params_R: Params, state_R: Params, rows_RB: Tensor, streams: Sequence[Stream]
    ) -> tuple[Tensor, Tensor]:
        """Return `(loss, weight)` of a validation batch, without dropout."""
        error_R, weight_R = self._squared_error("validation", params_R, rows_RB, None)
        return error_R / weight_R.clamp(min=LEAST_WEIGHT), weight_R

    def _squared_error(
        self, name: str, params_R: Params, rows_RB: Tensor, masks: MaskSource | None
    ) -> tuple[Tensor, Tensor]:
        part = self._parts[name]
        encoder = submodule(params_R, ENCODER)
        z_RBTD = encode_members(self.encoder, encoder, part.history_NTS[rows_RB], part.statics_NV[rows_RB], masks).z_BTD
        weight_H = self._weights[name]
        steps = slice(len(weight_H))

        def chosen(unrolled_NTFH: Tensor) -> Tensor:
            return unrolled_NTFH[rows_RB].flatten(1, 2).transpose(-1, -2)[:, :, steps]

        plan_RMHA, answer_RMHY = chosen(part.plan_NTAH), chosen(part.answer_NTYH)
        observed_RMHY = None if part.observed_NTYH is None else chosen(part.observed_NTYH)
        given = (answer_RMHY,) if self._is_taught and name == "train" else ()
        head = submodule(params_R, HEAD)
        predicted_RMHY = call_members(self.head, head, z_RBTD.flatten(1, 2), plan_RMHA, *given)
        counts_RMH = target_weight(part.active_NTH[rows_RB].flatten(1, 2)[..., steps], observed_RMHY)
        squared_RMH = squared_error(predicted_RMHY, answer_RMHY, observed_RMHY)
        error_R = (squared_RMH * counts_RMH * weight_H).flatten(1).sum(dim=1)
        return error_R, counts_RMH.flatten(1).sum(dim=1)
