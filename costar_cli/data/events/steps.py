"""From a log of events to a row per subject and step: the table, its statics and its schema (polars)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from costar_cli.data.events.log import Events
from costar_cli.data.events.select import Chosen, choose
from costar_cli.data.events.signals import SPLIT, SUBJECT, TIME, SignalsSchema, length_of
from costar_cli.data.findings import counted, shown
from costar_cli.data.table.files import frame_as_file
from costar_cli.data.table.index import LONGEST, MOST_ROWS, TOLERANCE
from costar_cli.data.table.inputs import TableInputs
from costar_cli.data.table.schema import TableSchema
from costar_cli.data.table.schema_column import ENDS, OF_STEPS, ColumnSchema
from costar_cli.data.table.scratch import require_memory
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import DataError
from costar_cli.reporting import Reporter

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
YEAR: Final = 365.25 * 86_400 * 10**6  # microseconds


@dataclass(frozen=True, eq=False)
class Grid:
    """The steps of each of N subjects: `begin [N]`, `length [N]`, 0 for those without a series, and `ends`.

    Times are microseconds since 1970, or numbers, as float64: exact to the microsecond for 285 years around 1970.
    `ends` says when each subject's event came, by signal, infinity for never; what is dated after `last` `[N]` is no
    longer the subject's.
    """

    begin: Floats
    length: Ints
    size: float
    ends: Mapping[str, Floats]
    last: Floats

    @property
    def cells(self) -> int:
        """Return how many cells there are."""
        return int(self.length.sum())

    @property
    def start(self) -> Ints:
        """Return the first cell of each subject `[N]`."""
        first: Ints = np.cumsum(self.length) - self.length
        return first

    def moments(self) -> Floats:
        """Return when each cell begins."""
        step = np.arange(self.cells) - np.repeat(self.start, self.length)
        return np.repeat(self.begin, self.length) + step * self.size

    def cell(self, subject: Ints, time: Floats) -> Ints:
        """Return the cells of moments, -1 for those outside of their subject's series."""
        step = np.floor((time - self.begin[subject]) / self.size + TOLERANCE)
        inside = (step >= 0) & (step < self.length[subject]) & (time <= self.last[subject])
        return np.where(inside, self.start[subject] + np.where(inside, step, 0).astype(np.int64), -1)


def table_of_events(
    events: Events, schema: SignalsSchema, reporter: Reporter, *, new: bool = False
) -> tuple[TableInputs, TableSchema]:
    """Return the table that events become, with a row per subject and step, and the schema that reads it.

    Counts per signal are reported first. `new` subjects need not have events of each signal, or splits.

    Raises:
        DataError: codes that no event has, units that differ, nobody with a series; all that is found at once.
    """
    names = schema.named(*OF_STEPS)
    with reporter.task("read events", total=2 + len(names), unit="stage") as task:
        chosen = choose(events, schema, reporter, new=new)
        task.advance()
        grid = lay_out(chosen, schema, reporter)
        needed = f"{grid.cells:,} steps of {len(names)} signals take at least"
        require_memory(grid.cells * 8 * (4 + len(names)), needed, "to lay out")
        has_series = pl.Series(grid.length > 0)
        wide = {SUBJECT: chosen.subjects.filter(has_series)}
        for name in schema.named("static", "domain", "cluster"):
            wide[name] = _static(chosen, schema, grid, name, reporter).filter(has_series)
        at = {name: f"time of {name}" for name in grid.ends}
        wide |= {at[name]: chosen.times(when).filter(has_series) for name, when in grid.ends.items()}
        task.advance()
        subject = chosen.subjects.gather(np.repeat(np.arange(len(grid.length)), grid.length))
        columns = {SUBJECT: subject, TIME: chosen.times(grid.moments())}
        outside = 0
        for name in names:
            columns[name], beyond = _column(chosen, schema, grid, name, reporter)
            outside += beyond
            task.advance()
    if outside:
        reporter.say(Diagnostic.of("events-outside", events=counted(outside, "event")))
    steps, statics = pl.DataFrame(columns), pl.DataFrame(wide)
    del chosen, columns
    split = not new and events.splits is not None and not schema.table.split.model_fields_set - {"few_shot"}
    if split and events.splits is not None:
        said = events.splits.select(pl.col("subject").alias(SUBJECT), pl.col("split").alias(SPLIT))
        statics = statics.join(said, on=SUBJECT, how="left", maintain_order="left")
        if (without := statics.filter(pl.col(SPLIT).is_null())).height:
            who, some = counted(without.height, "subject"), shown(without[SUBJECT].to_list())
            reporter.say(Diagnostic.of("events-without-split", subjects=who, names=some))
            steps = steps.join(without, on=SUBJECT, how="anti", maintain_order="left")
            statics = statics.filter(pl.col(SPLIT).is_not_null())
    inputs = TableInputs(
        [frame_as_file(steps, f"steps of {events.name}")],
        frame_as_file(statics, f"statics of {events.name}") if statics.width > 1 else None,
    )
    lines = dict(schema.table.columns)
    for name, when in at.items():
        lines[name] = lines[name].model_copy(update={"at": when})
    if split:
        lines[SPLIT] = ColumnSchema(role="split")
    return inputs, schema.table.model_copy(update={"columns": lines})


