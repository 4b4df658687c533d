"""The schema of somebody's own table: what each column means, and how a data set is made of the rows."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date
from typing import Annotated, Final, Literal, Self
from zoneinfo import available_timezones

import numpy as np
from pydantic import BeforeValidator, ConfigDict, Field, StringConstraints, model_validator

from costar_cli.config.models import Config
from costar_cli.datasets.registry import RESERVED_NAMES
from costar_cli.panel.calendar import Date
from costar_cli.panel.dose import Basis
from costar_cli.panel.expression import Condition, parse_condition
from costar_cli.panel.levels import Scalar, are_doses, label_of
from costar_cli.panel.visits import AFTER, AT


@dataclass(frozen=True, slots=True)
class Step:
    """How far two neighbouring rows of a subject are apart: `size` numbers, microseconds or months."""

    scale: Literal["number", "us", "month"]
    size: float
    word: str


MONTHS: Final = 12
DAY: Final = 86_400 * 10**6
CalendarName = Literal["weekday", "month", "hour"]
_DURATION = re.compile(r"([1-9]\d{0,4})\s*(s|min|h|d|w|mo|y)")
_UNITS: Final[dict[str, tuple[Literal["us", "month"], int, str]]] = {
    "s": ("us", 10**6, "second"),
    "min": ("us", 60 * 10**6, "minute"),
    "h": ("us", 3_600 * 10**6, "hour"),
    "d": ("us", 86_400 * 10**6, "day"),
    "w": ("us", 7 * 86_400 * 10**6, "week"),
    "mo": ("month", 1, "month"),
    "y": ("month", 12, "year"),
}
STEP_WORDS: Final = {word: short for short, (_, _, word) in _UNITS.items()}


def parse_step(step: float | str) -> Step:
    """Return a step in numbers, called by its own word: `hour`, `2 days`, `step`.

    Raises:
        ValueError: it is neither a positive number nor a duration.
    """
    if not isinstance(step, str):
        if isinstance(step, bool) or not 0 < step < 2**53:
            raise ValueError("step must be above 0")
        return Step("number", float(step), "step")
    found = _DURATION.fullmatch(step)
    if not found:
        raise ValueError(f"step {step!r} is not a duration such as `1h`, `1d` or `1w`")
    count, (scale, size, word) = int(found[1]), _UNITS[found[2]]
    return Step(scale, count * size, word if count == 1 else f"{count} {word}s")


Role = Literal[
    "subject", "time", "covariate", "treatment", "outcome", "static", "domain", "split", "cluster", "event", "censored"
]
Kind = Literal["continuous", "count", "binary", "ordinal", "categorical"]
Line = Annotated[str, StringConstraints(pattern=r"^\S(.*\S)?$", max_length=200)]
Moment = Annotated[int | float | str, BeforeValidator(lambda value: str(value) if isinstance(value, date) else value)]
DatasetName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9 _.-]{0,63}$")]

Transform = Literal["log", "log1p", "difference"]
Aggregate = Literal["any", "count", "sum", "mean", "first", "last"]
OF_STEPS: Final[tuple[Role, ...]] = ("covariate", "treatment", "outcome")
ENDS: Final[tuple[Role, ...]] = ("event", "censored")
JOINT: Final = "/"  # between the parts of a subject's name

_NUMBER: Final = ("column", "factor", "offset", "aggregate")
_VARIABLE: Final = (
    "kind", "unit", "missing", "indicator", "standardize", "categories", "unseen", "transform", *_NUMBER
)  # fmt: skip
KEYS_OF_ROLE: Final[dict[str, tuple[str, ...]]] = {
    "subject": (),
    "time": (),
    "split": (),
    "cluster": (),
    "domain": ("source", "target"),
    "covariate": (*_VARIABLE, "shift"),
    "static": _VARIABLE,
    "outcome": ("kind", "unit", "missing", "indicator", "standardize", *_NUMBER),
    "treatment": (
        *("levels", "missing", "column", "shift", "aggregate"),
        *("kind", "unit", "basis", "range", "factor", "offset"),
    ),
    "event": ("categories", "column", "at"),
    "censored": ("column", "at"),
}


class Section(Config):
    """The base of every table of a schema: exact types, unknown keys are errors."""

    model_config = ConfigDict(strict=True)


class ColumnSchema(Section):
    """One column: `NAME = { role = "covariate", unit = "1/min" }`."""

    role: Role = Field(description="What the column is")
    kind: Kind | None = Field(
        None,
        description="Of covariates, statics, outcomes; `continuous` by default; `categorical` becomes 0/1 columns. A "
        "treatment that is `continuous` or `ordinal` is a dose, a number; without a kind it has named levels",
    )
    unit: str = Field("", max_length=60, description="Unit of a covariate, static, outcome or dose")
    basis: Basis = Field(
        "identity",
        description="How a dose acts: by its size, by its logarithm `log1p`, or along natural cubic `splines`",
    )
    range: list[float | int] | None = Field(
        None,
        min_length=2,
        max_length=2,
        description="Least and greatest dose that there may be; "
        "by default from 0 to ten times what is usual in source-train",
    )
    column: Line | None = Field(
        None, description="Column of the file from which it is read; by default the one of its own name"
    )
    aggregate: Aggregate | None = Field(
        None,
        description="What the events of a step become (see `events`): whether there was any, their number, or the sum, "
        "mean, first or last of their values; by default `any` of treatments, `sum` of doses and `last` of others",
    )
    factor: float = Field(1.0, description="Factor that brings the file's numbers to `unit`")
    offset: float = Field(0.0, description="What is added after that")
    shift: int = Field(
        0,
        ge=-1,
        le=1_000,
        description="Steps by which a row's value counts later. `-1`: a treatment stands in the row of the measurement "
        "that followed it; `1`: a covariate of the step before",
    )
    transform: Transform | None = Field(
        None,
        description="What models see of a covariate or static: its logarithm, that of 1 + value, or the difference "
        "from the step before",
    )
    missing: Literal["error", "fill"] | None = Field(
        None,
        description="How a missing value is treated. `error`: it is refused; `fill`: the subject's "
        "last value, then source-train's mean, with a 0/1 column `NAME_observed`; of a treatment, its reference level. "
        "Covariates and statics: the table's `missing`; "
        "outcomes and treatments: `error`",
    )
    indicator: bool = Field(True, description="Whether a filled column gets the 0/1 column `NAME_observed`")
    standardize: bool | None = Field(
        None, description="Whether models see (value - mean) / sd; by default all but binary columns"
    )
    categories: list[Scalar] | None = Field(
        None,
        min_length=1,
        description="Categories in order, or names of events; by default those of source-train, sorted",
    )
    unseen: Literal["error", "other"] = Field(
        "error",
        description="How a category that is not in `categories` is treated: refused, or given to a column `other`",
    )
    levels: list[Scalar] | None = Field(
        None, min_length=2, description="Levels of a treatment, the reference first, or doses; guessed by default"
    )
    at: Line | None = Field(
        None,
        description="Column with the time of an event or a loss of follow-up, blank where there was none; without it, "
        "marks stand in the rows at which it happens",
    )
    source: list[Scalar] | Scalar | None = Field(
        None, description="Values of a domain column that make a subject the source's; by default all others"
    )
    target: list[Scalar] | Scalar | None = Field(
        None, description="Values of a domain column that make a subject the target's"
    )

    @model_validator(mode="after")
    def _fits_its_role(self) -> Self:
        problems = []
        if wrong := sorted(self.model_fields_set - {"role", *KEYS_OF_ROLE[self.role]}):
            takes = ", ".join(f"`{key}`" for key in KEYS_OF_ROLE[self.role]) or "nothing else"
            problems.append(f"{', '.join(f'`{key}`' for key in wrong)}: a {self.role} column takes {takes}")
        if self.role == "outcome" and self.kind == "categorical":
            problems.append("an outcome is a number, not categorical")
        if self.role == "treatment":
            problems += self._dose_problems()
        categorical = {"categories"} if self.categories is not None else set()
        categorical |= {"unseen"} if self.unseen != "error" else set()
        if self.role in ("covariate", "static") and categorical and self.kind != "categorical":
            problems.append(f'`{min(categorical)}` belongs to `kind = "categorical"`')
        number = sorted({"factor", "offset", "transform"} & self.model_fields_set)
        if number and self.kind in ("binary", "categorical"):
            problems.append(f"`{number[0]}` belongs to numbers, not to `kind = {self.kind!r}`")
        if self.factor == 0 or not (math.isfinite(self.factor) and math.isfinite(self.offset)):
            problems.append("`factor` and `offset` are finite numbers, and `factor` is not 0")
        if self.role == "covariate" and self.shift < 0:
            problems.append("`shift` below 0 would make a covariate of what was not known yet")
        if self.role == "static" and self.transform == "difference":
            problems.append("a static has no step before, and so no difference")
        for key in ("levels", "categories"):
            labels = [label_of(value) for value in getattr(self, key) or ()]
            if len(set(labels)) < len(labels) or not all(label.strip() == label != "" for label in labels):
                problems.append(f"`{key}` are names without space around them, each once")
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @property
    def aggregated(self) -> Aggregate:
        """Return what the events of a step become."""
        of_treatments: Aggregate = "sum" if self.is_dose else "any"
        return self.aggregate or (of_treatments if self.role == "treatment" else "last")

    @property
    def is_dose(self) -> bool:
        """Return whether the column is a treatment that is a number."""
        return self.role == "treatment" and self.kind is not None

    def _dose_problems(self) -> Iterator[str]:
        if self.kind not in (None, "continuous", "ordinal"):
            yield "a treatment is `continuous` or `ordinal`, a dose, or has no kind but named levels"
        if self.kind is None and (
            alone := sorted(self.model_fields_set & {"basis", "range", "unit", "factor", "offset"})
        ):
            yield f'`{alone[0]}` belongs to a dose: `kind = "continuous"` or "ordinal"'
        if self.kind == "continuous" and self.levels is not None:
            yield '`levels` belong to named levels, or to `kind = "ordinal"`'
        if self.kind == "ordinal" and not are_doses(self.labels("levels") or ()):
            yield 'the `levels` of `kind = "ordinal"` are numbers'
        if self.range is not None and not self.range[0] < self.range[1]:
            yield "`range` is a least and a greater dose"

    def labels(self, key: Literal["levels", "categories"]) -> tuple[str, ...] | None:
        """Return the names that the column's values are compared with."""
        values = getattr(self, key)
        return None if values is None else tuple(label_of(value) for value in values)

    def domain_values(self, domain: Literal["source", "target"]) -> tuple[str, ...] | None:
        """Return the values of a domain column that stand for a domain, None where they are not given."""
        values = getattr(self, domain)
        if values is None:
            return None
        return tuple(label_of(value) for value in (values if isinstance(values, list) else [values]))


