"""Where series stand at a step, and how they change in one (spec GCOMP-1 and 2).

`E` variables, outcomes then covariates; `K` lags; `L` treatment factors; `J` exposures; `M` series, each at some step.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Final, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Panel, PanelSchema, Scaler
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

    def after(self, dose_ML: Floats, value_ME: Floats) -> Self:
        """Return where the series stand after a step in which doses were given."""
        n_M1 = self.step_M[:, None] + 1
        decay_J = np.repeat(DECAYS, dose_ML.shape[1])
        return replace(
            self,
            value_MKE=np.concatenate([value_ME[:, None], self.value_MKE[:, :-1]], axis=1),
            mean_ME=self.mean_ME + (value_ME - self.mean_ME) / (n_M1 + 1),
            size_ME=(self.size_ME * (n_M1 + LOCAL_STEPS) + np.abs(value_ME)) / (n_M1 + 1 + LOCAL_STEPS),
            exposure_MJ=decay_J * self.exposure_MJ + np.tile(dose_ML, len(DECAYS)),
            step_M=self.step_M + 1,
        )

    def take(self, rows: NDArray[np.integer] | slice) -> Self:
        """Return some of the series."""
        return replace(self, **{field.name: getattr(self, field.name)[rows] for field in fields(self)})

    def unit(self, scales: Scales) -> Floats:
        """Return `[M,E]`, in units of the data, what changes are divided by."""
        unit_ME = np.where(scales.having("binary"), 1.0, scales.sd_E) + np.zeros_like(self.mean_ME)
        unit_ME = np.where(scales.having("relative"), np.abs(self.now_ME) + LEAST_UNIT * scales.sd_E, unit_ME)
        return np.where(scales.having("local"), self.size_ME, unit_ME)

    def level(self, scales: Scales) -> Floats:
        """Return `[M,E]` where each variable stands: in sds, the logarithm of what is relative, or in its own units."""
        level_ME = (self.now_ME - scales.mean_E) / scales.sd_E
        if (relative_E := scales.having("relative")).any():
            level_ME = np.where(relative_E, np.log(np.abs(self.now_ME) / scales.sd_E + LEAST_UNIT), level_ME)
        if (local_E := scales.having("local")).any():
            level_ME = np.where(local_E, self.now_ME / self.unit(scales), level_ME)
        return level_ME


def along(panel: Panel, scales: Scales, lags: int, dose_NTL: Floats) -> Course:
    """Return the series of a panel at every step, `M = T N`, the first step of all subjects first."""
    value_NTE = np.concatenate([panel.outcomes, panel.covariates], axis=2).astype(np.float64)
    static_NV = (panel.statics - scales.mean_V) / scales.sd_V
    courses = [Course.begin(value_NTE[:, 0], static_NV, scales, lags, dose_NTL.shape[2])]
    for t in range(1, panel.n_steps):
        courses.append(courses[-1].after(dose_NTL[:, t - 1], value_NTE[:, t]))
    return Course(*(np.concatenate([getattr(one, field.name) for one in courses]) for field in fields(Course)))
