"""The state of one group of members in training: everything that a resumed run needs, and nothing else."""

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from costar_cli.methods.base import Stage
from costar_cli.methods.shared.members import Params, stack_members
from costar_cli.training.optimiser import Adam, Moments
from costar_cli.training.runtime import Runtime


@dataclass
class MemberRecord:
    """What is remembered of one member: its learning curves and where it was best.

    `selection_score` holds what selects where that is not the validation loss; `start_score` is that of the weights it
    started from, where these are a candidate. They are the best as long as `best_epoch` is -1.
    """

    train_loss: list[float] = field(default_factory=list)
    validation_loss: list[float] = field(default_factory=list)
    best_epoch: int = -1
    stopped: bool = False
    selection_score: list[float] = field(default_factory=list)
    start_score: float | None = None

    @property
    def best_loss(self) -> float:
        """Return the lowest value so far of what selects: the selection score or else the validation loss."""
        if self.best_epoch >= 0:
            return (self.selection_score or self.validation_loss)[self.best_epoch]
        return float("inf") if self.start_score is None else self.start_score

    def add_epoch(
        self, train_loss: float, validation_loss: float, patience: int, selection_score: float | None = None
    ) -> bool:
        """Record an epoch; return whether it is the best so far, and stop after `patience` epochs without a best."""
        best = self.best_loss
        self.train_loss.append(train_loss)
        self.validation_loss.append(validation_loss)
        if selection_score is not None:
            self.selection_score.append(selection_score)
        improved = (validation_loss if selection_score is None else selection_score) < best
        if improved:
            self.best_epoch = len(self.validation_loss) - 1
        self.stopped = len(self.validation_loss) - 1 - self.best_epoch >= patience
        return improved


@dataclass
class GroupState:
    """Members that share their steps.

    `params`, `state`, `average` and `kept` lead with the member axis; `average` holds the averaged weights, nothing
    where the stage averages none, and `kept` the weights that the stage will return. `loss_sum_R` is the running sum of
    the current epoch's batch losses.
    """

    members: list[int]
    params: Params
    state: Params
    average: Params
    kept: Params
    optimizer: Adam
    records: list[MemberRecord]
    loss_sum_R: Tensor
    epoch: int = 0
    step: int = 0

    @classmethod
    def fresh(cls, stage: Stage, members: list[int], runtime: Runtime) -> "GroupState":
        """Initialise members by their own seeds."""
        params, states = zip(*(stage.initial(member) for member in members), strict=True)
        return cls.assemble(stage, members, stack_members(params), stack_members(states), runtime)

    @classmethod
    def assemble(
        cls, stage: Stage, members: list[int], params: Params, state: Params, runtime: Runtime
    ) -> "GroupState":
        """Put parameters on the device, ready to be optimised."""
        params = {n: v.to(runtime.device, runtime.dtype, copy=True).requires_grad_() for n, v in params.items()}
        return cls(
            members=members,
            params=params,
            state={n: v.to(runtime.device, runtime.dtype) for n, v in state.items()},
            average={n: v.detach().clone() for n, v in params.items()} if stage.config.optimiser.averaging else {},
            kept={n: v.detach().clone() for n, v in params.items()},
            optimizer=Adam(params, stage.config.learning_rate),
            records=[MemberRecord() for _ in members],
            loss_sum_R=torch.zeros(len(members), dtype=torch.float64, device=runtime.device),
        )

    @property
    def learned(self) -> Params:
        """Return what has been learned so far: the averaged weights, or the parameters themselves."""
        return self.average or self.params

    def keep(self, row: int, weights_R: Params) -> None:
        """Remember a member's weights."""
        for name, value in weights_R.items():
            self.kept[name][row] = value.detach()[row]

    @property
    def done(self) -> bool:
        """Return whether every member has stopped."""
        return all(record.stopped for record in self.records)

    def parted(self, epochs: int) -> tuple["GroupState", "GroupState | None"]:
        """Return the members whose training is over, and those that go on; None where all epochs are done."""
        going = [row for row, record in enumerate(self.records) if not record.stopped]
        if not going or self.epoch >= epochs:
            return self, None
        return self._of([row for row in range(len(self.members)) if row not in going]), self._of(going)

    def _of(self, rows: list[int]) -> "GroupState":
        def cut(values_R: Params) -> Params:
            return {name: value.detach()[rows] for name, value in values_R.items()}

        params = {name: value.requires_grad_() for name, value in cut(self.params).items()}
        optimizer = Adam(params, self.optimizer.rate)
        optimizer.moments = {
            name: Moments(moments.step, moments.exp_avg[rows], moments.exp_avg_sq[rows])
            for name, moments in self.optimizer.moments.items()
        }
        return replace(
            self,
            members=[self.members[row] for row in rows],
            params=params,
            state=cut(self.state),
            average=cut(self.average),
            kept=cut(self.kept),
            optimizer=optimizer,
            records=[self.records[row] for row in rows],
            loss_sum_R=self.loss_sum_R[rows],
        )

    def to_arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return a copy of every tensor of the state, by name, for a checkpoint."""
        tensors = {"loss_sum": self.loss_sum_R}
        for role, values in self._by_role().items():
            tensors |= {f"{role}/{name}": value for name, value in values.items()}
        for name, moments in self.optimizer.moments.items():
            tensors |= {f"adam/{moment}/{name}": value for moment, value in moments._asdict().items()}
        return {name: value.detach().to("cpu", copy=True).numpy() for name, value in tensors.items()}

    def load_arrays(self, arrays: dict[str, NDArray[np.generic]]) -> None:
        """Restore what `to_arrays` returned into a state of the same members."""
        self.loss_sum_R.copy_(torch.from_numpy(arrays["loss_sum"]))
        with torch.no_grad():
            for role, values in self._by_role().items():
                for name, value in values.items():
                    value.copy_(torch.from_numpy(arrays[f"{role}/{name}"]))
        self.optimizer.moments = {
            name: Moments(
                *(torch.from_numpy(arrays[f"adam/{m}/{name}"].copy()).to(value.device) for m in Moments._fields)
            )
            for name, value in self.params.items()
            if f"adam/step/{name}" in arrays  # absent for what has had no gradient yet; Adam then begins them
        }

    def _by_role(self) -> dict[str, Params]:
        return {"params": self.params, "state": self.state, "average": self.average, "kept": self.kept}
