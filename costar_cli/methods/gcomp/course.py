"""Where series stand at a step, and the columns from which the next one is predicted (spec GCOMP-1 and 2).

`E` variables, outcomes then covariates; `K` lags; `L` treatment factors; `J` exposures; `M` series, each at some step;
`P` columns.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Final, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Panel, PanelSchema, Scaler
from costar_cli.methods.shared.doses import dose_table
from costar_cli.methods.shared.outcome_forms import (
    LEAST_LOCAL,
    LIMITS,
    LOCAL_STEPS,
    OutcomeForm,
    choose_forms,
)

Floats = NDArray[np.float64]
Kind = Literal["relative", "additive", "local", "binary"]

DECAYS: Final = (0.0, 0.5, 0.8, 1.0)  # of exposures: the last dose, half-lives of 1 and 3 steps, the total
LEAST_UNIT: Final = 1e-3  # of an sd, added to the level that a relative change is divided by
MOST_DIFFERENCE: Final = 10.0  # units between the last value and an earlier one, as a column
MOST_PAIRED: Final = 12  # variables and statics whose products with each other are columns
BLOCKS: Final = ("recent", "history", "products")


@dataclass(frozen=True)
class Scales:
    """How each variable changes in a step, and its range; means and sds are those of the scaler.

    A change is a share of the level (`relative`), a number of sds (`additive`), or of the usual size of the subject's
    own series (`local`); of a `binary` variable the probability is predicted. Those that are `whole` are counts.
    """

    kinds: tuple[Kind, ...]
    low_E: Floats
    high_E: Floats
    whole_E: NDArray[np.bool_]
    mean_E: Floats
    sd_E: Floats
    mean_V: Floats
    sd_V: Floats

    @classmethod
    def learned(cls, panel: Panel, schema: PanelSchema, scaler: Scaler) -> Self:
        """Take them from the training subjects of the source (spec GCOMP-1)."""
        forms = list(choose_forms(panel, schema, scaler))
        for i in range(len(schema.covariates)):
            seen_NT = panel.observed_covariates[..., i]
            seen_NT = seen_NT if seen_NT.any() else panel.observed
            values_M = panel.covariates[..., i][seen_NT].astype(np.float64)
            forms.append(OutcomeForm.of("additive", values_M, scaler.covariates[:, i]))
        unit_E = np.concatenate([scaler.outcomes[1], scaler.covariates[1]])
        facts = []
        for variable, form, unit in zip((*schema.outcomes, *schema.covariates), forms, unit_E, strict=True):
            low, high = (float(bound * form.sd * unit) for bound in (form.low, form.high))
            if variable.kind == "count":
                low, high = float(np.ceil(low)), float(np.floor(high))
            binary = variable.kind == "binary"
            facts.append({"kind": "binary", "low": 0.0, "high": 1.0} if binary else
                         {"kind": form.kind, "low": low, "high": high})  # fmt: skip
        return cls.read(facts, schema, scaler)

    @classmethod
    def read(cls, facts: Sequence[Mapping[str, Any]], schema: PanelSchema, scaler: Scaler) -> Self:
        """Read what `to_meta` returned.

        Raises:
            ValueError: these are not the scales of the schema's variables.
        """
        variables = (*schema.outcomes, *schema.covariates)
        kinds: tuple[Kind, ...] = tuple(fact["kind"] for fact in facts)
        low_E, high_E = (np.array([float(fact[name]) for fact in facts]) for name in ("low", "high"))
        if len(facts) != len(variables) or not set(kinds) <= set(get_args(Kind)):
            raise ValueError(f"there is not one known kind for each of {len(variables)} variables")
        if not (np.isfinite(low_E) & np.isfinite(high_E) & (low_E <= high_E)).all():
            raise ValueError("the bounds of a variable are none")
        mean_E, sd_E = np.concatenate([scaler.outcomes, scaler.covariates], axis=1).astype(np.float64)
        whole_E = np.array([variable.kind == "count" for variable in variables])
        return cls(kinds, low_E, high_E, whole_E, mean_E, sd_E, *scaler.statics.astype(np.float64))

    def to_meta(self) -> list[dict[str, Any]]:
        """Return what a model's file records."""
        values = zip(self.kinds, self.low_E.tolist(), self.high_E.tolist(), strict=True)
        return [{"kind": kind, "low": low, "high": high} for kind, low, high in values]

    def having(self, kind: Kind) -> NDArray[np.bool_]:
        """Return which variables `[E]` are of a kind."""
        return np.array([one == kind for one in self.kinds])

    @cached_property
    def quantile_E(self) -> NDArray[np.bool_]:
        """Return whose residuals are quantiles, 0 to 1, of what was predicted: binary variables and counts."""
        return self.having("binary") | self.whole_E

    @cached_property
    def limits(self) -> tuple[Floats, Floats]:
        """Return the smallest and largest change `[E]` of a step, in units."""
        low, high = zip(*(LIMITS["additive" if kind == "binary" else kind] for kind in self.kinds), strict=True)
        return np.array(low), np.array(high)


