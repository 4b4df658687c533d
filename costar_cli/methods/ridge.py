"""Ridge regression on the recent window: what plain risk minimisation does with linear means, one fit per step.

It knows nothing of confounding: after the origin, whoever is treated may differ from whoever is not, and the regression
takes that difference for an effect. As an anchor it says what a method gains beyond a linear look at the recent past.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from costar_cli.artifact import Artifact
from costar_cli.config.linear import RidgeConfig
from costar_cli.errors import DataError, MismatchError
from costar_cli.methods.base import Fit, FitTask, Fitted
from costar_cli.methods.linear import Floats, LinearModel, ScaledSeries, unpacked_plan
from costar_cli.panel import Panel, Scaler

__all__ = ["PENALTIES", "RidgeMethod", "RidgeModel", "WindowFeatures"]

PENALTIES = tuple(10.0**power for power in range(-6, 3))  # per row, on standardised columns
CHUNK_ROWS = 16_384  # origins whose features are held at once


class WindowFeatures:
    """The last `window` outcomes, covariates and treatments before each origin, and the statics.

    Steps before the first one hold zeros, the mean of what is standardised, and a flag per step says which are real.
    """

    def __init__(self, panel: Panel, scaler: Scaler, window: int) -> None:
        series = ScaledSeries.of(panel, scaler)
        before = np.zeros_like(panel.treatments, dtype=np.float64)
        before[:, 1:] = panel.treatments[:, :-1]
        real = np.ones((*panel.outcomes.shape[:2], 1))
        seen_NTS = np.concatenate([series.y_NTY, series.x_NTX, before, real], axis=2)
        self._padded_NTS = np.pad(seen_NTS, ((0, 0), (window - 1, 0), (0, 0)))
        self._statics_NV, self._window = series.v_NV, window
        self.answers_NTY = series.y_NTY

    @property
    def width(self) -> int:
        """Return P."""
        return int(self._window * self._padded_NTS.shape[2] + self._statics_NV.shape[1])

    def at(self, subject: NDArray[np.integer], origin: NDArray[np.integer]) -> Floats:
        """Return the features `[M,P]` of histories, the most recent step last."""
        steps_MW = origin[:, None] + np.arange(self._window)
        seen_MP = self._padded_NTS[subject[:, None], steps_MW].reshape(len(subject), -1)
        return np.concatenate([seen_MP, self._statics_NV[subject]], axis=1)


@dataclass(frozen=True)
class RidgeModel(LinearModel):
    """A fitted ridge regression per step; one member, as nothing in it is random."""

    @property
    def method(self) -> str:
        """Return `ridge`."""
        return "ridge"

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
        train, validation = (
            _Moments.of(task.panels[part], WindowFeatures(task.panels[part], task.scaler, window), task.horizon)
            for part in (task.train, task.validation)
        )
        prior = [_flat(start, h) for h in range(task.horizon)] if start else [None] * task.horizon
        steps = [_fit_step(train.of_step(h), validation.of_step(h), prior[h], h) for h in range(task.horizon)]
        width, shape = train.width, (-1, task.schema.treatments.width, len(task.schema.outcomes))
        arrays = {
            "intercept": np.stack([intercept for intercept, _, _ in steps]),
            "history": np.stack([weight_PY[:width] for _, weight_PY, _ in steps]),
            "plan": np.concatenate([weight_PY[width:].reshape(shape) for _, weight_PY, _ in steps]),
        }
        meta = {"window": window, "penalties": [penalty for _, _, penalty in steps]}
        return Fitted({name: torch.from_numpy(values[None]) for name, values in arrays.items()}, meta)

    def load(self, artifact: Artifact, device: torch.device | str = "cpu") -> RidgeModel:
        """Return the model that an artifact holds; it computes on the CPU."""
        return RidgeModel.from_artifact(artifact)


@dataclass(frozen=True, slots=True)
class _Step:
    """The normal equations of one step: rows `n`, means, and second moments about them, columns first, answers last."""

    n: float
    mean_P: Floats
    mean_Y: Floats
    gram_PP: Floats
    cross_PY: Floats
    power_Y: Floats

    def error(self, weight_PY: Floats, intercept_Y: Floats) -> float:
        """Return the squared error per row of a regression on these rows."""
        bias_Y = self.mean_Y - self.mean_P @ weight_PY - intercept_Y
        explained = (weight_PY * (self.gram_PP @ weight_PY - 2 * self.cross_PY)).sum(axis=0)
        return float((self.power_Y + explained + bias_Y**2).sum())


@dataclass(frozen=True, slots=True)
class _Moments:
    """Sums of products over all origins, by how many steps follow them, so that one pass serves every step.

    Columns are: one, the history, the whole plan (zeros after its end), the answers of all steps.
    """

    sums_GCC: Floats
    width: int
    n_treatments: int
    n_outcomes: int

    @classmethod
    def of(cls, panel: Panel, features: WindowFeatures, horizon: int) -> "_Moments":
        """Go over a panel's origins once."""
        n_treatments, n_outcomes = panel.treatments.shape[2], panel.outcomes.shape[2]
        n_columns = 1 + features.width + horizon * (n_treatments + n_outcomes)
        sums_GCC = np.zeros((horizon, n_columns, n_columns))
        for subject_M, origin_M, group in _origins(panel, horizon):
            ahead_MG = origin_M[:, None] + np.arange(group + 1)
            columns_MC = np.zeros((len(subject_M), n_columns))
            columns_MC[:, 0] = 1
            columns_MC[:, 1 : 1 + features.width] = features.at(subject_M, origin_M)
            plan = columns_MC[:, 1 + features.width :][:, : (group + 1) * n_treatments]
            plan[:] = panel.treatments[subject_M[:, None], ahead_MG].reshape(len(subject_M), -1)
            answers = columns_MC[:, n_columns - horizon * n_outcomes :][:, : (group + 1) * n_outcomes]
            answers[:] = features.answers_NTY[subject_M[:, None], ahead_MG + 1].reshape(len(subject_M), -1)
            sums_GCC[group] += columns_MC.T @ columns_MC
        return cls(sums_GCC, features.width, n_treatments, n_outcomes)

    def of_step(self, h: int) -> _Step | None:
        """Return the normal equations of step h, from all origins that h + 1 steps follow; None if there is none."""
        horizon = len(self.sums_GCC)
        sums_CC = self.sums_GCC[h:].sum(axis=0)
        n = float(sums_CC[0, 0])
        if n == 0:
            return None
        known = np.arange(1, 1 + self.width + (h + 1) * self.n_treatments)
        answer = len(sums_CC) - horizon * self.n_outcomes + h * self.n_outcomes + np.arange(self.n_outcomes)
        mean_P, mean_Y = sums_CC[0, known] / n, sums_CC[0, answer] / n
        return _Step(
            n,
            mean_P,
            mean_Y,
            sums_CC[np.ix_(known, known)] / n - np.outer(mean_P, mean_P),
            sums_CC[np.ix_(known, answer)] / n - np.outer(mean_P, mean_Y),
            sums_CC[answer, answer] / n - mean_Y**2,
        )


