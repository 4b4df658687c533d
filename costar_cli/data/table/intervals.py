"""Tables with a row per interval `(start, stop]`: the end of each subject's last one is a step of its own.

Spec SURV-6. What a row says was given from its start on, and an event that it marks came at its stop.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from costar_cli.data.table.context import Mask, Table
from costar_cli.data.table.files import TableFile
from costar_cli.data.table.index import TOLERANCE, Ints
from costar_cli.data.table.parse import UNREADABLE, As, Reading, read_rows, wrong_values
from costar_cli.data.table.periods import MONTH, length_of
from costar_cli.data.table.schema import TableSchema
from costar_cli.data.table.schema_column import ENDS
from costar_cli.data.table.schema_time import DAY
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import DataError
from costar_cli.reporting import Reporter

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


def added_ends(table: Table) -> Mask:
    """Return the cells `[M]` behind the last row of a subject that are its last ones: nothing was recorded there."""
    added: Mask = table.keys.last_of_subject & (table.keys.row < 0)
    return added
