"""Least squares for what a day carries over to the next: a method in closed form.

`y[t+1] = intercept + keep @ y[t] + effect @ a[t]`, learned from all neighbouring days of the training subjects, and
applied day by day to the plan that is asked about.
"""

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


class CarryOverConfig(Config):
    """Settings of the method: the section `carry_over` of a settings file."""

    penalty: float = Field(1e-3, ge=0, description="Ridge penalty, per row")


@dataclass(frozen=True, kw_only=True)
class CarryOverModel(TrainedModel):
    """The fitted coefficients, of one member: nothing in it is random."""

    def rollout(
        self, panel: Panel, queries: Queries, *, batch_size: int = 16_384, reporter: Reporter | None = None
    ) -> NDArray[np.float32]:
        """Return the outcomes `[1,Q,tau,dy]`, each step from the one before."""
        require_horizon(self.horizon, queries)
        coefficients_CY = self.params["coefficients"][0]
        now_QY = panel.outcomes[queries.subject, queries.origin].astype(np.float64)
        steps = []
        for h in range(queries.horizon):
            now_QY = _design(now_QY, queries.plan[:, h].astype(np.float64)) @ coefficients_CY
            steps.append(now_QY)
        return np.stack(steps, axis=1)[None].astype(np.float32)


class CarryOver:
    """What fits the method, and reads a fitted one."""

    def fit(self, task: FitTask) -> Fit:
        """Solve the normal equations on the training subjects; there are no stages to train."""
        yield from ()
        panel = task.panels[task.train]
        row, step = np.nonzero(np.arange(panel.n_steps - 1) < panel.length[:, None] - 1)
        design = _design(panel.outcomes[row, step].astype(np.float64), panel.treatments[row, step].astype(np.float64))
        penalty = task.settings_of(CarryOverConfig).penalty
        normal = design.T @ design + penalty * len(design) * np.eye(design.shape[1])
        coefficients_CY = np.linalg.solve(normal, design.T @ panel.outcomes[row, step + 1].astype(np.float64))
        return Fitted({"coefficients": coefficients_CY[None]})

    def load(self, artifact: Artifact, device: Device = "cpu") -> CarryOverModel:
        """Return the model that an artifact holds."""
        return CarryOverModel.from_artifact(artifact)


def _design(outcome_QY: NDArray[np.float64], treatment_QA: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the columns of the regression: one, the outcomes, the treatments."""
    return np.column_stack([np.ones(len(outcome_QY)), outcome_QY, treatment_QA])


CARRY_OVER = Method(
    name="carry-over",
    label="Carry-over",
    estimator=CarryOver(),
    settings=CarryOverConfig,
    closed_form=True,
    by_arrays=True,
    reads=("domain",),
)
