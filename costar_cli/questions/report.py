"""The answer of `whatif`: what was asked, what each member predicted, and tables derived from it.

Estimates are means over members; the limits around them are those of the model's calibration (spec BAND-5).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from costar_cli.frames import FrameName, frame_name, make_frame
from costar_cli.panel import PanelSchema, Part, Values
from costar_cli.panel.schema import step_word
from costar_cli.plans import SEED, Played, Rule, TreatmentPlan
from costar_cli.plans.words import in_words, steps_by_name
from costar_cli.questions.band import Band
from costar_cli.questions.support import PlanLights
from costar_cli.uncertainty import (
    BLACK_BOX,
    CALIBRATED,
    LEAST_MEMBERS,
    LIGHTS,
    NO_LEVEL,
    RANGE,
    TOO_FEW,
    Calibration,
    Estimates,
    GoesOn,
)

if TYPE_CHECKING:
    from costar_cli.frames import Frame

INNER_LEVEL = 0.5  # of the band that figures add to that of a single level
Floats = NDArray[np.float64]

Row = dict[str, str | int | float | None]
COLUMNS = (
    "quantity", "model", "plan", "reference", "step", "time", "treatment", "outcome", "unit",
    "estimate", "lower", "upper", "level", "interval_kind", "truth", "error", "observed",
    "precision", "practice", "support", "reason",
)  # fmt: skip
DATE = COLUMNS.index("time") + 1  # where the column `date` is
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


@dataclass(frozen=True, eq=False, slots=True)
class ModelAnswer:
    """One model's predictions `[R,steps,Y]` per plan, in the units of the data.

    `estimates` has a query per plan, all padded to the longest; `apart` the differences of each from the reference
    plan, None where the model has no joint distribution, which says how far these may be off. `calibration` gives the
    limits, `interval_kind` says what they are, where there are any.
    `trained_on_subject` is None when that is unknown: the model does not say, was trained on some subjects of the part
    only, or was trained on another data set. `same_data` says whether it was trained on the data set that the subject
    belongs to, None where no digest is known. `unsupported` names, by plan, what no training subject was given.
    `effective` counts at each step the calibration subjects that weights leave, None where no policy's were asked for.
    `played` has, by plan, how a rule went, None of plans that are no rules.
    `goes_on` says how likely the series is to go on under each plan, None where the model knows of no end.
    `lights` say of each plan whether the data support its answers, None where the model does not know.
    """

    label: str
    method: str
    trained_on_subject: bool | None
    predictions: tuple[Floats, ...]
    estimates: Estimates
    calibration: Calibration | None = None
    apart: Estimates | None = None
    interval_kind: str = CALIBRATED
    same_data: bool | None = None
    unsupported: Mapping[str, list[str]] = field(default_factory=dict)
    lights: tuple[PlanLights, ...] | None = None
    played: tuple[Played | None, ...] = ()
    effective: tuple[float, ...] | None = None
    goes_on: GoesOn | None = None

    @property
    def heading(self) -> str:
        """Return what tables call it: its label, marked where it was trained on another data set."""
        return f"{self.label} (trained on other data)" if self.same_data is False else self.label

    @property
    def members(self) -> int:
        """Return R."""
        return int(self.predictions[0].shape[0])

    @property
    def difference_kind(self) -> str:
        """Return what the limits of differences between plans are, or why there are none."""
        if self.calibration is None or self.apart is not None:
            return self.interval_kind
        return RANGE if self.members >= LEAST_MEMBERS else BLACK_BOX


@dataclass(frozen=True, eq=False, slots=True)
class WhatIfReport:
    """Estimates of a subject's outcomes under each plan, and the differences between plans.

    `observed[plan]` and `truth[plan]` are `[steps,Y]`: what really happened, NaN from the step on where the plan
    departs from the treatments that were given; and the simulator's answer, when it was asked for. `warnings` say what
    may make the answers wrong, `notes` what else a reader should know. With `abstain`, rows of answers that the data do
    not support have no numbers. `parents` are the digests of the data set and the models, by role, and `sources` those
    of the files that the data set comes from.
    """

    dataset: str
    schema: PanelSchema
    history: SubjectHistory
    plans: tuple[TreatmentPlan, ...]
    models: tuple[ModelAnswer, ...]
    levels: tuple[float, ...]
    reference: str
    observed: tuple[Floats, ...]
    truth: tuple[Floats, ...] | None
    notes: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    abstain: bool = False
    rules: Mapping[str, Rule] = field(default_factory=dict)
    parents: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)

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
        return tuple(dict.fromkeys(name for m in self.models if m.goes_on for name in m.goes_on.columns))

    @property
    def further(self) -> tuple[str, ...]:
        """Return the columns of limits at further levels (`lower_0.5`)."""
        return tuple(f"{name}_{level:g}" for level in self.levels[1:] for name in ("lower", "upper"))

    @property
    def drawn_levels(self) -> tuple[float, float]:
        """Return the levels of the two bands of a figure, the wider first."""
        asked = (*self.levels, INNER_LEVEL) if len(self.levels) == 1 else self.levels
        return max(asked), min(asked)

    def band_of(self, model: ModelAnswer, plan: int, levels: Sequence[float] | None = None) -> Band:
        """Return the estimates `[steps,Y]` of one plan, and the limits at some levels, by default those asked for."""
        own = model.estimates.take(np.array([plan]), len(self.plans[plan]))
        return Band.around(own, model.calibration, levels or self.levels)

    def shown_levels(self, model: ModelAnswer, levels: Sequence[float] | None = None) -> tuple[float, ...]:
        """Return the levels, by default of those asked for, at which any estimate of the model has limits."""
        levels = levels or self.levels
        bands = [self.band_of(model, i, levels).lower for i in range(len(self.plans))]
        known = [lower_LHY for lower_LHY in bands if lower_LHY is not None]
        return tuple(
            level for n, level in enumerate(levels) if any(np.isfinite(lower_LHY[n]).any() for lower_LHY in known)
        )

    def interval_kind_of(self, model: ModelAnswer) -> str:
        """Return what the limits of a model's estimates are, or why no estimate has any."""
        return TOO_FEW if model.calibration and not self.shown_levels(model) else model.interval_kind

    def hidden_of(self, model: ModelAnswer, plan: int) -> NDArray[np.bool_]:
        """Return which answers `[steps,Y]` of one plan have no numbers, since the report abstains."""
        if not self.abstain or model.lights is None:
            return np.zeros((len(self.plans[plan]), len(self.schema.outcomes)), dtype=bool)
        return model.lights[plan].red_HY

    def difference_kinds(self, model: ModelAnswer) -> list[str]:
        """Return, by outcome, what the limits of a model's differences are, or why there are none."""
        binary_Y = [outcome.kind == "binary" for outcome in self.schema.outcomes]
        return [NO_LEVEL if binary and model.apart is not None else model.difference_kind for binary in binary_Y]

    def difference_of(self, model: ModelAnswer, plan: int) -> Band:
        """Return the differences between a plan and the reference plan, and their limits, from joint draws.

        Without these the limits are the members' range, which stands in the place of the first level and has none.
        """
        steps = min(len(self.plans[plan]), len(self.plans[self._reference]))
        if model.apart is None:
            mean_HY, members_RHY = (
                values[..., plan, :steps, :] - values[..., self._reference, :steps, :]
                for values in (model.estimates.mean_QHY, model.estimates.members_RQHY.astype(np.float64))
            )
            if model.difference_kind != RANGE:
                return Band(mean_HY)
            return Band.of_range(mean_HY, members_RHY, len(self.levels))
        band = Band.around(model.apart.take(np.array([plan]), steps), model.calibration, self.levels, clip=False)
        return band.without_limits(np.array(self.difference_kinds(model)) == NO_LEVEL)

    def to_rows(self) -> list[Row]:
        """Return one row per model, plan, step and outcome, with the columns `COLUMNS`."""
        rows: list[Row] = []
        for model in self.models:
            for i in range(len(self.plans)):
                truth = None if self.truth is None else self.truth[i]
                rows += self._rows(model, i, self.band_of(model, i), truth=truth, observed=self.observed[i])
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
        columns: dict[str, object] = {name: [row[name] for row in rows] for name in self.columns}
        numbers = (*NUMBERS, *self.ends, *self.further)
        columns |= {name: np.array([row[name] for row in rows], dtype=np.float64) for name in numbers}  # None is NaN
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

    def rules_in_words(self, model: ModelAnswer) -> dict[str, str]:
        """Return what each rule gave and when, by name, on the courses of a model."""
        origin, unit = self.history.origin, step_word(self.schema.step)
        return {
            played.rule.name: f"{unit} {played.in_words(0, self.schema, origin)}" for played in model.played if played
        }

    def model_facts(self) -> dict[str, dict[str, object]]:
        """Return what each model is, by label."""
        return {
            model.label: {
                "method": model.method,
                "members": model.members,
                "trained_on_subject": model.trained_on_subject,
                "same_data": model.same_data,
                "unsupported": {plan: list(what) for plan, what in model.unsupported.items()},
                "interval_kind": self.interval_kind_of(model),
                "interval_method": "split conformal" if self.shown_levels(model) else None,
                "difference_interval_kind": min(self.difference_kinds(model), key=NO_LEVEL.__eq__)
                if len(self.plans) > 1
                else None,
                "calibration": _facts(model.calibration),
                "effective_subjects": list(model.effective) if model.effective else None,
                "like_practice": self._like_practice(model),
                **({"survival": self._survival(model.goes_on)} if model.goes_on else {}),
                "rules": {
                    played.rule.name: {
                        "played_on": played.how,
                        "draws": len(played.values_SQHA),
                        "seed": SEED,
                        "given": played.shares(0, self.schema),
                    }
                    for played in model.played
                    if played
                },
            }
            for model in self.models
        }

    def _like_practice(self, model: ModelAnswer) -> dict[str, float] | None:
        """Return the share of each plan's steps that practice would have taken."""
        if model.lights is None:
            return None
        return {plan.name: lights.like_practice for plan, lights in zip(self.plans, model.lights, strict=True)}

    def _survival(self, goes_on: GoesOn) -> dict[str, dict[str, list[float]]]:
        """Return, by plan, how likely the series is to go on through each step, and each of several ends."""
        return {
            plan.name: {name: values_QH[i, : len(plan)].tolist() for name, values_QH in goes_on.columns.items()}
            for i, plan in enumerate(self.plans)
        }

    def _marks(self, model: ModelAnswer, plan: int, h: int, k: int, *, apart: bool) -> dict[str, str | None]:
        """Return the lights of an answer and their reason; of a difference those of the worse supported of the two."""
        if model.lights is None:
            return dict.fromkeys(("precision", "practice", "support", "reason"))
        both = [model.lights[i] for i in ((plan, self._reference) if apart else (plan,))]
        worst = max(both, key=lambda lights: LIGHTS.index(lights.support[h][k]))
        return {
            "precision": worst.precision[h][k],
            "practice": worst.practice[h],
            "support": worst.support[h][k],
            "reason": worst.reasons[h][k] or None,
        }

    def _ends(self, model: ModelAnswer, plan: int, h: int, *, apart: bool) -> dict[str, float | None]:
        """Return the survival of a step, or how far it is from that of the reference plan."""
        found = model.goes_on.columns if model.goes_on else {}
        minus = {name: values_QH[self._reference, h] if apart else 0.0 for name, values_QH in found.items()}
        return {name: float(found[name][plan, h] - minus[name]) if name in found else None for name in self.ends}

    @property
    def _reference(self) -> int:
        return [plan.name for plan in self.plans].index(self.reference)

    def _true_difference(self, plan: int, steps: int) -> Floats | None:
        return None if self.truth is None else self.truth[plan][:steps] - self.truth[self._reference][:steps]

    def _treatments(self, values: Values) -> list[dict[str, str]]:
        return steps_by_name(self.schema.treatments, values)

    def _given(self, model: ModelAnswer, plan: int) -> list[str]:
        """Return the treatment of each step of a plan, of a rule the most common one with its share of the draws."""
        if not (played := model.played[plan] if model.played else None):
            return [self.schema.treatments.describe(row) for row in self.plans[plan].values]
        first = (next(iter(share.items())) for share in played.shares(0, self.schema))
        return [what if share == 1 else f"{what} ({100 * share:.0f} %)" for what, share in first]

    def _history(self) -> list[dict[str, object]]:
        history = self.history
        given: list[Mapping[str, str] | None] = [*self._treatments(history.treatments), None]
        names = [outcome.name for outcome in self.schema.outcomes]
        return [
            {
                "time": t,
                **({"date": history.dates[t]} if history.dates else {}),
                "outcomes": {name: _number(y) for name, y in zip(names, row, strict=True)},
                "treatments": a,
            }
            for t, (row, a) in enumerate(zip(history.outcomes, given, strict=True))
        ]

    def _rows(
        self,
        model: ModelAnswer,
        plan: int,
        band: Band,
        *,
        truth: Floats | None,
        observed: Floats | None = None,
        reference: str | None = None,
    ) -> Iterator[Row]:
        given = self._given(model, plan)
        for h in range(len(band.estimate)):
            for k, outcome in enumerate(self.schema.outcomes):
                marks = self._marks(model, plan, h, k, apart=reference is not None)
                kind = model.interval_kind if reference is None else self.difference_kinds(model)[k]
                kind = band.kind(kind, h, k)
                shown = not (self.abstain and marks["support"] == LIGHTS[2])
                estimate, true = _at(band.estimate, h, k) if shown else None, _at(truth, h, k)
                limits = [
                    (_at(band.lower, i, h, k), _at(band.upper, i, h, k)) if shown else (None, None)
                    for i in range(len(self.levels))
                ]
                yield {
                    "quantity": "outcome" if reference is None else "difference",
                    "model": model.label,
                    "plan": self.plans[plan].name,
                    "reference": reference,
                    "step": h + 1,
                    "time": self.history.origin + h + 1,
                    **({"date": self.history.dates[self.history.origin + h + 1]} if self.history.dates else {}),
                    "treatment": given[h],
                    "outcome": outcome.name,
                    "unit": outcome.unit,
                    "estimate": estimate,
                    "lower": limits[0][0],
                    "upper": limits[0][1],
                    "level": self.level if limits[0][0] is not None and kind != RANGE else None,
                    "interval_kind": kind,
                    "truth": true,
                    "error": None if estimate is None or true is None else estimate - true,
                    "observed": _at(observed, h, k),
                    **marks,
                    **self._ends(model, plan, h, apart=reference is not None),
                    **dict(zip(self.further, (limit for pair in limits[1:] for limit in pair), strict=True)),
                }


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _at(values: Floats | None, *place: int) -> float | None:
    return None if values is None else _number(values[place])


def _facts(calibration: Calibration | None) -> dict[str, object] | None:
    names = ("subjects", "domain", "apart", "unit")
    return {name: getattr(calibration, name) for name in names} if calibration else None
