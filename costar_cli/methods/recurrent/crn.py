"""CRN and CRN(ERM): an encoder and a decoder with balanced representations (Bica et al. 2020; spec CRN-1 to 4)."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from costar_cli.data import Panel, TreatmentMode
from costar_cli.data.tensors import PanelTensors
from costar_cli.methods.base import Fit, FitTask
from costar_cli.methods.recurrent.lstm import Masks
from costar_cli.methods.recurrent.model import Networks, QueryBatch, RecurrentModel
from costar_cli.methods.recurrent.network import (
    Make,
    RecurrentNetwork,
    RecurrentStage,
    over_members,
    over_subjects,
)
from costar_cli.methods.recurrent.rolled import RolledLstm, RolledLstmModel
from costar_cli.methods.recurrent.settings import CrnConfig, CrnErmConfig
from costar_cli.methods.shared.balancing import (
    Balanced,
    BalancingHead,
    masked_mean,
    squared_error,
    treatment_cross_entropy,
)
from costar_cli.methods.shared.members import Dims, Params, member_module
from costar_cli.methods.shared.rolled_model import fit_rolled
from costar_cli.methods.shared.stage import AlphaSchedule, NetworkTraining, encoder_then_decoder
from costar_cli.methods.shared.trained import ReadsModels
from costar_cli.methods.shared.windows import Column, Windows

AnyCrnConfig = CrnConfig | CrnErmConfig


def crn_encoder(dims: Dims, config: AnyCrnConfig) -> RecurrentNetwork:
    """Return an encoder: `[a_{t-1}, x_t, y_t, v]` to a balanced representation of the history at t."""
    shape = config.encoder
    head = BalancingHead(shape.width, shape.representation, shape.hidden, n_treatments=dims[1], n_outcomes=dims[2])
    reads: tuple[Column, ...] = ("previous", "covariates", "outcomes", "statics")
    return RecurrentNetwork(dims, reads, width=shape.width, layers=shape.layers, head=head)


def crn_decoder(dims: Dims, config: AnyCrnConfig) -> RecurrentNetwork:
    """Return a decoder: it starts from the encoder's representation, is as wide, and reads `[a_{t-1}, y_t, v]`."""
    shape, width = config.decoder, config.encoder.representation
    head = BalancingHead(width, shape.representation, shape.hidden, n_treatments=dims[1], n_outcomes=dims[2])
    return RecurrentNetwork(dims, ("previous", "outcomes", "statics"), width=width, layers=shape.layers, head=head)


def crn_networks(dims: Dims, config: AnyCrnConfig) -> dict[str, Make]:
    """Return what makes the encoder and the decoder."""
    return {"encoder": partial(crn_encoder, dims, config), "decoder": partial(crn_decoder, dims, config)}


class CrnStage(RecurrentStage):
    """Squared error of the outcomes, and treatments that the representation shall not tell (gradient reversal).

    Args:
        training: the network and its rows.
        alpha: weight of balancing at the end of training; None leaves balancing out (ERM).
        mode: how treatments are encoded.
    """

    def __init__(
        self, training: NetworkTraining[RecurrentNetwork], *, alpha: float | None, mode: TreatmentMode
    ) -> None:
        super().__init__(training)
        self.scheduled = alpha is not None
        self._mode = mode
        self._schedule = AlphaSchedule.over(alpha or 0.0, self.config, self.n_train, drop_last=self.drop_last)

    def objective(self, params_R: Params, state_R: Params, batch: Windows, masks: Masks) -> Tensor:
        """Return squared error, and with balancing cross-entropy, too."""
        treatment, active = batch.treatment, batch.active
        outputs = self.network.run_members(params_R, batch, masks)
        balanced: Balanced = self.network.call_head(
            params_R, outputs, treatment, self._schedule.alpha(state_R["updates"])
        )
        error_R = masked_mean(squared_error(balanced.outcomes, batch.target, batch.observed), batch.weight)
        if not self.scheduled:
            return error_R
        return error_R + masked_mean(treatment_cross_entropy(balanced.treatment_logits, treatment, self._mode), active)

    def error(self, params_R: Params, batch: Windows) -> Tensor:
        """Return squared errors; treatments do not select."""
        outputs = self.network.run_members(params_R, batch)
        none_R = torch.zeros(len(outputs), dtype=outputs.dtype, device=outputs.device)
        balanced: Balanced = self.network.call_head(params_R, outputs, batch.treatment, none_R)
        return squared_error(balanced.outcomes, batch.target, batch.observed)


