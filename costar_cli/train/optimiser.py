"""What a stage may add to Adam: weight decay, a schedule of the learning rate, averaged weights (spec NET-18 to 20)."""

from collections.abc import Sequence
from math import cos, pi

import torch
from torch import Tensor

from costar_cli.config.models import OptimiserConfig, TrainingConfig
from costar_cli.methods.shared.members import Params
from costar_cli.methods.shared.stage import Pace
from costar_cli.methods.shared.structured import LOGITS

__all__ = ["averaging_share", "decay", "learning_rate", "make_optimizer", "update_averages"]


def make_optimizer(params: Sequence[Tensor], config: TrainingConfig) -> torch.optim.Adam:
    """Return Adam, which works on each number alone; weights decay by `decay`, before its step."""
    return torch.optim.Adam(params, lr=config.learning_rate, fused=True)


@torch.no_grad()
def decay(params_R: Params, optimiser: OptimiserConfig, rate: float | Tensor) -> None:
    """Shrink weights at a learning rate, as AdamW does; what is learnt as a logit stays (spec NET-18)."""
    if optimiser.weight_decay:
        learnt = [(name.rpartition(".")[2], value) for name, value in params_R.items() if value.grad is not None]
        shrinking = [value for name, value in learnt if name not in LOGITS]
        torch._foreach_mul_(shrinking, 1 - rate * optimiser.weight_decay)


def learning_rate(config: TrainingConfig, pace: Pace, step: int) -> float:
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