class TimeSchema(Section):
    """How times become steps."""

    step: int | float | str = Field(
        1, description="One step: a number for times that are numbers, or `1h`, `2d` (s, min, h, d, w, mo, y) for dates"
    )
    unit: str = Field("", max_length=60, description="Name of a step in results; by default that of the unit in `step`")
    format: str = Field("", max_length=60, description="How dates are written, for example `%d.%m.%Y`; ISO by default")
    gaps: Literal["error", "fill", "ignore", "elapsed"] = Field(
        "error",
        description="`fill`: steps without a row are missing values; `ignore`: each row is the next step, as if all "
        "were as long; `elapsed`: each row is the next step, and models are told how long it is until then",
    )
    zone: str = Field(
        "",
        max_length=60,
        description="Time zone of times of day without one, for example `Europe/Berlin`; none by default",
    )
    calendar: list[CalendarName] = Field(
        [], description="Covariates of each step's date: `weekday`, `month`, `hour`; none by default"
    )

    @model_validator(mode="after")
    def _readable(self) -> Self:
        step, problems = parse_step(self.step), []
        if step.scale == "number":
            used = [key for key in ("format", "zone", "calendar") if getattr(self, key)]
            problems += [f"`{key}` belongs to dates: give `step` as a duration such as `1d`" for key in used]
        day = step.scale == "us" and step.size % DAY == 0
        if self.zone and step.scale != "number" and (day or step.scale == "month"):
            problems.append("`zone` belongs to times of day: days and longer steps are the same in every zone")
        elif self.zone and available_timezones() and self.zone not in available_timezones():
            problems.append(f"`zone = {self.zone!r}` is not a time zone such as `Europe/Berlin`")
        if self.gaps == "elapsed" and step.scale == "month":
            problems.append('`gaps = "elapsed"` needs steps of one length: give `step` in days, for example `30d`')
        without = ({"hour"} if day or step.scale == "month" else set()) | (
            {"weekday"} if step.scale == "month" else set()
        )
        if unknown := [name for name in self.calendar if name in without]:
            problems.append(f"`calendar`: steps of `{self.step}` have no {' and no '.join(unknown)}")
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def moment(self, written: float | str) -> float:
        """Return a moment as the times of rows are kept: numbers, microseconds since 1970, or months since year 0.

        Raises:
            ValueError: it is a date where times are numbers, or no date where they are dates.
        """
        scale, date = self.parsed.scale, Date.parse(written)
        if scale == "number" and not isinstance(written, str):
            return written
        if scale == "number" or date is None:
            asked = "a number" if scale == "number" else "a date such as 2024-03-01"
            raise ValueError(f"{written!r} is not {asked}, as the times of the table are")
        if scale == "month":
            return int(date.begin.astype("M8[M]").astype(np.int64)) + 1970 * MONTHS
        return int(date.begin.astype(np.int64))

    @property
    def parsed(self) -> Step:
        """Return the step in numbers, with what results call it."""
        step = parse_step(self.step)
        return replace(step, word=self.unit) if self.unit else step


