"""The schema of a table's times: how far steps are apart, and how dates become steps."""

import re
from dataclasses import dataclass, replace
from typing import Final, Literal, Self
from zoneinfo import available_timezones

import numpy as np
from pydantic import Field, model_validator

from costar_cli.data.calendar import FORMS, Date, period_pattern
from costar_cli.data.table.schema_column import Line, Section


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
        "were as long; `elapsed`: each row is the next step, and models are told how long it is until then",
    )
    stop: Line | None = Field(
        None,
        description="Column with the end of each row's interval, of which the column of role `time` is the start: the "
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
            problems.append(f"`format = {self.format!r}`: a quarter `%q` stands with its year `%Y` alone")
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
            problems.append("`bin` makes one row of several, of which `stop` says that each is an interval: choose one")
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
