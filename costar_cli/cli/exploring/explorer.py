"""What the page of `costar explore` sends and receives: questions that `costar whatif` and `search` answer."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from shlex import join
from typing import Any, Final, TypeVar

import numpy as np

from costar_cli.api.estimates import losses_on
from costar_cli.api.pages import html_of
from costar_cli.api.search import cohort_of, request_of, search_cohort
from costar_cli.config import VERSION
from costar_cli.config.requests import SearchWords, WhatIfRequest
from costar_cli.data import Dataset, Location
from costar_cli.data.levels import is_on_off
from costar_cli.data.schema import labelled, step_axis, step_word
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import UsageError
from costar_cli.inference import SUPPORT_LEVELS
from costar_cli.methods.base import FittedModel
from costar_cli.plans import PlanRequest, TreatmentPlan, parse_plans
from costar_cli.plans.untrusted import JsonObject
from costar_cli.questions import Places, Question, WhatIfReport
from costar_cli.questions.answers import ModelAnswers
from costar_cli.questions.report import Row
from costar_cli.questions.search.candidates import treatments_of_step
from costar_cli.questions.tables import rating_reasons
from costar_cli.report.pages.search import how_sure
from costar_cli.reporting import NullReporter

MOST_PLANS: Final = 4  # compared
MOST_LISTED: Final = 50  # subjects that a search for them shows
MOST_HISTORY: Final = 90  # steps before the origin that the page draws
MOST_FROZEN: Final = 600  # plans of a subject in a page that stands alone
MOST_SEARCHED: Final = 20_000  # plans that are all scored while the page waits; beyond, a beam search
BEAM: Final = 200
WHEN: Final = ("at end", "mean", "maximum", "minimum")
GOALS: Final = ("minimise", "maximise")
PAGE: Final = Places("the plans", "the origin", "the plans", "the plans")

KINDS: Final = {int: "a whole number", str: "text", bool: "true or false", dict: "an object"}

T = TypeVar("T", int, str, bool, dict[str, Any])


@dataclass(frozen=True, eq=False, kw_only=True)
class Explorer:
    """A data set and models, kept loaded, that answer a page.

    Attributes:
        dataset: where the subjects are.
        models: that answer, by label; the first is chosen at first.
        words: flags of the commands that ask the same, but for model and subject.
        first: the subjects that the page begins with, or that a page which stands alone has.
    """

    dataset: Dataset
    models: Mapping[str, FittedModel]
    words: Sequence[str] = ()
    first: Sequence[str] = ()
    _losses: dict[tuple[str, str], tuple[Diagnostic, ...]] = field(default_factory=dict)

    @cached_property
    def places(self) -> dict[str, Location]:
        """Return where each subject is, by its name."""
        panels = self.dataset.panels
        return {str(panels[place.part].names[place.row]): place for place in self.dataset.everyone}

    def describe(self) -> dict[str, object]:
        """Return what the page can choose from."""
        schema = self.dataset.schema
        encoding, counts = schema.treatments, dict.fromkeys((str(place.part) for place in self.places.values()), 0)
        for place in self.places.values():
            counts[str(place.part)] += 1
        levels = [
            {"name": name, "levels": list(of), "on_off": is_on_off(of)}
            for name, of in zip(encoding.names, encoding.levels, strict=True)
        ]
        doses = [
            {"name": labelled(dose.name, dose.unit), "key": dose.name, "range": dose.range, "idle": dose.elapsed or 0}
            for dose in encoding.doses
        ]
        return {
            "version": VERSION,
            "dataset": self.dataset.name,
            "subjects": counts,
            "first": self.first[0] if self.first else self._first(),
            "models": [
                {"label": label, "method": model.method, "domain": model.record.domain, "horizon": model.horizon}
                for label, model in self.models.items()
            ],
            "step": step_word(schema.step),
            "axis": step_axis(schema.step),
            "treatments": [*levels, *doses],
            "outcomes": [
                {"name": one.name, "label": labelled(one.name, ""), "unit": one.unit, "binary": one.kind == "binary"}
                for one in schema.outcomes
            ],
            "most_plans": MOST_PLANS,
            "when": list(WHEN),
        }

    def _first(self) -> str:
        """Return the first subject that no model learned from, or else the first of all."""
        tests = (name for name, place in self.places.items() if place.part.split == "test")
        return next(tests, next(iter(self.places)))

    def subjects(self, asked: JsonObject) -> dict[str, Any]:
        """Return the first subjects whose name has a text in it, and how many there are."""
        text = _field(asked, "text", default="").strip().casefold()
        found = [(name, str(place.part)) for name, place in self.places.items() if text in name.casefold()]
        found.sort(key=lambda one: (len(one[0]), one[0]) if text else (0, ""))
        return {"count": len(found), "subjects": [{"name": name, "part": part} for name, part in found[:MOST_LISTED]]}

    def near(self, asked: JsonObject) -> dict[str, Any]:
        """Return the subject before one, that one, and the subject after it, as far as there are any."""
        names = list(self.places)
        place = names.index(subject) if (subject := _field(asked, "subject", default="")) in self.places else 0
        return {"subjects": names[max(0, place - 1) : place + 2]}

    def answer(self, asked: JsonObject) -> dict[str, Any]:
        """Return the estimates of a subject under up to four plans, as `costar whatif` gives them.

        `recorded` is what the subject was given after the origin, as far as that is known and plans go; `command` asks
        the same, with the plans behind it as a here-document.
        """
        question = self._question(asked)
        report = question.report(reporter=NullReporter())
        panel = self.dataset.panel_of(self.places[report.history.name])
        begin, horizon = report.history.origin, max(map(len, report.plans))
        steps = panel.treatments[0, begin : min(begin + horizon, report.history.length - 1)]
        recorded = self.dataset.schema.treatments.decode(steps).tolist()
        [label] = question.models
        words = ["costar", "whatif", *self.words, "--model", label, "--subject", str(asked["subject"])]
        words += ["--origin", str(int(question.cohort.origin_M[0])), *["--unsupported"] * question.request.unsupported]
        plans = _field(asked, "plans", default={})
        lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(steps)}" for name, steps in plans.items())
        command = f"{join([*words, '--plan', '-'])} <<'PLANS'\n{{\"plans\": {{\n{lines}\n}}}}\nPLANS\n"
        return answer_of(report) | {"recorded": recorded, "command": command}

    def report(self, asked: JsonObject) -> str:
        """Return the page that `costar whatif --report` writes."""
        return html_of(self._question(asked).report(reporter=NullReporter()))

    def _question(self, asked: JsonObject) -> Question:
        """Return what the page asks, read and checked as `costar whatif` does.

        Raises:
            UsageError: whatever does not fit.
        """
        label, place = self._model(asked), self._place(asked)
        plans = _field(asked, "plans", default={})
        if not 1 <= len(plans) <= MOST_PLANS:
            raise UsageError(f"{len(plans)} plans: the page compares 1 to {MOST_PLANS}")
        for name, steps in plans.items():
            if not isinstance(steps, list) or len(steps) > self.models[label].horizon:
                raise UsageError(f"plan {name[:100]!r} is no list of up to {self.models[label].horizon} steps")
        document = json.dumps({"plans": plans})
        return self._asked(
            label, place, self._origin(asked, place), _field(asked, "unsupported", default=False),
            document=document.encode(),
        )  # fmt: skip

    def _asked(
        self,
        label: str,
        place: Location,
        origin: int,
        unsupported: bool,
        *,
        document: bytes = b"",
        plans: PlanRequest | None = None,
    ) -> Question:
        dataset, model = self.dataset, self.models[label]
        question = Question.read(
            WhatIfRequest(origin=origin, unsupported=unsupported), {label: model}, dataset.panel_of(place), [place],
            lambda start, begin: plans or parse_plans(
                document, dataset.schema, horizon=model.horizon, where="the plans", origin=start, begin=begin
            ),
            dataset=dataset, compared=True, where=PAGE, alone=True,
        )  # fmt: skip
        key = label, place.part.domain
        if key not in self._losses:  # 190 ms for COSTAR on another domain, and the same for each of its subjects
            self._losses[key] = tuple(losses_on(dataset, {label: model}, [place]))
        return replace(question, document=document, losses=self._losses[key])

    def search(self, asked: JsonObject) -> dict[str, Any]:
        """Return the best plans of a subject, as `costar search` finds them."""
        label, place = self._model(asked), self._place(asked)
        model, origin, unsupported = (
            self.models[label],
            self._origin(asked, place),
            _field(asked, "unsupported", default=False),
        )
        goal, when, outcome = (_field(asked, name, default="") for name in ("goal", "when", "outcome"))
        names = [one.name for one in self.dataset.schema.outcomes]
        if goal not in GOALS or when not in WHEN or outcome not in names:
            raise UsageError("choose what to make small or large from the lists of the page")
        at_most = _field(asked, "at_most", default={})
        if unknown := set(at_most) - set(self.dataset.schema.treatments.all_names):
            raise UsageError(f"there is no treatment {min(unknown)[:100]!r}")
        if not all(type(most) is int and 0 <= most <= model.horizon for most in at_most.values()):
            raise UsageError(f"a treatment can be limited to 0 to {model.horizon} steps")
        limits = tuple(f"{name} {most}" for name, most in at_most.items())
        many = len(treatments_of_step(model, unsupported=unsupported)) ** model.horizon > MOST_SEARCHED
        text = (f"{outcome} {when}",)
        words = SearchWords(
            minimise=text if goal == GOALS[0] else (), maximise=text if goal == GOALS[1] else (), at_most=limits,
            unsupported=unsupported, beam=BEAM if many else None,
        )  # fmt: skip
        cohort = cohort_of(self.dataset, [place], origin, where="the origin")
        [report] = search_cohort(label, model, self.dataset, cohort, request_of(model, words), NullReporter())
        flags = [*(("--at-most", one) for one in limits), *[("--beam", str(BEAM))] * many]
        command = [
            *("costar", "search", *self.words, "--model", label, "--subject", str(asked["subject"])),
            *("--origin", str(origin), f"--{goal}", f"{outcome} {when}", *(word for pair in flags for word in pair)),
            *["--unsupported"] * unsupported,
        ]
        found = report.to_json()["subjects"]
        assert isinstance(found, list)  # noqa: S101 - one answer per subject
        return {
            "plans": found[0]["plans"],
            "reference": found[0]["reference"],
            "unit": report.question.objective.unit,
            "sure": list(how_sure(report)),
            "notes": [*report.warnings, *report.notes],
            "command": join(command),
        }

    def freeze(self) -> dict[str, dict[str, Any]]:
        """Return the answers of the first model about each first subject under a grid of plans, for a page by itself.

        Raises:
            UsageError: an unknown subject, or too many treatments for a grid.
        """
        label, model = next(iter(self.models.items()))
        values_KA, idle = treatments_of_step(model, unsupported=False), model.schema.treatments.idle
        grid = grid_of(np.asarray(values_KA), np.asarray(idle), model.horizon)
        plans = tuple(TreatmentPlan(str(i), values) for i, values in enumerate(grid))
        found: dict[str, Any] = {}
        for name in self.first or (self._first(),):
            place = self._place(JsonObject(subject=name))
            origin = self._origin(JsonObject(), place)
            question = self._asked(label, place, origin, unsupported=True, plans=PlanRequest(plans))
            found[name] = answer_of(question.report(reporter=NullReporter()))
        short: dict[str, dict[str, Any]] = json.loads(
            json.dumps(found), parse_float=lambda text: float(f"{float(text):.6g}")
        )
        return short

    def _model(self, asked: JsonObject) -> str:
        label = _field(asked, "model", default="")
        if label not in self.models:
            fix = f"choose from {', '.join(self.models)}"
            raise UsageError(f"there is no model {label[:100]!r}", where="the page", fix=fix)
        return label

    def _place(self, asked: JsonObject) -> Location:
        name = _field(asked, "subject", default="")
        return self.places.get(name) or self.dataset.find_subject(name[:200])

    def _origin(self, asked: JsonObject, place: Location) -> int:
        """Return the origin that is asked for, by default the last step after which something can follow."""
        if asked.get("origin") is not None:
            return _field(asked, "origin", default=0)
        panel = self.dataset.panel_of(place)
        last = int(panel.length[0]) - 1
        return max(0, last - (int(panel.ends[0]) in self.dataset.schema.terminal))


def _field(asked: JsonObject, name: str, *, default: T) -> T:
    """Return a field of a question, of the type of its default.

    Raises:
        UsageError: it has another type.
    """
    value = asked.get(name, default)
    if not isinstance(value, type(default)) or (isinstance(value, bool) and not isinstance(default, bool)):
        raise UsageError(f"`{name}` of the question must be {KINDS[type(default)]}", where="the page")
    return value


def grid_of(values_KA: np.ndarray[Any, Any], idle_A: np.ndarray[Any, Any], horizon: int) -> list[Any]:
    """Return plans `[H,names]`: all that there are of these steps, else one treatment on days on end, or to the end.

    The first gives nothing.

    Raises:
        UsageError: even the last are too many.
    """
    others = [value for value in values_KA if not np.array_equal(value, idle_A)]
    if (len(others) + 1) ** horizon <= MOST_FROZEN:
        choices = np.stack([idle_A, *others])
        places = np.indices((len(choices),) * horizon).reshape(horizon, -1).T
        return list(choices[places])
    spans = [(first, end) for first in range(horizon) for end in range(first + 1, horizon + 1)]
    if len(others) * len(spans) >= MOST_FROZEN:
        spans = [(first, horizon) for first in range(horizon)]
    if len(others) * len(spans) >= MOST_FROZEN:
        problem = f"there are too many treatments for a page: {len(others):,} at each of {horizon} steps"
        raise UsageError(problem, where="--freeze", fix="run `costar explore` without --freeze")
    plans = [np.tile(idle_A, (horizon, 1))]
    for value in others:
        for first, end in spans:
            plans.append(plans[0].copy())
            plans[-1][first:end] = value
    return plans


def answer_of(report: WhatIfReport) -> dict[str, Any]:
    """Return a report of one model as the page draws it: a list per plan and outcome, from the rows of the report."""
    [model], history = report.models, report.history
    rows: dict[tuple[object, object], list[Row]] = {}
    apart: dict[tuple[object, object], list[Row]] = {}
    for gathered, some in ((rows, report.to_rows()), (apart, report.difference_rows())):
        for row in some:
            gathered.setdefault((row["plan"], row["outcome"]), []).append(row)
    outcomes, first = [one.name for one in report.schema.outcomes], max(0, history.origin - MOST_HISTORY)
    words, support, forecast = report.plans_in_words(), _support(report, model), model.survival_forecast
    encoding = report.schema.treatments
    return {
        "subject": history.name,
        "part": str(history.part),
        "length": history.length,
        "origin": history.origin,
        "first": first,
        "model": model.heading,
        "level": report.level,
        "interval_kind": report.interval_kind_of(model),
        "ends": " or ".join(forecast.names) if forecast else None,
        "difference_kinds": list(model.differences.kind_Y),
        "when": [history.when(step) for step in range(first, history.origin + max(map(len, report.plans)) + 1)],
        "history": [
            [y if math.isfinite(y) else None for y in outcome] for outcome in history.outcomes[first:].T.tolist()
        ],
        "given": [
            encoding.describe(values) if values[encoding.idle == 0].any() else None
            for values in history.treatments[first:]
        ],
        "plans": [
            {
                "name": plan.name,
                "words": words[plan.name],
                "support": support.get(plan.name),
                "survival": [row["survival"] for row in rows[plan.name, outcomes[0]]] if forecast else None,
                "values": plan.values.tolist(),
                "outcomes": [_outcome(rows[plan.name, name], apart.get((plan.name, name), [])) for name in outcomes],
            }
            for plan in report.plans
        ],
        "warnings": list(report.warnings),
        "notes": list(report.notes),
    }


def _support(report: WhatIfReport, model: ModelAnswers) -> dict[str, dict[str, str]]:
    """Return how well the data support each plan, where and why not, as `costar whatif` says it."""
    found, reasons = {}, rating_reasons(report, model)  # of those alone whose worst rating is not green
    for plan, ratings in zip(report.plans, model.plan_ratings or (), strict=bool(model.plan_ratings)):
        worst = max(ratings.worst, key=SUPPORT_LEVELS.index)
        text = "" if worst == SUPPORT_LEVELS[0] else next(reasons).removeprefix(f"plan {plan.name}, {worst} ")
        when, _, reason = text.partition(": ")
        found[plan.name] = {"worst": worst, "when": when, "reason": reason}
    return found


def _outcome(rows: Sequence[Row], apart: Sequence[Row]) -> dict[str, object]:
    """Return the numbers of one outcome under one plan by step, and the first letters of its ratings."""
    found: dict[str, object] = {name: [row[name] for row in rows] for name in ("estimate", "lower", "upper")}
    if any(row["observed"] is not None for row in rows):
        found["observed"] = [row["observed"] for row in rows]
    if apart:
        names = {"difference": "estimate", "difference_lower": "lower", "difference_upper": "upper"}
        found |= {name: [row[of] for row in apart] for name, of in names.items()}
    if rows[0]["support"]:
        found["support"] = "".join(str(row["support"])[0] for row in rows)
    return found