class DomainSchema(Section):
    """Which subjects belong to the source and which to the target, unless a column has the role `domain`."""

    source: str | None = Field(None, description="Condition of the source, for example `age < 65`; by default the rest")
    target: str | None = Field(None, description="Condition of the target, for example `age >= 85`")

    @model_validator(mode="after")
    def _understood(self) -> Self:
        for key in ("source", "target"):
            if (text := getattr(self, key)) is not None:
                try:
                    parse_condition(text)
                except ValueError as error:
                    raise ValueError(f"`{key} = {text!r}`: {error}") from None
        if self.source is not None and self.target is None:
            raise ValueError("`target` is missing: say who the target is")
        return self

    def condition(self, domain: Literal["source", "target"]) -> Condition | None:
        """Return a domain's condition, where there is one."""
        text = self.source if domain == "source" else self.target
        return None if text is None else parse_condition(text)


class Fractions(Section):
    """Shares of the subjects; they sum to 1."""

    train: float = Field(0.7, gt=0, lt=1, description="Share of the subjects to train on")
    val: float = Field(0.15, gt=0, lt=1, description="Share of the subjects to select on")
    test: float = Field(0.15, ge=0, lt=1, description="Share of the subjects to test on")

    @model_validator(mode="after")
    def _sum(self) -> Self:
        if abs(self.train + self.val + self.test - 1) > 1e-9:
            raise ValueError(f"train, val and test sum to {self.train + self.val + self.test:g}, not to 1")
        return self