def lay_out(chosen: Chosen, schema: SignalsSchema, reporter: Reporter) -> Grid:
    """Return the steps of each subject.

    A series begins at its anchor, or at the step of the subject's first event of a signal that changes over time; it
    ends with the last one of these, at the latest where the window, an event of `until` or an end say. Whose
    observation is known to go on beyond the window has all of it, whether or not something happened.

    Raises:
        DataError: nobody has a series, or one is too long.
    """
    clock, anchor, size = schema.table.time, schema.anchor, schema.table.time.parsed.size
    n = len(chosen.subjects)
    first, last, limit = np.full(n, np.inf), np.full(n, -np.inf), np.full(n, np.inf)

    for name in schema.named(*OF_STEPS):
        if name in chosen.intervals:
            intervals = chosen.intervals[name]
            np.minimum.at(first, intervals.subject, intervals.start)
            np.maximum.at(last, intervals.subject, np.maximum(intervals.start, np.nextafter(intervals.stop, -np.inf)))
        else:
            subject, time = chosen.moments(name)
            np.minimum.at(first, subject, time)
            np.maximum.at(last, subject, time)
    if anchor is None:
        begin = np.floor((first - clock.first_step) / size + TOLERANCE) * size + clock.first_step
        nobody = "with an event of a signal that changes over time"
    else:
        subject, time = chosen.moments("anchor")
        at = np.full(n, np.inf if anchor.which == "first" else -np.inf)
        (np.minimum if anchor.which == "first" else np.maximum).at(at, subject, time)
        begin = at - length_of(anchor.before)
        if anchor.after is not None:
            limit = at + length_of(anchor.after)
        if anchor.until is not None:
            subject, _, until = chosen.days("anchor.until")
            later = until > at[subject]
            np.minimum.at(limit, subject[later], until[later])
        nobody = "with an event of the anchor, and one of a signal after it"
    kept = np.isfinite(begin) & (last >= begin)
    last, kept = _observed_on(chosen, schema, begin, last, limit, kept)
    if not kept.any():
        fix = "see the counts of each signal above, and correct `anchor` or the codes"
        raise DataError(f"no subject of {n:,} {nobody}", where=chosen.name, fix=fix)
    if not kept.all():
        subjects = counted(int((~kept).sum()), "subject")
        reporter.say(Diagnostic.of("events-without-series", subjects=subjects, n=n, what=nobody))
    begin = np.where(kept, begin, np.inf)
    ends, over = _ends(chosen, schema, begin, limit, reporter)
    earliest = np.min([*ends.values(), np.full(n, np.inf)], axis=0)
    # The step of the last event; one that begins at the limit is behind it; an end is in the first step from then on
    begin = np.where(kept, begin, 0.0)
    steps = np.floor((np.minimum(last, limit) - begin) / size + TOLERANCE) + 1
    steps = np.minimum(steps, np.maximum(np.ceil((limit - begin) / size - TOLERANCE), 1))
    steps = np.where(np.isfinite(earliest), np.ceil((earliest - begin) / size - TOLERANCE) + 1, steps)
    steps = np.where(kept, steps, 0)
    if (steps > LONGEST).any() or steps.sum() > MOST_ROWS:
        problem = f"a series of {int(steps.max()):,} steps, of all {int(steps.sum()):,}"
        fix = f"give longer steps in [time], or `anchor` with `after`: at most {LONGEST:,}, of all {MOST_ROWS:,}"
        raise DataError(problem, where=f"subject {chosen.subjects[int(steps.argmax())]}", fix=fix)
    return Grid(begin, steps.astype(np.int64), size, ends, over)