@dataclass(frozen=True)
class CrnModel(RecurrentModel):
    """A fitted CRN; what it knows of a history is the output of the encoder's LSTM."""

    def makes(self) -> Mapping[str, Make]:
        """Return the encoder, and the decoder if there is one."""
        makes = crn_networks(self.schema.dims, self.settings)
        return makes if self.horizon > 1 else {"encoder": makes["encoder"]}

    def represent(self, panel: Panel) -> NDArray[np.float32]:
        """Return the balanced representation of every history, `[R,N,T,r]`."""
        known_R, make = self.encode_series(panel).known_R, self.makes()["encoder"]
        encoders = [member_module(make(), self.params_of("encoder"), r) for r in range(self.members)]
        found = [_head(encoder).represent(known) for encoder, known in zip(encoders, known_R, strict=True)]
        return torch.stack(found).float().cpu().numpy()

    def encode_history(self, network: RecurrentNetwork, panel: PanelTensors) -> Tensor:
        """Return the encoder's outputs at every step."""
        return over_subjects(network, panel, panel.y_NTY.shape[1], lambda passed: passed.outputs_TBD)

    def predict(self, networks: Networks, asked: QueryBatch) -> Tensor:
        """Return the encoder's outcome after the first treatment, then the decoder's, fed with those before."""
        first = _head(networks["encoder"])(asked.known_QD, asked.plan_QHA[:, 0])
        outcomes, plan = [first.outcomes], asked.plan_QHA.unbind(1)
        if len(plan) > 1:
            decoder = networks["decoder"]
            state = decoder.starting_from(first.representation)
            for previous, treatment in pairwise(plan):
                output, state = decoder.step(
                    {"previous": previous, "outcomes": outcomes[-1], "statics": asked.statics_QV}, state
                )
                outcomes.append(_head(decoder)(output, treatment).outcomes)
        return torch.stack(outcomes, dim=1)


def _head(network: RecurrentNetwork) -> BalancingHead:
    return cast("BalancingHead", network.head)


@dataclass(frozen=True)
class CrnMethod(ReadsModels):
    """CRN, or CRN(ERM), which does not balance (spec CRN-1 to 4)."""

    model = CrnModel
    rolled = RolledLstmModel

    name: str = "crn"
    balances: bool = True

    def fit(self, task: FitTask) -> Fit:
        """Train the encoder, then the decoder on windows that start from what the encoder knows.

        Raises:
            DataError: no subject is long enough for the decoder.
            MismatchError: what to start from is no CRN of enough members.
            UsageError: the settings give the networks a different shape than what to start from.
        """
        config: AnyCrnConfig = task.settings_of(CrnConfig) if self.balances else task.settings_of(CrnErmConfig)
        alpha = config.alpha if isinstance(config, CrnConfig) else None
        if config.outputs.structured:
            return (
                yield from fit_rolled(
                    task,
                    self.name,
                    config.encoder,
                    partial(RolledLstm, task.schema, config),
                    RolledLstmModel.start_of(task, self.name, config),
                    config.encoder.training(task.config),
                    balance=None if alpha is None else ("reversal", alpha),
                )
            )
        makes = crn_networks(task.schema.dims, config)
        return (
            yield from encoder_then_decoder(
                task,
                self.name,
                config,
                makes,
                [task.tensors(task.train), task.tensors(task.validation)],
                stage=lambda _, training: CrnStage(training, alpha=alpha, mode=task.schema.treatments.mode),
                encode=lambda panel, encoder_R: over_members(
                    makes["encoder"],
                    encoder_R,
                    panel,
                    lambda passed: _head(passed.network).represent(passed.outputs_TBD),
                ),
                start=CrnModel.start_of(task, self.name, config),
            )
        )


CRN, CRN_ERM = CrnMethod(), CrnMethod("crn-erm", balances=False)