class SplitSchema(Fractions):
    """How subjects are split, unless a column has the role `split`, or steps by their time (spec TABLE-12)."""

    by: Literal["subject", "time"] = Field(
        "subject",
        description="What is split: the subjects, or by `time` the steps of each: train before `val_from`, val from "
        "there on, test from `test_from` on, with all earlier steps as history",
    )
    val_from: Moment | None = Field(
        None, description="Where val begins in time, a date or number; by default after the share `train` of the rows"
    )
    test_from: Moment | None = Field(
        None, description="Where test begins in time; by default after the shares `train` and `val` of the rows"
    )

    seed: int = Field(0, ge=0, lt=2**63, description="Seed of the draw; `--seed` overrides it")
    target: Fractions | None = Field(None, description="Shares in the target domain")
    few_shot: int | float | None = Field(
        None,
        gt=0,
        description="Target training subjects to keep: a share below 1, or a number of subjects; all by default",
    )

    @model_validator(mode="after")
    def _whole(self) -> Self:
        few = self.few_shot
        if few is not None and (isinstance(few, bool) or (few >= 1 and not float(few).is_integer())):
            raise ValueError("`few_shot` is a share below 1, or a whole number of subjects")
        dates = [key for key in ("val_from", "test_from") if getattr(self, key) is not None]
        if self.by == "subject" and dates:
            raise ValueError(f'{" and ".join(f"`{key}`" for key in dates)}: give `by = "time"`, too')
        if self.by == "time" and self.target is not None:
            raise ValueError("`[split.target]`: by time, source and target are split at the same moments")
        return self


class TreatmentsSchema(Section):
    """How several treatments are combined."""

    mode: Literal["multilabel", "multiclass"] | None = Field(
        None,
        description="`multilabel`: one 0/1 number per treatment, when all are binary; `multiclass`: one class per "
        "combination; by default the first where it applies",
    )
    classes: list[list[Scalar]] | None = Field(
        None, min_length=2, description="Combinations of levels; by default those that occur in source-train"
    )


class QueriesSchema(Section):
    """The queries of the test parts, and the columns of a file of known queries."""

    rolling_origin: bool | None = Field(
        None,
        description="Whether every step of the test subjects is an origin whose observed "
        "continuation is predicted; by default unless `--queries` is given",
    )
    set: Line = Field("set", description="Column with the name of the query set, if there is one")
    query: Line = Field("query", description="Column that tells several queries of one subject and origin apart")
    origin: Line = Field("origin", description="Column of the time of the last known row")
    step: Line = Field(
        "step",
        description="Column of the step; the treatment of step 1 is given at the origin, "
        "and its outcome is one step later",
    )
    scored: Line = Field(
        "scored", description="Column of 0/1: whether the outcome is scored; by default wherever it is known"
    )


