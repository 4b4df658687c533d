"""One optimiser step of every member: random streams, loss, gradients, update (spec NET-1 to 3, NET-18 to 20).

`gradients` and `update` ask nothing of the device that the host would have to wait for, and shapes inside of them
depend on shapes alone where streams are `ReplayedStream`s: `graphs.py` records the two once and replays them.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from costar_cli.errors import TrainingError
from costar_cli.methods.base import Stage
from costar_cli.methods.shared.stage import EpochSchedule
from costar_cli.methods.shared.streams import Stream
from costar_cli.training.group import GroupState
from costar_cli.training.optimiser import averaging_share, decay, learning_rate, update_averages
from costar_cli.training.runtime import Runtime


class Gradients(NamedTuple):
    """Each member's loss, detached, and the squared norm of its gradient, `[R]`."""

    loss_R: Tensor
    squared_R: Tensor


class Rates(NamedTuple):
    """What an update depends on beside gradients: numbers, or tensors without axes that are filled before a replay."""

    learning: float | Tensor
    averaging: float | Tensor

    @classmethod
    def of(cls, stage: Stage, state: GroupState) -> "Rates":
        """Return the numbers of the group's next step."""
        pace = pace_of(stage)
        step = pace.before(state.epoch) + state.step
        return cls(learning_rate(stage.config, pace, step), averaging_share(stage.config.optimiser, step))


def pace_of(stage: Stage) -> EpochSchedule:
    """Return how the steps of a stage are divided."""
    return EpochSchedule.of(stage.config, stage.n_train, drop_last=stage.drop_last)


def stream_of(stage: Stage, purpose: str, member: int, epoch: int, step: int) -> Stream:
    """Return the stream of a member for a purpose at a step."""
    return Stream(stage.config.seed, stage.name, purpose, member, epoch, step)


def step_streams(stage: Stage, state: GroupState) -> list[Stream]:
    """Return the stream of each member for the group's next step."""
    return [stream_of(stage, "step", member, state.epoch, state.step) for member in state.members]


def training_step(stage: Stage, state: GroupState, rows_RB: Tensor, runtime: Runtime) -> Tensor:
    """Take one optimiser step of every member; return the losses `[R]`, detached.

    Raises:
        TrainingError: the loss or gradient of a member that is still in training is not finite.
    """
    found = gradients(stage, state, rows_RB, step_streams(stage, state), runtime)
    require_finite(stage, state, found)
    update(stage, state, found, Rates.of(stage, state))
    return found.loss_R.double()


def gradients(
    stage: Stage, state: GroupState, rows_RB: Tensor, streams: Sequence[Stream], runtime: Runtime
) -> Gradients:
    """Differentiate the summed loss once: members share no parameters. The state moves on, too."""
    state.optimizer.zero_grad()
    with runtime.autocast():
        loss_R, new_state = stage.loss(state.params, state.state, rows_RB, streams)
    torch.autograd.backward(loss_R.sum())
    with torch.no_grad():
        for name, value in state.state.items():
            value.copy_(new_state[name])  # in place: a replay reads where it writes
    grads = (value.grad for value in state.params.values() if value.grad is not None)
    squared_R = sum((grad.flatten(1).square().sum(dim=1) for grad in grads), torch.zeros_like(loss_R))
    return Gradients(loss_R.detach(), squared_R)


def require_finite(stage: Stage, state: GroupState, found: Gradients) -> None:
    """See that losses and gradients are numbers.

    Raises:
        TrainingError: the loss or gradient of a member that is still in training is not finite.
    """
    finite_R = (torch.isfinite(found.loss_R) & torch.isfinite(found.squared_R)).tolist()
    for member, record, finite in zip(state.members, state.records, finite_R, strict=True):
        if not finite and not record.stopped:
            raise TrainingError(
                "the loss or its gradient is not finite",
                where=f"{stage.name}, member {member}, epoch {state.epoch + 1}, step {state.step + 1}",
                fix="lower `--learning-rate`, use `--precision float32`, "
                "or look for extreme values with `costar inspect`",
            )


def update(stage: Stage, state: GroupState, found: Gradients, rates: Rates) -> None:
    """Move parameters, which Adam does number by number, and their averages."""
    optimiser = stage.config.optimiser
    largest = optimiser.max_grad_norm if stage.max_grad_norm is None else stage.max_grad_norm
    if largest is not None:
        factor_R = (largest / (found.squared_R.sqrt() + 1e-6)).clamp(max=1)
        for value in state.params.values():
            if value.grad is not None:
                # not in place: two parameters that are added up have one gradient in memory
                value.grad = value.grad * factor_R.to(value.grad.dtype).view(-1, *[1] * (value.grad.ndim - 1))
    state.optimizer.rate = rates.learning
    decay(state.params, optimiser, rates.learning)
    state.optimizer.step()
    update_averages(state.average, state.params, rates.averaging)