def _origins(panel: Panel, horizon: int) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp], int]]:
    """Yield origins in chunks: rows, steps, and how many more steps than one follow, at most horizon - 1."""
    ahead_NT = np.minimum(panel.length[:, None] - 2 - np.arange(panel.n_steps), horizon - 1)
    for group in range(horizon):
        subject, origin = np.nonzero(ahead_NT == group)
        for first in range(0, len(subject), CHUNK_ROWS):
            yield subject[first : first + CHUNK_ROWS], origin[first : first + CHUNK_ROWS], group


def _fit_step(
    train: _Step | None, validation: _Step | None, prior_PY: Floats | None, h: int
) -> tuple[Floats, Floats, float]:
    """Return intercept, weights and penalty of one step's regression, the best penalty on the validation part."""
    if train is None:
        raise DataError(
            f"no training subject has the {h + 2} observed steps that predicted step {h + 1} needs",
            fix="choose a shorter horizon, or add longer series",
        )
    sd_P = np.sqrt(np.diag(train.gram_PP).clip(min=0))
    sd_P = np.where(sd_P > 1e-6, sd_P, 1.0)
    prior_PY = np.zeros_like(train.cross_PY) if prior_PY is None else prior_PY
    gram = train.gram_PP / np.outer(sd_P, sd_P)
    lacking_PY = (train.cross_PY - train.gram_PP @ prior_PY) / sd_P[:, None]
    best: tuple[float, Floats, Floats, float] | None = None
    for penalty in reversed(PENALTIES):
        moved_PY = np.linalg.solve(gram + penalty * np.eye(len(gram)), lacking_PY) / sd_P[:, None]
        weight_PY = prior_PY + moved_PY
        intercept_Y = train.mean_Y - train.mean_P @ weight_PY
        error = (validation or train).error(weight_PY, intercept_Y)
        if best is None or error < best[0]:
            best = error, intercept_Y, weight_PY, penalty
    assert best is not None  # noqa: S101  # there are penalties
    return best[1:]


def _start(task: FitTask) -> RidgeModel | None:
    if task.start is not None and not isinstance(task.start, RidgeModel):
        raise MismatchError("the model to start from is of another method", where="--start")
    return task.start


def _flat(model: RidgeModel, h: int) -> Floats:
    """Return the weights of step h, of the history and of the plan up to it, as one column per outcome."""
    _, history_RHPY, plan_RHJBY = model.weights()
    planned = plan_RHJBY[0, h, : h + 1]
    return np.concatenate([history_RHPY[0, h], planned.reshape(-1, planned.shape[-1])])
