"""G-Net: g-computation with a recurrent network (Li et al. 2021; spec GNET-1 to 5).

One network predicts the next outcome and covariates. Under a plan, futures are simulated step by step: prediction plus
the residual of a subject that the network has not learned from. Their mean is the answer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from costar_cli.data.tensors import PanelTensors
from costar_cli.errors import DataError
from costar_cli.methods.base import Fit, FitTask, Fitted
from costar_cli.methods.recurrent.futures import (
    Draws,
    Residuals,
    has_residuals,
    known_position,
    known_targets,
    usable_length,
)
from costar_cli.methods.recurrent.lstm import Masks
from costar_cli.methods.recurrent.model import Networks, QueryBatch, RecurrentModel, state_at
from costar_cli.methods.recurrent.network import Make, Passed, RecurrentNetwork, RecurrentStage, over_members
from costar_cli.methods.recurrent.plan_prefixes import LstmSteps, PlanPrefixes, PrefixState
from costar_cli.methods.recurrent.settings import GNetConfig
from costar_cli.methods.shared.balancing import masked_mean, squared_error, target_weight
from costar_cli.methods.shared.members import Dims, Params, with_prefix
from costar_cli.methods.shared.stage import NetworkTraining, one_stage
from costar_cli.methods.shared.streams import Stream
from costar_cli.methods.shared.trained import ReadsModels
from costar_cli.methods.shared.windows import Column, SubjectRows, Windows

SELECTION_SAMPLES = 10  # most futures per query while weights are selected: their noise is alike in every epoch


class ConditionalHead(nn.Module):
    """`r = ELU(W o)`; networks that share the outputs evenly, each told `r` and the outputs of those before it.

    Args:
        sequence: width of the outputs `o` of the LSTM.
        representation: width of `r`.
        hidden: hidden units of each network.
        n_outputs: outcomes, then covariates.
        components: number of networks, at most one per output.
    """

    def __init__(self, sequence: int, representation: int, hidden: int, *, n_outputs: int, components: int) -> None:
        super().__init__()
        self.representation = nn.Linear(sequence, representation)
        self.networks = nn.ModuleList()
        told = 0
        for part in np.array_split(np.arange(n_outputs), min(components, n_outputs)):
            self.networks.append(
                nn.Sequential(nn.Linear(told + representation, hidden), nn.ELU(), nn.Linear(hidden, len(part)))
            )
            told += len(part)

    def forward(self, sequence: Tensor) -> Tensor:
        """Return the outputs `[...,E]`."""
        seen = functional.elu(self.representation(sequence))
        found: list[Tensor] = []
        for network in self.networks:
            found.append(network(torch.cat([*found, seen], dim=-1)))
        return torch.cat(found, dim=-1)


def gnet_network(dims: Dims, config: GNetConfig) -> RecurrentNetwork:
    """Return a network: `[a_t, x_t, y_t, v]` to `y_{t+1}` and `x_{t+1}`, in that order."""
    shape = config.network
    head = ConditionalHead(
        shape.width,
        shape.representation,
        shape.hidden,
        n_outputs=dims[2] + dims[0],
        components=shape.components,
    )
    reads: tuple[Column, ...] = ("treatment", "covariates", "outcomes", "statics")
    return RecurrentNetwork(dims, reads, width=shape.width, layers=shape.layers, head=head)


class GNetStage(RecurrentStage):
    """Squared error of the next outcome plus that of the next covariates; the outcome's alone selects."""

    def objective(self, params_R: Params, state_R: Params, batch: Windows, masks: Masks) -> Tensor:
        """Return the sum of both errors' means."""
        predicted, target = self._predicted(params_R, batch, masks), batch.target
        n_outcomes = target.shape[-1]
        error_R = masked_mean(squared_error(predicted[..., :n_outcomes], target, batch.observed), batch.weight)
        if predicted.shape[-1] == n_outcomes:
            return error_R
        seen = batch.next_seen
        covariates = squared_error(predicted[..., n_outcomes:], batch.next_covariates, seen)
        return error_R + masked_mean(covariates, target_weight(batch.active_next, seen))

    def error(self, params_R: Params, batch: Windows) -> Tensor:
        """Return the squared errors of the outcomes."""
        target = batch.target
        predicted = self._predicted(params_R, batch, None)[..., : target.shape[-1]]
        return squared_error(predicted, target, batch.observed)

    def _predicted(self, params_R: Params, batch: Windows, masks: Masks) -> Tensor:
        predicted: Tensor = self.network.call_head(params_R, self.network.run_members(params_R, batch, masks))
        return predicted


