"""Errors by calendar period of the origin: rolling-origin evaluation over calendar time (spec SCORE-21)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Panel, Queries
from costar_cli.evaluation.metrics import PerStep, SquaredErrors

MOST: Final = 12  # periods that a table shows
UNITS: Final = ("h", "D", "M", "Y")


@dataclass(frozen=True, slots=True)
class PeriodScores:
    """The RMSE, mean over members, of the questions whose origin is in a period, and how many were scored per step."""

    period: str
    mean: PerStep
    scored: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Periods:
    """What the periods of an evaluation are called: years, months, days or hours, whichever is the finest of few."""

    unit: str
    names: tuple[str, ...]

    @classmethod
    def of(cls, asked: Iterable[tuple[Panel, Queries]]) -> Self | None:
        """Return the periods that origins of queries are in; None without dates, or where there is one alone."""
        dates, whole = [], 0
        for panel, queries in asked:
            dates.append(_dates(panel, queries))
            written = panel.calendar.written if panel.calendar else None
            whole = max(whole, {"M": 2, "D": 1}.get(written or "", 0))  # no hours of days, no days of months
        known = np.concatenate(dates) if dates else np.empty(0, "M8[us]")
        known = known[~np.isnat(known)]
        for unit in UNITS[whole:]:
            names = tuple(_names(np.unique(known.astype(f"M8[{unit}]"))))
            if len(names) <= MOST:
                break
        return cls(unit, names) if len(names) > 1 else None

    def number(self, panel: Panel, queries: Queries) -> NDArray[np.int64]:
        """Return the period `[Q]` of each query, -1 where the date of its origin is not known."""
        place = {name: i for i, name in enumerate(self.names)}
        distinct, which_Q = np.unique(_dates(panel, queries).astype(f"M8[{self.unit}]"), return_inverse=True)
        return np.array([place.get(name, -1) for name in _names(distinct)], dtype=np.int64)[which_Q]


def period_scores(names: Sequence[str], errors: SquaredErrors, factor: float) -> tuple[PeriodScores, ...]:
    """Return the scores of the periods that have any, `factor` times in the unit of errors, which have a row each."""
    found = []
    for row in np.flatnonzero(errors.count.any(axis=1)).tolist():
        weight = None if errors.weight is None else errors.weight[[row]]
        own = replace(errors, members=errors.members[:, [row]], count=errors.count[[row]], weight=weight)
        found.append(PeriodScores(names[row], own.mean_rmse(factor), tuple(int(n) for n in errors.count[row])))
    return tuple(found)


def _dates(panel: Panel, queries: Queries) -> NDArray[np.datetime64]:
    if panel.calendar is None:
        return np.full(len(queries), "NaT", "M8[us]")
    return panel.calendar.at(queries.subject, queries.origin, panel.length[queries.subject])


def _names(dates: NDArray[np.datetime64]) -> list[str]:
    return [str(date).replace("T", " ") for date in dates]