@dataclass(frozen=True, slots=True)
class Course:
    """Where M series stand at a step, before its treatment: values now and K steps back, and sums of what was before.

    A value before the first one is the first. `size_ME` is the usual size (spec GROWTH-1); `exposure_MJ` is what is
    left of earlier doses.
    """

    value_MKE: Floats
    mean_ME: Floats
    size_ME: Floats
    exposure_MJ: Floats
    step_M: Floats
    static_MV: Floats

    @classmethod
    def begin(cls, value_ME: Floats, static_MV: Floats, scales: Scales, lags: int, n_factors: int) -> Self:
        """Return series at their first step."""
        n = len(value_ME)
        value_MKE = np.repeat(value_ME[:, None], lags + 1, axis=1)
        size_ME = (np.abs(value_ME) + LOCAL_STEPS * LEAST_LOCAL * scales.sd_E) / (1 + LOCAL_STEPS)
        exposure_MJ = np.zeros((n, len(DECAYS) * n_factors))
        return cls(value_MKE, value_ME, size_ME, exposure_MJ, np.zeros(n), static_MV)

    @property
    def now_ME(self) -> Floats:
        """Return the values of the step."""
        return self.value_MKE[:, 0]

    def after(self, dose_ML: Floats, value_ME: Floats) -> "Course":
        """Return where the series stand after a step in which doses were given."""
        n_M1 = self.step_M[:, None] + 1
        decay_J = np.repeat(DECAYS, dose_ML.shape[1])
        return Course(
            np.concatenate([value_ME[:, None], self.value_MKE[:, :-1]], axis=1),
            self.mean_ME + (value_ME - self.mean_ME) / (n_M1 + 1),
            (self.size_ME * (n_M1 + LOCAL_STEPS) + np.abs(value_ME)) / (n_M1 + 1 + LOCAL_STEPS),
            decay_J * self.exposure_MJ + np.tile(dose_ML, len(DECAYS)),
            self.step_M + 1,
            self.static_MV,
        )

    def take(self, rows: NDArray[np.integer] | slice) -> "Course":
        """Return some of the series."""
        return Course(*(getattr(self, field.name)[rows] for field in fields(self)))

    def unit(self, scales: Scales) -> Floats:
        """Return `[M,E]`, in units of the data, what changes are divided by."""
        unit_ME = np.where(scales.having("binary"), 1.0, scales.sd_E) + np.zeros_like(self.mean_ME)
        unit_ME = np.where(scales.having("relative"), np.abs(self.now_ME) + LEAST_UNIT * scales.sd_E, unit_ME)
        return np.where(scales.having("local"), self.size_ME, unit_ME)


def along(panel: Panel, scales: Scales, lags: int, dose_NTL: Floats) -> Course:
    """Return the series of a panel at every step, `M = T N`, the first step of all subjects first."""
    value_NTE = np.concatenate([panel.outcomes, panel.covariates], axis=2).astype(np.float64)
    static_NV = (panel.statics - scales.mean_V) / scales.sd_V
    courses = [Course.begin(value_NTE[:, 0], static_NV, scales, lags, dose_NTL.shape[2])]
    for t in range(1, panel.n_steps):
        courses.append(courses[-1].after(dose_NTL[:, t - 1], value_NTE[:, t]))
    return Course(*(np.concatenate([getattr(one, field.name) for one in courses]) for field in fields(Course)))


