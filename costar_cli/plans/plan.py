"""What is asked: plans of treatment by name, in words, and the moments from which they begin; `Q` counts moments."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby
from typing import Any, ClassVar, Final, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from costar_cli.data import Panel, PanelSchema, Queries, TreatmentEncoding, Values, as_plans
from costar_cli.data.calendar import Date
from costar_cli.data.schema import step_word
from costar_cli.errors import UsageError
from costar_cli.plans.rule import Course, Options, Rule
from costar_cli.plans.untrusted import shown

MOST_PAIRS: Final = 1_000_000  # of a subject and a plan, in one request


@dataclass(frozen=True, eq=False, slots=True)
class TreatmentPlan:
    """A named sequence of treatments: `values [steps, names]` as in `TreatmentEncoding`, levels and doses."""

    name: str
    values: Values

    reads_natural: ClassVar[bool] = False
    has_chance: ClassVar[bool] = False
    window: ClassVar[int] = 1

    def __len__(self) -> int:
        return int(self.values.shape[0])

    def options(self, step: int, course: Course) -> Options:
        """Return the treatments of a step, from 0, as the one option `[1,M,names]` of M courses."""
        n = len(course.usual_MA)
        return np.ones((1, n)), np.tile(self.values[step], (1, n, 1))


AnyPlan = TreatmentPlan | Rule


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What a file of plans asks: one or several plans, and the origin unless the subject's last step is meant.

    `by_subject` has the plans of each subject by its name, where a table gives each its own; there are no `plans` then.
    """

    plans: tuple[AnyPlan, ...]
    origin: int | Date | None = None
    by_subject: Mapping[str, tuple[TreatmentPlan, ...]] = field(default_factory=dict)

    @property
    def horizon(self) -> int:
        """Return the number of steps of the longest plan."""
        return max(len(plan) for plan in chain(self.plans, *self.by_subject.values()))

    @property
    def fixed(self) -> tuple[TreatmentPlan, ...]:
        """Return the plans, none of which is a rule or a shift.

        Raises:
            UsageError: one is.
        """
        rules = [plan.name for plan in self.plans if not isinstance(plan, TreatmentPlan)]
        if rules:
            fix = "write its steps, or ask about one subject"
            raise UsageError(
                f"plan {rules[0]!r} depends on the subject: it is not answered here", where="--plan", fix=fix
            )
        return tuple(plan for plan in self.plans if isinstance(plan, TreatmentPlan))

    def of(self, subject: str) -> "PlanRequest":
        """Return what is asked about one subject.

        Raises:
            UsageError: the table of plans has none for it.
        """
        if not self.by_subject:
            return self
        if subject not in self.by_subject:
            fix = "add rows for it, or leave the column `subject` out: then the plans are everybody's"
            raise UsageError(f"the table of plans has none for subject {subject}", where="--plan", fix=fix)
        return PlanRequest(self.by_subject[subject], self.origin)


def in_words(schema: PanelSchema, values: ArrayLike, origin: int) -> str:
    """Return what a plan `[steps,names]` gives and when: `day 30-31 chemotherapy, then none`.

    The levels of a single treatment that is never just off or on stand behind its name: `dose: day 30-31 2, then 0`.
    """
    given, names = [schema.treatments.describe(row) for row in np.asarray(values)], schema.treatments.all_names
    named = len(names) == 1 and all(what.startswith(f"{names[0]}=") for what in given)
    given = [what.removeprefix(f"{names[0]}=") for what in given] if named else given
    course = spans(given, origin)
    if len(course) > 1:
        course[-1] = f"then {given[-1]}"
    return f"{f'{names[0]}: ' if named else ''}{step_word(schema.step)} {', '.join(course)}"


def spans(steps: Sequence[str], origin: int) -> list[str]:
    """Return what each run of equal steps is, and when: `30-31 chemotherapy`, `32 none`."""
    told, step = [], origin
    for what, run in groupby(steps):
        count = len(list(run))
        told.append(f"{step if count == 1 else f'{step}-{step + count - 1}'} {what}")
        step += count
    return told


