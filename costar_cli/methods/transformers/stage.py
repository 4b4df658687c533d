"""The stages that train any transformer with a balancing head: batches from a subclass, any objective."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Generic, Literal, NamedTuple

import torch
from torch import Tensor

from costar_cli.config.models import TrainingConfig
from costar_cli.methods.base import StepLoss
from costar_cli.methods.shared.dropout import MaskSource, largest_mask
from costar_cli.methods.shared.members import Params, submodule
from costar_cli.methods.shared.microbatches import ToMasks, map_microbatches, microbatch_size, split_with_masks
from costar_cli.methods.shared.stage import NetworkStage, NetworkTraining
from costar_cli.methods.shared.streams import Stream
from costar_cli.methods.shared.windows import Windows
from costar_cli.methods.transformers.balancing_objective import BalancingObjective, Predicted, predict_members
from costar_cli.methods.transformers.units import CPU_ELEMENTS, BalancedNetwork, NetworkT

PartName = Literal["train", "validation"]
Inputs = tuple[Tensor, ...]
MakeObjective = Callable[[TrainingConfig, int], BalancingObjective]  # of a stage's settings and number of rows
AVERAGE = "average."  # prefix of averages beside the parameters


class Batch(NamedTuple):
    """Inputs `[R,B,...]` of the network, in order, and the windows `[R,B,T]` whose outcomes it shall predict."""

    inputs: Inputs
    windows: Windows


class BalancedStage(NetworkStage[NetworkT], ABC, Generic[NetworkT]):
    """Squared error of the outcomes, balanced by an objective; selected on the plain one (spec NET-3, NET-12 to 15).

    Args:
        training: the network and its rows.
        objective: returns what balances, and how weights are averaged.
        n_steps: longest sequence, for the masks.
    """

    def __init__(self, training: NetworkTraining[NetworkT], objective: MakeObjective, n_steps: int) -> None:
        super().__init__(training)
        self.n_steps = n_steps
        self.objective = objective(self.config, self.n_train)
        self.scheduled = self.objective.balancing != "none"

    @abstractmethod
    def inputs(self, part: PartName, windows: Windows, streams: Sequence[Stream]) -> Batch:
        """Return the inputs of windows, and these; what is random in training comes from the streams."""

    def batch(self, part: PartName, state_R: Params, rows_RB: Tensor, streams: Sequence[Stream]) -> Batch:
        """Return the inputs and targets of rows."""
        rows = self.train if part == "train" else self.validation
        return self.inputs(part, rows.batch(rows_RB, state_R["member"].long()), streams)

    def initial(self, member: int) -> tuple[Params, Params]:
        """Return a member: its parameters, and their averages beside the rest of its state."""
        params, state = super().initial(member)
        return params, state | self.objective.averages.initial(params)

    def loss(self, params_R: Params, state_R: Params, rows_RB: Tensor, streams: Sequence[Stream]) -> StepLoss:
        """Return each member's loss on its mini-batch, and the state with the averages that it saw."""
        batch = self.batch("train", state_R, rows_RB, streams)
        averages_R = self.objective.averages.current(params_R, state_R)
        alpha_R = self.objective.schedule.alpha(state_R["updates"])
        first, shapes = batch.inputs[0], self.network.mask_shapes(self.n_steps)
        masks = MaskSource(shapes, self.dropout, streams, device=first.device, dtype=first.dtype)

        def call(inputs: Inputs, to_masks: ToMasks, module: BalancedNetwork, params: Params) -> tuple[Tensor, ...]:
            own = {name: value for name, value in params.items() if not name.startswith(AVERAGE)}
            averages = submodule(params, AVERAGE)
            return self.objective.predict(module, own, averages, inputs, to_masks(), alpha_R)

        both_R = params_R | {AVERAGE + name: value for name, value in averages_R.items()}
        loss_R = self.objective.loss(self._predict(both_R, batch, call, masks), batch.windows, alpha_R)
        return loss_R, self.objective.averages.after(state_R, averages_R)

    @torch.no_grad()
    def validation_loss(
        self, params_R: Params, state_R: Params, rows_RB: Tensor, streams: Sequence[Stream]
    ) -> tuple[Tensor, Tensor]:
        """Return the mean squared error of the averaged weights, and the number of positions behind it."""
        batch = self.batch("validation", state_R, rows_RB, streams)

        def call(inputs: Inputs, to_masks: ToMasks, module: BalancedNetwork, params: Params) -> tuple[Tensor, ...]:
            return (predict_members(module, params, inputs, to_masks())[1],)

        predicted = self._predict(self.weights(params_R, state_R), batch, call, None)
        return self.objective.error(predicted, batch.windows), batch.windows.weight.flatten(1).sum(dim=1)

    def weights(self, params_R: Params, state_R: Params) -> Params:
        """Return the averaged weights."""
        return self.objective.averages.current(params_R, state_R)

    def _predict(
        self, params_R: Params, batch: Batch, call: Callable[..., tuple[Tensor, ...]], masks: MaskSource | None
    ) -> Predicted:
        """Return what the microbatches of a batch give, put together."""
        device, samples = batch.inputs[0].device, batch.inputs[0].shape[1]
        largest = largest_mask(self.network.mask_shapes(self.n_steps))
        size = microbatch_size(largest, samples, device, cpu_elements=CPU_ELEMENTS, shared=True)
        calls = split_with_masks(call, batch.inputs, masks, size)
        parts = map_microbatches(self.network, calls, params_R, device=device)
        return Predicted(*(torch.cat(values, dim=1) for values in zip(*parts, strict=True)))


class SeriesStage(BalancedStage[NetworkT]):
    """A network that reads `(history, statics, treatments)` of whole series: every step predicts the next.

    Its rows are `SubjectRows`; the rest is as in `BalancedStage`.
    """

    def __init__(self, training: NetworkTraining[NetworkT], objective: MakeObjective) -> None:
        super().__init__(training, objective, training.train.panel.y_NTY.shape[1] - 1)

    def inputs(self, part: PartName, windows: Windows, streams: Sequence[Stream]) -> Batch:
        """Return the series as they are."""
        return Batch((windows.history, windows.statics_RBV, windows.treatment), windows)
