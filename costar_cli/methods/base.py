"""The Method protocol: what every estimator of counterfactual outcomes offers."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from costar_cli.config.models import TrainingConfig
from costar_cli.methods.members import Params
from costar_cli.methods.streams import Stream
from costar_cli.panel import Panel, PanelSchema, Queries, Scaler
from costar_cli.reporting import Reporter

__all__ = ["FittedModel", "Stage", "StepLoss"]

StepLoss = tuple[Tensor, Params]


class Stage(Protocol):
    """One stage of training: what to minimise. `train/loop.py` runs any of them, for R members at once.

    Parameters are learned by gradient; `state` is whatever else a member carries from step to step (the momentum
    encoder). Both lead with the member axis. A stage has no randomness of its own: each member's stream is an input.
    """

    @property
    def name(self) -> str:
        """Return what progress, seeds and run state call the stage."""

    @property
    def config(self) -> TrainingConfig:
        """Return epochs, patience, batch size, learning rate and seed."""

    @property
    def keep(self) -> str:
        """Return which weights to keep: those of the `last` epoch or of the `best` one."""

    @property
    def drop_last(self) -> bool:
        """Return whether an incomplete last batch is left out."""

    @property
    def n_train(self) -> int:
        """Return the number of training subjects."""

    @property
    def n_validation(self) -> int:
        """Return the number of validation subjects."""

    def initial(self, member: int) -> tuple[Params, Params]:
        """Return parameters and state of one fresh member, without the member axis."""

    def loss(self, params_R: Params, state_R: Params, rows_RB: Tensor, streams: Sequence[Stream]) -> StepLoss:
        """Return each member's loss `[R]` on its rows of the training subjects, and the new state."""

    def validation_loss(
        self, params_R: Params, state_R: Params, rows_RB: Tensor, streams: Sequence[Stream]
    ) -> tuple[Tensor, Tensor]:
        """Return each member's loss `[R]` on rows of the validation subjects, and the weight of this batch `[R]`."""

    def reference(self) -> float | None:
        """Return the loss of knowing nothing, where there is such a number."""


class FittedModel(Protocol):
    """A trained method, as `evaluate` and `whatif` see it."""

    @property
    def method(self) -> str:
        """Return the name under which the registry knows the method."""

    @property
    def members(self) -> int:
        """Return R, the number of ensemble members."""

    @property
    def horizon(self) -> int:
        """Return the longest plan that the model answers."""

    @property
    def schema(self) -> PanelSchema:
        """Return the columns that the model was trained on."""

    @property
    def scaler(self) -> Scaler:
        """Return the standardisation that the model was trained with."""

    def rollout(
        self, panel: Panel, queries: Queries, *, batch_size: int = 16_384, reporter: Reporter | None = None
    ) -> NDArray[np.float32]:
        """Predict the outcomes of every query.

        The panel is encoded once; `batch_size` queries at a time are answered from the encoded states.

        Returns:
            Outcomes `[R,Q,tau,dy]` in the units of the data; tau is `queries.horizon`, at most `horizon`.
        """
