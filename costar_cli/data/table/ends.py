"""Why series end: columns of events and of losses of follow-up, at a row or at a time of their own (spec SURV-6)."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from costar_cli.data.findings import counted, invalid
from costar_cli.data.schema import End
from costar_cli.data.table.context import Table
from costar_cli.data.table.files import TableFile
from costar_cli.data.table.index import LONGEST, TOLERANCE, Ints, refuse_long
from costar_cli.data.table.parse import UNREADABLE, As, Reading, read_rows, wrong_values
from costar_cli.data.table.schema import TableSchema
from costar_cli.data.table.schema_column import DAY, ENDS
from costar_cli.data.table.variables import of_several_lines
from costar_cli.data.table.written import MONTH, length_of
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import DataError
from costar_cli.reporting import Reporter

NOTHING: Final = ("0", "false", "no", "none")  # of a column of events, beside what is blank
YES: Final = ("1", "true", "yes")
NEVER: Final = -1


@dataclass(frozen=True, eq=False, slots=True)
class Ends:
    """The ends that columns name; by subject `[N]` the number of its own, 0 for none; the cells `[M]` of terminal ones.

    What was not recorded in the cell of a terminal event is no missing value.
    """

    names: Mapping[str, tuple[str, ...]]
    ends: tuple[End, ...]
    code: Ints
    final: NDArray[np.bool_]


def place_ends(table: Table, schema: TableSchema) -> tuple[Table, list[Diagnostic]]:
    """Return a table with a cell for each end whose time a column tells, and what is wrong with these times."""
    length, findings = table.keys.length.copy(), wrong_intervals(table, schema)
    stop = [schema.time.stop] if schema.time.stop and not findings else []
    for name in [*stop, *(name for name in schema.named(*ENDS) if schema.columns[name].at)]:
        one = "interval" if name in stop else "event"
        at, early, changes = _steps(table, schema, name)
        findings += changes
        later = (at >= 0) & (table.keys.length - 1 > at)
        rows = table.keys.step > np.where(later, at, table.keys.length)[table.keys.subject]
        distant = (at > table.keys.length) & (schema.time.gaps == "error")
        if early.any():
            findings.append(_wrong(table, name, early, one, "before the first visit", "correct the times"))
        if later.any():
            what = f"column '{name}': {counted(int(rows.sum()), 'row')} after the end of the subject's series"
            place = f"first in {table.place(int(rows.argmax()))}"
            findings.append(invalid(what, place, "correct the times, or leave the rows out"))
        if (far := at >= LONGEST).any():
            what = f"more than {LONGEST:,} steps after the subject's first row"
            findings.append(_wrong(table, name, far, one, what, "correct the times, or give `max_length`"))
        elif distant.any():
            fix = 'correct the times, or choose `gaps = "fill"` or "ignore" in [time]'
            findings.append(_wrong(table, name, distant, one, "more than a step after the subject's last row", fix))
        length = np.where(~later & ~distant, np.maximum(length, at + 1), length)
    if findings:
        return table, findings
    refuse_long(table.keys.subjects, length)
    return replace(table, keys=table.keys.filled(length)), []


def ends_of(table: Table, schema: TableSchema) -> tuple[Ends | None, list[Diagnostic]]:
    """Return why the series of a table end, None where no column says so, and what contradicts itself."""
    columns = schema.named(*ENDS)
    if not columns:
        return None, []
    keys, ends, found = table.keys, list[End](), list[tuple[int, int, str, int]]()
    by_column: dict[str, tuple[str, ...]] = {}
    findings = list[Diagnostic]()
    for name in columns:
        column = schema.columns[name]
        names, code_M = _said(table, schema, name)
        if broken := [] if column.at else of_several_lines(name, names, table.column(name), table.place):
            findings += broken
            continue
        known = by_column[name] = column.labels("categories") or tuple(names)
        if unknown := [text for text in names if text not in known]:
            problem = f"column '{name}': {counted(len(unknown), 'event')} not among its `categories`: '{unknown[0]}'"
            findings.append(invalid(problem, fix=f"known are {', '.join(known)}"))
        cells = np.flatnonzero(code_M >= 0)
        found += [
            (int(keys.subject[cell]), int(cell), name, len(ends) + known.index(names[code_M[cell]]) + 1)
            for cell in cells
            if names[code_M[cell]] in known
        ]
        ends += [End(name=text, terminal=column.role == "event") for text in known]
    code, final = np.zeros(len(keys.subjects), dtype=np.int64), np.zeros(len(keys.step), dtype=bool)
    last = np.full(len(keys.subjects), np.iinfo(np.int64).max)
    for subject, cell, _, number in found:
        code[subject], last[subject] = number, keys.step[cell]
        final[cell] |= ends[number - 1].terminal
    frame = pl.DataFrame(found, schema=["subject", "cell", "column", "number"], orient="row").sort("cell")
    again = frame.filter(pl.col("subject").is_duplicated())
    late = (keys.step > last[keys.subject]) & (keys.row >= 0)
    if again.height:
        who = counted(again["subject"].n_unique(), "subject")
        first = again.filter(pl.col("subject") == again["subject"][0])
        where = " and ".join(f"'{row[2]}' in {table.place(row[1])}" for row in first.rows()[:2])
        fix = "a series ends once: mark the row at which that happens, and leave later rows out"
        findings.append(invalid(f"several ends of {who}", f"first {where}", fix))
    elif late.any():
        who = counted(len(np.unique(keys.subject[late])), "subject")
        problem = f"{counted(int(late.sum()), 'row')} of {who} after the end of the series"
        fix = "leave them out, or mark the end in the row at which it happens"
        findings.append(invalid(problem, f"first in {table.place(int(late.argmax()))}", fix))
    return Ends(by_column, tuple(ends), code, final), findings


def _said(table: Table, schema: TableSchema, name: str) -> tuple[list[str], Ints]:
    """Return the ends that a column names, and for each cell `[M]` the place of its end among them, or `NEVER`."""
    keys, column = table.keys, schema.columns[name]
    code_M = np.full(len(keys.step), NEVER, dtype=np.int64)
    if column.at:
        at, _, _ = _steps(table, schema, name)
        here = (at >= 0) & (at == keys.length - 1)
        code_M[(keys.first + keys.length - 1)[here]] = 0
        return [name], code_M
    texts = table.column(name)
    low = texts.str.to_lowercase()
    named = pl.select(pl.when(low.is_in(NOTHING)).then(None).when(low.is_in(YES)).then(pl.lit(name)).otherwise(texts))
    said = named.to_series()
    names = sorted(str(text) for text in said.drop_nulls().unique().to_list())
    places = said.replace_strict(names, list(range(len(names))), default=NEVER, return_dtype=pl.Int64)
    code_M = places.fill_null(NEVER).to_numpy().astype(np.int64)
    return names or [name], at_stops(table, code_M, NEVER) if schema.time.stop else code_M


def _steps(table: Table, schema: TableSchema, name: str) -> tuple[Ints, NDArray[np.bool_], list[Diagnostic]]:
    """Return the step `[N]` at which an end first shows, by its time, `NEVER` for none; whose time is too early."""
    keys = table.keys
    # When the last interval of each subject `[N]` ends
    values, findings = (
        table.subject_values(name)
        if name != schema.time.stop
        else (table.column(name).gather(pl.Series(table.last_rows)), [])
    )
    known = values.is_not_null().to_numpy()
    when = values.fill_null(0).to_numpy()
    times = table.times
    start = times[keys.row[keys.first]]
    if schema.time.by_row:
        there = keys.row >= 0
        before = there & (times[np.maximum(keys.row, 0)] < when[keys.subject])
        at = np.bincount(keys.subject[before], minlength=len(known))
    else:
        at = np.ceil((when - start) / schema.time.parsed.size - TOLERANCE)
    if name == schema.time.stop:
        at = np.maximum(at, keys.step[table.last_rows] + 1)  # the last interval may end within a step of months
    early = known & (when < start)
    inside = known & ~early & (at < (schema.max_length or np.inf))
    return np.where(inside, at, NEVER).astype(np.int64), early, findings


def _wrong(table: Table, name: str, wrong: NDArray[np.bool_], one: str, what: str, fix: str) -> Diagnostic:
    problem = f"column '{name}': {counted(int(wrong.sum()), one)} {what}"
    return invalid(problem, f"first in {table.subject_place(name, int(wrong.argmax()))}", fix)


PAIRS: Final = tuple(
    pair.split("/") for pair in ("start/stop", "start/end", "tstart/tstop", "tstart/tend", "begin/end", "t0/t1",
                                 "time1/time2", "from/to", "entry/exit")
)  # fmt: skip
"""What the two ends of an interval are usually called."""
UNITS: Final = {"1d": DAY, "1h": DAY // 24, "1m": 60 * 10**6, "1s": 10**6}  # microseconds, by durations of polars
WORDS: Final = {"1d": "day", "1h": "hour", "1m": "minute", "1s": "second", "1w": "week", "1mo": "month",
                "3mo": "quarter", "1y": "year", "1": "unit"}  # fmt: skip
MOST: Final = 0.5  # of the intervals that another one follows, share that ends just before it, where all are closed
SAMPLE: Final = 200_000  # rows by which that is seen


def unit_of(ends: pl.Series, written: str) -> str:
    """Return the unit in which times are written: the period of a format, else a day, hour, minute or second, else 1.

    Empty where there is none, as of fractions.
    """
    if period := length_of(written):
        return period
    if not ends.dtype.is_temporal():
        return "1" if (ends % 1 == 0).all() else ""
    return next((unit for unit, size in UNITS.items() if (ends.cast(pl.Int64) % size == 0).all()), "")


def meeting(frame: pl.DataFrame, written: str) -> tuple[float, str]:
    """Return which share of the intervals from `start` to `stop` ends at most a unit before the next one.

    And that unit, where all can be closed, which include their end; the share is 0 where rows are no intervals or
    overlap. Subjects are `s`.
    """
    frame = frame.drop_nulls().sort("s", "start").with_columns(next=pl.col("start").shift(-1).over("s"))
    unit, stop, following = unit_of(pl.concat([frame["start"], frame["stop"]]), written), pl.col("stop"), pl.col("next")
    later = stop + 1 if unit == "1" else stop.dt.offset_by(unit) if unit else stop
    share = frame.select(((stop == following) | (later == following)).mean()).item() or 0.0
    for end, after in ((later, unit), (stop, "")):
        if frame.select((end > pl.col("start")).all() & (end <= following).all()).item():
            return share, after
    return 0.0, ""


def closed_by(files: Sequence[TableFile], schema: TableSchema, subject: Reading) -> str:
    """Return the unit that ends of closed intervals are to be moved by, empty where intervals are half-open."""
    clock = schema.time
    if not clock.stop or clock.closed is False:
        return ""
    some = [replace(file, scan=file.scan.head(SAMPLE)) for file in files]
    ends = [schema.in_file(schema.named("time")[0]), clock.stop]
    as_: As = "number" if clock.parsed.scale == "number" else "us"
    for written in dict.fromkeys([clock.format, clock.format or MONTH]):  # as months are read without a format
        begin, end = (Reading(name, as_, written, local=True) for name in ends)
        rows = read_rows(some, [subject, begin, end], schema.blank)
        frame = pl.DataFrame({"s": rows.series(subject), "start": rows.series(begin), "stop": rows.series(end)})
        whole = frame.drop_nulls()
        if as_ == "us":
            whole = whole.filter(pl.all_horizontal(pl.col("start", "stop") != UNREADABLE))
            whole = whole.with_columns(pl.col("start", "stop").cast(pl.Datetime("us")))
        if whole.height:
            break
    share, unit = meeting(whole, written)
    if clock.closed is None:
        return unit if share >= MOST else ""
    if unit := unit_of(pl.concat([whole["start"], whole["stop"]]), written):
        return unit
    fix = "leave it out, or write whole numbers"
    raise DataError("`closed`: times that are fractions have no last unit", where="time.closed", fix=fix)


def tell_of_unused(columns: Collection[str], schema: TableSchema, reporter: Reporter) -> None:
    """Warn where events are marked in rows, and the names of columns say that each row is an interval."""
    start, low = schema.in_file(schema.named("time")[0]), {name.lower(): name for name in columns}
    marked = any(not schema.columns[name].at for name in schema.named(*ENDS))
    stops = [low[stop] for begin, stop in PAIRS if start.lower() == begin and stop in low]
    unused = [name for name in stops if name not in schema.file_columns]
    if marked and unused and not schema.time.stop:
        reporter.say(Diagnostic.of("interval-end-unused", unused[0], start=start))


def wrong_intervals(table: Table, schema: TableSchema) -> list[Diagnostic]:
    """Find intervals without an end, that end before they begin, and that reach into the subject's next one."""
    name = schema.time.stop
    if not name:
        return []
    keys, column = table.keys, table.column(name)
    cells = np.flatnonzero(keys.row >= 0)
    start_C, stop_C = table.times[keys.row[cells]], column.fill_null(0).to_numpy()[cells]
    missing_C: NDArray[np.bool_] = column.is_null().to_numpy()[cells]
    next_C = np.append(keys.subject[cells][1:] == keys.subject[cells][:-1], [False])
    over_C = next_C & (stop_C - np.roll(start_C, -1) > TOLERANCE * schema.time.parsed.size)
    begin = schema.in_file(schema.named("time")[0])
    within_a_month = schema.time.parsed.scale == "month"  # in which a last interval may begin and end
    early_C = stop_C < start_C if within_a_month else stop_C <= start_C
    kinds = (
        (missing_C, "missing", "give each row the end of its interval"),
        (~missing_C & early_C, f"not after `{begin}` of their row", "correct the times"),
        (~missing_C & over_C, f"after `{begin}` of the subject's next row", "intervals of a subject do not overlap"),
    )
    found = []
    for wrong_C, what, fix in kinds:
        if wrong_C.any():
            wrong_M = np.zeros(len(keys.row), dtype=bool)
            wrong_M[cells] = wrong_C
            found.append(wrong_values(name, wrong_M, what, table.place, fix))
    return found


def at_stops(table: Table, code_M: Ints, nothing: int) -> Ints:
    """Return marks of rows `[M]` where their intervals end: at the next cell, of last rows at the subject's last cell.

    Those whose end was cut off are `nothing`.
    """
    keys, moved_M = table.keys, np.full_like(code_M, nothing)
    marked = np.flatnonzero(code_M != nothing)
    subject = keys.subject[marked]
    end = keys.first + keys.length - 1
    to = np.where(marked == table.last_rows[subject], end[subject], marked + 1)
    there = (to > marked) & (to <= end[subject])
    moved_M[to[there]] = code_M[marked[there]]
    return moved_M
