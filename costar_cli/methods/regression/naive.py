"""The naive anchor: the last observed value, carried forward whatever the plan (spec LAST-1)."""

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from costar_cli.methods.base import Fit, FitTask, Fitted
from costar_cli.methods.shared.members import Params
from costar_cli.methods.shared.trained import ReadsModels, TrainedModel, require_horizon
from costar_cli.panel import Panel, Queries
from costar_cli.reporting import Reporter

__all__ = ["LAST_VALUE", "LastValue", "LastValueMethod"]


def _no_params() -> Params:
    return {"none": torch.zeros(1, 0)}


@dataclass(frozen=True, kw_only=True)
class LastValue(TrainedModel):
    """Predicts that nothing changes; a `FittedModel` that was fitted to nothing."""

    method: str = "last-value"
    params: Params = field(default_factory=_no_params)

    def rollout(
        self, panel: Panel, queries: Queries, *, batch_size: int = 16_384, reporter: Reporter | None = None
    ) -> NDArray[np.float32]:
        """Return the outcome at each query's origin, at every step `[1,Q,tau,dy]`.

        Raises:
            UsageError: the plans are longer than the horizon of the data set that the model was made on.
        """
        require_horizon(self.horizon, queries)
        last_QY = panel.outcomes[queries.subject, queries.origin]
        shape = (1, len(queries), queries.horizon, last_QY.shape[-1])
        return np.broadcast_to(last_QY[None, :, None, :], shape)


class LastValueMethod(ReadsModels):
    """The last value carried forward: a method without parameters."""

    model = LastValue

    def fit(self, task: FitTask) -> Fit:
        """Learn nothing."""
        yield from ()
        return Fitted(_no_params())


LAST_VALUE = LastValueMethod()
