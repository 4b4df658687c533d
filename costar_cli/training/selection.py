"""One score that selects models of every method: the rolling-origin error of the complete model on validation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Panel, Scaler
from costar_cli.data.record import ValidationRecord
from costar_cli.data.windows import MOST_WINDOWS, FactualWindows, factual_windows
from costar_cli.diagnostics import Diagnostic
from costar_cli.methods.base import FittedModel
from costar_cli.methods.regression.naive import LastValue
from costar_cli.methods.shared.outcome_forms import OutcomeForm
from costar_cli.reporting import both_errors, is_worse

if TYPE_CHECKING:  # closed forms are fitted without torch
    from torch import Tensor

    from costar_cli.methods.shared.members import Params
    from costar_cli.methods.shared.outcome_scale import OutcomeScale

# Returns the selection score of some members, by the weights `[R,..]` of a fit's last stage and the members' numbers.
WeightScorer = Callable[["Params", Sequence[int]], list[float]]
NOT_FINITE = 1e30  # the score of predictions that overflow: worse than any, and a number in JSON


@dataclass(frozen=True)
class ValidationWindows(FactualWindows):
    """Windows of the validation subjects, the same for all methods, members and epochs.

    With `forms`, errors are in the scale of each subject and origin (spec GROWTH-3), otherwise in sds.
    """

    scaler: Scaler
    forms: tuple[OutcomeForm, ...] = ()

    @classmethod
    def of(cls, panel: Panel, horizon: int, scaler: Scaler, *, most: int = MOST_WINDOWS) -> Self | None:
        """Return the windows of a panel, None where no series has a step to predict."""
        windows = factual_windows(panel, horizon, most=most)
        return cls(windows.panel, windows.queries, windows.observed_QHY, scaler) if windows else None

    def score(self, model: FittedModel) -> NDArray[np.float64]:
        """Return the RMSE of each member `[R]` over all steps, in sds or in each origin's scale, over all outcomes.

        Squared errors are averaged over windows and steps for each outcome, then over the outcomes that were observed.
        """
        assert self.queries.outcomes is not None  # noqa: S101 - rolling origins have answers
        count_Y = self.observed_QHY.sum(axis=(0, 1))
        truth_QHY, known_Y = np.where(self.observed_QHY, self.queries.outcomes, 0.0), count_Y > 0
        scores = []
        for predicted_QHY in model.rollout(self.panel, self.asked):
            with np.errstate(over="ignore", invalid="ignore"):
                if self.forms:  # of large relative errors what Huber's function makes of them
                    scale, unit_QY = self._scale_and_units
                    true, predicted = self._scaled(truth_QHY), self._scaled(predicted_QHY)
                    square_QHY = scale.penalty(predicted, true, unit_QY[:, None]).numpy()
                else:
                    in_sds_QHY = (predicted_QHY - truth_QHY) / self.scaler.outcomes[1]
                    square_QHY = np.square(in_sds_QHY, dtype=np.float64)
                error_QHY = np.where(self.observed_QHY, square_QHY, 0.0)
                mean_Y = error_QHY.sum(axis=(0, 1))[known_Y] / count_Y[known_Y]
            scores.append(np.sqrt(mean_Y.mean()))
        score_R: NDArray[np.float64] = np.nan_to_num(scores, nan=NOT_FINITE, posinf=NOT_FINITE).clip(max=NOT_FINITE)
        return score_R

    @cached_property
    def _scale_and_units(self) -> "tuple[OutcomeScale, Tensor]":
        """Return the scale of the forms, and the unit of errors at each window's origin, `[Q,Y]`."""
        from costar_cli.methods.shared.outcome_scale import OutcomeScale  # noqa: PLC0415 - networks alone have forms

        scale, y_NTY = OutcomeScale(self.forms).double(), self._scaled(self.panel.outcomes)
        unit_NTY = scale.error_unit(y_NTY, scale.units(y_NTY))
        return scale, unit_NTY[self.queries.subject, self.queries.origin]

    def _scaled(self, outcomes: NDArray[np.floating]) -> "Tensor":
        import torch  # noqa: PLC0415 - see above

        return torch.from_numpy(self.scaler.scale_outcomes(outcomes).astype(np.float64))

    def last_value(self, model: FittedModel) -> float:
        """Return the score of the last value carried forward, for a model of the same variables."""
        naive = LastValue(horizon=self.queries.horizon, schema=model.schema, scaler=model.scaler)
        return float(self.score(naive)[0])


@dataclass(frozen=True)
class Validation:
    """How a fitted model did on the validation windows, beside the last value and, in few-shot, the source's model."""

    members: tuple[float, ...]
    last_value: float
    windows: int
    horizon: int
    source: tuple[float, ...] | None = None

    @property
    def score(self) -> float:
        """Return the mean over members."""
        return float(np.mean(self.members))

    @property
    def warning(self) -> Diagnostic | None:
        """Return what to say of a model that loses to the last value."""
        if not is_worse(self.score, self.last_value):
            return None
        return Diagnostic.of("worse-on-validation", errors=both_errors(self.score, self.last_value))

    @property
    def record(self) -> ValidationRecord:
        """Return what the model's file tells."""
        source = None if self.source is None else float(np.mean(self.source))
        return ValidationRecord(
            score=self.score, last_value=self.last_value, windows=self.windows, horizon=self.horizon,
            members=self.members, source=source,
        )  # fmt: skip
