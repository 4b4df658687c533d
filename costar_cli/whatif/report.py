"""The answer of `whatif`: what was asked, what each member predicted, and tables derived from it.

How far the members disagree is shown as an interval around their mean (spec SCORE-11 to 12).
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from costar_cli.frames import FrameName, frame_name, make_frame
from costar_cli.panel import PanelSchema, Part
from costar_cli.panel.schema import step_word
from costar_cli.whatif.plan import TreatmentPlan

if TYPE_CHECKING:
    from costar_cli.frames import Frame

__all__ = [
    "COLUMNS",
    "ENSEMBLE_SPREAD",
    "ModelAnswer",
    "Row",
    "SubjectHistory",
    "WhatIfReport",
    "interval_kind",
    "interval_method",
    "spread",
]

ENSEMBLE_SPREAD = "ensemble spread"
NO_INTERVAL = "none (one member)"
MANY_MEMBERS = 19  # fewer: interpolating between order statistics covers up to 0.05 too much (measured, levels 0.5-0.8)
TOLERANCE = 1e-9  # 19 members at level 0.9 count as enough in spite of rounding
Floats = NDArray[np.float64]

Row = dict[str, str | int | float | None]
COLUMNS = (
    "quantity", "model", "plan", "reference", "step", "time", "treatment", "outcome", "unit",
    "estimate", "lower", "upper", "level", "interval_kind", "truth", "error", "observed",
)  # fmt: skip
NUMBERS = ("estimate", "lower", "upper", "level", "truth", "error", "observed")


@dataclass(frozen=True, eq=False, slots=True)
class Spread:
    """A mean over members and the interval around it; no interval when there is one member."""

    estimate: Floats
    lower: Floats | None
    upper: Floats | None


def interval_kind(members: int) -> str:
    """Return what the limits are: `ensemble spread`, or `none (one member)`."""
    return ENSEMBLE_SPREAD if members > 1 else NO_INTERVAL


def interval_method(members: int, level: float) -> str | None:
    """Return `quantiles`, `student-t`, or None when there is one member.

    Quantiles need at least 19 members, and so many that the limits lie among them: `(R + 1) (1 - level) / 2 >= 1`,
    which 19 members meet up to level 0.9 and 39 up to 0.95.
    """
    if members == 1:
        return None
    within = (members + 1) * (1 - level) / 2 >= 1 - TOLERANCE
    return "quantiles" if members >= MANY_MEMBERS and within else "student-t"


def spread(members_R: Floats, level: float) -> Spread:
    """Return mean and spread along the first axis.

    The limits say where the prediction of one more member, trained on the same data with another seed, would fall with
    probability `level`. Neither rule knows the errors that all members share, so this is no confidence interval.

    Many members: quantiles at positions `p (R + 1)`, which assume no distribution. They are exact where the position is
    whole; between order statistics they were measured to cover -0.004 to +0.015 more than a level of 0.5 or above
    (normal, uniform, lognormal, t with 3 degrees of freedom; 19 to 100 members).

    Few members: mean +- t sd sqrt(1 + 1/R), Student's t with R - 1 degrees of freedom; exact for normal members. It
    covers too little of skewed ones: 0.86 (3 members) and 0.88 (5) of lognormal ones at level 0.9.

    The mean always lies within: where outliers carry it beyond a quantile, the limit moves to the mean.

    Args:
        members_R: predictions, or differences of predictions, member first.
        level: probability between the limits, in (0, 1).
    """
    count = members_R.shape[0]
    mean: Floats = members_R.mean(axis=0)
    method = interval_method(count, level)
    if method is None:
        return Spread(mean, None, None)
    if method == "quantiles":
        tail = max((1 - level) / 2, 1 / (count + 1))
        lower, upper = np.quantile(members_R, [tail, 1 - tail], axis=0, method="weibull")
        return Spread(mean, np.minimum(lower, mean), np.maximum(upper, mean))
    factor = float(stdtrit(count - 1, (1 + level) / 2)) * np.sqrt(1 + 1 / count)
    half: Floats = factor * members_R.std(axis=0, ddof=1)
    return Spread(mean, mean - half, mean + half)


@dataclass(frozen=True, eq=False, slots=True)
class SubjectHistory:
    """What is known of the subject at the origin: `outcomes [origin+1,Y]`, `treatments [origin,names]` (levels).

    Outcomes that were not observed are NaN; models see what they were filled with.
    `subject` is its number and `name` what the data call it: its label, or the number again.
    """

    subject: int
    name: str
    part: Part
    length: int
    origin: int
    outcomes: Floats
    treatments: NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class ModelAnswer:
    """One model's predictions `[R,steps,Y]` per plan, in the units of the data.

    `trained_on_subject` is None when that is unknown: the model does not say, was trained on some subjects of the part
    only, or was trained on another data set. `same_data` says whether it was trained on the data set that the subject
    belongs to, None where no digest is known. `unsupported` names, by plan, what no training subject was given.
    """

    label: str
    method: str
    trained_on_subject: bool | None
    predictions: tuple[Floats, ...]
    same_data: bool | None = None
    unsupported: Mapping[str, list[str]] = field(default_factory=dict)

    @property
    def heading(self) -> str:
        """Return what tables call it: its label, marked where it was trained on another data set."""
        return f"{self.label} (trained on other data)" if self.same_data is False else self.label

    @property
    def members(self) -> int:
        """Return R."""
        return int(self.predictions[0].shape[0])


@dataclass(frozen=True, eq=False, slots=True)
class WhatIfReport:
    """Estimates of a subject's outcomes under each plan, and the differences between plans.

    `observed[plan]` and `truth[plan]` are `[steps,Y]`: what really happened, NaN from the step on where the plan
    departs from the treatments that were given; and the simulator's answer, when it was asked for. `warnings` say what
    may make the answers wrong, `notes` what else a reader should know.
    """

    dataset: str
    schema: PanelSchema
    history: SubjectHistory
    plans: tuple[TreatmentPlan, ...]
    models: tuple[ModelAnswer, ...]
    level: float
    reference: str
    observed: tuple[Floats, ...]
    truth: tuple[Floats, ...] | None
    notes: tuple[str, ...]
    warnings: tuple[str, ...] = ()

    def spread_of(self, model: ModelAnswer, plan: int) -> Spread:
        """Return the ensemble mean and spread `[steps,Y]` of one plan."""
        return spread(model.predictions[plan], self.level)

    def difference_of(self, model: ModelAnswer, plan: int) -> Spread:
        """Return mean and spread of the member-wise differences between a plan and the reference plan."""
        reference = model.predictions[self._reference]
        steps = min(reference.shape[1], model.predictions[plan].shape[1])
        return spread(model.predictions[plan][:, :steps] - reference[:, :steps], self.level)

    def to_rows(self) -> list[Row]:
        """Return one row per model, plan, step and outcome, with the columns `COLUMNS`."""
        rows: list[Row] = []
        for model in self.models:
            for i in range(len(self.plans)):
                truth = None if self.truth is None else self.truth[i]
                rows += self._rows(model, i, self.spread_of(model, i), truth=truth, observed=self.observed[i])
        return rows

    def difference_rows(self) -> list[Row]:
        """Return one row per model, plan other than the reference, step and outcome, with the columns `COLUMNS`."""
        rows: list[Row] = []
        for model in self.models:
            for i in range(len(self.plans)):
                if i != self._reference:
                    difference = self.difference_of(model, i)
                    truth = self._true_difference(i, len(difference.estimate))
                    rows += self._rows(model, i, difference, truth=truth, reference=self.reference)
        return rows

    def to_frame(self, frame: FrameName = "pandas", *, differences: bool = False) -> "Frame":
        """Return the rows of `to_rows` or `difference_rows` as a frame of pandas or polars."""
        rows = self.difference_rows() if differences else self.to_rows()
        columns: dict[str, object] = {name: [row[name] for row in rows] for name in COLUMNS}
        columns |= {name: np.array([row[name] for row in rows], dtype=np.float64) for name in NUMBERS}  # None is NaN
        return make_frame(columns, frame_name(None, frame))

    def to_json(self) -> dict[str, object]:
        """Return the whole report as plain JSON data without NaN."""
        document = self.summary()
        document["plans"] = {plan.name: self._treatments(plan.values) for plan in self.plans}
        document["history"] = self._history()
        document["estimates"] = self.to_rows()
        document["differences"] = self.difference_rows()
        return document

    def summary(self) -> dict[str, object]:
        """Return what the report is about, without the numbers."""
        history = self.history
        return {
            "dataset": self.dataset,
            "subject": history.subject,
            "label": history.name,
            "domain": history.part.domain,
            "split": history.part.split,
            "length": history.length,
            "origin": history.origin,
            "step_unit": self.schema.step,
            "level": self.level,
            "reference": self.reference,
            "models": self.model_facts(),
            "plans_in_words": self.plans_in_words(),
            "notes": list(self.notes),
            "warnings": list(self.warnings),
        }

    def plans_in_words(self) -> dict[str, str]:
        """Return what each plan gives and when, by name: `day 30-31 chemotherapy, then none`."""
        return {plan.name: self._in_words(plan.values) for plan in self.plans}

    def model_facts(self) -> dict[str, dict[str, object]]:
        """Return what each model is, by label."""
        return {
            model.label: {
                "method": model.method,
                "members": model.members,
                "trained_on_subject": model.trained_on_subject,
                "same_data": model.same_data,
                "unsupported": {plan: list(what) for plan, what in model.unsupported.items()},
                "interval_kind": interval_kind(model.members),
                "interval_method": interval_method(model.members, self.level),
            }
            for model in self.models
        }

    @property
    def _reference(self) -> int:
        return [plan.name for plan in self.plans].index(self.reference)

    def _true_difference(self, plan: int, steps: int) -> Floats | None:
        return None if self.truth is None else self.truth[plan][:steps] - self.truth[self._reference][:steps]

    def _treatments(self, values: NDArray[np.int64]) -> list[dict[str, str]]:
        encoding = self.schema.treatments
        named = [zip(encoding.names, encoding.levels, row.tolist(), strict=True) for row in values]
        return [{name: levels[value] for name, levels, value in step} for step in named]

    def _in_words(self, values: NDArray[np.int64]) -> str:
        given = (self.schema.treatments.describe(row) for row in values)
        runs = [(what, len(list(steps))) for what, steps in groupby(given)]
        step, course = self.history.origin, []
        for what, count in runs:
            when = str(step) if count == 1 else f"{step}-{step + count - 1}"
            course.append(f"{when} {what}")
            step += count
        if len(course) > 1:
            course[-1] = f"then {runs[-1][0]}"
        return f"{step_word(self.schema.step)} {', '.join(course)}"

    def _history(self) -> list[dict[str, object]]:
        history = self.history
        given: list[Mapping[str, str] | None] = [*self._treatments(history.treatments), None]
        names = [outcome.name for outcome in self.schema.outcomes]
        return [
            {"time": t, "outcomes": {name: _number(y) for name, y in zip(names, row, strict=True)}, "treatments": a}
            for t, (row, a) in enumerate(zip(history.outcomes, given, strict=True))
        ]

    def _rows(
        self,
        model: ModelAnswer,
        plan: int,
        band: Spread,
        *,
        truth: Floats | None,
        observed: Floats | None = None,
        reference: str | None = None,
    ) -> Iterator[Row]:
        for h, treatment in enumerate(self.plans[plan].values[: len(band.estimate)]):
            for k, outcome in enumerate(self.schema.outcomes):
                estimate, true = _at(band.estimate, h, k), _at(truth, h, k)
                yield {
                    "quantity": "outcome" if reference is None else "difference",
                    "model": model.label,
                    "plan": self.plans[plan].name,
                    "reference": reference,
                    "step": h + 1,
                    "time": self.history.origin + h + 1,
                    "treatment": self.schema.treatments.describe(treatment),
                    "outcome": outcome.name,
                    "unit": outcome.unit,
                    "estimate": estimate,
                    "lower": _at(band.lower, h, k),
                    "upper": _at(band.upper, h, k),
                    "level": self.level if band.lower is not None else None,
                    "interval_kind": interval_kind(model.members),
                    "truth": true,
                    "error": None if estimate is None or true is None else estimate - true,
                    "observed": _at(observed, h, k),
                }


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _at(values_HY: Floats | None, step: int, outcome: int) -> float | None:
    return None if values_HY is None else _number(values_HY[step, outcome])
