"""How an export says when steps were: by dates where the data set has them, else by numbers (spec TABLE-16)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from costar_cli.data.dataset import Dataset
from costar_cli.data.dose import Dose
from costar_cli.data.panel import Panel
from costar_cli.data.table.schema_time import STEP_WORDS, UNITS
from costar_cli.data.visits import elapsed_dose

Steps = NDArray[np.integer]

DURATIONS: Final = {  # from the longest to the shortest, by the unit of a calendar
    unit: [(length, name) for name, (own, length, _) in reversed(UNITS.items()) if own == scale]
    for unit, scale in (("us", "us"), ("M", "month"))
}
MOST: Final = 99_999  # units of a step
COUNTED: Final = re.compile(r"(?:([1-9]\d*) )?(\w+?)s?")  # `day`, `2 days`


@dataclass(frozen=True, slots=True)
class ExportTimes:
    """How the tables of an export say when steps were.

    Attributes:
        keys: the table `[time]` of the schema that reads them back.
        dated: whether times are dates.
        gap: the time until the next visit, None where steps are of one length.
        column: of the encoded treatments, which tells that time.
    """

    keys: Mapping[str, str]
    dated: bool
    gap: Dose | None
    column: int

    @classmethod
    def of(cls, dataset: Dataset) -> Self:
        """Return how the times of a data set are told; numbers where a schema cannot say its dates."""
        encoding, step = dataset.schema.treatments, _step(dataset)
        gap = elapsed_dose(encoding)
        keys = {"step": step} if step else {}
        keys["unit"] = gap.unit if gap else dataset.schema.step
        forms = {panel.calendar.form for panel in dataset.panels.values() if panel.calendar} if step else set()
        keys |= {"format": min(forms)} if any(forms) else {}
        if gap is not None:
            keys["gaps"] = "elapsed"
        elif step and any(_size(panel) is None for panel in dataset.panels.values()):
            keys["gaps"] = "ignore"
        column = encoding.dose_columns[encoding.doses.index(gap)] if gap else 0
        return cls(keys, bool(step), gap, column)

    def at(self, panel: Panel, row_M: Steps, step_M: Steps) -> pl.Series:
        """Return when steps of subjects are: dates as text, time since the first visit, or the steps themselves."""
        if self.dated and panel.calendar is not None:
            texts = panel.calendar.texts(row_M, step_M, panel.length[row_M])
            day = "-01" if panel.calendar.unit == "M" and not panel.calendar.form else ""
            return pl.Series([f"{text}{day}" for text in texts], dtype=pl.String)
        if self.gap is None:
            return pl.Series(step_M, dtype=pl.Int64)
        gap_NT = self.elapsed(panel.treatments).astype(np.float64)
        since_NT = np.cumsum(gap_NT, axis=1) - gap_NT
        return pl.Series(since_NT[row_M, step_M], dtype=pl.Float64)

    def elapsed(self, encoded: NDArray[np.number]) -> NDArray[np.float32]:
        """Return the time until the next visit `[...]` of encoded treatments `[...,A]`, to the last digit."""
        scale = self.gap.scale if self.gap else 1.0
        return np.asarray(encoded[..., self.column] * scale, dtype=np.float32)


def _size(panel: Panel) -> int | None:
    return None if panel.calendar is None else panel.calendar.size


def _step(dataset: Dataset) -> str:
    """Return the length of a step as a schema says it; empty where times are not told by dates."""
    calendars = [panel.calendar for panel in dataset.panels.values()]
    known = [calendar for calendar in calendars if calendar is not None]
    if len(known) != len(calendars) or any(calendar.kind != known[0].kind for calendar in known):
        return ""
    if not all(_ascend(panel) for panel in dataset.panels.values()):
        return ""
    gap, unit = elapsed_dose(dataset.schema.treatments), known[0].unit
    if gap is None and known[0].size is None:
        return _duration_called(dataset.schema.step, unit)
    size = known[0].size if gap is None else gap.microseconds if known[0].size is None else None
    return "" if size is None else _duration(size, unit)


def _ascend(panel: Panel) -> bool:
    """Return whether each step of a panel has a date, later than that of the step before."""
    row, step = np.nonzero(panel.observed)
    assert panel.calendar is not None  # noqa: S101 - asked for only where there is one
    at = panel.calendar.at(row, step, panel.length[row])
    later = (at[1:] > at[:-1]) | (row[1:] != row[:-1])
    return not np.isnat(at).any() and bool(later.all())


def _duration(size: int, unit: str) -> str:
    """Return microseconds or months as `2w`; empty where they are not so many units."""
    for length, name in DURATIONS[unit]:
        count, rest = divmod(size, length)
        if not rest and 0 < count <= MOST:
            return f"{count}{name}"
    return ""


def _duration_called(word: str, unit: str) -> str:
    """Return the duration that is called so, a day or a month for other words: each row is a step, however long."""
    found = COUNTED.fullmatch(word)
    short = STEP_WORDS.get(found[2], "") if found else ""
    named = f"{(found and found[1]) or 1}{short}"
    return named if short in [name for _, name in DURATIONS[unit]] else {"us": "1d", "M": "1mo"}[unit]
