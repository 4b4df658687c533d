"""A method in one file: the last value, moved by the mean change of the training subjects, whatever the plan."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from costar_cli.config.models import Config
from costar_cli.data import Panel, Queries
from costar_cli.files import Artifact
from costar_cli.methods import Method
from costar_cli.methods.base import Device, Fit, FitTask, Fitted
from costar_cli.methods.shared.trained import TrainedModel, require_horizon
from costar_cli.reporting import Reporter

__all__ = ["MEAN_CHANGE"]


class MeanChangeConfig(Config):
    """What `[mean_change]` of a settings file sets."""

    share: float = Field(1.0, ge=0, le=1, description="Share of the mean change that is predicted")


@dataclass(frozen=True, kw_only=True)
class MeanChangeModel(TrainedModel):
    """A fitted mean change per step."""

    def rollout(
        self, panel: Panel, queries: Queries, *, batch_size: int = 16_384, reporter: Reporter | None = None
    ) -> NDArray[np.float32]:
        """Return outcomes `[1,Q,tau,dy]` in the units of the data."""
        require_horizon(self.horizon, queries)
        last_QY = panel.outcomes[queries.subject, queries.origin]
        change_RHY = self.params["change"][:, : queries.horizon]
        return (last_QY[None, :, None] + change_RHY[:, None]).astype(np.float32)


class MeanChange:
    """How it is fitted and read."""

    def fit(self, task: FitTask) -> Fit:
        """Average the changes over all steps from all origins; there are no stages to train."""
        yield from ()
        panel, share = task.panels[task.train], task.settings_of(MeanChangeConfig).share
        change_HY = [share * _mean_change(panel, steps) for steps in range(1, task.horizon + 1)]
        return Fitted({"change": np.stack(change_HY)[None]})

    def load(self, artifact: Artifact, device: Device = "cpu") -> MeanChangeModel:
        """Return the model that an artifact holds."""
        return MeanChangeModel.from_artifact(artifact)


def _mean_change(panel: Panel, steps: int) -> NDArray[np.float64]:
    """Return how outcomes change within some steps, `[dy]`, on average over subjects and origins."""
    changes: Sequence[NDArray[np.floating]] = [
        outcome_TY[steps:length] - outcome_TY[: length - steps]
        for outcome_TY, length in zip(panel.outcomes, panel.length, strict=True)
    ]
    return np.concatenate(changes).mean(axis=0, dtype=np.float64)


MEAN_CHANGE = Method(
    name="mean-change",
    label="Mean change",
    estimator=MeanChange(),
    settings=MeanChangeConfig,
    closed_form=True,
    reads=("domain",),
    presets={"quick": {"share": 0.75}},
    order=1,
)
