"""Fits and models of networks whose states become effects that are rolled out (spec GROWTH-4 to 7, NET-21)."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from costar_cli.config.choices import SelectionName
from costar_cli.config.models import TrainingConfig
from costar_cli.data import Panel, Queries
from costar_cli.data.tensors import PanelTensors
from costar_cli.methods.base import Fit, FitTask, Fitted
from costar_cli.methods.entry import Adjusts
from costar_cli.methods.shared.covariate_transition import Rates, Reach, reach_of
from costar_cli.methods.shared.distinct import runs
from costar_cli.methods.shared.members import Params, member_module, of_members, with_prefix
from costar_cli.methods.shared.microbatches import encode_in_microbatches, microbatch_size
from costar_cli.methods.shared.networks import NetworkModel
from costar_cli.methods.shared.outcome_forms import FormName, OutcomeForm, choose_forms
from costar_cli.methods.shared.outcome_scale import OutcomeScale
from costar_cli.methods.shared.rolled import Balance, BalanceKind, RolledNetwork, RolledStage, RolledT
from costar_cli.methods.shared.stage import NetworkTraining, one_stage
from costar_cli.methods.shared.trained import AnswerJob
from costar_cli.methods.shared.windows import SubjectRows, Windows

CPU_ELEMENTS = 2**23  # computed at once while a panel is encoded: a loop over steps needs wide arrays to pay
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
class RolledModel(NetworkModel[Histories], ABC):
    """A fitted network with the structured decoder; its `params` are named `network.*`."""

    @property
    def stepwise(self) -> bool:
        """Return that each step is predicted from the one before."""
        return True

    @property
    def adjusts(self) -> Adjusts:
        """Return which reactions inside a plan it adjusts for: without covariates, those to outcomes."""
        return "outcomes" if self.make().decoder.covariates is None else "all"

    @abstractmethod
    def make(self) -> RolledNetwork:
        """Return the network, freshly initialised."""

    def networks(self) -> Mapping[str, Callable[[], nn.Module]]:
        """Return the one network."""
        return {"network.": self.make}

    @cached_property
    def forms(self) -> tuple[OutcomeForm, ...]:
        """Return the form of each outcome."""
        return tuple(OutcomeForm(**form) for form in self.record.facts["forms"])

    @property
    def reach(self) -> Reach:
        """Return the smallest and largest covariates and statics that were learned from."""
        low, high = self.record.facts["reach"]
        return low, high

    def encode_series(self, panel: Panel) -> Histories:
        """Return every member's effects and exposures at every step of every subject."""
        tensors = self.scaled(panel)
        known_R = [_encoded(network, tensors) for network in self._networks_R]
        scale: OutcomeScale = OutcomeScale(self.forms).to(tensors.y_NTY)
        return Histories(tensors.y_NTY, scale.units(tensors.y_NTY), tensors.x_NTX, known_R)

    def jobs(self, states: Histories, queries: Queries, batch_size: int) -> Iterator[Iterable[AnswerJob]]:
        """Yield jobs of as many queries as one core's caches, or a GPU's memory, hold."""
        networks, known = self._networks_R, [*zip(*states.known_R, strict=True)]
        one, rates = networks[0].decoder, Rates.of_members([network.decoder for network in networks])
        largest = queries.horizon * (len(networks) * one.n_effects + queries.plan.shape[-1])
        size = microbatch_size(largest, batch_size, states.y_NTY.device, cpu_elements=QUERY_ELEMENTS)

        def predict(some: Queries) -> Tensor:
            first_U, history_Q = runs(some.subject, some.origin)
            subject, origin, histories = (
                torch.from_numpy(values.astype(np.int64)).to(states.y_NTY.device)
                for values in (some.subject[first_U], some.origin[first_U], history_Q)
            )
            plan_QHA = torch.from_numpy(some.plan).to(states.y_NTY)
            start = states.y_NTY[subject, origin], states.unit_NTY[subject, origin]
            theta, exposure, *drift = (torch.stack([x[subject, origin] for x in of_R]) for of_R in known)
            covariates = (states.x_NTX[subject, origin], *drift) if drift else ()
            return one.roll(theta, *start, exposure, plan_QHA, *covariates, history_Q=histories, rates=rates)

        return self.jobs_of_all_members(predict, queries, size)

    @cached_property
    def _networks_R(self) -> list[RolledNetwork]:
        params_R = self.params_of("network")
        return [member_module(self.make(), params_R, member) for member in range(self.members)]


