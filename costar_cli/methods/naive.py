"""The naive anchor: the last observed value, carried forward whatever the plan."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from costar_cli.artifact import Artifact
from costar_cli.methods.arrays import scaler_from_arrays
from costar_cli.methods.base import Fit, FitTask, Fitted
from costar_cli.methods.linear import require_horizon
from costar_cli.panel import Panel, PanelSchema, Queries, Scaler
from costar_cli.reporting import Reporter

__all__ = ["LastValue", "LastValueMethod"]


@dataclass(frozen=True, slots=True)
class LastValue:
    """Predicts that nothing changes; a `FittedModel` that was fitted to nothing."""

    horizon: int
    schema: PanelSchema
    scaler: Scaler
    meta: Mapping[str, Any] | None = None
    digest: str = ""
    parents: Mapping[str, str] | None = None
    method: str = "last-value"
    members: int = 1

    @property
    def trained_on(self) -> Mapping[str, int]:
        """Return the number of labelled subjects per part that were at hand; nothing was learned from them."""
        return dict((self.meta or {}).get("trained_on", {}))

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


@dataclass(frozen=True)
class LastValueMethod:
    """The last value carried forward as the registry knows it: a method without parameters."""

    name: str = "last-value"
    single: bool = True
    learns_from_source: bool = False

    def fit(self, task: FitTask) -> Fit:
        """Learn nothing."""
        yield from ()
        return Fitted({"none": torch.zeros(1, 0)})

    def load(self, artifact: Artifact, device: torch.device | str = "cpu") -> LastValue:
        """Return the model of the data set on which the artifact was made."""
        return LastValue(
            horizon=int(artifact.meta["horizon"]),
            schema=PanelSchema.model_validate(artifact.meta["schema"]),
            scaler=scaler_from_arrays(artifact.arrays),
            meta=artifact.meta,
            digest=artifact.digest,
            parents=artifact.parents,
        )
