"""When the steps of subjects were, as the reader of tables understood their dates (spec PANEL-15).

Dates have no zone: they are as the table has them, and UTC where it tells a zone.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import lru_cache
from typing import Any, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Times = NDArray[np.datetime64]
Unit = Literal["us", "M"]
Precision = Literal["M", "D", "m", "s", "us"]

DATE: Final = re.compile(r"\d{4}-\d\d(-\d\d([ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?)?Z?)?")
LAST: Final[dict[Unit, int]] = {  # of the year 9999; dates before the year 1 are not known either
    unit: int(np.datetime64("9999-12-31").astype(f"M8[{unit}]").astype(np.int64)) for unit in ("us", "M")
}
FIRST: Final = {unit: int(np.datetime64("0001-01-01").astype(f"M8[{unit}]").astype(np.int64)) for unit in LAST}
UNITS: Final[tuple[tuple[int, Precision], ...]] = (
    (86_400_000_000, "D"), (60_000_000, "m"), (1_000_000, "s"), (1, "us"),
)  # fmt: skip
IN_WORDS: Final = ("%YQ%q", "%Y-Q%q", "%Yq%q", "%G-W%V", "%GW%V", "%YM%m", "%Ym%m")  # which nothing else looks like
FORMS: Final = (*IN_WORDS, "%Y%m", "%Y0%q", "%Y%q", "%G%V", "%Y")  # in which answers write periods
_PARTS: Final = {"Y": r"\d{4}", "G": r"\d{4}", "m": "0[1-9]|1[0-2]", "q": "[1-4]", "V": r"0[1-9]|[1-4]\d|5[0-3]"}
_MONTHS: Final = {"m": 1, "q": 3, "Y": 12}  # of a period, by the shortest of its parts


@lru_cache
def period_pattern(form: str) -> str | None:
    """Return the regular expression of periods in a form, a group for each part; None where parts make no period.

    Periods are years `%Y` with months `%m` or quarters `%q`, years alone, and weeks `%V` of their years `%G`.
    """
    pieces = re.split("%(.)", form)
    texts, parts = pieces[::2], pieces[1::2]
    if tuple(sorted(parts)) not in {("Y",), ("Y", "m"), ("Y", "q"), ("G", "V")}:
        return None
    bare = not "".join(texts).strip()  # of digits alone, each part has all of its own
    known = _PARTS if bare else {**_PARTS, "m": "1[0-2]|0?[1-9]"}
    return "".join(re.escape(text) if i % 2 == 0 else f"(?P<{text}>{known[text]})" for i, text in enumerate(pieces))


@dataclass(frozen=True, slots=True)
class Date:
    """A date that somebody wrote: a year, quarter, month or week, a day, or a time of day.

    Attributes:
        text: as it was written.
        begin: its first microsecond.
        last: its last one: of a day or a longer period, when that ends.
    """

    text: str
    begin: np.datetime64
    last: np.datetime64

    def __str__(self) -> str:
        return self.text

    @classmethod
    def parse(cls, text: object, form: str = "") -> "Date | None":
        """Return the date that a text spells in ISO form, or as a period; None where it spells none.

        Where `form` is one of periods, a text or number in that form is one, too: 202312 or 2023.
        """
        if isinstance(text, int) and not isinstance(text, bool):
            text = str(text) if form else None
        if not isinstance(text, str):
            return None
        word = text.strip()
        for known in dict.fromkeys([*([form] if form else []), *IN_WORDS]):
            pattern = period_pattern(known)
            if not pattern or not (found := re.fullmatch(pattern, word, re.IGNORECASE)):
                continue
            parts = found.groupdict()
            try:
                if "V" in parts:
                    first = np.datetime64(date.fromisocalendar(int(parts["G"]), int(parts["V"]), 1))
                    end = first + np.timedelta64(7, "D")
                else:
                    month = int(parts["m"]) if "m" in parts else 3 * int(parts.get("q", 1)) - 2
                    first = np.datetime64(date(int(parts["Y"]), month, 1))
                    length = next(months for part, months in _MONTHS.items() if part in parts)
                    end = first.astype("M8[M]") + np.timedelta64(length, "M")
            except ValueError:  # a week 53 of a year that has 52, and the year 0
                return None
            return cls(word, first.astype("M8[us]"), end.astype("M8[us]") - np.timedelta64(1, "us"))
        if not DATE.fullmatch(word):
            return None
        try:
            written = np.datetime64(word.removesuffix("Z").replace(" ", "T"))
        except ValueError:  # the 31st of February
            return None
        begin, instant = written.astype("M8[us]"), len(word) > len("2024-03-01Z")
        return cls(word, begin, begin if instant else (written + 1).astype("M8[us]") - np.timedelta64(1, "us"))


@dataclass(frozen=True, eq=False, slots=True)
class Calendar:
    """When the steps of N subjects were, in microseconds or months since 1970.

    Attributes:
        time_NK: of the first step alone `[N,1]` where steps follow each other at the same distance; otherwise of every
            step `[N,T]`, 0 in the padding.
        unit: microseconds (`us`) or months (`M`).
        size: of a step; None where each row is a step, whatever its time.
        written: the unit in which all times can be written; some of the subjects have theirs written as all have.
        form: of `FORMS`, the one in which the data write their periods; empty where times are ISO dates.
    """

    time_NK: Ints
    unit: Unit
    size: int | None
    written: Precision | None = None
    form: str = ""

    def __post_init__(self) -> None:
        if self.written is None:
            fits = (name for size, name in UNITS if not (self.time_NK % size).any() and not (self.size or 0) % size)
            object.__setattr__(self, "written", "M" if self.unit == "M" else next(fits))

    def is_ordered(self, length_N: NDArray[np.integer]) -> bool:
        """Return whether all times are in the years 1 to 9999, and later steps are not earlier."""
        possible = (self.time_NK >= FIRST[self.unit]) & (self.time_NK <= LAST[self.unit])
        back_NT = (np.diff(self.time_NK, axis=1) < 0) & (np.arange(1, self.time_NK.shape[1]) < length_N[:, None])
        return bool(possible.all() and not back_NT.any())

    @property
    def kind(self) -> dict[str, Any]:
        """Return what the calendars of all parts of a data set share, as plain JSON data."""
        return {"unit": self.unit, "size": self.size} | ({"form": self.form} if self.form else {})

    def take(self, rows: Any) -> Self:  # noqa: ANN401 - whatever selects rows
        """Return the calendar of some subjects."""
        return replace(self, time_NK=self.time_NK[rows])

    def until(self, steps: int) -> Self:
        """Return the calendar of the first steps."""
        return self if self.size is not None else replace(self, time_NK=self.time_NK[:, :steps])

    @classmethod
    def joined(cls, calendars: "Sequence[Calendar | None]") -> "Calendar | None":
        """Return the calendar of several panels below each other, None unless all have one of the same kind."""
        known = [calendar for calendar in calendars if calendar is not None]
        if len(known) != len(calendars) or not known or any(x.kind != known[0].kind for x in known):
            return None
        width = max(calendar.time_NK.shape[1] for calendar in known)
        times = [np.pad(x.time_NK, ((0, 0), (0, width - x.time_NK.shape[1]))) for x in known]
        return replace(known[0], time_NK=np.concatenate(times), written=None)

    def at(self, subject_Q: NDArray[np.integer], step_Q: NDArray[np.integer], length_Q: NDArray[np.integer]) -> Times:
        """Return when steps of subjects are, `NaT` beyond the last of uneven ones, and beyond the year 9999."""
        if self.size is not None:
            first_Q, last = self.time_NK[subject_Q, 0], LAST[self.unit]
            time_Q = first_Q + np.minimum(step_Q, (last - first_Q) // self.size + 1) * self.size
            return np.where(time_Q <= last, self._dates(np.minimum(time_Q, last)), np.datetime64("NaT"))
        there_Q = step_Q < length_Q
        found_Q = self._dates(self.time_NK[subject_Q, np.where(there_Q, step_Q, 0)])
        return np.where(there_Q, found_Q, np.datetime64("NaT"))

    def texts(
        self, subject_Q: NDArray[np.integer], step_Q: NDArray[np.integer], length_Q: NDArray[np.integer]
    ) -> NDArray[np.object_]:
        """Return when steps of subjects are, as text (`2024-03-01`, `2024-03-01 14:00`), None where it is not known.

        Periods are written as the data have them: `2019Q3`.
        """
        distinct, place_Q = np.unique(self.at(subject_Q, step_Q, length_Q), return_inverse=True)
        texts = np.datetime_as_string(distinct, unit=self.written).astype(object)
        for i in np.flatnonzero(~np.isnat(distinct)) if self.form else ():
            day: date = distinct[i].astype("M8[D]").item()
            iso = day.isocalendar()
            texts[i] = self.form
            parts = {"%Y": f"{day.year:04}", "%m": f"{day.month:02}", "%q": f"{(day.month + 2) // 3}"}
            for part, text in (parts | {"%G": f"{iso.year:04}", "%V": f"{iso.week:02}"}).items():
                texts[i] = texts[i].replace(part, text)
        texts = np.array([None if text == "NaT" else text.replace("T", " ") for text in texts], dtype=object)
        return texts[place_Q]

    def find(self, date: Date, length_N: NDArray[np.integer]) -> Ints:
        """Return the last step `[N]` at or before a date; of one outside a series a step that is outside, too."""
        last_N = length_N - 1
        if self.size is not None:
            begin_N, end_N = (self.step_of(moment) for moment in (date.begin, date.last))
            return np.where(begin_N > last_N, begin_N, np.minimum(end_N, last_N))
        there_NT = np.arange(self.time_NK.shape[1]) < length_N[:, None]
        step_N = (there_NT & (self._dates(self.time_NK) <= date.last)).sum(axis=1) - 1
        after_N = self.at(np.arange(len(last_N)), last_N, length_N) < date.begin
        return np.where(after_N, length_N, step_N)

    def step_of(self, moment: np.datetime64) -> Ints:
        """Return the step `[N]` in which a moment is, of steps of one size; it may be before or after a series."""
        number = int(moment.astype(f"M8[{self.unit}]").astype(np.int64))
        steps: Ints = (number - self.time_NK[:, 0]) // (self.size or 1)
        return steps

    def _dates(self, times: Ints) -> Times:
        return times.astype(f"M8[{self.unit}]").astype("M8[us]")
