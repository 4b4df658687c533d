"""The answer of `whatif`: what was asked, what each member predicted, and tables derived from it.

Estimates are means over members; the limits around them are those of the model's calibration (spec BAND-5).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import PanelSchema, Part, Values
from costar_cli.data.findings import counted
from costar_cli.data.schema import step_word
from costar_cli.diagnostics import Diagnosed, Diagnostic
from costar_cli.files.frames import FrameName, frame_name, make_frame
from costar_cli.inference import NO_LEVEL, SEED, TOO_FEW
from costar_cli.plans import Rule, TreatmentPlan
from costar_cli.plans.plan import in_words, steps_by_name
from costar_cli.questions.answers import Band, ModelAnswers, objects
from costar_cli.questions.rows import Columns, in_order, table_columns, to_rows
from costar_cli.reporting.display import Displayed

if TYPE_CHECKING:
    from costar_cli.files.frames import Frame

INNER_LEVEL = 0.5  # of the band that figures add to that of a single level
Floats = NDArray[np.float64]

Row = dict[str, str | int | float | None]
COLUMNS = (
    "quantity", "model", "plan", "reference", "step", "time", "treatment", "outcome", "unit",
    "estimate", "lower", "upper", "level", "interval_kind", "truth", "error", "observed",
    "precision", "practice", "support", "reason",
)  # fmt: skip
DATE = COLUMNS.index("time") + 1  # where the column `date` is
QUANTITIES: tuple[Literal["outcome", "difference"], ...] = ("outcome", "difference")
NUMBERS = ("estimate", "lower", "upper", "level", "truth", "error", "observed")


@dataclass(frozen=True, eq=False, slots=True)
class SubjectHistory:
    """What is known of the subject at the origin: `outcomes [origin+1,Y]`, `treatments [origin,names]` (levels).

    Outcomes that were not observed are NaN; models see what they were filled with.
    `subject` is its number and `name` what the data call it: its label, or the number again. `dates` are those of the
    known steps and of all that are predicted, where the data have dates; None where that of a step is not known.
    """

    subject: int
    name: str
    part: Part
    length: int
    origin: int
    outcomes: Floats
    treatments: Values
    dates: tuple[str | None, ...] = ()

    def when(self, step: int) -> str:
        """Return a step as text, with its date where that is known: `30 (2024-03-01)`."""
        date = self.dates[step] if self.dates else None
        return f"{step} ({date})" if date else str(step)


@dataclass(frozen=True, eq=False, repr=False)
class WhatIfReport(Diagnosed, Displayed):
    """Estimates of a subject's outcomes under each plan, and the differences between plans.

    `observed[plan]` and `truth[plan]` are `[steps,Y]`: what really happened, NaN from the step on where the plan
    departs from the treatments that were given; and the simulator's answer, when it was asked for. `diagnostics` say
    what may make the answers wrong, and what else a reader should know. Rows of steps at which no training subject has
    the outcome have no numbers, and with `abstain` those of all answers that the data do not support. `parents` are the
    digests of the data set and the models, by role, and `sources` those of the files that the data set comes from.
    """

    dataset: str
    schema: PanelSchema
    history: SubjectHistory
    plans: tuple[TreatmentPlan, ...]
    models: tuple[ModelAnswers, ...]
    levels: tuple[float, ...]
    reference: str
    observed: tuple[Floats, ...]
    truth: tuple[Floats, ...] | None
    diagnostics: tuple[Diagnostic, ...] = ()
    abstain: bool = False
    rules: Mapping[str, Rule] = field(default_factory=dict)
    parents: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def headline(self) -> str:
        """Return whose question it is, from when on, of how many plans, and which models answer."""
        history, models = self.history, ", ".join(model.label for model in self.models)
        begin = f"subject {history.name} from {step_word(self.schema.step)} {history.when(history.origin)}"
        return f"{begin}, {counted(len(self.plans), 'plan')}, by {models}"

    @property
    def level(self) -> float:
        """Return the level that was asked for first."""
        return self.levels[0]

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns of rows: those of `COLUMNS`, `date` and survival where they are known, further limits."""
        dated = COLUMNS[:DATE] + ("date",) * bool(self.history.dates) + COLUMNS[DATE:]
        return (*dated, *self.ends, *self.further)

    @property
    def ends(self) -> tuple[str, ...]:
        """Return the columns of survival: `survival`, and where there are several terminal ends `ended_death`."""
        return tuple(
            dict.fromkeys(name for m in self.models if m.survival_forecast for name in m.survival_forecast.columns)
        )

    @property
    def further(self) -> tuple[str, ...]:
        """Return the columns of limits at further levels (`lower_0.5`)."""
        return tuple(f"{name}_{level:g}" for level in self.levels[1:] for name in ("lower", "upper"))

    @property
    def drawn_levels(self) -> tuple[float, float]:
        """Return the levels of the two bands of a figure, the wider first."""
        asked = (*self.levels, INNER_LEVEL) if len(self.levels) == 1 else self.levels
        return max(asked), min(asked)

    def band_of(self, model: ModelAnswers, plan: int, levels: Sequence[float] | None = None) -> Band:
        """Return the estimates `[steps,Y]` of one plan, and the limits at some levels, by default those asked for."""
        return model.band_at(levels or self.levels).of(plan, len(self.plans[plan]))

    def shown_levels(self, model: ModelAnswers, levels: Sequence[float] | None = None) -> tuple[float, ...]:
        """Return the levels, by default of those asked for, at which any estimate of the model has limits."""
        levels = levels or self.levels
        lower = model.band_at(levels).lower
        if lower is None:
            return ()
        shown_LQHY = np.isfinite(lower) & model.own_QHY
        return tuple(level for level, shown_QHY in zip(levels, shown_LQHY, strict=True) if shown_QHY.any())

    def interval_kind_of(self, model: ModelAnswers) -> str:
        """Return what the limits of a model's estimates are, or why no estimate has any."""
        return TOO_FEW if model.calibration and not self.shown_levels(model) else model.interval_kind

    def hidden_of(self, model: ModelAnswers, plan: int) -> NDArray[np.bool_]:
        """Return which answers `[steps,Y]` of one plan have no numbers: nobody has them, or the report abstains."""
        return model.hidden_QHY(abstain=self.abstain)[plan, : len(self.plans[plan])]

    def to_rows(self) -> list[Row]:
        """Return one row per model, plan, step and outcome, with the columns `COLUMNS`."""
        return [row for model in self.models for row in self._rows[model.label, "outcome"]]

    def difference_rows(self) -> list[Row]:
        """Return one row per model, plan other than the reference, step and outcome, with the columns `COLUMNS`."""
        return [row for model in self.models for row in self._rows[model.label, "difference"]]

    def tables(self) -> list[Columns]:
        """Return the columns of files: of each model's outcomes, then of each model's differences, the same in all."""
        every = [self._columns[model.label, quantity] for quantity in QUANTITIES for model in self.models]
        names = dict.fromkeys(name for columns in every for name in columns)
        return [{name: columns.get(name, np.full(len(columns["step"]), np.nan)) for name in names} for columns in every]

    @cached_property
    def _columns(self) -> dict[tuple[str, str], Columns]:
        """Return the columns of answers by model and quantity, once for tables, pages and files."""
        truth_QHY = None if self.truth is None else stacked(self.truth, max(map(len, self.plans)))
        found: dict[tuple[str, str], Columns] = {}
        for model in self.models:
            for quantity in QUANTITIES:
                columns = table_columns(
                    model, self.dataset, quantity, truth_QHY=truth_QHY, abstain=self.abstain, words=True
                )
                none = np.full(len(columns["step"]), np.nan)
                more = {"truth": columns.get("truth", none), "error": columns.get("error", none), "observed": none}
                if quantity == "outcome":
                    more["observed"] = np.concatenate([values_HY.ravel() for values_HY in self.observed])
                found[model.label, quantity] = in_order(columns | more, model)
        return found

    @cached_property
    def _rows(self) -> dict[tuple[str, str], list[Row]]:
        none = {key: objects([None] * len(columns["step"])) for key, columns in self._columns.items()}
        return {
            key: to_rows({name: columns.get(name, none[key]) for name in self.columns})
            for key, columns in self._columns.items()
        }

    def to_frame(self, frame: FrameName = "pandas", *, differences: bool = False) -> "Frame":
        """Return the rows of `to_rows` or `difference_rows` as a frame of pandas or polars."""
        rows = self.difference_rows() if differences else self.to_rows()
        columns: dict[str, object] = {name: [row[name] for row in rows] for name in self.columns}
        numbers = (*NUMBERS, *self.ends, *self.further)
        columns |= {name: np.array([row[name] for row in rows], dtype=np.float64) for name in numbers}  # None is NaN
        return make_frame(columns, frame_name(None, frame))

    def to_json(self) -> dict[str, object]:
        """Return the whole report as plain JSON data without NaN."""
        history, encoding, document = self.history, self.schema.treatments, self.summary()
        document["plans"] = {plan.name: steps_by_name(encoding, plan.values) for plan in self.plans}
        given: list[Mapping[str, str] | None] = [*steps_by_name(encoding, history.treatments), None]
        names = [outcome.name for outcome in self.schema.outcomes]
        document["history"] = [
            {
                "time": t,
                **({"date": history.dates[t]} if history.dates else {}),
                "outcomes": {name: y if math.isfinite(y) else None for name, y in zip(names, row, strict=True)},
                "treatments": a,
            }
            for t, (row, a) in enumerate(zip(history.outcomes.tolist(), given, strict=True))
        ]
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
            "levels": list(self.levels),
            "reference": self.reference,
            "models": self.model_facts(),
            "plans_in_words": self.plans_in_words(),
            "rules": {name: rule.text for name, rule in self.rules.items()},
            "notes": list(self.notes),
            "warnings": list(self.warnings),
        }

    def plans_in_words(self) -> dict[str, str]:
        """Return what each plan gives and when, by name: `day 30-31 chemotherapy, then none`."""
        words = {plan.name: in_words(self.schema, plan.values, self.history.origin) for plan in self.plans}
        return {name: self.rules[name].text if name in self.rules else of for name, of in words.items()}

    def rules_in_words(self, model: ModelAnswers) -> dict[str, str]:
        """Return what each rule gave and when, by name, on the courses of a model."""
        origin, unit = self.history.origin, step_word(self.schema.step)
        return {
            simulated.rule.name: f"{unit} {simulated.in_words(0, self.schema, origin)}"
            for simulated in model.simulated
            if simulated
        }

    def model_facts(self) -> dict[str, dict[str, object]]:
        """Return what each model is, by label."""
        facts: dict[str, dict[str, object]] = {}
        for model in self.models:
            survival: dict[str, object] = {}
            if model.survival_forecast:
                columns = model.survival_forecast.columns
                survival["survival"] = {
                    plan.name: {name: values_QH[i, : len(plan)].tolist() for name, values_QH in columns.items()}
                    for i, plan in enumerate(self.plans)
                }
            facts[model.label] = {
                "method": model.method,
                "members": model.members,
                "trained_on_subject": model.trained_on_subject,
                "same_data": model.same_data,
                "unsupported": {plan: list(what) for plan, what in model.unsupported.items()},
                "interval_kind": self.interval_kind_of(model),
                "interval_method": "split conformal" if self.shown_levels(model) else None,
                "difference_interval_kind": min(model.differences.kind_Y, key=NO_LEVEL.__eq__)
                if len(self.plans) > 1
                else None,
                "calibration": None
                if model.calibration is None
                else {name: getattr(model.calibration, name) for name in ("subjects", "domain", "apart", "unit")},
                "effective_subjects": list(model.effective) if model.effective else None,
                "like_practice": None
                if model.plan_ratings is None
                else {
                    plan.name: ratings.like_practice
                    for plan, ratings in zip(self.plans, model.plan_ratings, strict=True)
                },
                **survival,
                "rules": {
                    simulated.rule.name: {
                        "played_on": simulated.how,
                        "draws": len(simulated.values_SQHA),
                        "seed": SEED,
                        "given": simulated.shares(0, self.schema),
                    }
                    for simulated in model.simulated
                    if simulated
                },
            }
        return facts


def stacked(values: Sequence[Floats], horizon: int) -> Floats:
    """Return arrays `[steps,Y]` as one, not numbers beyond the steps of each."""
    return np.stack([np.pad(own, ((0, horizon - len(own)), (0, 0)), constant_values=np.nan) for own in values])
