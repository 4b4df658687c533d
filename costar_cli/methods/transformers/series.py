"""Training on whole series: every step of a subject predicts the next (spec PANEL-3)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

from torch import Tensor

from costar_cli.config.models import TrainingConfig
from costar_cli.methods.shared.members import Params
from costar_cli.methods.shared.streams import Stream
from costar_cli.methods.transformers.confusion import Objective, Target
from costar_cli.methods.transformers.network import NetworkT
from costar_cli.methods.transformers.stage import BalancedStage, Batch, PartName
from costar_cli.panel.tensors import PanelTensors

__all__ = ["Series", "SeriesStage"]


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
        objective: Objective,
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