def _observed_on(
    chosen: Chosen, schema: SignalsSchema, begin: Floats, last: Floats, limit: Floats, kept: NDArray[np.bool_]
) -> tuple[Floats, NDArray[np.bool_]]:
    """Return `last` and `kept` with what is known of subjects whose observation ends later than their last event.

    Else subjects without an event would be shorter or missing: lengths would tell of what came later.
    """
    last, kept = last.copy(), kept.copy()
    hows = {schema.how(name, intervals=name in chosen.intervals) for name in schema.named("outcome")}
    for name in schema.named("censored"):
        subject, time, _ = _left(chosen, schema, name, begin)
        beyond = subject[time > limit[subject]]
        last[beyond] = limit[beyond]
        if hows <= {"any", "count", "sum"}:  # no event is an observation, too
            kept[subject] |= np.isfinite(begin[subject]) & (time > begin[subject])
    return last, kept


def _left(chosen: Chosen, schema: SignalsSchema, name: str, begin: Floats) -> tuple[Ints, Floats, Floats]:
    """Return who is lost to follow-up, when, and until when what happens is theirs.

    Of whom only the last day is known is lost at the last step that begins in it, and what that day holds is theirs.
    """
    subject, time, until = chosen.days(name)
    there = np.isfinite(begin[subject])
    subject, time, until = subject[there], time[there], until[there]
    start, size = begin[subject], schema.table.time.parsed.size
    last_step = start + (np.ceil((until - start) / size - TOLERANCE) - 1) * size
    whole = until > time
    return (
        subject,
        np.where(whole, np.maximum(time, last_step), time),
        np.where(whole, np.nextafter(until, -np.inf), time),
    )


def _ends(
    chosen: Chosen, schema: SignalsSchema, begin: Floats, limit: Floats, reporter: Reporter
) -> tuple[dict[str, Floats], Floats]:
    """Return when each end came `[N]`, infinity for never: the first in a series that begins and is limited so.

    And the last moment that is the subject's `[N]`. An event counts before a loss of follow-up at the same moment, or
    on its day: databases close the observation with the death.
    """
    n = len(begin)
    ends, over = dict[str, Floats](), np.full(n, np.inf)
    events, losses = schema.named("event"), schema.named("censored")
    for name in [*events, *losses]:
        if name in losses:
            subject, time, until = _left(chosen, schema, name, begin)
        else:
            subject, time = chosen.moments(name)
            until = time
        inside = (time > begin[subject]) & (time <= limit[subject])
        own, until_own = np.full(n, np.inf), np.full(n, np.inf)
        np.minimum.at(own, subject[inside], time[inside])
        np.minimum.at(until_own, subject[inside], until[inside])
        # A series ends once: of two ends at one moment, the one that the file names first
        first = until_own < over
        ends = {other: np.where(first, np.inf, at) for other, at in ends.items()}
        ends[name], over = np.where(first, own, np.inf), np.minimum(over, until_own)
    lost = np.isfinite(np.min([*(ends[name] for name in losses), np.full(n, np.inf)], axis=0))
    ended = np.isfinite(over) & ~lost
    for name in events:
        subject, time = chosen.moments(name)
        outside = np.isfinite(begin[subject]) & ~ended[subject]
        late = np.unique(subject[outside & lost[subject] & (time > over[subject])])
        if who := len(np.unique(subject[outside])):
            reporter.say(Diagnostic.of("ends-outside", name, subjects=counted(who, "subject"), lost=len(late)))
    return {name: ends[name] for name in schema.named(*ENDS)}, over


