"""The schema of one column of a table: what it means, and which keys its role takes."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Final, Literal, Self
from zoneinfo import available_timezones

import numpy as np
from pydantic import ConfigDict, Field, StringConstraints, model_validator

from costar_cli.config.models import Config
from costar_cli.data.calendar import FORMS, Date, period_pattern
from costar_cli.data.dose import Basis
from costar_cli.data.levels import Scalar, are_doses, label_of
from costar_cli.data.schema import Transform

Role = Literal[
    "subject", "time", "covariate", "treatment", "outcome", "static", "domain", "split", "cluster", "event", "censored"
]
Kind = Literal["continuous", "count", "binary", "ordinal", "categorical"]
Line = Annotated[str, StringConstraints(pattern=r"^\S(.*\S)?$", max_length=200)]
Aggregate = Literal["any", "count", "sum", "mean", "first", "last", "max", "min"]
OF_STEPS: Final[tuple[Role, ...]] = ("covariate", "treatment", "outcome")
ENDS: Final[tuple[Role, ...]] = ("event", "censored")

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
    "outcome": ("kind", "unit", "missing", "indicator", "standardize", "transform", *_NUMBER),
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
        "mean, first, last, max or min of their values; by default `any` of treatments, `sum` of doses and `last` of "
        "others. What the rows of a step become (see `bin`): likewise, by default `max` of treatments, in the order of "
        "`levels`, `sum` of continuous doses and `first` of others",
    )
    factor: float = Field(1.0, description="Factor that brings the file's numbers to `unit`")
    offset: float = Field(0.0, description="What is added after that")
    shift: int = Field(
        0,
        ge=-1,
        le=1_000,
        description="Steps by which a row's value counts later. `-1`: a treatment is in the row of the measurement "
        "that followed it; `1`: a covariate of the step before",
    )
    transform: Transform | None = Field(
        None,
        description="What models see of a covariate, static or outcome: its logarithm, that of 1 + value, or the "
        "difference from the step before; of outcomes it is undone in all answers",
    )
    missing: Literal["error", "fill", "carry"] | None = Field(
        None,
        description="How a missing value is treated. `error`: it is refused; `fill`: the subject's "
        "last value, then source-train's mean, with a 0/1 column `NAME_observed`; of a treatment, its reference level "
        "or dose 0: not given. `carry`, of a treatment: the subject's last level or dose goes on; before the first "
        "one, none is given. Covariates and statics: the table's `missing`; outcomes and treatments: `error`",
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
            article = "an" if self.role in ("outcome", "event") else "a"
            problems.append(f"{', '.join(f'`{key}`' for key in wrong)}: {article} {self.role} column takes {takes}")
        if self.role == "outcome" and "shift" in wrong:
            problems.append(
                "the lag of an outcome is known before it is predicted: make it a covariate beside the outcome, with "
                "its `column` and `shift = 1`"
            )
        of_others = '`missing = "carry"` belongs to a treatment: `fill` carries the last value of others'
        problems += [of_others] * (self.missing == "carry" and self.role != "treatment")
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
            if len(set(labels)) < len(labels) or not all(
                label.strip() == label != "" and "\n" not in label for label in labels
            ):
                problems.append(f"`{key}` are names of one line without space around them, each once")
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @property
    def aggregated(self) -> Aggregate:
        """Return what the events of a step become."""
        of_treatments: Aggregate = "sum" if self.is_dose else "any"
        return self.aggregate or (of_treatments if self.role == "treatment" else "last")

    @property
    def binned(self) -> Aggregate:
        """Return what the rows of a step become: what is measured is that before anything is given."""
        of_treatments: Aggregate = "sum" if self.kind == "continuous" else "max"
        # The first measurement: a mean or the last is measured after some of what the same step gave, so that to a
        # model a treatment would act on the past.
        return self.aggregate or (of_treatments if self.role == "treatment" else "first")

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


@dataclass(frozen=True, slots=True)
class Step:
    """How far two neighbouring rows of a subject are apart: `size` numbers, microseconds or months."""

    scale: Literal["number", "us", "month"]
    size: float
    word: str


MONTHS: Final = 12
DAY: Final = 86_400 * 10**6  # microseconds
MONDAY: Final = 4 * DAY  # 1970-01-05: steps of days and weeks that are cut out of time begin with it
CalendarName = Literal["weekday", "month", "hour"]
_DURATION = re.compile(r"([1-9]\d{0,4})\s*(s|min|h|d|w|mo|y)")
UNITS: Final[dict[str, tuple[Literal["us", "month"], int, str]]] = {
    "s": ("us", 10**6, "second"),
    "min": ("us", 60 * 10**6, "minute"),
    "h": ("us", 3_600 * 10**6, "hour"),
    "d": ("us", DAY, "day"),
    "w": ("us", 7 * DAY, "week"),
    "mo": ("month", 1, "month"),
    "y": ("month", MONTHS, "year"),
}
PERIODS: Final = {"%V": ("us", 7 * DAY), "%q": ("month", 3), "%m": ("month", 1), "%Y": ("month", MONTHS)}
YEARS: Final = ("year", "years")
STEP_WORDS: Final = {word: short for short, (_, _, word) in UNITS.items()}


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
    count, (scale, size, word) = int(found[1]), UNITS[found[2]]
    return Step(scale, count * size, word if count == 1 else f"{count} {word}s")


class TimeSchema(Section):
    """How times become steps."""

    step: int | float | str = Field(
        1, description="One step: a number for times that are numbers, or `1h`, `2d` (s, min, h, d, w, mo, y) for dates"
    )
    unit: str = Field("", max_length=60, description="Name of a step in results; by default that of the unit in `step`")
    format: str = Field(
        "",
        max_length=60,
        description="How dates or periods are written, for example `%d.%m.%Y`, `%Y%m`, `%YQ%q` (quarters), `%G-W%V` "
        "(weeks); ISO by default",
    )
    gaps: Literal["error", "fill", "ignore", "elapsed"] = Field(
        "error",
        description="`fill`: steps without a row are missing values; `ignore`: each row is the next step, as if all "
        "were as long; `elapsed`: each row is the next step, and models see how long it is until then",
    )
    stop: Line | None = Field(
        None,
        description="Column with the end of each row's interval, which starts at the column of role `time`: the "
        "row's treatment was given in it, and an event that the row marks came at its end",
    )
    closed: bool | None = Field(
        None,
        description="Whether an interval includes its `stop`, as one from 2024-01-01 to 2024-01-31 does; by default "
        "where intervals end a day, period or unit before the subject's next one begins",
    )
    bin: bool = Field(
        False,
        description="Rows in the same step become one row, as the `aggregate` of each column says, with a warning; "
        "days then begin at midnight, weeks on Monday",
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
        if "%q" in self.format and period_pattern(self.format) is None:
            problems.append(f"`format = {self.format!r}`: a quarter `%q` needs its year `%Y`")
        months = step.scale == "month"
        days = self.by_day
        if self.zone and days:
            problems.append("`zone` belongs to times of day: days and longer steps are the same in every zone")
        elif self.zone and available_timezones() and self.zone not in available_timezones():
            problems.append(f"`zone = {self.zone!r}` is not a time zone such as `Europe/Berlin`")
        if self.bin and self.by_row:
            problems.append(f'`bin` makes steps of one length, and `gaps = "{self.gaps}"` has none: choose one of them')
        if self.closed is not None and not self.stop:
            problems.append("`closed` says what `stop` is: give that, too")
        if self.bin and self.stop:
            problems.append("`bin` makes one row of several, and `stop` says that each is an interval: choose one")
        if self.gaps == "elapsed" and months:
            problems.append('`gaps = "elapsed"` needs steps of one length: give `step` in days, for example `30d`')
        without = {"hour": days, "weekday": months, "month": False}
        if unknown := [name for name in self.calendar if without[name]]:
            problems.append(f"`calendar`: steps of `{self.step}` have no {' and no '.join(unknown)}")
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def moment(self, written: float | str) -> float:
        """Return a moment as the times of rows are kept: numbers, microseconds since 1970, or months since year 0.

        Raises:
            ValueError: it is a date where times are numbers, or no date where they are dates.
        """
        scale, date = self.parsed.scale, Date.parse(written, self.format)
        if scale == "number" and not isinstance(written, str):
            return written
        if scale == "number" or date is None:
            asked = "a number" if scale == "number" else "a date such as 2024-03-01"
            raise ValueError(f"{written!r} is not {asked}, as the times of the table are")
        if scale == "month":
            return int(date.begin.astype("M8[M]").astype(np.int64)) + 1970 * MONTHS
        return int(date.begin.astype(np.int64))

    @property
    def form(self) -> str:
        """Return how answers write the periods that times are in, empty where they are dates or numbers.

        That is as the table has them where plans can name them so, and else in a form of the same kind.
        """
        step, years = self.parsed, self.parsed.scale == "number" and self.unit in YEARS
        written = "%Y" if years and self.parsed.size.is_integer() else self.format
        kind = next((part for part in ("%V", "%q", "%m", "%Y") if part in written), "")
        if period_pattern(written) is None or not kind:
            return ""
        unit, shortest = PERIODS[kind]
        if not years and not (step.scale == unit and (self.by_row or step.size % shortest == 0)):
            return ""
        return written if written in FORMS else {"%V": "%G-W%V", "%q": "%YQ%q", "%m": "", "%Y": "%Y"}[kind]

    @property
    def first_step(self) -> int:
        """Return a time at which a step begins, where these are not counted from a subject's first row."""
        return MONDAY if self.parsed.scale == "us" else 0

    @property
    def by_day(self) -> bool:
        """Return whether steps are days or longer, which are the same in every zone."""
        step = self.parsed
        return step.scale == "month" or (step.scale == "us" and step.size % DAY == 0)

    @property
    def by_row(self) -> bool:
        """Return whether each row is the next step, whenever it was."""
        return self.gaps in ("ignore", "elapsed")

    @property
    def parsed(self) -> Step:
        """Return the step in numbers, with what results call it."""
        step = parse_step(self.step)
        return replace(step, word=self.unit) if self.unit else step