def _encoded(network: RolledNetwork, panel: PanelTensors) -> tuple[Tensor, ...]:
    """Return one member's effects `[N,T,Y,P]`, exposures `[N,T,J]`, and drifts `[N,T,X]` of covariates it forecasts."""
    subject_N = torch.arange(len(panel.length_N), device=panel.y_NTY.device)
    member_R, steps = torch.zeros_like(subject_N[:1]), panel.y_NTY.shape[1]
    params_R = {name: value[None] for name, value in network.named_parameters()}

    def encode(subject_B: Tensor) -> tuple[Tensor, ...]:
        series = Windows.of(panel, member_R, subject_B[None], torch.zeros_like(subject_B)[None], steps)
        z_BTD = network.states(params_R, series)[0]
        known = network.decoder.theta(z_BTD), network.decoder.exposures(series.column("previous")[0])
        law = network.decoder.covariates
        return known if law is None else (*known, law.drift(z_BTD))

    largest = steps * network.elements_per_position
    size = microbatch_size(largest, len(subject_N), subject_N.device, cpu_elements=CPU_ELEMENTS)
    return encode_in_microbatches(encode, subject_N, size=size)


def fit_rolled(
    task: FitTask,
    name: str,
    network: Any,  # noqa: ANN401 - settings of the network, of the method's own type
    make: Callable[[Sequence[OutcomeForm], Reach], RolledT],
    start: RolledModel | None,
    training: TrainingConfig,
    *,
    balance: tuple[BalanceKind, float] | None = None,
    weigh: Callable[[Windows], Tensor] | None = None,
    form: Literal["auto"] | FormName = "auto",
    select_on: SelectionName | None = None,
    before: Mapping[str, Params] | None = None,
    meta: Mapping[str, Any] | None = None,
) -> Fit:
    """Train a network in one stage; few-shot starts from the source's, and keeps its forms.

    Args:
        task: what to fit to.
        name: of the stage.
        network: its settings.
        make: returns a fresh network, given forms and reach.
        start: the model to start from, or none.
        training: settings of the stage.
        balance: what keeps states from telling the treatment, and its weight at the end of training, if anything.
        weigh: returns how much each step from each origin counts in training; by default the same.
        form: of all outcomes, or `auto`.
        select_on: what selects its weights, where the method does not leave that to `finetune.select_on`.
        before: networks that are already trained, by name.
        meta: facts that the artifact records beside forms and reach.
    """
    forms = start.forms if start else choose_forms(task.panels[task.train], task.schema, task.scaler, form)
    train = task.tensors(task.train)
    reach = start.reach if start else reach_of(train)
    facts = {"forms": [one.to_meta() for one in forms], "reach": list(reach), **(meta or {})}
    of_network = NetworkTraining(
        name=task.stage_name(name),
        make=lambda: make(forms, reach),
        network=network,
        config=training,
        train=SubjectRows(train),
        validation=SubjectRows(task.tensors(task.validation)),
        start_R=start.params_of("network") if start else None,
    )

    def complete(params_R: Params, members: Sequence[int]) -> Fitted:
        earlier = {of: of_members(own_R, members) for of, own_R in (before or {}).items()}
        named = [with_prefix(own_R, of) for of, own_R in (earlier | {"network": params_R}).items()]
        return Fitted({of: value for one in named for of, value in one.items()}, dict(facts))

    own = Balance.over(*balance, of_network, task.schema.treatments.mode) if balance else None
    stage = RolledStage(of_network, task.horizon, weigh=weigh, balance=own)
    return (yield from one_stage(task, stage, complete, select_on=select_on))