@dataclass(frozen=True)
class Design:
    """The columns of a step, in blocks: what stands now, what was before, and products (spec GCOMP-2)."""

    scales: Scales
    n_factors: int
    n_statics: int
    lags: int

    @classmethod
    def of(cls, schema: PanelSchema, scales: Scales, lags: int) -> Self:
        """Return the design of a data set."""
        return cls(scales, dose_table(schema.treatments).shape[1], len(schema.statics), lags)

    @cached_property
    def widths(self) -> dict[str, int]:
        """Return how many columns each block has."""
        e, known, doses = len(self.scales.kinds), len(self.scales.kinds) + self.n_statics, self.n_factors
        products = doses * known + doses * (doses + 1) // 2
        products += known * (known + 1) // 2 if known <= MOST_PAIRED else 0
        history = (self.lags + 1) * e + int(self.scales.having("local").sum()) + len(DECAYS) * doses + 1
        return dict(zip(BLOCKS, (known + doses, history, products), strict=True))

    @property
    def width(self) -> int:
        """Return P, the columns of all blocks."""
        return sum(self.widths.values())

    def among(self, blocks: Sequence[str]) -> NDArray[np.bool_]:
        """Return which columns `[P]` are those of some blocks."""
        return np.concatenate([np.full(width, name in blocks) for name, width in self.widths.items()])

    def columns(self, course: Course, dose_ML: Floats, blocks: Sequence[str] = BLOCKS) -> Floats:
        """Return the columns `[M,P]` of a step with doses; those of blocks that are not asked for are zeros."""
        made = [
            block if name in blocks else np.zeros((len(dose_ML), self.widths[name]))
            for name, block in zip(BLOCKS, self._blocks(course, dose_ML, blocks), strict=True)
        ]
        return np.concatenate(made, axis=1)

    def _blocks(self, course: Course, dose_ML: Floats, blocks: Sequence[str]) -> Iterator[Floats]:
        scales, now_ME, unit_ME = self.scales, course.now_ME, course.unit(self.scales)
        level_ME = (now_ME - scales.mean_E) / scales.sd_E
        if (relative_E := scales.having("relative")).any():
            level_ME = np.where(relative_E, np.log(np.abs(now_ME) / scales.sd_E + LEAST_UNIT), level_ME)
        if (local_E := scales.having("local")).any():
            level_ME = np.where(local_E, now_ME / unit_ME, level_ME)
        known_MB = np.concatenate([level_ME, course.static_MV], axis=1)
        yield np.concatenate([known_MB, dose_ML], axis=1)
        if "history" in blocks:
            earlier_MKE = np.concatenate([course.value_MKE[:, 1:], course.mean_ME[:, None]], axis=1)
            difference_MKE = ((earlier_MKE - now_ME[:, None]) / unit_ME[:, None]).clip(
                -MOST_DIFFERENCE, MOST_DIFFERENCE
            )
            yield np.concatenate(
                [
                    difference_MKE.reshape(len(dose_ML), -1),
                    np.log(unit_ME[:, local_E] / scales.sd_E[local_E]),
                    course.exposure_MJ,
                    course.step_M[:, None],
                ],
                axis=1,
            )
        else:
            yield known_MB
        if "products" in blocks:
            given = [_products(dose_ML, known_MB), _pairs(dose_ML)]
            paired = known_MB.shape[1] <= MOST_PAIRED
            yield np.concatenate([*given, _pairs(known_MB)] if paired else given, axis=1)
        else:
            yield known_MB


def _products(one_MA: Floats, other_MB: Floats) -> Floats:
    """Return the products `[M,AB]` of all columns with all others."""
    return np.asarray((one_MA[:, :, None] * other_MB[:, None]).reshape(len(one_MA), -1))


def _pairs(known_MB: Floats) -> Floats:
    """Return the squares of columns, and their products with each other."""
    first, second = np.triu_indices(known_MB.shape[1])
    return np.asarray(known_MB[:, first] * known_MB[:, second])