@dataclass(frozen=True)
class GNetModel(RecurrentModel):
    """A fitted G-Net; what it knows of a history is the network's state before the origin's treatment."""

    def makes(self) -> Mapping[str, Make]:
        """Return the network."""
        return {"network": partial(gnet_network, self.schema.dims, self.settings)}

    def elements_per_query(self, networks: Networks) -> int:
        """Return how many numbers the futures of a query take."""
        return int(self.settings.samples) * super().elements_per_query(networks)

    def predict(self, networks: Networks, asked: QueryBatch) -> Tensor:
        """Return the prediction after the first treatment, then means over simulated futures.

        What is averaged is the prediction at each step, before its own residual is added.
        """
        network, n_outcomes = networks["network"], asked.outcomes_QY.shape[1]
        dx, da, dy, dv = self.schema.dims
        treatment, covariates, own, statics = torch.split(torch.arange(da + dx + dy + dv), [da, dx, dy, dv])
        # The futures of a plan share its treatments and the statics
        steps = LstmSteps(network.lstm, torch.cat([treatment, statics]), torch.cat([own, covariates]))
        # Draws depend on the numbers of the members in the ensemble that they are part of
        numbers: Sequence[int] = self.record.facts.get("member_numbers") or range(self.members)
        residuals = self.residuals(asked.member)
        before, *parted = PlanPrefixes.along(torch.stack([asked.subject_id_Q, asked.origin_Q], dim=1), asked.plan_QHA)
        values_KSE = torch.cat([asked.outcomes_QY, asked.covariates_QX], dim=1)[before.query_K, None]
        state = PrefixState.of(state_at(asked.known_QD[before.query_K], network))
        outcomes = []
        for step, prefixes in enumerate(parted):
            if step:
                seed, origin_K = int((self.record.config or {})["seed"]), asked.origin_Q[before.query_K]
                draws = Draws.of(seed, numbers[asked.member], asked.subject_id_Q[before.query_K], origin_K)
                drawn_KS = draws.below(len(residuals.length_K), self.settings.samples, step - 1)
                values_KSE = values_KSE + residuals.at(drawn_KS, origin_K + step - 1)
            asking_K = prefixes.query_K
            shared_KI = torch.cat([asked.plan_QHA[asking_K, step], asked.statics_QV[asking_K]], dim=1)
            state = steps.next(prefixes.parent_K, shared_KI, values_KSE, state)
            values_KSE = network.head(state.hidden[-1])
            outcomes.append(values_KSE[..., :n_outcomes].mean(dim=1)[prefixes.prefix_Q])
            before = prefixes
        return torch.stack(outcomes, dim=1)

    def residuals(self, member: int) -> Residuals:
        """Return what a member draws from: subjects with residuals, without the padding between members."""
        length = self.params["residuals.length"][member].long()
        used = length > 0
        return Residuals(self.params["residuals.value"][member][used], length[used])


@dataclass(frozen=True)
class GNetMethod(ReadsModels):
    """G-computation with a recurrent network (spec GNET-1 to 5)."""

    model = GNetModel

    name: str = "gnet"

    def fit(self, task: FitTask) -> Fit:
        """Train the network on most subjects, then keep its residuals on the others.

        Raises:
            DataError: there are not two subjects to learn from, or those held out are too short.
            MismatchError: what to start from is no G-Net of enough members.
            UsageError: the settings give the network a different shape than what to start from.
        """
        config, name = task.settings_of(GNetConfig), task.stage_name("gnet network")
        start = GNetModel.start_of(task, self.name, config)
        train, make = task.tensors(task.train), partial(gnet_network, task.schema.dims, config)
        n_subjects = len(train.length_N)
        order = Stream(task.config.seed, name, "holdout").permutation(n_subjects).to(train.length_N.device)
        n_held_out = max(1, round(config.holdout * n_subjects))
        held_out_K = order[:n_held_out].sort().values
        held_out_K = held_out_K[has_residuals(train)[held_out_K]]
        if n_held_out >= n_subjects or not len(held_out_K):
            raise DataError(
                f"{n_subjects} training subjects are too few to both learn from and draw residuals from",
                where="gnet.holdout",
                fix="G-Net needs more or longer training subjects, or another share to hold out",
            )
        held_out = train.take(held_out_K)

        def complete(params_R: Params, members: Sequence[int]) -> Fitted:
            params = with_prefix(params_R, "network") | with_prefix(_residuals(make, params_R, held_out), "residuals")
            return Fitted(params, {} if len(members) == task.members else {"member_numbers": list(members)})

        training = NetworkTraining(
            name=name,
            make=make,
            network=config.network,
            config=config.network.training(task.config),
            train=SubjectRows(train, order[n_held_out:].sort().values),
            validation=SubjectRows(task.tensors(task.validation)),
            start_R=start.params_of("network") if start else None,
        )
        fewer = config.model_copy(update={"samples": min(config.samples, SELECTION_SAMPLES)})
        return (yield from one_stage(task, GNetStage(training), complete, fewer))


GNET = GNetMethod()


def _residuals(make: Make, params_R: Params, panel: PanelTensors) -> Params:
    """Return true less predicted outcomes and covariates of every member, zero where there is no target.

    Steps end with the last target of the longest subject, whatever the padding. Where one was not observed, that of
    another step stands for its own; of a covariate that was never observed of a subject it is zero.
    """
    length_K = usable_length(panel)

    def read(passed: Passed) -> Tensor:
        batch = passed.batch
        true_TBE = torch.cat([batch.target, batch.next_covariates], dim=-1)[0]
        usable_TB = batch.at[0] < length_K[batch.subject_RB[0]]
        predicted_TBE: Tensor = passed.network.head(passed.outputs_TBD)
        return (true_TBE - predicted_TBE) * usable_TB[..., None]

    value_RKTE = over_members(make, params_R, panel, read)
    usable_KT1 = torch.arange(value_RKTE.shape[2], device=length_K.device)[:, None] < length_K[:, None, None]
    for of_covariates, own_RKTF in enumerate(
        torch.split(value_RKTE, [panel.y_NTY.shape[2], panel.x_NTX.shape[2]], dim=3)
    ):
        known_KTF = known_targets(panel, of_covariates=bool(of_covariates))
        position_KTF = known_position(panel, of_covariates=bool(of_covariates))
        if known_KTF is not None and position_KTF is not None:
            other_RKTF = own_RKTF.gather(2, position_KTF.expand_as(own_RKTF))
            own_RKTF.copy_(other_RKTF * usable_KT1 * known_KTF.any(dim=1, keepdim=True))
    value_RKTE = value_RKTE[:, :, : int(length_K.max())].contiguous()
    return {"value": value_RKTE, "length": length_K.to(value_RKTE).expand(len(value_RKTE), -1).clone()}