def steps_by_name(encoding: TreatmentEncoding, values: ArrayLike) -> list[dict[str, str]]:
    """Return the treatments `[steps,names]` of a plan by name, with the names of their levels, or as numbers."""
    n, told = len(encoding.names), []
    for row in np.asarray(values).tolist():
        step = {name: of[int(value)] for name, of, value in zip(encoding.names, encoding.levels, row[:n], strict=True)}
        told.append(step | {dose.name: f"{value:.6g}" for dose, value in zip(encoding.doses, row[n:], strict=True)})
    return told


Ints = NDArray[np.int64]
Origin = int | Date | Literal["last", "all"]

FURTHEST: Final = 2**31  # beyond the end of any series
NO_DATES: Final = "the data set keeps no dates: its steps are numbered"
KEEPS_DATES: Final = "tables whose times are dates keep them (ingest an older file's table again)"


@dataclass(frozen=True, eq=False, slots=True)
class IndexTimes:
    """Subjects at their origins: `subject_Q` are rows of the panel, `origin_Q` the last known steps."""

    panel: Panel
    subject_Q: NDArray[np.integer]
    origin_Q: NDArray[np.integer]

    def __len__(self) -> int:
        return len(self.subject_Q)

    @classmethod
    def of(cls, panel: Panel, origin: Origin, *, where: str = "--origin") -> Self:
        """Return all subjects of a panel at an origin, which may be outside their series; of `all`, every step.

        Raises:
            UsageError: the origin is a date, and the panel has none.
        """
        if origin == "all":
            return cls(panel, *np.nonzero(panel.observed))
        every_N, last_N = np.arange(panel.n_subjects), panel.length - 1
        if (date := date_of(panel, origin)) is not None:
            if panel.calendar is None:
                raise UsageError(f"the origin {date} is a date, and {NO_DATES}", where=where, fix=KEEPS_DATES)
            return cls(panel, every_N, panel.calendar.find(date, panel.length))
        assert not isinstance(origin, Date)  # noqa: S101 - it would be the date
        if origin == "last":
            return cls(panel, every_N, last_N)
        step = max(-FURTHEST, min(origin, FURTHEST))
        return cls(panel, every_N, last_N + step if step < 0 else np.full_like(last_N, step))

    @property
    def outside_Q(self) -> NDArray[np.bool_]:
        """Return which origins are outside the series of their subject."""
        outside: NDArray[np.bool_] = (self.origin_Q < 0) | (self.origin_Q >= self.panel.length[self.subject_Q])
        return outside

    @property
    def step(self) -> int | None:
        """Return the origin, None where it differs between subjects."""
        return int(self.origin_Q[0]) if len(self) and (self.origin_Q == self.origin_Q[0]).all() else None

    def columns(self, schema: PanelSchema) -> dict[str, NDArray[np.float64]]:
        """Return what is known at the origins `[Q]` by name: covariates, statics and outcomes."""
        panel, at = self.panel, (self.subject_Q, self.origin_Q)
        known: dict[str, NDArray[np.float64]] = {}
        for variables, values in (
            (schema.covariates, panel.covariates[at]),
            (schema.statics, panel.statics[self.subject_Q]),
            (schema.outcomes, panel.outcomes[at]),
        ):
            known |= {v.name: values[:, i].astype(np.float64) for i, v in enumerate(variables)}
        return known

    def before(self, encoding: TreatmentEncoding, steps: int) -> Values:
        """Return the levels `[Q,T,names]` at so many steps before the origins, none before a series begins."""
        at_QT = self.origin_Q[:, None] + np.arange(-steps, 0)
        given = encoding.decode(self.panel.treatments[self.subject_Q[:, None], np.maximum(at_QT, 0)])
        return np.where(at_QT[..., None] >= 0, given, 0)

    def take(self, at: Any) -> Self:  # noqa: ANN401 - whatever selects moments
        """Return some of the moments, of the same panel."""
        return replace(self, subject_Q=self.subject_Q[at], origin_Q=self.origin_Q[at])

    def queries(self, plan_QHA: NDArray[np.number]) -> Queries:
        """Return a question about each moment, under its encoded plan."""
        return Queries(self.subject_Q.astype(np.int32), self.origin_Q.astype(np.int16), as_plans(plan_QHA))

    def series_of(self, moment: int) -> str:
        """Return the first and the last date of a moment's subject, or its last step, for messages."""
        row = int(self.subject_Q[moment])
        last = int(self.panel.length[row]) - 1
        dates = self.panel.dates(np.array([row, row]), np.array([0, last]))
        return f"last step {last}" if dates is None else f"{dates[0]} to {dates[1]}"

    def steps_to(self, date: Date, *, end: bool = False) -> Ints:
        """Return how many steps after each origin a date is, or its `end`.

        Raises:
            ValueError: that is not known.
        """
        calendar = self.panel.calendar
        if calendar is None:
            raise ValueError(NO_DATES)
        if calendar.size is None:
            raise ValueError("each row of the table is a step, whatever its time: dates of later steps are not known")
        begin_N, end_N = (calendar.step_of(moment) for moment in (date.begin, date.last))
        if not end and (begin_N != end_N).any():
            raise ValueError("it has several steps: name the time of one")
        steps: Ints = (end_N if end else begin_N)[self.subject_Q] - self.origin_Q
        return steps


