"""Errors by calendar period of the origin: rolling-origin evaluation over calendar time (spec SCORE-21)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

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


@dataclass(frozen=True, eq=False, slots=True)
class PeriodSums:
    """Sums of squared errors of a model by kind of question, with a row per period."""

    names: Sequence[str]
    sums: dict[str, SquaredErrors] = field(default_factory=dict)

    def scores(self, factor: float) -> Mapping[str, tuple[PeriodScores, ...]]:
        """Return the scores of the periods that have any, by kind of question, `factor` times in the unit of errors."""
        found: dict[str, list[PeriodScores]] = {}
        for kind, errors in self.sums.items():
            for row in np.flatnonzero(errors.count.any(axis=1)).tolist():
                one = None if errors.weight is None else errors.weight[[row]]
                own = replace(errors, members=errors.members[:, [row]], count=errors.count[[row]], weight=one)
                scored = tuple(int(n) for n in errors.count[row])
                found.setdefault(kind, []).append(PeriodScores(self.names[row], own.mean_rmse(factor), scored))
        return {kind: tuple(scores) for kind, scores in found.items()}


@dataclass(frozen=True, eq=False, slots=True)
class PeriodErrors:
    """Adds the errors of answers about a panel to `told`, by the periods of their origins."""

    periods: Periods
    panel: Panel
    told: PeriodSums

    @classmethod
    def of(cls, periods: Periods, panel: Panel) -> Self:
        """Return sums to which nothing was added yet."""
        return cls(periods, panel, PeriodSums(periods.names))

    def add(
        self, kind: str, like: SquaredErrors, prediction_RQHY: NDArray[np.floating], queries: Queries,
        *, weight_QH: NDArray[np.float64] | None = None, **how: Any,  # noqa: ANN401 - as `SquaredErrors.add` has it
    ) -> None:  # fmt: skip
        """Add a batch of queries about the panel, as `SquaredErrors.add` does to sums `like` these with other rows."""
        blank = like.zeros_like(subjects=len(self.periods.names), weighed=like.weight is not None)
        sums = self.told.sums.setdefault(kind, blank)
        period_Q = self.periods.number(self.panel, queries)
        known = np.flatnonzero(period_Q >= 0)
        some = replace(queries.take(known), subject=period_Q[known].astype(np.int32))
        own_QH = None if weight_QH is None else weight_QH[known]
        sums.add(prediction_RQHY[:, known], some, weight_QH=own_QH, **how)


def _dates(panel: Panel, queries: Queries) -> NDArray[np.datetime64]:
    if panel.calendar is None:
        return np.full(len(queries), "NaT", "M8[us]")
    return panel.calendar.at(queries.subject, queries.origin, panel.length[queries.subject])


def _names(dates: NDArray[np.datetime64]) -> list[str]:
    return [str(date).replace("T", " ") for date in dates]
