"""Outcomes as models learn them where the schema transforms them, and back into the units of the data (PANEL-18)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from costar_cli.data.dataset import Dataset
from costar_cli.data.findings import counted
from costar_cli.data.panel import Panel
from costar_cli.data.schema import PanelSchema, Transform, Variable
from costar_cli.errors import DataError

SCALED: Final = ("covariates", "outcomes", "statics")


@dataclass(frozen=True, slots=True)
class Scaler:
    """Means and population standard deviations, in the units of the data; identity where a variable says so.

    Shapes: `covariates [2,X]`, `outcomes [2,Y]`, `statics [2,V]`; row 0 is the mean, row 1 the sd.
    """

    covariates: NDArray[np.float64]
    outcomes: NDArray[np.float64]
    statics: NDArray[np.float64]

    @classmethod
    def fit(cls, panel: Panel, schema: PanelSchema) -> Self:
        """Fit on the history steps of the source-train panel (all observed steps but the last; spec PANEL-8).

        Subjects with a single step contribute it. What was filled does not count. Constant variables get sd 1.
        """
        used = np.arange(panel.n_steps) < np.maximum(panel.length - 1, 1)[:, None]
        return cls(
            covariates=_moments(panel.covariates[used], schema.covariates, panel.observed_covariates[used]),
            outcomes=_moments(panel.outcomes[used], schema.outcomes, panel.observed_outcomes[used]),
            statics=_moments(panel.statics, schema.statics),
        )

    @classmethod
    def read(cls, arrays: Mapping[str, NDArray[np.generic]], schema: PanelSchema) -> Self:
        """Return what an artifact's arrays hold, `scaler/covariates` and so on.

        Raises:
            ValueError: these are no means and sds of the schema's columns.
        """
        for name in SCALED:
            moments = arrays[f"scaler/{name}"]
            if moments.shape != (2, len(getattr(schema, name))) or moments.dtype.kind != "f":
                problem = f"{moments.dtype} {moments.shape}, not two rows of numbers for the schema's columns"
                raise ValueError(f"scaler/{name} is {problem}")
            if not (np.isfinite(moments).all() and (moments[1] > 0).all()):
                raise ValueError(f"scaler/{name} has means or sds that are none")
        return cls(**{name: np.asarray(arrays[f"scaler/{name}"]) for name in SCALED})

    def scale_outcomes(self, outcomes: NDArray[np.floating]) -> NDArray[np.float32]:
        """Return `(y - mean) / sd` along the last axis."""
        return scaled(outcomes, self.outcomes)

    def unscale_outcomes(self, outcomes: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return standardised outcomes in the units of the data."""
        values: NDArray[np.float64] = outcomes.astype(np.float64) * self.outcomes[1] + self.outcomes[0]
        return values

    def error_scale(self, schema: PanelSchema) -> NDArray[np.float64]:
        """Return what errors are divided by, `[Y]`: the sds of the outcomes where errors are told in these, else 1."""
        return self.outcomes[1] if schema.error_unit.space == "standardized" else np.ones(len(schema.outcomes))

    def to_arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return the arrays that an artifact stores."""
        return {"covariates": self.covariates, "outcomes": self.outcomes, "statics": self.statics}


def scaled(values: NDArray[np.floating], moments: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return `(values - mean) / sd` along the last axis as float32."""
    result: NDArray[np.float32] = ((values - moments[0]) / moments[1]).astype(np.float32)
    return result


def _moments(
    values_MF: NDArray[np.float32], variables: tuple[Variable, ...], observed_MF: NDArray[np.bool_] | None = None
) -> NDArray[np.float64]:
    if observed_MF is None or observed_MF.all():
        mean, sd = values_MF.mean(axis=0, dtype=np.float64), values_MF.std(axis=0, dtype=np.float64)
    else:
        known = [values_M[observed_M] for values_M, observed_M in zip(values_MF.T, observed_MF.T, strict=True)]
        mean = np.array([values.mean(dtype=np.float64) if len(values) else 0.0 for values in known])
        sd = np.array([values.std(dtype=np.float64) if len(values) else 0.0 for values in known])
    keep = np.array([v.standardize for v in variables], dtype=bool)
    return np.stack([np.where(keep, mean, 0.0), np.where(keep & (sd > 0), sd, 1.0)])