def _column(chosen: Chosen, schema: SignalsSchema, grid: Grid, name: str, reporter: Reporter) -> tuple[pl.Series, int]:
    """Return what the events of a signal become in each cell, and how many of them are outside of all series."""
    leveled = name in schema.table.leveled
    how = schema.how(name, intervals=name in chosen.intervals)
    if name in chosen.intervals:
        intervals = chosen.intervals[name]
        values, inside = intervals.per_step(grid.begin, grid.length, grid.size, how)
        at_once = inside & (intervals.start == intervals.stop)
        if how in ("rate", "fraction") and at_once.any():
            instead = "amount" if how == "rate" else "any"
            some = counted(int(at_once.sum()), "interval")
            reporter.say(Diagnostic.of("intervals-at-once", name, intervals=some, how=how, instead=instead))
        if intervals.levels is not None:
            places = pl.Series(values, nan_to_null=True).cast(pl.UInt32)
            words = intervals.levels.gather(places)
            nothing = schema.table.columns[name].labels("levels") if leveled else None
            return words.fill_null(nothing[0]) if nothing else words, int((~inside).sum())
        return pl.Series(values.astype(np.int64) if leveled else values), int((~inside).sum())
    rows = chosen.timed(name)
    if how not in ("any", "count"):
        rows = rows.filter(pl.col("value").is_not_null())
    cell = grid.cell(rows["subject"].to_numpy().astype(np.int64), rows["time"].to_numpy())
    inside = cell >= 0
    outside = int((~inside).sum())
    rows = rows.filter(pl.Series(inside)).with_columns(cell=pl.Series(cell[inside], dtype=pl.Int64))
    if how in ("any", "count"):
        number = np.bincount(rows["cell"].to_numpy(), minlength=grid.cells)
        return pl.Series(np.minimum(number, 1) if how == "any" else number), outside
    if how in ("sum", "mean"):
        cells, weights = rows["cell"].to_numpy(), rows["value"].to_numpy()
        total = np.bincount(cells, weights, minlength=grid.cells)
        if how == "sum":
            return pl.Series(total), outside
        number = np.bincount(cells, minlength=grid.cells)
        mean = np.divide(total, number, out=np.full(grid.cells, np.nan), where=number > 0)
        return pl.Series(mean, nan_to_null=True), outside
    # Of events at one moment, whose order means nothing, the smallest value is the first one and the largest the last
    order = ["cell", "value"] if how in ("max", "min") else ["cell", "time", "value"]
    rows = rows.select(*order).sort(order)
    if how in ("first", "last"):
        same = pl.all_horizontal(pl.col("cell", "time") == pl.col("cell", "time").shift())
        ties = rows.select((same & (pl.col("value") != pl.col("value").shift())).sum()).item()
        if n := int(ties or 0):
            which = "smallest" if how == "first" else "largest"
            reporter.say(Diagnostic.of("events-tied", name, events=counted(n, "event"), which=which))
    chosen_rows = rows.unique("cell", keep="first" if how in ("first", "min") else "last", maintain_order=True)
    column = pl.DataFrame({"cell": pl.Series(range(grid.cells), dtype=pl.Int64)}).join(
        chosen_rows, on="cell", how="left", maintain_order="left"
    )
    return column["value"], outside


def _static(chosen: Chosen, schema: SignalsSchema, grid: Grid, name: str, reporter: Reporter) -> pl.Series:
    """Return what a signal says of each subject `[N]`: what has no time, or is of the first step or before."""
    signal, rows = schema.signals[name], chosen.events(name)
    how = schema.how(name, intervals=False)
    subject, time = rows["subject"].to_numpy().astype(np.int64), rows["time"].fill_null(-np.inf).to_numpy()
    early = time < grid.begin[subject] + grid.size
    in_series = grid.length[subject] > 0
    if late := int((~early & in_series).sum()):
        who = counted(len(np.unique(subject[~early & in_series])), "subject")
        reporter.say(Diagnostic.of("static-known-later", name, events=counted(late, "event"), subjects=who))
    rows = rows.filter(pl.Series(early)).with_columns(pl.col("time").fill_null(-np.inf))
    n = len(grid.length)
    if how == "any":
        number = np.bincount(rows["subject"].to_numpy(), minlength=n)
        return pl.Series(np.minimum(number, 1))
    if signal.value == "years":
        rows = rows.filter(pl.col("time").is_finite())
        begin = grid.begin[rows["subject"].to_numpy().astype(np.int64)]
        rows = rows.with_columns(value=pl.Series((begin - rows["time"].to_numpy()) / YEAR))
    kept = rows.filter(pl.col("value").is_not_null()).sort("subject", "time", "value")
    kept = kept.unique("subject", keep="last" if how == "last" else "first", maintain_order=True)
    every = pl.DataFrame({"subject": pl.Series(range(n), dtype=pl.UInt32)})
    return every.join(kept, on="subject", how="left", maintain_order="left")["value"]
