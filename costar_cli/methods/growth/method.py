"""The growth GRU: its fit in one stage, and the fitted model (spec GROWTH-5 to 6)."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from costar_cli.methods.base import Fit, FitTask, Fitted
from costar_cli.methods.growth.gru import run_gru
from costar_cli.methods.growth.network import GrowthNetwork, GrowthStage
from costar_cli.methods.growth.settings import GrowthConfig
from costar_cli.methods.shared.members import member_module, with_prefix
from costar_cli.methods.shared.microbatches import encode_in_microbatches, microbatch_size
from costar_cli.methods.shared.outcome_forms import OutcomeForm, choose_forms
from costar_cli.methods.shared.stage import NetworkTraining, one_stage
from costar_cli.methods.shared.structured import Reach, reach_of
from costar_cli.methods.shared.trained import AnswerJob, NetworkModel, ReadsModels
from costar_cli.methods.shared.windows import SubjectRows, Windows
from costar_cli.panel import Panel, Queries
from costar_cli.panel.tensors import PanelTensors

__all__ = ["GROWTH", "GrowthMethod", "GrowthModel", "Histories"]

CPU_ELEMENTS = 2**23  # gates computed at once while a panel is encoded: a loop over steps needs wide ones to pay
QUERY_ELEMENTS = 2**20  # doses and columns of the queries that one core answers at once


@dataclass(frozen=True)
class Histories:
    """What each of R members knows at every step: effects `[N,T,Y,P]`, exposures `[N,T,J]`, drifts `[N,T,X]`.

    `y_NTY` are standardised outcomes, `unit_NTY` the units of a step from there, `x_NTX` standardised covariates.
    """

    y_NTY: Tensor
    unit_NTY: Tensor
    x_NTX: Tensor
    known_R: list[tuple[Tensor, ...]]


@dataclass(frozen=True, kw_only=True)
class GrowthModel(NetworkModel[Histories]):
    """A fitted growth GRU; `params` are named `network.*`."""

    @cached_property
    def forms(self) -> tuple[OutcomeForm, ...]:
        """Return the form of each outcome."""
        return tuple(OutcomeForm(**form) for form in self.meta["forms"])

    @property
    def reach(self) -> Reach:
        """Return the smallest and largest covariates and statics that were learned from."""
        low, high = self.meta["reach"]
        return low, high

    def encode(self, panel: Panel) -> Histories:
        """Return every member's effects and exposures at every step of every subject."""
        tensors = self.scaled(panel)
        networks = self._networks_R()
        known_R = [_encoded(network, tensors) for network in networks]
        unit_NTY = networks[0].decoder.scale.units(tensors.y_NTY)
        return Histories(tensors.y_NTY, unit_NTY, tensors.x_NTX, known_R)

    def jobs(self, states: Histories, queries: Queries, batch_size: int) -> Iterator[Iterable[AnswerJob]]:
        """Yield jobs of as many queries as one core's caches, or a GPU's memory, hold."""
        networks = self._networks_R()
        decoder = networks[0].decoder
        largest = queries.horizon * (decoder.n_effects + queries.plan.shape[-1])
        size = microbatch_size(largest, batch_size, states.y_NTY.device, cpu_elements=QUERY_ELEMENTS)

        def predict(some: Queries) -> Tensor:
            subject, origin = (
                torch.from_numpy(values.astype(np.int64)).to(states.y_NTY.device)
                for values in (some.subject, some.origin)
            )
            plan_QHA = torch.from_numpy(some.plan).to(states.y_NTY)
            start = states.y_NTY[subject, origin], states.unit_NTY[subject, origin]
            x_QX = states.x_NTX[subject, origin]
            predicted_R = []
            for network, known in zip(networks, states.known_R, strict=True):
                theta, exposure, *drift = (values[subject, origin] for values in known)
                covariates = (x_QX, *drift) if drift else ()
                predicted_R.append(network.decoder.roll(theta, *start, exposure, plan_QHA, *covariates))
            return torch.stack(predicted_R)

        return self.jobs_of_all_members(predict, queries, size)

    def _networks_R(self) -> list[GrowthNetwork]:
        params_R, config = self.params_of("network"), self.settings.network
        return [
            member_module(GrowthNetwork(self.schema, self.forms, self.reach, config), params_R, member)
            for member in range(self.members)
        ]


def _encoded(network: GrowthNetwork, panel: PanelTensors) -> tuple[Tensor, ...]:
    """Return one member's effects `[N,T,Y,P]`, exposures `[N,T,J]`, and drifts `[N,T,X]` of covariates it forecasts."""
    subject_N = torch.arange(len(panel.length_N), device=panel.y_NTY.device)
    member_R, steps = torch.zeros_like(subject_N[:1]), panel.y_NTY.shape[1]
    gru_R = {name: value[None] for name, value in network.gru.named_parameters()}

    def encode(subject_B: Tensor) -> tuple[Tensor, ...]:
        series = Windows.of(panel, member_R, subject_B[None], torch.zeros_like(subject_B)[None], steps)
        z_BTD = run_gru(gru_R, network.inputs(series).transpose(1, 2))[0].transpose(0, 1)
        known = network.decoder.theta(z_BTD), network.decoder.exposures(series.column("previous")[0])
        law = network.decoder.covariates
        return known if law is None else (*known, law.drift(z_BTD))

    largest = 3 * steps * network.gru.hidden_size
    size = microbatch_size(largest, len(subject_N), subject_N.device, cpu_elements=CPU_ELEMENTS)
    return encode_in_microbatches(encode, subject_N, size=size)


class GrowthMethod(ReadsModels):
    """A gated recurrent network with the structured decoder."""

    model = GrowthModel

    def fit(self, task: FitTask) -> Fit:
        """Train the network; few-shot starts from the source's, and keeps its forms.

        Raises:
            MismatchError: what to start from is no growth GRU of enough members.
            UsageError: the settings give the network a different shape than what to start from.
        """
        config = task.settings_of(GrowthConfig)
        start = GrowthModel.start_of(task, "growth", config)
        forms = start.forms if start else choose_forms(task.panels[task.train], task.schema, task.scaler, config.form)
        train = task.tensors(task.train)
        reach = start.reach if start else reach_of(train)
        meta: Mapping[str, Any] = {"forms": [form.to_meta() for form in forms], "reach": list(reach)}
        training = config.network.training(task.config)
        if start:
            rate = config.network.few_shot_rate * training.learning_rate
            training = training.model_copy(update={"learning_rate": rate})
        network = NetworkTraining(
            name=task.stage_name("growth network"),
            make=partial(GrowthNetwork, task.schema, forms, reach, config.network),
            network=config.network,
            config=training,
            train=SubjectRows(train),
            validation=SubjectRows(task.tensors(task.validation)),
            start_R=start.params_of("network") if start else None,
        )
        return (
            yield from one_stage(
                task,
                GrowthStage(network, task.horizon),
                lambda params_R, _: Fitted(with_prefix(params_R, "network"), dict(meta)),
                select_on=config.select_on,
            )
        )


GROWTH = GrowthMethod()
