"""The stage that trains one recurrent network; methods say what it minimises."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from costar_cli.config.models import TrainingConfig
from costar_cli.errors import UsageError
from costar_cli.methods.base import StepLoss
from costar_cli.methods.recurrent.lstm import Masks, draw_masks
from costar_cli.methods.recurrent.network import Make
from costar_cli.methods.recurrent.settings import RecurrentConfig
from costar_cli.methods.shared.balancing import masked_mean
from costar_cli.methods.shared.members import Params, named_params
from costar_cli.methods.shared.stage import PlainStage
from costar_cli.methods.shared.streams import Stream
from costar_cli.methods.shared.windows import Batch
from costar_cli.panel.tensors import PanelTensors

__all__ = ["RecurrentStage", "Rows"]


class Rows(Protocol):
    """What a network learns from: `SubjectRows` or `OriginRows`."""

    @property
    def panel(self) -> PanelTensors:
        """Return the series that the rows look into."""

    def __len__(self) -> int: ...

    def batch(self, rows_RB: Tensor, member_R: Tensor) -> Batch:
        """Return rows of each member."""


class RecurrentStage(PlainStage, ABC):
    """Train one network on rows, with the masks of a variational LSTM.

    A member's state is its number, since decoders start from what the member's own encoder knows, and the number of
    its updates.

    Args:
        name: what progress and random streams call the stage.
        make: returns a freshly initialised network.
        network: settings of the network.
        training: settings of the stage.
        train: rows to learn from.
        validation: rows to select on.
        start_R: parameters to start from, or none.

    Raises:
        UsageError: the parameters to start from are those of another shape.
    """

    def __init__(
        self,
        name: str,
        make: Make,
        network: RecurrentConfig,
        training: TrainingConfig,
        *,
        train: Rows,
        validation: Rows,
        start_R: Params | None = None,
    ) -> None:
        self.name, self.config, self.network = name, training, make()
        self.n_train, self.n_validation = len(train), len(validation)
        self._make, self._dropout, self._start_R = make, network.dropout, start_R or {}
        self._train, self._validation = train, validation
        _require_same_shape(name, named_params(self.network), self._start_R)

    @abstractmethod
    def objective(self, params_R: Params, state_R: Params, batch: Batch, masks: Masks) -> Tensor:
        """Return what each member minimises, `[R]`."""

    @abstractmethod
    def error(self, params_R: Params, batch: Batch) -> Tensor:
        """Return the factual error at every position, `[R,T,B]`, without dropout; its mean is what selects."""

    def weight(self, batch: Batch) -> Tensor:
        """Return how much that error counts at every position, `[R,T,B]`."""
        return batch.weight

    def initial(self, member: int) -> tuple[Params, Params]:
        """Return a member: freshly drawn parameters, or those to start from."""
        seed = Stream(self.config.seed, self.name, "initial", member).torch_seed()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            params = named_params(self._make())
        state = {"member": torch.tensor(float(member)), "updates": torch.tensor(0.0)}
        return params | {name: value[member].cpu() for name, value in self._start_R.items()}, state

    def loss(self, params_R: Params, state_R: Params, rows_RB: Tensor, streams: Sequence[Stream]) -> StepLoss:
        """Return each member's objective on its mini-batch."""
        batch = self._train.batch(rows_RB, state_R["member"].long())
        masks = draw_masks(self.network.lstm, self._dropout, streams, rows_RB.shape[1], self._train.panel.y_NTY)
        return self.objective(params_R, state_R, batch, masks), state_R | {"updates": state_R["updates"] + 1}

    @torch.no_grad()
    def validation_loss(
        self, params_R: Params, state_R: Params, rows_RB: Tensor, streams: Sequence[Stream]
    ) -> tuple[Tensor, Tensor]:
        """Return `(error, weight)` of a validation batch."""
        batch = self._validation.batch(rows_RB, state_R["member"].long())
        weight = self.weight(batch)
        return masked_mean(self.error(params_R, batch), weight), weight.flatten(1).sum(dim=1)


def _require_same_shape(stage: str, fresh: Params, start_R: Params) -> None:
    wrong = [
        f"{name} is {_shape(start_R.get(name))} in the starting model, {_shape(value[None])} by the settings"
        for name, value in fresh.items()
        if start_R and _shape(start_R.get(name)) != _shape(value[None])
    ]
    if wrong:
        raise UsageError(
            f"the network of stage `{stage}` differs in shape from the one to start from",
            fix="use the settings of the source model",
            details=wrong,
        )


def _shape(value_R: Tensor | None) -> str:
    return "absent" if value_R is None else " x ".join(map(str, value_R.shape[1:]))
