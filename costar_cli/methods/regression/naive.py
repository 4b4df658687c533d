"""The naive anchors: what one would say of a subject without a model, whatever the plan (spec LAST-1 to 2)."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Panel, Queries
from costar_cli.methods.base import Fit, FitTask, Fitted, Parameters
from costar_cli.methods.shared.trained import ReadsModels, TrainedModel, require_horizon
from costar_cli.reporting import Reporter


def _no_params() -> Parameters:
    return {"none": np.zeros((1, 0))}


@dataclass(frozen=True, kw_only=True)
class NaiveModel(TrainedModel, ABC):
    """A `FittedModel` that repeats something of the subject's own past."""

    params: Parameters = field(default_factory=_no_params)

    @abstractmethod
    def repeated(self, panel: Panel, queries: Queries) -> NDArray[np.float32]:
        """Return what is predicted of each query, `[Q,tau,dy]`, or `[Q,1,dy]` where that is the same at every step."""

    def rollout(
        self, panel: Panel, queries: Queries, *, batch_size: int = 16_384, reporter: Reporter | None = None
    ) -> NDArray[np.float32]:
        """Return the prediction of each query `[1,Q,tau,dy]`, whatever its plan.

        Raises:
            UsageError: the plans are longer than the horizon of the data set that the model was made on.
        """
        require_horizon(self.horizon, queries)
        shape = (1, len(queries), queries.horizon, panel.outcomes.shape[-1])
        return np.broadcast_to(self.repeated(panel, queries)[None], shape)


@dataclass(frozen=True, kw_only=True)
class LastValue(NaiveModel):
    """Predicts that nothing changes; it was fitted to nothing."""

    method: str = "last-value"

    def repeated(self, panel: Panel, queries: Queries) -> NDArray[np.float32]:
        """Return the outcome at each origin."""
        return panel.outcomes[queries.subject, queries.origin][:, None]


@dataclass(frozen=True, kw_only=True)
class RunningMean(NaiveModel):
    """Predicts a subject's own mean so far; it was fitted to nothing."""

    method: str = "mean"

    def repeated(self, panel: Panel, queries: Queries) -> NDArray[np.float32]:
        """Return the mean of the outcomes up to each origin."""
        sum_NTY = panel.outcomes.cumsum(axis=1, dtype=np.float64)
        origin = queries.origin.astype(np.int64)
        mean_QY = sum_NTY[queries.subject, origin] / (origin[:, None] + 1)
        return np.asarray(mean_QY[:, None], dtype=np.float32)


class LastValueMethod(ReadsModels):
    """The last value carried forward: a method without parameters."""

    model: ClassVar[type[NaiveModel]] = LastValue

    def fit(self, task: FitTask) -> Fit:
        """Learn nothing."""
        yield from ()
        return Fitted(_no_params())


class MeanMethod(LastValueMethod):
    """The mean so far: a method without parameters."""

    model = RunningMean


LAST_VALUE, MEAN = LastValueMethod(), MeanMethod()
