"""Ridge regression on the recent window: what plain risk minimisation does with linear means, one fit per step.

It knows nothing of confounding: after the origin, whoever is treated may differ from whoever is not, and the regression
takes that difference for an effect. As an anchor it says what a method gains beyond a linear look at the recent past.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from costar_cli.artifact import Artifact
from costar_cli.config.linear import RidgeConfig
from costar_cli.errors import DataError, MismatchError
from costar_cli.methods.base import Fit, FitTask, Fitted
from costar_cli.methods.linear import Floats, LinearModel, unpacked_plan
from costar_cli.methods.ridge_moments import Blocks, StepMoments, WindowFeatures, step_moments
from costar_cli.panel import Panel

__all__ = ["PENALTIES", "RidgeMethod", "RidgeModel", "WindowFeatures"]

PENALTIES = tuple(10.0**power for power in range(-6, 3))  # per row, on standardised columns


@dataclass(frozen=True)
class RidgeModel(LinearModel):
    """A fitted ridge regression per step; one member, as nothing in it is random."""

    @property
    def window(self) -> int:
        """Return how many steps of the history the regressions see."""
        return int((self.meta or {})["window"])

    def encode(self, panel: Panel) -> WindowFeatures:
        """Return the features of every history of a panel."""
        return WindowFeatures(panel, self.scaler, self.window)

    def treatments(self, encoded: NDArray[np.generic]) -> Floats:
        """Return the treatments as they are encoded."""
        return encoded.astype(np.float64)

    def weights(self) -> tuple[Floats, Floats, Floats]:
        """Return the regressions' weights; each planned step has its own in each step of the horizon."""
        intercept, history, packed = (self.params[name].double().numpy() for name in ("intercept", "history", "plan"))
        return intercept, history, unpacked_plan(packed, self.horizon)


@dataclass(frozen=True)
class RidgeMethod:
    """The ridge anchor as the registry knows it; few-shot shrinks towards the source's weights instead of zero."""

    name: str = "ridge"
    single: bool = True
    learns_from_source: bool = False

    def fit(self, task: FitTask) -> Fit:
        """Fit each step for every penalty, and keep the one with the smallest factual error on the validation part.

        Raises:
            DataError: no training subject has the steps that the last predicted step needs.
            MismatchError: what to start from is no ridge regression.
        """
        yield from ()
        start = _start(task)
        config = task.settings if isinstance(task.settings, RidgeConfig) else RidgeConfig()
        window = start.window if start else config.window
        masked = any(task.panels[part].outcome_observed is not None for part in (task.train, task.validation))
        features = {
            part: WindowFeatures(task.panels[part], task.scaler, window) for part in (task.train, task.validation)
        }
        train, validation = (
            step_moments(task.panels[part], seen, task.horizon, apart=masked) for part, seen in features.items()
        )
        prior = [_flat(start, h) for h in range(task.horizon)] if start else [None] * task.horizon
        steps = [_fit_step(train[h], validation[h], prior[h], h) for h in range(task.horizon)]
        width, shape = features[task.train].width, (-1, task.schema.treatments.width, len(task.schema.outcomes))
        arrays = {
            "intercept": np.stack([step.intercept_Y for step in steps]),
            "history": np.stack([step.weight_PY[:width] for step in steps]),
            "plan": np.concatenate([step.weight_PY[width:].reshape(shape) for step in steps]),
        }
        meta = {"window": window, "penalties": [step.penalty for step in steps]}
        return Fitted({name: torch.from_numpy(values[None]) for name, values in arrays.items()}, meta)

    def load(self, artifact: Artifact, device: torch.device | str = "cpu") -> RidgeModel:
        """Return the model that an artifact holds; it computes on the CPU."""
        return RidgeModel.from_artifact(artifact)


@dataclass(frozen=True, slots=True)
class _Fitted:
    """The regression of one step: `intercept_Y`, `weight_PY`, and the penalty that was best on the validation part."""

    intercept_Y: Floats
    weight_PY: Floats
    penalty: float


def _fit_step(train: Blocks, validation: Blocks, prior_PY: Floats | None, h: int) -> _Fitted:
    """Return one step's regression for every block of outcomes, all with the penalty of the smallest error together."""
    if any(block is None for block in train):
        raise DataError(
            f"no training subject has the {h + 2} observed steps that predicted step {h + 1} needs",
            fix="choose a shorter horizon, or add longer series",
        )
    pairs = [(block, other or block) for block, other in zip(train, validation, strict=True) if block is not None]
    first_Y = np.cumsum([0, *(len(block.mean_Y) for block, _ in pairs)])
    paths = [
        _path(block, None if prior_PY is None else prior_PY[:, first : first + len(block.mean_Y)])
        for (block, _), first in zip(pairs, first_Y[:-1], strict=True)
    ]
    errors = [
        sum(
            other.error(weight_PY, intercept_Y)
            for (_, other), (intercept_Y, weight_PY) in zip(pairs, tried, strict=True)
        )
        for tried in zip(*paths, strict=True)
    ]
    best = int(np.argmin(errors))
    kept = [path[best] for path in paths]
    intercept_Y = np.concatenate([intercept_Y for intercept_Y, _ in kept])
    weight_PY = np.concatenate([weight_PY for _, weight_PY in kept], axis=1)
    return _Fitted(intercept_Y, weight_PY, tuple(reversed(PENALTIES))[best])


def _path(train: StepMoments, prior_PY: Floats | None) -> list[tuple[Floats, Floats]]:
    """Return intercepts and weights for every penalty, the largest first, shrunk towards the prior or zero."""
    sd_P = np.sqrt(np.diag(train.gram_PP).clip(min=0))
    sd_P = np.where(sd_P > 1e-6, sd_P, 1.0)
    prior_PY = np.zeros_like(train.cross_PY) if prior_PY is None else prior_PY
    gram = train.gram_PP / np.outer(sd_P, sd_P)
    lacking_PY = (train.cross_PY - train.gram_PP @ prior_PY) / sd_P[:, None]
    found = []
    for penalty in reversed(PENALTIES):
        moved_PY = np.linalg.solve(gram + penalty * np.eye(len(gram)), lacking_PY) / sd_P[:, None]
        weight_PY = prior_PY + moved_PY
        found.append((train.mean_Y - train.mean_P @ weight_PY, weight_PY))
    return found


def _start(task: FitTask) -> RidgeModel | None:
    if task.start is not None and not isinstance(task.start, RidgeModel):
        raise MismatchError("the model to start from is of another method", where="--start")
    return task.start


def _flat(model: RidgeModel, h: int) -> Floats:
    """Return the weights of step h, of the history and of the plan up to it, as one column per outcome."""
    _, history_RHPY, plan_RHJBY = model.weights()
    planned = plan_RHJBY[0, h, : h + 1]
    return np.concatenate([history_RHPY[0, h], planned.reshape(-1, planned.shape[-1])])
