"""The naive anchor: the last observed value, carried forward whatever the plan."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costar_cli.panel import Panel, PanelSchema, Queries, Scaler
from costar_cli.reporting import Reporter

__all__ = ["LastValue"]


@dataclass(frozen=True, slots=True)
class LastValue:
    """Predicts that nothing changes; a `FittedModel` that was fitted to nothing."""

    horizon: int
    schema: PanelSchema
    scaler: Scaler
    method: str = "last-value"
    members: int = 1

    def rollout(
        self,
        panel: Panel,
        queries: Queries,
        *,
        batch_size: int = 16_384,  # noqa: ARG002  # part of the protocol
        reporter: Reporter | None = None,  # noqa: ARG002
    ) -> NDArray[np.float32]:
        """Return the outcome at each query's origin, at every step `[1,Q,tau,dy]`."""
        last_QY = panel.outcomes[queries.subject, queries.origin]
        shape = (1, len(queries), queries.horizon, last_QY.shape[-1])
        return np.broadcast_to(last_QY[None, :, None, :], shape)
