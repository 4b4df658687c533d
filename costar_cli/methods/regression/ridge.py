"""Ridge regression on the recent window: what plain risk minimisation does with linear means, one fit per step.

It knows nothing of confounding: after the origin, whoever is treated may differ from whoever is not, and the regression
takes that difference for an effect. As an anchor it says what a method gains beyond a linear look at the recent
past (spec RIDGE-1 to 2).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Panel
from costar_cli.errors import DataError, MismatchError, Termination
from costar_cli.methods.base import Fit, FitTask, Fitted
from costar_cli.methods.regression.linear import Floats, LinearModel, unpacked_plan
from costar_cli.methods.regression.ridge_moments import Blocks, StepMoments, WindowFeatures, step_moments
from costar_cli.methods.regression.settings import MOST_STEPS, RidgeConfig
from costar_cli.methods.shared.trained import ReadsModels, model_to_start_from

PENALTIES = tuple(10.0**power for power in range(-6, 3))  # per row, on standardised columns
LEAST_SD = 1e-6  # columns that vary less are constant


@dataclass(frozen=True)
class RidgeModel(LinearModel):
    """A fitted ridge regression per step; one member, as nothing in it is random."""

    @property
    def window(self) -> int:
        """Return how many steps of the history the regressions see."""
        return int(self.record.facts["window"])

    def array_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of each array, without the member axis."""
        if not 1 <= self.window <= MOST_STEPS:
            raise ValueError(f"a window of {self.window} steps is not 1 to {MOST_STEPS}")
        (dx, da, dy, dv), steps = self.schema.dims, self.horizon
        known = self.window * (da + dy + dx + 1) + dv
        plan = (steps * (steps + 1) // 2, da, dy)
        columns = dict.fromkeys(("columns.mean", "columns.sd"), (known + steps * da,))
        return {"intercept": (steps, dy), "history": (steps, known, dy), "plan": plan, **columns}

    def encode(self, panel: Panel) -> WindowFeatures:
        """Return the features of every history of a panel."""
        return WindowFeatures(panel, self.scaler, self.window)

    def treatments(self, encoded: NDArray[np.generic]) -> Floats:
        """Return the treatments as they are encoded."""
        return encoded.astype(np.float64)

    def column_scales(self) -> tuple[Floats, Floats]:
        """Return means and sds `[C]` of the columns, the history and then each planned step, in the source's data.

        Raises:
            MismatchError: the model is of a version that did not store them.
        """
        if "columns.sd" not in self.params:
            raise MismatchError(
                "the ridge regression to start from does not record how its columns were scaled",
                where="--start",
                fix="fit it again with this version: `costar finetune --method ridge --overwrite`",
            )
        mean_C, sd_C = (self.params[f"columns.{name}"][0].astype(np.float64) for name in ("mean", "sd"))
        return mean_C, sd_C

    def weights(self) -> tuple[Floats, Floats, Floats]:
        """Return the regressions' weights; each planned step has its own in each step of the horizon."""
        intercept, history, packed = (self.params[name].astype(np.float64) for name in ("intercept", "history", "plan"))
        return intercept, history, unpacked_plan(packed, self.horizon)


class RidgeMethod(ReadsModels):
    """The ridge anchor; few-shot shrinks towards the source's model instead of zero."""

    model = RidgeModel

    def fit(self, task: FitTask) -> Fit:
        """Fit each step for every penalty, and keep the one with the smallest factual error on the validation part.

        Few-shot also tries an infinite penalty, the source's model as it is; the stored penalty is then None.

        Raises:
            DataError: no training subject has the steps that the last predicted step needs.
            MismatchError: what to start from is no ridge regression, or one without the scales of its columns.
        """
        yield from ()
        start, config = model_to_start_from(task, RidgeModel, "ridge"), task.settings_of(RidgeConfig)
        window = start.window if start else config.window
        panels = {part: task.panels[part] for part in (task.train, task.validation)}
        masked = any(panel.outcome_observed is not None or panel.since is not None for panel in panels.values())
        features = {part: WindowFeatures(panel, task.scaler, window) for part, panel in panels.items()}
        train, validation = (
            step_moments(task.panels[part], seen, task.horizon, apart=masked) for part, seen in features.items()
        )
        steps = [
            # A regression has no weights to start from: few-shot penalises the distance from the source's instead of
            # from zero. With hardly any data it is the source's model, with many the target's own.
            _fit_step(train[h], validation[h], None if start is None else _Prior.of(start, h), h)
            for h in range(task.horizon)
        ]
        if start is None:
            means, sds, known = [], [], 0
            for blocks in train:  # of the history at step 0, of each planned step where it is the last
                # Where outcomes have rows of their own, those of the one with most rows count
                most = max((block for block in blocks if block is not None), key=lambda block: block.n)
                means.append(most.mean_P[known:])
                sds.append(_or_one(np.sqrt(np.diag(most.gram_PP).clip(min=0)))[known:])
                known = len(most.mean_P)
            mean_C, sd_C = np.concatenate(means), np.concatenate(sds)
        else:
            mean_C, sd_C = start.column_scales()
        width, shape = features[task.train].width, (-1, task.schema.treatments.width, len(task.schema.outcomes))
        arrays = {
            "intercept": np.stack([step.intercept_Y for step in steps]),
            "history": np.stack([step.weight_PY[:width] for step in steps]),
            "plan": np.concatenate([step.weight_PY[width:].reshape(shape) for step in steps]),
            "columns.mean": mean_C,
            "columns.sd": sd_C,
        }
        meta = {"window": window, "penalties": [step.penalty for step in steps]}
        return Fitted({name: values[None] for name, values in arrays.items()}, meta)


RIDGE = RidgeMethod()


@dataclass(frozen=True, slots=True)
class _Fitted:
    """The regression of one step, and the penalty that was best on the validation part, None for an infinite one."""

    intercept_Y: Floats
    weight_PY: Floats
    penalty: float | None


@dataclass(frozen=True, slots=True)
class _Prior:
    """The source's regression of one step, and the means and sds of its columns in the source's training data."""

    intercept_Y: Floats
    weight_PY: Floats
    mean_P: Floats
    sd_P: Floats

    @classmethod
    def of(cls, model: RidgeModel, h: int) -> "_Prior":
        """Return step h of a model: the history, and the plan up to that step."""
        intercept_RHY, history_RHPY, plan_RHJLY = model.weights()
        planned = plan_RHJLY[0, h, : h + 1]
        weight_PY = np.concatenate([history_RHPY[0, h], planned.reshape(-1, planned.shape[-1])])
        mean_C, sd_C = model.column_scales()
        return cls(intercept_RHY[0, h], weight_PY, mean_C[: len(weight_PY)], sd_C[: len(weight_PY)])

    def outcomes(self, chosen: slice) -> "_Prior":
        """Return the regression of some outcomes."""
        return _Prior(self.intercept_Y[chosen], self.weight_PY[:, chosen], self.mean_P, self.sd_P)


def _fit_step(train: Blocks, validation: Blocks, prior: _Prior | None, h: int) -> _Fitted:
    """Return one step's regression for every block of outcomes, all with the penalty of the smallest error together."""
    Termination.stop_if_signalled()
    if any(block is None for block in train):
        raise DataError(
            f"no training subject has the {h + 2} observed steps that predicted step {h + 1} needs",
            fix="choose a shorter horizon, or add longer series",
        )
    pairs = [(block, other or block) for block, other in zip(train, validation, strict=True) if block is not None]
    first_Y = np.cumsum([0, *(len(block.mean_Y) for block, _ in pairs)])
    paths = [
        _path(block) if prior is None else _path_from(block, prior.outcomes(slice(first, first + len(block.mean_Y))))
        for (block, _), first in zip(pairs, first_Y[:-1], strict=True)
    ]
    errors = [
        sum(
            other.error(weight_PY, intercept_Y)
            for (_, other), (intercept_Y, weight_PY) in zip(pairs, tried, strict=True)
        )
        for tried in zip(*paths, strict=True)
    ]
    best = int(np.argmin(errors))  # the largest penalty of equally good ones
    kept = [path[best] for path in paths]
    intercept_Y = np.concatenate([intercept_Y for intercept_Y, _ in kept])
    weight_PY = np.concatenate([weight_PY for _, weight_PY in kept], axis=1)
    tried: list[float | None] = [*([] if prior is None else [None]), *reversed(PENALTIES)]
    return _Fitted(intercept_Y, weight_PY, tried[best])


def _path(train: StepMoments) -> list[tuple[Floats, Floats]]:
    """Return intercepts and weights for every penalty, the largest first, shrunk towards zero; intercepts are free."""
    sd_P = _or_one(np.sqrt(np.diag(train.gram_PP).clip(min=0)))
    gram, cross_PY = train.gram_PP / np.outer(sd_P, sd_P), train.cross_PY / sd_P[:, None]
    found = []
    for penalty in reversed(PENALTIES):
        weight_PY = np.linalg.solve(gram + penalty * np.eye(len(gram)), cross_PY) / sd_P[:, None]
        found.append((train.mean_Y - train.mean_P @ weight_PY, weight_PY))
    return found


def _path_from(train: StepMoments, prior: _Prior) -> list[tuple[Floats, Floats]]:
    """Return intercepts and weights for an infinite and every other penalty, shrunk towards the source's regression.

    Columns are standardised as in the source: a column that hardly varies among few target subjects must not be free to
    take any weight. What is shrunk includes the level, the outcome at the source's mean of every column.
    """
    shift_P = (train.mean_P - prior.mean_P) / prior.sd_P
    moments = np.empty((1 + len(shift_P), 1 + len(shift_P)))  # of a column of ones and the standardised columns
    moments[0, 0], moments[0, 1:], moments[1:, 0] = 1, shift_P, shift_P
    moments[1:, 1:] = train.gram_PP / np.outer(prior.sd_P, prior.sd_P) + np.outer(shift_P, shift_P)
    level_Y = prior.intercept_Y + prior.mean_P @ prior.weight_PY
    source = np.concatenate([level_Y[None], prior.weight_PY * prior.sd_P[:, None]])
    answer = np.concatenate(
        [train.mean_Y[None], train.cross_PY / prior.sd_P[:, None] + np.outer(shift_P, train.mean_Y)]
    )
    lacking = answer - moments @ source
    found = [(prior.intercept_Y, prior.weight_PY)]
    for penalty in reversed(PENALTIES):
        fitted = source + np.linalg.solve(moments + penalty * np.eye(len(moments)), lacking)
        weight_PY = fitted[1:] / prior.sd_P[:, None]
        found.append((fitted[0] - prior.mean_P @ weight_PY, weight_PY))
    return found


def _or_one(sd_P: Floats) -> Floats:
    """Return sds with 1 in place of those of constants."""
    return np.where(sd_P > LEAST_SD, sd_P, 1.0)
