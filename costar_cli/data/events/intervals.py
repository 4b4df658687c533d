"""Intervals of a log, from pairs of starts and stops, and what of them falls into each step (polars)."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from costar_cli.data.findings import counted
from costar_cli.data.table.index import MOST_ROWS
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import DataError
from costar_cli.reporting import Reporter

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
WITH_VALUES: Final = ("rate", "amount", "first", "last")
ADDED: Final = ("rate", "amount")


@dataclass(frozen=True, eq=False)
class Intervals:
    """Of each interval its subject, when it starts and stops, and its value: a rate, or the amount of the whole.

    Where `levels` are given, values are places among them; intervals are in the order in which they begin.
    """

    subject: Ints
    start: Floats
    stop: Floats
    value: Floats
    levels: pl.Series | None = None

    def per_step(self, begin: Floats, length: Ints, size: float, how: str) -> tuple[Floats, NDArray[np.bool_]]:
        """Return what of the intervals falls into each cell of the series that `begin` and have a `length` `[N]`.

        `rate` is the mean over the step of the sum of the rates, `amount` what is given in the step where each
        interval's is spread evenly over it, `fraction` the share of the step in any interval, where they do not
        overlap, and `any` whether there is one; `first` and `last` are the value of the interval that begins first or
        last among those in the step, NaN without one. Also returns which intervals reach into a series.
        """
        cells = np.full(int(length.sum()), np.nan if how in ("first", "last") else 0.0)
        n = length[self.subject]
        start = (self.start - begin[self.subject]) / size
        stop = (self.stop - begin[self.subject]) / size
        inside = (n > 0) & (start < n) & ((stop > 0) | ((stop == start) & (start >= 0)))
        subject, value = self.subject[inside], self.value[inside]
        start, stop, n = start[inside], stop[inside], n[inside]
        from_step = np.floor(np.maximum(start, 0)).astype(np.int64)
        to_step = np.maximum(np.ceil(np.minimum(stop, n)).astype(np.int64), from_step + 1)
        spans = to_step - from_step
        if spans.sum() > MOST_ROWS:
            problem = f"intervals that reach over {int(spans.sum()):,} steps, more than {MOST_ROWS:,}"
            raise DataError(problem, fix="give longer steps in [time]")
        of = np.repeat(np.arange(len(spans)), spans)
        step = from_step[of] + np.arange(len(of)) - np.repeat(np.cumsum(spans) - spans, spans)
        overlap = np.minimum(stop[of], step + 1) - np.maximum(start[of], step)
        first = np.cumsum(length) - length
        cell = first[subject[of]] + step
        there = (overlap > 0) | (stop == start)[of]
        if how == "any":
            cells[cell[there]] = 1
        elif how in ("first", "last"):
            order = np.flatnonzero(there)[:: -1 if how == "first" else 1]
            cells[cell[order]] = value[of][order]  # of several in a step the one written last stays
        elif how == "amount":
            share = np.divide(overlap, (stop - start)[of], out=np.ones_like(overlap), where=(stop > start)[of])
            np.add.at(cells, cell, value[of] * share)
        else:
            np.add.at(cells, cell, overlap * (value[of] if how == "rate" else 1.0))
        return np.minimum(cells, 1) if how == "fraction" else cells, inside


def paired(starts: pl.DataFrame, stops: pl.DataFrame | None, how: str, name: str, reporter: Reporter) -> Intervals:
    """Return the intervals of a signal, and warn of what makes none.

    Args:
        starts: `subject`, `time`, `value` (a text, where intervals have levels), and `pair`, or without `stops` the
            `stop` of each.
        stops: `subject`, `time` and `pair`. Starts and stops belong together that have the same `pair`, those of one
            pair in their order of time.
        how: what the intervals of a step become.
        name: the signal.
        reporter: hears of what makes no interval.
    """
    odd: list[str] = []

    def keep(frame: pl.DataFrame, good: pl.Expr, one: str, many: str | None = None) -> pl.DataFrame:
        kept = frame.filter(good)
        if dropped := frame.height - kept.height:
            odd.append(counted(dropped, one, many))
        return kept

    if stops is None:
        both = keep(starts, pl.col("stop").is_not_null(), "start without a stop", "starts without a stop")
    else:
        nth = pl.int_range(pl.len()).over("subject", "pair").alias("nth")
        known = pl.col("pair").is_not_null()
        begun = keep(starts, known, "start without a pair", "starts without a pair").sort("time").with_columns(nth)
        ended = keep(stops, known, "stop without a pair", "stops without a pair").sort("time").with_columns(nth)
        if several := begun.filter(pl.col("nth") > 0).height:
            odd.append(f"{counted(several, 'start')} with the pair of another one, taken in order of time")
        ended = ended.select("subject", "pair", "nth", stop=pl.col("time"))
        both = begun.join(ended, on=["subject", "pair", "nth"], how="left")
        if alone := ended.height - int(both["stop"].is_not_null().sum()):
            odd.append(counted(alone, "stop without a start", "stops without a start"))
        both = keep(both, pl.col("stop").is_not_null(), "start without a stop", "starts without a stop")
    both = keep(both, pl.col("stop") >= pl.col("time"), "interval that ends before it begins", "reversed intervals")
    if how in WITH_VALUES:
        both = keep(both, pl.col("value").is_not_null(), "interval without a value", "intervals without a value")
    else:
        both = both.with_columns(value=pl.lit(1.0))
    if odd:
        reporter.say(
            Diagnostic.of("intervals-odd", name, intervals=counted(both.height, "interval"), odd=", ".join(odd))
        )
    both = both.sort("subject", "time", "stop", "value")
    before = pl.col("stop").cum_max().shift(1).over("subject")
    if over := int(both.select((pl.col("time") < before).sum()).item()):
        effect = "their values add up" if how in ADDED else "each step counts once"
        effect = f"each step has the {how} of them" if how in ("first", "last") else effect
        reporter.say(Diagnostic.of("intervals-overlap", name, intervals=counted(over, "interval"), effect=effect))
    levels = both["value"].unique().sort() if both.schema["value"] == pl.String else None
    values = both["value"] if levels is None else both["value"].replace_strict(levels, range(len(levels)))
    return Intervals(
        both["subject"].to_numpy().astype(np.int64),
        both["time"].to_numpy().astype(np.float64),
        both["stop"].to_numpy().astype(np.float64),
        values.to_numpy().astype(np.float64),
        levels,
    )
