"""The answer of a search: the best plans of each subject, as rows, as JSON, and as files that `whatif` reads."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from costar_cli.data import Panel, PanelSchema, Part
from costar_cli.data.findings import counted
from costar_cli.diagnostics import Diagnosed, Diagnostic
from costar_cli.files.frames import FrameName, make_frame
from costar_cli.inference import BLACK_BOX, CALIBRATED, NO_LEVEL, RANGE, RED, SUPPORT_LEVELS, TOO_FEW, Calibration
from costar_cli.plans.plan import in_words, steps_by_name
from costar_cli.questions.search.run import Best
from costar_cli.questions.search.scoring import SearchQuestion
from costar_cli.reporting.display import Displayed

if TYPE_CHECKING:
    from costar_cli.files.frames import Frame

Row = dict[str, str | int | float | None]
SHOWN: Final = 5  # plans


@dataclass(frozen=True, eq=False, slots=True)
class SubjectAnswer:
    """The best plans for one subject, called `name`, from the step `origin` of its `length`, and its date if known."""

    name: object
    part: Part | None
    origin: int
    length: int
    best: Best
    date: str | None = None

    @property
    def when(self) -> str:
        """Return the origin as text, with its date where that is known."""
        return f"{self.origin} ({self.date})" if self.date else str(self.origin)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class SearchReport(Diagnosed, Displayed):
    """The best plans of one subject or of many, by one model.

    `panel` is that of a single subject and `calibration` the model's, for figures. `diagnostics` say what may make
    the answer wrong, and what else a reader should know. `members` are counted where the draws are these alone.
    `on_outcomes` says how transformed outcomes are learned, `judges_precision` whether lights are about precision, too.
    `parents` are the digests of the data set and the model, by role, `sources` those of the files behind the data set.
    """

    dataset: str
    schema: PanelSchema
    label: str
    method: str
    interval_kind: str
    question: SearchQuestion
    answers: Sequence[SubjectAnswer]
    panel: Panel | None = None
    calibration: Calibration | None = None
    diagnostics: tuple[Diagnostic, ...] = ()
    members: int | None = None
    on_outcomes: tuple[Diagnostic, ...] = ()
    judges_precision: bool = True
    parents: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def headline(self) -> str:
        """Return whose best plans they are, by which objective and model."""
        names = [str(answer.name) for answer in self.answers]
        whose = f"subject {names[0]}" if len(names) == 1 else f"{len(names):,} subjects"
        return f"{whose}, {self.question.objective.text}, by {self.label}"

    @property
    def reference(self) -> str:
        """Return what the plan is called that others are compared with."""
        return self.question.reference.name

    @property
    def range_of(self) -> int:
        """Return how many members the limits of differences are the range of, 0 where they are not."""
        return max((answer.best.range_of for answer in self.answers), default=0)

    @property
    def no_level(self) -> bool:
        """Return whether differences are of binary outcomes, of which nothing measures how far they may be off."""
        return any(answer.best.no_level for answer in self.answers)

    @property
    def objective_kind(self) -> str:
        """Return what the limits of objectives are, or why there are none."""
        if self.range_of and self.question.objective.single is None:
            return RANGE
        return TOO_FEW if self._lacks_subjects else self.interval_kind

    @property
    def difference_kind(self) -> str:
        """Return the same of differences from the reference plan."""
        if self.range_of:
            return RANGE
        if self.no_level:
            return NO_LEVEL
        apart_M2 = [answer.best.apart_M2 for answer in self.answers]
        if self.calibration is None or any(np.isfinite(limits_M2).any() for limits_M2 in apart_M2):
            return self.interval_kind
        return TOO_FEW if self._lacks_subjects else BLACK_BOX

    @property
    def why_no_intervals(self) -> str | None:
        """Return why no plan has an interval of its objective; None where one has."""
        if not self.answers or any(np.isfinite(answer.best.limits_M2).all(axis=1).any() for answer in self.answers):
            return None
        if self.calibration is None:
            return self.interval_kind.removeprefix("none (").removesuffix(")")
        if not self._lacks_subjects:
            return "the model has limits of single steps alone, and the objective reads several"
        few = f"{counted(self.calibration.subjects, 'calibration subject')} are too few"
        return f"{few} for a {100 * self.question.level:g} % interval at the steps that the objective reads"

    @property
    def _lacks_subjects(self) -> bool:
        """Return whether too few subjects calibrated the model for bands of any plan at all steps that are read."""
        if self.calibration is None or not self.answers:
            return False
        steps, outcomes = np.array(self.question.objective.concerns).T
        for answer in self.answers:
            bands = self.calibration.bands(answer.best.estimates, (self.question.level,), clip=False)
            if np.isfinite(bands.upper_LQHY[0][:, steps, outcomes]).all(axis=1).any():
                return False
        return True

    def rows(self, answer: SubjectAnswer, shown: int = SHOWN) -> list[Row]:
        """Return a row per plan, the best first, then the reference plan, whose rank is missing."""
        best = answer.best
        places = [*range(min(best.found, shown)), len(best.estimate_M) - 1]
        return [
            {
                "rank": i + 1 if i < best.found else None,
                "plan": in_words(self.schema, best.values_MHA[i], answer.origin),
                "objective": _number(best.estimate_M[i]),
                "lower": _number(best.limits_M2[i, 0]),
                "upper": _number(best.limits_M2[i, 1]),
                "difference": _number(best.difference_M[i]),
                "difference_lower": _number(best.apart_M2[i, 0]),
                "difference_upper": _number(best.apart_M2[i, 1]),
                "probability_best": _number(best.probability_P[i]) if i < best.found else None,
                "support": SUPPORT_LEVELS[best.rating_M[i]] if best.rating_M[i] >= 0 else None,
                **({} if best.survival_M is None else {"survival": _number(best.survival_M[i])}),
            }
            for i in places
        ]

    def columns(self, answers: Sequence[SubjectAnswer]) -> dict[str, object]:
        """Return the columns of a tidy table of some subjects' plans."""
        rows = [
            {
                "subject": answer.name,
                "domain": None if answer.part is None else answer.part.domain,
                "split": None if answer.part is None else answer.part.split,
                "origin": answer.origin,
                **({"date": answer.date} if answers[0].date else {}),
                **row,
                "level": self.question.level if row["lower"] is not None and self.objective_kind != RANGE else None,
                "interval_kind": self.objective_kind,
                "difference_interval_kind": self.difference_kind,
                "margin": _number(answer.best.margin[0]),
                "expected_regret": _number(answer.best.regret),
                "alike": answer.best.alike,
                "considered": answer.best.considered,
                "left_out": answer.best.left_out,
                "reason": answer.best.why,
            }
            for answer in answers
            for row in self.rows(answer)
        ]
        numbers = ("objective", "lower", "upper", "difference", "difference_lower", "difference_upper",
                   "probability_best", "level", "margin", "expected_regret")  # fmt: skip
        columns: dict[str, object] = {name: [row[name] for row in rows] for name in rows[0]}
        rank = [row["rank"] or 0 for row in rows]
        columns["rank"] = np.ma.masked_equal(np.array(rank, dtype=np.int64), 0)  # of chunks without any, too
        columns |= {name: np.array(columns[name], dtype=object) for name in ("support", "reason")}
        keys = self.schema.keys_of([str(row["subject"]) for row in rows], columns)
        columns = {"subject": columns.pop("subject"), **keys, **columns}
        return columns | {name: np.array([row[name] for row in rows], dtype=np.float64) for name in numbers}

    def to_frame(self, frame: FrameName = "pandas") -> "Frame":
        """Return a row per subject and plan as a frame: `columns`, with the part that a subject is in."""
        columns = {name: v for name, v in self.columns(self.answers).items() if name not in ("domain", "split")}
        subjects = columns.pop("subject")
        part_of = {answer.name: str(answer.part) for answer in self.answers}
        assert isinstance(subjects, list)  # noqa: S101 - as they are written
        return make_frame({"subject": subjects, "part": [part_of[name] for name in subjects], **columns}, frame)

    def plan_columns(self, answers: Sequence[SubjectAnswer]) -> dict[str, object]:
        """Return the columns of a table with the best plan of each subject, which `whatif --plan` reads."""
        steps = [
            {"subject": str(answer.name), "plan": "best", "step": h + 1, **given}
            for answer in answers
            if answer.best.found
            for h, given in enumerate(steps_by_name(self.schema.treatments, answer.best.values_MHA[0]))
        ]
        names = ("subject", "plan", "step", *self.schema.treatments.all_names)
        return {name: [step[name] for step in steps] for name in names}

    def plan_document(self) -> bytes:
        """Return the best plan of a single subject as a plan file."""
        answer = self.answers[0]
        plans = {"best": steps_by_name(self.schema.treatments, answer.best.values_MHA[0])} if answer.best.found else {}
        return (json.dumps({"origin": answer.origin, "plans": plans}, indent=2) + "\n").encode()

    def to_json(self) -> dict[str, object]:
        """Return the whole report as plain JSON data without NaN."""
        question, subjects = self.question, list[dict[str, object]]()
        for answer in self.answers:
            best = answer.best
            places = [*range(min(best.found, SHOWN)), len(best.estimate_M) - 1]
            plans = [
                {**row, "given": steps_by_name(self.schema.treatments, best.values_MHA[i])}
                for i, row in zip(places, self.rows(answer), strict=True)
            ]
            subjects.append(
                {
                    "subject": str(answer.name),
                    "domain": None if answer.part is None else answer.part.domain,
                    "split": None if answer.part is None else answer.part.split,
                    "origin": answer.origin,
                    **({"date": answer.date} if answer.date else {}),
                    "considered": best.considered,
                    "left_out": best.left_out,
                    "reason": best.why,
                    "alike": best.alike,
                    "margin": _number(best.margin[0]),
                    "margin_sd": _number(best.margin[1]),
                    "expected_regret": _number(best.regret),
                    "plans": plans[:-1],
                    "reference": plans[-1],
                }
            )
        return {
            "dataset": self.dataset,
            "model": {
                "label": self.label,
                "method": self.method,
                "interval_kind": self.objective_kind,
                "difference_interval_kind": self.difference_kind,
            },
            "objective": question.objective.text,
            "unit": question.objective.unit,
            "by": question.by,
            "level": question.level,
            "steps": question.candidates.steps,
            "exhaustive": question.candidates.exhaustive,
            "possible_plans": question.candidates.possible,
            "reference": self.reference,
            "subjects": subjects,
            "notes": list(self.notes),
            "warnings": list(self.warnings),
        }


