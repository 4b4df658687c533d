"""What most stages of training share."""

from dataclasses import dataclass
from typing import Self

from costar_cli.config.models import TrainingConfig
from costar_cli.methods.shared.members import Params

__all__ = ["Pace", "PlainStage"]


class PlainStage:
    """A stage that keeps the best weights as they are, on complete passes over its rows, without gradient clipping.

    Its steps do not depend on the number of epochs.
    """

    keep: str = "best"
    scheduled: bool = False
    drop_last: bool = False
    max_grad_norm: float | None = None

    def weights(self, params_R: Params, state_R: Params) -> Params:
        """Return the weights to keep: the parameters themselves."""
        return params_R

    def reference(self) -> float | None:
        """Return nothing: most losses have no natural reference."""
        return None


@dataclass(frozen=True, slots=True)
class Pace:
    """How the optimiser steps of a stage are divided.

    An epoch is a pass over the rows or, where `updates` says how many steps there are, an equal share of them; the last
    one may then be shorter. Passes follow one another without regard to epochs.

    Attributes:
        epochs: most epochs.
        steps_per_epoch: steps between two validations.
        steps_per_pass: mini-batches of all rows.
        steps: most steps.
    """

    epochs: int
    steps_per_epoch: int
    steps_per_pass: int
    steps: int

    @classmethod
    def of(cls, config: TrainingConfig, n_rows: int, *, drop_last: bool) -> Self:
        """Return the pace of a stage; an incomplete last mini-batch may be left out, unless it is the only one."""
        full, rest = divmod(n_rows, config.batch_size)
        per_pass = full + (1 if rest and (not drop_last or not full) else 0)
        if config.updates is None:
            return cls(config.epochs, per_pass, per_pass, config.epochs * per_pass)
        per_epoch = -(-config.updates // config.epochs)
        return cls(-(-config.updates // per_epoch), per_epoch, per_pass, config.updates)

    def before(self, epoch: int) -> int:
        """Return how many steps come before an epoch, counted from 0: all of them before the one after the last."""
        return min(epoch * self.steps_per_epoch, self.steps)