TRANSFORM: Final = "transform/"  # prefix of the arrays of an artifact whose outcomes are transformed
MOST: Final = 80.0  # of a logarithm, beyond which its exponential is no float32

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, slots=True)
class OutcomeTransforms:
    """How the outcomes of a schema are transformed: logarithms less a center `[Y]`, differences from the step before.

    `moments` are mean and sd `[2,Y]` of the transformed outcomes of source-train.
    """

    schema: PanelSchema
    center_Y: Floats
    moments: Floats

    @classmethod
    def fit(cls, train: Panel, schema: PanelSchema) -> Self | None:
        """Take centers and moments from source-train; None where no outcome is transformed.

        Raises:
            DataError: an outcome has no logarithm.
        """
        if all(variable.transform is None for variable in schema.outcomes):
            return None
        none = np.zeros(len(schema.outcomes))
        plain = cls(schema, none, np.stack([none, none + 1]))
        seen = Scaler.fit(plain.panel(train), schema).outcomes[0]
        logarithms = [kind in ("log", "log1p") for kind in plain.kinds]
        centered = replace(plain, center_Y=np.where(logarithms, seen, 0.0))
        return replace(centered, moments=Scaler.fit(centered.panel(train), schema).outcomes)

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]], schema: PanelSchema) -> Self | None:
        """Read what `to_arrays` returned, None where nothing is transformed.

        Raises:
            ValueError: it is not of the schema's outcomes, or an sd is not positive.
        """
        if all(variable.transform is None for variable in schema.outcomes):
            return None
        center_Y, moments = (np.asarray(arrays[f"{TRANSFORM}{name}"], np.float64) for name in ("center", "moments"))
        y = len(schema.outcomes)
        if center_Y.shape != (y,) or moments.shape != (2, y) or not np.isfinite([center_Y, *moments]).all():
            raise ValueError(
                f"the transform of outcomes has {center_Y.shape} and {moments.shape}, not ({y},), (2, {y})"
            )
        if not (moments[1] > 0).all():
            raise ValueError("the transform of outcomes has an sd that is not positive")
        return cls(schema, center_Y, moments)

    def to_arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return the arrays that an artifact stores."""
        return {f"{TRANSFORM}center": self.center_Y, f"{TRANSFORM}moments": self.moments}

    @property
    def kinds(self) -> tuple[Transform | None, ...]:
        """Return the transform of each outcome."""
        return tuple(variable.transform for variable in self.schema.outcomes)

    @property
    def differs(self) -> NDArray[np.bool_]:
        """Return which outcomes `[Y]` are differences."""
        return np.array([kind == "difference" for kind in self.kinds])

    @property
    def has_logarithms(self) -> bool:
        """Return whether an outcome is a logarithm."""
        return any(kind in ("log", "log1p") for kind in self.kinds)

    @property
    def inner_schema(self) -> PanelSchema:
        """Return the schema of what models learn: logarithms of outcomes over their geometric mean, say."""
        outcomes = []
        for variable, kind, center in zip(self.schema.outcomes, self.kinds, self.center_Y.tolist(), strict=True):
            if kind is None:
                outcomes.append(variable)
                continue
            unit = variable.unit
            if kind != "difference":  # `log(x / 54.6 EUR)`
                argument = "x" if kind == "log" else "(1 + x)"
                unit = f"log({argument} / {f'{math.exp(center):.3g} {unit}'.rstrip()})"
            outcomes.append(variable.model_copy(update={"unit": unit, "transform": None, "kind": "continuous"}))
        return self.schema.model_copy(update={"outcomes": tuple(outcomes)})

    def inner_scaler(self, scaler: Scaler) -> Scaler:
        """Return the scaler of what models learn."""
        return replace(scaler, outcomes=self.moments)

    def dataset(self, dataset: Dataset) -> Dataset:
        """Return the panels of a data set with transformed outcomes, without queries.

        Raises:
            DataError: an outcome has no logarithm.
        """
        panels = {part: self.panel(panel) for part, panel in dataset.panels.items()}
        return replace(dataset, schema=self.inner_schema, panels=panels, queries={}, truth={})

    def panel(self, panel: Panel) -> Panel:
        """Return a panel with transformed outcomes; a difference was observed where both of its steps were.

        Raises:
            DataError: an outcome has no logarithm.
        """
        seen_NTY, made_NTY = panel.observed_outcomes.copy(), panel.outcomes.astype(np.float64)
        for o, kind in enumerate(self.kinds):
            if kind == "difference":
                before_NT = np.concatenate([made_NTY[:, :1, o], made_NTY[:, :-1, o]], axis=1)
                made_NTY[..., o] -= before_NT
                seen_NTY[:, 1:, o] &= panel.observed_outcomes[:, :-1, o]
                seen_NTY[:, :1, o] = False
            elif kind is not None:
                argument_NT = made_NTY[..., o] + (kind == "log1p")
                refused_NT = (argument_NT <= 0) & panel.observed
                if refused_NT.any():
                    row, step = (int(places[0]) for places in refused_NT.nonzero())
                    name, n = self.schema.outcomes[o].name, counted(int(refused_NT.sum()), "value")
                    where = f"first at step {step} of subject {panel.names[row]}, {made_NTY[row, step, o]:g}"
                    fix = "correct it, or train on data without `transform`"
                    raise DataError(f"outcome '{name}' has {n} without a {kind}", where=where, fix=fix)
                made_NTY[..., o] = np.log(np.where(argument_NT > 0, argument_NT, 1.0)) - self.center_Y[o]
        made_NTY[~panel.observed] = 0
        return replace(panel, outcomes=made_NTY.astype(np.float32), outcome_observed=seen_NTY)

    def undo(self, values_QHY: NDArray[np.floating], level_QY: NDArray[np.floating]) -> Floats:
        """Return transformed outcomes of steps `[...,Q,H,Y]` in the units of the data.

        Args:
            values_QHY: as models predict them.
            level_QY: the last outcomes in the units of the data, to which differences are added.
        """
        made: Floats = np.array(values_QHY, dtype=np.float64)
        for o, kind in enumerate(self.kinds):
            if kind == "difference":
                made[..., o] = np.cumsum(made[..., o], axis=-1) + level_QY[:, None, o]
            elif kind is not None:
                made[..., o] = self._exponential(o, made[..., o])
        return made

    def undo_sums(
        self,
        mean: NDArray[np.floating],
        sd_parameter: NDArray[np.floating],
        sd_noise: NDArray[np.floating],
        level_QY: NDArray[np.floating],
        bounds: tuple[Floats, Floats] | None = None,
    ) -> tuple[Floats, Floats, Floats]:
        """Return mean and both shares of the sd `[...,Q,H,Y]` of outcomes in the units of the data.

        Differences come summed since the origin; logarithms are taken to be normal, and to stay at the `bounds [Q,Y]`
        that a model keeps its courses within, if it does.
        """
        made, parameter, noise = (np.array(values, dtype=np.float64) for values in (mean, sd_parameter, sd_noise))
        for o, kind in enumerate(self.kinds):
            if kind == "difference":
                made[..., o] += level_QY[:, None, o]
            elif kind is not None:
                sd = np.hypot(parameter[..., o], noise[..., o])
                low, high = (None, None) if bounds is None else (bound_QY[:, None, o] for bound_QY in bounds)
                mean, sd_made = _log_normal(made[..., o], sd, self.center_Y[o], low, high)
                made[..., o] = mean - (kind == "log1p")
                unit = sd_made / np.where(sd > 0, sd, 1.0)
                parameter[..., o] *= unit
                noise[..., o] *= unit
        return made, parameter, noise

    def undo_step(self, told_MY: NDArray[np.floating], level_MY: Floats, *, first: bool) -> Floats:
        """Return the outcomes `[M,Y]` that a step's transformed ones stand for, after those of the step before.

        The first step is the origin, of which `level_MY` has the outcomes.
        """
        if first:
            return level_MY
        made: Floats = np.array(told_MY, dtype=np.float64)
        for o, kind in enumerate(self.kinds):
            if kind == "difference":
                made[:, o] += level_MY[:, o]
            elif kind is not None:
                made[:, o] = self._exponential(o, made[:, o])
        return made

    def _exponential(self, outcome: int, values: Floats) -> Floats:
        grown: Floats = np.exp(np.minimum(values + self.center_Y[outcome], MOST))
        return grown - 1 if self.kinds[outcome] == "log1p" else grown


def _log_normal(
    mean: Floats, sd: Floats, center: float, low: Floats | None, high: Floats | None
) -> tuple[Floats, Floats]:
    """Return mean and sd of `exp(center + z)`, z normal and, where there are bounds, moved to the nearest of them.

    Without bounds the mean follows the square of the sd: where little is known of a subject, that is without limit.
    """
    if low is None or high is None:
        variance = sd**2
        scale = np.exp(np.minimum(mean + center + variance / 2, MOST))
        return scale, scale * np.sqrt(np.expm1(np.minimum(variance, MOST)))
    from scipy.special import ndtr  # noqa: PLC0415 - ingesting a table under a limit on memory has no use for scipy

    unit = np.where(sd > 0, sd, 1.0)
    from_low, from_high = (low - mean) / unit, (high - mean) / unit
    first, second = (
        np.exp(k * (low + center)) * ndtr(from_low)
        + np.exp(np.minimum(k * (mean + center) + (k * sd) ** 2 / 2, MOST))
        * (ndtr(from_high - k * sd) - ndtr(from_low - k * sd))
        + np.exp(k * (high + center)) * ndtr(-from_high)
        for k in (1, 2)
    )
    known = np.exp(np.clip(mean, low, high) + center)
    return np.where(sd > 0, first, known), np.where(sd > 0, np.sqrt(np.maximum(second - first**2, 0)), 0.0)