class EventsSchema(Section):
    """A table that is a log: a row per event, with its subject, time, code and value."""

    code: Line = Field(description="Column that says what happened; `column` of a variable is its code, or its name")
    value: Line | None = Field(None, description="Column of the events' values, where any are used")


class StaticsSchema(Section):
    """How the file of statics belongs to the table."""

    on: Line | None = Field(
        None, description="Column of both files by which `--statics` is joined, such as a store; by default the subject"
    )


class ErrorUnitSchema(Section):
    """The unit in which errors are reported: RMSE times `factor`."""

    factor: float = Field(1.0, gt=0, description="Factor by which the RMSE is multiplied")
    label: str = Field("", max_length=60, description="Name of the unit")
    space: Literal["original", "standardized"] = Field(
        "original", description="`standardized` divides each outcome by its sd in source-train"
    )


class TableSchema(Section):
    """The whole file."""

    name: DatasetName = Field(description=f"Name of the data set; not {', '.join(RESERVED_NAMES)}")
    horizon: int = Field(6, ge=1, le=1_000, description="Steps predicted from an origin")
    min_length: int = Field(2, ge=1, le=32_767, description="Subjects with fewer steps are left out")
    max_length: int | None = Field(None, ge=1, le=32_767, description="Later steps of a subject are left out")
    missing: Literal["error", "fill"] = Field(
        "error", description="How missing covariates and statics are treated, unless the column has its own `missing`"
    )
    blank: list[str] = Field(
        ["NA", "NaN", "null"],
        description="Texts that stand for a missing value, in upper or lower case; an empty cell always does",
    )
    constant: Literal["drop", "keep"] = Field(
        "drop", description="How covariates and statics that never change in source-train are treated"
    )
    subject: list[Line] | None = Field(
        None,
        min_length=2,
        description="Columns that say together whose row it is, in place of a column of role `subject`: their values, "
        f"joined by `{JOINT}`, are the subject's name",
    )
    columns: dict[Line, ColumnSchema] = Field(description="Each column that is used, by its name in the file")
    time: TimeSchema = Field(TimeSchema(), description="How times become steps")
    domain: DomainSchema = Field(
        DomainSchema(), description="Which subjects belong to the target, unless a column has the role `domain`"
    )
    split: SplitSchema = Field(
        SplitSchema(), description="How subjects are split, unless a column has the role `split`"
    )
    treatments: TreatmentsSchema = Field(TreatmentsSchema(), description="How several treatments are combined")
    queries: QueriesSchema = Field(QueriesSchema(), description="Queries of the test parts")
    events: EventsSchema | None = Field(None, description="Where the table is a log: a row per event")
    statics: StaticsSchema = Field(StaticsSchema(), description="How the file of statics is joined")
    error_unit: ErrorUnitSchema | None = Field(
        None, description="By default the outcome's unit; with several outcomes, standard deviations"
    )

    @model_validator(mode="after")
    def _visits(self) -> Self:
        taken = [name for name in self.named("treatment") if name in (AFTER, AT)]
        if self.time.gaps == "elapsed" and taken:
            said = f'`[columns.{taken[0]}]`: with `gaps = "elapsed"` plans say by `{taken[0]}` when a visit is'
            raise ValueError(f'{said}: call the treatment something else, with `column = "{taken[0]}"`')
        return self

    def named(self, *roles: Role) -> list[str]:
        """Return the columns of these roles, in the order of the schema; a subject of several columns is one."""
        joint = [JOINT.join(self.subject)] if self.subject and "subject" in roles else []
        return joint + [name for name, column in self.columns.items() if column.role in roles]

    def in_file(self, name: str) -> str:
        """Return what the file calls a column."""
        column = self.columns.get(name)
        return (column and (column.at or column.column)) or name

    @property
    def file_columns(self) -> set[str]:
        """Return all columns of files that are read."""
        log = self.events
        keys = {*(self.subject or ()), self.statics.on, *((log.code, log.value) if log else ())} - {None}
        plain = set(self.columns) - set(self.named(*OF_STEPS) if log else ())
        return {key for key in keys if key} | {self.in_file(name) for name in plain}

    @property
    def leveled(self) -> list[str]:
        """Return the treatments with named levels."""
        return [name for name in self.named("treatment") if not self.columns[name].is_dose]

    @property
    def doses(self) -> list[str]:
        """Return the treatments that are numbers."""
        return [name for name in self.named("treatment") if self.columns[name].is_dose]
