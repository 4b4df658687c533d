"""The stages that train any transformer with a balancing head: batches from a subclass, any objective."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Literal, NamedTuple, Self

import torch
from torch import Tensor

from costar_cli.config.models import TrainingConfig
from costar_cli.methods.base import StepLoss
from costar_cli.methods.shared.dropout import MaskSource
from costar_cli.methods.shared.members import Params, named_params, submodule
from costar_cli.methods.shared.microbatches import map_microbatches
from costar_cli.methods.shared.stage import PlainStage
from costar_cli.methods.shared.streams import Stream
from costar_cli.methods.transformers.balancing_objective import BalancingObjective, Predicted, Target, predict_members
from costar_cli.methods.transformers.units import BalancedNetwork, NetworkT, samples_at_once
from costar_cli.panel.tensors import PanelTensors

__all__ = ["BalancedStage", "Batch", "PartName", "Series", "SeriesStage"]

PartName = Literal["train", "validation"]
Inputs = tuple[Tensor, ...]
ToMasks = Callable[[], dict[str, Tensor]]
WORTH_SPLITTING = 5  # batches of less than this part of what is computed at once: two cores get into each other's way
AVERAGE = "average."  # prefix of averages beside the parameters


class Batch(NamedTuple):
    """Inputs `[R,B,...]` of the network, in order, and what it shall predict."""

    inputs: Inputs
    target: Target


class BalancedStage(PlainStage, ABC, Generic[NetworkT]):
    """Squared error of the outcomes, balanced by an objective; selected on the plain one (spec NET-3, NET-12 to 15).

    Args:
        name: what progress and random streams call the stage.
        config: settings of the training.
        make: returns a freshly initialised network.
        dropout: rate of every mask.
        objective: what balances, and how weights are averaged.
        n_steps: longest sequence, for the masks.
        device: where the network computes.
        start_R: parameters to start from, or none.
    """

    def __init__(
        self,
        name: str,
        config: TrainingConfig,
        make: Callable[[], NetworkT],
        *,
        dropout: float,
        objective: BalancingObjective,
        n_steps: int,
        device: torch.device,
        start_R: Params | None = None,
    ) -> None:
        self.name, self.config = name, config
        self.objective = objective
        self.scheduled = objective.balancing != "none"
        self.network = make().to(device)
        self.n_steps = n_steps
        self._make, self._dropout, self._start_R = make, dropout, start_R or {}

    @property
    @abstractmethod
    def n_train(self) -> int:
        """Return the number of training rows."""

    @property
    @abstractmethod
    def n_validation(self) -> int:
        """Return the number of validation rows."""

    @abstractmethod
    def batch(self, part: PartName, state_R: Params, rows_RB: Tensor, streams: Sequence[Stream]) -> Batch:
        """Return the inputs and targets of rows; what is random in training comes from the streams."""

    def initial(self, member: int) -> tuple[Params, Params]:
        """Return a member: freshly drawn parameters, or those to start from, and their averages."""
        seed = Stream(self.config.seed, self.name, "initial", member).torch_seed()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            params = named_params(self._make())
        params |= {name: value[member].cpu() for name, value in self._start_R.items()}
        return params, self.objective.averages.initial(params)

    def loss(self, params_R: Params, state_R: Params, rows_RB: Tensor, streams: Sequence[Stream]) -> StepLoss:
        """Return each member's loss on its mini-batch, and the state with the averages that it saw."""
        batch = self.batch("train", state_R, rows_RB, streams)
        averages_R = self.objective.averages.current(params_R, state_R)
        alpha_R = self.objective.schedule.alpha(state_R["updates"])
        first, shapes = batch.inputs[0], self.network.mask_shapes(self.n_steps)
        masks = MaskSource(shapes, self._dropout, streams, device=first.device, dtype=first.dtype)

        def microbatch(
            inputs: Inputs, to_masks: ToMasks, module: BalancedNetwork, params: Params
        ) -> tuple[Tensor, ...]:
            own = {name: value for name, value in params.items() if not name.startswith(AVERAGE)}
            averages = submodule(params, AVERAGE)
            return self.objective.predict(module, own, averages, inputs, to_masks(), alpha_R)

        both_R = params_R | {AVERAGE + name: value for name, value in averages_R.items()}
        predicted = self._predict(both_R, batch, microbatch, masks)
        loss_R = self.objective.loss(predicted, batch.target, alpha_R)
        return loss_R, self.objective.averages.after(state_R, averages_R)

    @torch.no_grad()
    def validation_loss(
        self, params_R: Params, state_R: Params, rows_RB: Tensor, streams: Sequence[Stream]
    ) -> tuple[Tensor, Tensor]:
        """Return the mean squared error of the averaged weights, and the number of positions behind it."""
        batch = self.batch("validation", state_R, rows_RB, streams)
        predicted = self._predict(self.weights(params_R, state_R), batch, _outcomes, None)
        return self.objective.error(predicted, batch.target), batch.target.weight_RBT.flatten(1).sum(dim=1)

    def weights(self, params_R: Params, state_R: Params) -> Params:
        """Return the averaged weights."""
        return self.objective.averages.current(params_R, state_R)

    def _predict(
        self, params_R: Params, batch: Batch, microbatch: Callable[..., Any], masks: MaskSource | None
    ) -> Predicted:
        """Return what microbatches of a batch give, put together."""
        device = batch.inputs[0].device
        n_samples = batch.inputs[0].shape[1]
        size = samples_at_once(self.network, self.n_steps, device)
        if device.type == "cpu" and torch.get_num_threads() > 1 and n_samples * WORTH_SPLITTING > size:
            size = min(size, -(-n_samples // 2))  # two microbatches at least, so that two cores have work
        microbatches = zip(*(torch.split(values, size, dim=1) for values in batch.inputs), strict=True)
        calls = (partial(microbatch, some, masks.draw(some[0].shape[1]) if masks else dict) for some in microbatches)
        parts = map_microbatches(self.network, calls, params_R, device=device)
        return Predicted(*(torch.cat(values, dim=1) for values in zip(*parts, strict=True)))


def _outcomes(inputs: Inputs, to_masks: ToMasks, module: BalancedNetwork, params: Params) -> tuple[Tensor, ...]:
    return (predict_members(module, params, inputs, to_masks())[1],)


@dataclass(frozen=True)
class Series:
    """A scaled panel position by position: position s predicts `y_{s+1}` from the history up to s and `a_s`."""

    history_NTS: Tensor
    statics_NV: Tensor
    treatment_NTA: Tensor
    outcome_NTY: Tensor
    active_NT: Tensor
    observed_NTY: Tensor | None = None

    @classmethod
    def of(cls, panel: PanelTensors) -> Self:
        """Return the positions of a panel; those from `length - 1` on predict nothing."""
        return cls(
            history_NTS=panel.history_NTS[:, :-1],
            statics_NV=panel.v_NV,
            treatment_NTA=panel.a_NTA[:, :-1],
            outcome_NTY=panel.y_NTY[:, 1:],
            active_NT=panel.active_NT,
            observed_NTY=None if panel.observed_NTY is None else panel.observed_NTY[:, 1:],
        )

    def inputs(self, rows_RB: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return history, statics and treatments of some subjects, `[R,B,...]`."""
        return self.history_NTS[rows_RB], self.statics_NV[rows_RB], self.treatment_NTA[rows_RB]

    def target(self, rows_RB: Tensor) -> Target:
        """Return treatments, outcomes, activity, and what was observed, of some subjects."""
        observed_RBTY = None if self.observed_NTY is None else self.observed_NTY[rows_RB]
        return Target(self.treatment_NTA[rows_RB], self.outcome_NTY[rows_RB], self.active_NT[rows_RB], observed_RBTY)


class SeriesStage(BalancedStage[NetworkT]):
    """A network that reads `(history, statics, treatments)` of whole series; the rest is as in `BalancedStage`."""

    def __init__(
        self,
        name: str,
        config: TrainingConfig,
        make: Callable[[], NetworkT],
        *,
        train: PanelTensors,
        validation: PanelTensors,
        dropout: float,
        objective: BalancingObjective,
        start_R: Params | None = None,
    ) -> None:
        self.series: dict[PartName, Series] = {"train": Series.of(train), "validation": Series.of(validation)}
        super().__init__(
            name,
            config,
            make,
            dropout=dropout,
            objective=objective,
            n_steps=train.y_NTY.shape[1] - 1,
            device=train.y_NTY.device,
            start_R=start_R,
        )

    @property
    def n_train(self) -> int:
        """Return the number of training subjects."""
        return len(self.series["train"].statics_NV)

    @property
    def n_validation(self) -> int:
        """Return the number of validation subjects."""
        return len(self.series["validation"].statics_NV)

    def batch(self, part: PartName, state_R: Params, rows_RB: Tensor, streams: Sequence[Stream]) -> Batch:
        """Return some subjects as they are."""
        return Batch(self.series[part].inputs(rows_RB), self.series[part].target(rows_RB))
