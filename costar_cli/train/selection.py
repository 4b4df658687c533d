"""One score that selects models of every method: the rolling-origin error of the complete model on validation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from costar_cli.methods.base import FittedModel
from costar_cli.methods.regression.naive import LastValue
from costar_cli.methods.shared.members import Params
from costar_cli.panel import Panel, Queries, Scaler
from costar_cli.panel.queries import rolling_origin
from costar_cli.reporting import WORSE_THAN_LAST_VALUE, both_errors, is_worse

__all__ = ["MOST_WINDOWS", "Judge", "Validation", "ValidationWindows"]

# Returns the selection score of some members, by the weights `[R,..]` of a fit's last stage and the members' numbers.
Judge = Callable[[Params, Sequence[int]], list[float]]
MOST_WINDOWS = 4_096  # scoring them costs a fraction of an epoch; more of the same subjects say little more
NOT_FINITE = 1e30  # the score of predictions that overflow: worse than any, and a number in JSON


@dataclass(frozen=True)
class ValidationWindows:
    """Factual questions about the validation subjects: what came next from an origin, under the treatments given.

    Every origin with a whole horizon of steps ahead is asked about, or a subset of at most `MOST_WINDOWS` that treats
    subjects alike: few enough of each, spread evenly over its series. The choice is a function of the panel alone, so
    that all methods, members and epochs are scored on the same windows. `observed_QHY` says which answers count.
    """

    panel: Panel
    queries: Queries
    observed_QHY: NDArray[np.bool_]
    scaler: Scaler

    @classmethod
    def of(cls, panel: Panel, horizon: int, scaler: Scaler, *, most: int = MOST_WINDOWS) -> Self | None:
        """Return the windows of a panel; shorter ones where no series has a whole horizon, None where none has a step.

        Windows without any observed answer are left out.
        """
        queries = rolling_origin(panel, min(horizon, int(panel.length.max(initial=1)) - 1))
        if queries is None or not queries.horizon:
            return None
        step_QH = queries.origin.astype(np.int64)[:, None] + np.arange(queries.horizon) + 1
        observed_QHY = np.asarray(panel.observed_outcomes[queries.subject[:, None], step_QH])
        rows = np.flatnonzero(observed_QHY.any(axis=(1, 2)))
        rows = rows[_balanced(queries.subject[rows], most)]
        if not len(rows):
            return None
        subjects, row = np.unique(queries.subject[rows], return_inverse=True)
        chosen = replace(queries.take(rows), subject=row.astype(np.int32))
        return cls(panel.take(subjects.astype(np.int64)), chosen, observed_QHY[rows], scaler)

    def score(self, model: FittedModel) -> NDArray[np.float64]:
        """Return the RMSE of each member `[R]` over all steps, in sds of source-train, the mean over outcomes.

        Squared errors are averaged over windows and steps for each outcome, then over the outcomes that were observed.
        """
        assert self.queries.outcomes is not None  # noqa: S101 - rolling origins have answers
        asked = replace(self.queries, outcomes=None, scored=None)  # the model never sees the answers
        sd_Y, count_Y = self.scaler.outcomes[1], self.observed_QHY.sum(axis=(0, 1))
        truth_QHY, known_Y = np.where(self.observed_QHY, self.queries.outcomes, 0.0), count_Y > 0
        scores = []
        for predicted_QHY in model.rollout(self.panel, asked):
            error_QHY = np.where(self.observed_QHY, (predicted_QHY - truth_QHY) / sd_Y, 0.0)
            with np.errstate(over="ignore", invalid="ignore"):
                mean_Y = np.square(error_QHY, dtype=np.float64).sum(axis=(0, 1))[known_Y] / count_Y[known_Y]
            scores.append(np.sqrt(mean_Y.mean()))
        score_R: NDArray[np.float64] = np.nan_to_num(scores, nan=NOT_FINITE, posinf=NOT_FINITE).clip(max=NOT_FINITE)
        return score_R

    def last_value(self, model: FittedModel) -> float:
        """Return the score of the last value carried forward, for a model of the same variables."""
        naive = LastValue(horizon=self.queries.horizon, schema=model.schema, scaler=model.scaler)
        return float(self.score(naive)[0])


def _balanced(subject_Q: NDArray[np.integer], most: int) -> NDArray[np.int64]:
    """Return rows, in order: all, or at most `most`, the same number of each subject as far as it has them."""
    if len(subject_Q) <= most:
        return np.arange(len(subject_Q))
    subjects, first, count = np.unique(subject_Q, return_index=True, return_counts=True)
    if len(subjects) > most:
        spread = np.linspace(0, len(subjects) - 1, most).round().astype(np.int64)
        return np.sort(first[spread] + count[spread] // 2)  # the middle origin of each
    quota = np.searchsorted([np.minimum(count, n).sum() for n in range(1, int(count.max()) + 1)], most, side="right")
    each = [
        start + np.linspace(0, n - 1, min(n, quota)).round().astype(np.int64)
        for start, n in zip(first, count, strict=True)
    ]
    return np.concatenate(each)


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
    def warning(self) -> str | None:
        """Return what to say of a model that loses to the last value."""
        if not is_worse(self.score, self.last_value):
            return None
        return f"{WORSE_THAN_LAST_VALUE} on validation ({both_errors(self.score, self.last_value)})"

    def to_meta(self) -> dict[str, object]:
        """Return what the model's file tells."""
        meta: dict[str, object] = {
            "score": self.score,
            "members": list(self.members),
            "last_value": self.last_value,
            "windows": self.windows,
            "horizon": self.horizon,
        }
        return meta if self.source is None else meta | {"source": float(np.mean(self.source))}