def date_of(panel: Panel, said: object) -> Date | None:
    """Return the date that something says of a panel, where numbers may be periods, as its data write them: 2015."""
    return said if isinstance(said, Date) else Date.parse(said, panel.calendar.form if panel.calendar else "")


def step_of(panel: Panel, origin: Origin, *, where: str = "--origin") -> int:
    """Return the step that an origin is in the series of a panel's first subject; it may be beyond the last one.

    Raises:
        UsageError: every step, a date that is outside the series or where there are none, or further back than it goes.
    """
    if origin == "all":
        fix = "give `last`, a step, -K for K steps before the last, or a date, or ask about a cohort"
        raise UsageError("one subject is asked about from one origin", where=where, fix=fix)
    if isinstance(origin, int) and origin >= 0 and date_of(panel, origin) is None:
        return origin
    moments = IndexTimes.of(panel, origin, where=where)
    if moments.outside_Q[0]:
        problem = f"origin {origin} is outside the series of subject {panel.names[0]}: {moments.series_of(0)}"
        fix = "choose a date in it" if date_of(panel, origin) else f"go back {panel.length[0] - 1} steps at most"
        raise UsageError(problem, where=where, fix=f"{fix}, or `last`")
    return int(moments.origin_Q[0])


Begin = Callable[[Origin], IndexTimes]
"""From an origin to the moments at which plans begin."""


def parse_origin(text: str | int, *, where: str = "--origin", single: bool = False) -> Origin:
    """Return the origin that a text means: `last`, `all`, a step, -K for K steps before the last, or a date.

    Raises:
        UsageError: it means none, or all where a `single` one of each subject is needed.
    """
    word = str(text).strip()
    if word == "all" and single:
        fix = "give `last`, a step, -K for K steps before the last, or a date"
        raise UsageError("a plan is searched from one origin of each subject", where=where, fix=fix)
    if word in ("last", "all"):
        return word  # type: ignore[return-value]
    if re.fullmatch(r"-?\d{1,9}", word):
        return int(word)
    if date := Date.parse(word):
        return date
    fix = "give `last`, `all`, a step counted from 0, -K for K steps before the last, or a date such as 2024-03-01"
    raise UsageError(f"{shown(word)} is no origin", where=where, fix=fix)
