"""Adam, and what a stage may add to it: weight decay, a schedule of the rate, averaged weights (spec NET-18 to 20)."""

from math import cos, pi
from typing import Final, NamedTuple

import torch
from torch import Tensor

from costar_cli.config.models import OptimiserConfig, TrainingConfig
from costar_cli.methods.shared.members import Params
from costar_cli.methods.shared.stage import EpochSchedule
from costar_cli.methods.shared.structured import LOGITS

BETAS: Final = 0.9, 0.999
EPSILON: Final = 1e-8


class Moments(NamedTuple):
    """What Adam remembers of one parameter: its steps, and running averages of its gradient and squared gradient."""

    step: Tensor
    exp_avg: Tensor
    exp_avg_sq: Tensor

    @classmethod
    def zero(cls, value: Tensor) -> "Moments":
        """Return what is remembered before the first step."""
        step = torch.zeros((), dtype=torch.float32, device=value.device)
        return cls(step, torch.zeros_like(value), torch.zeros_like(value))


class Adam:
    """Adam, which works on each number alone; weights decay by `decay`, before its step.

    `torch.optim.Adam` calls the same kernel, but imports torch's compiler first: over a second of every process that
    trains. A parameter without a gradient stays as it is; its moments begin with its first gradient.

    Args:
        params: what is learnt, by name, on one device and of one type.
        rate: learning rate, which may be another one, or a tensor, at each step.
    """

    def __init__(self, params: Params, rate: float | Tensor) -> None:
        self.params = params
        self.rate: float | Tensor = rate
        self.moments: dict[str, Moments] = {}

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for value in self.params.values():
            value.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter that has a gradient."""
        moved = {name: value for name, value in self.params.items() if value.grad is not None}
        if not moved:
            return
        self.moments |= {name: Moments.zero(value) for name, value in moved.items() if name not in self.moments}
        moments = [self.moments[name] for name in moved]
        steps, averages, squares = (list(values) for values in zip(*moments, strict=True))
        torch._foreach_add_(steps, 1)
        torch._fused_adam_(
            list(moved.values()),
            [value.grad for value in moved.values() if value.grad is not None],
            averages,
            squares,
            [],
            steps,
            lr=self.rate,
            beta1=BETAS[0],
            beta2=BETAS[1],
            weight_decay=0.0,
            eps=EPSILON,
            amsgrad=False,
            maximize=False,
        )


@torch.no_grad()
def decay(params_R: Params, optimiser: OptimiserConfig, rate: float | Tensor) -> None:
    """Shrink weights at a learning rate, as AdamW does; what is learnt as a logit stays (spec NET-18)."""
    if optimiser.weight_decay:
        learnt = [(name.rpartition(".")[2], value) for name, value in params_R.items() if value.grad is not None]
        shrinking = [value for name, value in learnt if name not in LOGITS]
        torch._foreach_mul_(shrinking, 1 - rate * optimiser.weight_decay)


def learning_rate(config: TrainingConfig, pace: EpochSchedule, step: int) -> float:
    """Return the learning rate of a step, counted from the stage's first (spec NET-19)."""
    rate, optimiser = config.learning_rate, config.optimiser
    if step < optimiser.warmup:
        return rate * (step + 1) / optimiser.warmup
    if optimiser.schedule == "constant":
        return rate
    return rate * (1 + cos(pi * (step - optimiser.warmup) / max(pace.steps - optimiser.warmup, 1))) / 2


def averaging_share(optimiser: OptimiserConfig, step: int) -> float:
    """Return how far averaged weights move towards the weights after a step, counted from the first (spec NET-20)."""
    return 1 - min(optimiser.averaging, (1 + step) / (10 + step))


@torch.no_grad()
def update_averages(average_R: Params, params_R: Params, share: float | Tensor) -> None:
    """Move averaged weights towards the weights by a share of the way."""
    for name, value in average_R.items():
        value.lerp_(params_R[name], share)