def with_notes(report: SearchReport) -> SearchReport:
    """Return the report with notes on its answers, in the place of those that it has."""
    return replace(report, diagnostics=(*(d for d in report.diagnostics if d.severity != "note"), *notes_on(report)))


def notes_on(report: SearchReport) -> Iterator[Diagnostic]:
    """Say how much was looked at, what was left out, and how sure the answer is."""
    question, candidates = report.question, report.question.candidates
    possible, steps = candidates.possible, candidates.steps
    if candidates.plans_PH is None:
        yield Diagnostic.of("search-beam", possible=possible, steps=steps, width=candidates.width)
    elif (considered := len(candidates.plans_PH)) == possible:
        yield Diagnostic.of("search-all", possible=possible, steps=steps)
    else:
        yield Diagnostic.of("search-constrained", considered=considered, steps=steps, possible=possible)
    if candidates.constraints.only is None and (doses := report.schema.treatments.doses):
        chosen = (np.unique(candidates.values_KA[:, i - len(doses)]).tolist() for i in range(len(doses)))
        words = (f"{dose.name} {', '.join(map(dose.text, some))}" for dose, some in zip(doses, chosen, strict=True))
        others = " (others: --levels)" if any(dose.elapsed is None for dose in doses) else ""
        yield Diagnostic.of("search-doses", doses="; ".join(words), others=others)
    if not question.unsupported:
        if any(left := [answer.best.left_out for answer in report.answers]):
            who, are = counted(sum(1 for count in left if count), "subject"), "is" if left == [1] else "are"
            plans = counted(left[0], "plan") if len(left) == 1 else f"plans of {who}"
            yield Diagnostic.of("search-left-out", plans=plans, are=are)
        # the best plan is red for its course alone where no other red plan is compared
        if red := sum(1 for answer in report.answers if answer.best.found and answer.best.rating_M[0] == RED):
            whose = "the best plan is" if len(report.answers) == 1 else f"of {red:,} subjects the best plan is"
            yield Diagnostic.of("search-rare-course", whose=whose)
    if any((answer.best.rating_M < 0).any() for answer in report.answers):
        yield Diagnostic.of("support-unknown", f"`{report.label}`")
    yield from _on_limits(report)
    if not question.objective.linear:
        yield Diagnostic.of("search-nonlinear")
    if any(answer.best.survival_M is not None for answer in report.answers):
        yield Diagnostic.of("search-survival")
    yield from report.on_outcomes


def _on_limits(report: SearchReport) -> Iterator[Diagnostic]:
    """Say how sure the answer is: chances from members alone, which limits have no level, and why there are none."""
    label = report.label
    if report.members is not None:
        yield Diagnostic.of("search-chances", label, members=report.members)
    if report.range_of:
        of = "differences" if report.question.objective.single else "objectives and differences"
        yield Diagnostic.of("search-range", label, of=of, members=report.range_of)
    if report.no_level:
        yield Diagnostic.of("search-binary", label)
    elif report.difference_kind == CALIBRATED:
        yield Diagnostic.of("differences-by-law", label)
    if why := report.why_no_intervals:
        yield Diagnostic.of("search-no-intervals", why=why)


def _number(value: float | np.floating) -> float | None:
    return float(value) if math.isfinite(value) else None
