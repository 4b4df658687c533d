"""Why series end: columns of events and of losses of follow-up, at a row or at a time of their own (spec SURV-6)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from costar_cli.data.findings import counted, invalid
from costar_cli.data.schema import End
from costar_cli.data.table.context import Table
from costar_cli.data.table.index import LONGEST, TOLERANCE, Ints, refuse_long
from costar_cli.data.table.intervals import at_stops, wrong_intervals
from costar_cli.data.table.schema import TableSchema
from costar_cli.data.table.schema_column import ENDS
from costar_cli.data.table.variables import of_several_lines
from costar_cli.diagnostics import Diagnostic

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
    findings += _contradictions(table, found)
    code, final = np.zeros(len(keys.subjects), dtype=np.int64), np.zeros(len(keys.step), dtype=bool)
    for subject, cell, _, number in found:
        code[subject] = number
        final[cell] |= ends[number - 1].terminal
    return Ends(by_column, tuple(ends), code, final), findings


def _contradictions(table: Table, found: Sequence[tuple[int, int, str, int]]) -> list[Diagnostic]:
    """Find several ends of one subject, and rows behind an end."""
    keys, findings = table.keys, list[Diagnostic]()
    frame = pl.DataFrame(found, schema=["subject", "cell", "column", "number"], orient="row").sort("cell")
    again = frame.filter(pl.col("subject").is_duplicated())
    if again.height:
        who = counted(again["subject"].n_unique(), "subject")
        first = again.filter(pl.col("subject") == again["subject"][0])
        where = " and ".join(f"'{row[2]}' in {table.place(row[1])}" for row in first.rows()[:2])
        fix = "a series ends once: mark the row at which that happens, and leave later rows out"
        findings.append(invalid(f"several ends of {who}", f"first {where}", fix))
        return findings
    last = np.full(len(keys.subjects), np.iinfo(np.int64).max)
    for subject, cell, _, _ in found:
        last[subject] = keys.step[cell]
    late = (keys.step > last[keys.subject]) & (keys.row >= 0)
    if late.any():
        who = counted(len(np.unique(keys.subject[late])), "subject")
        problem = f"{counted(int(late.sum()), 'row')} of {who} after the end of the series"
        fix = "leave them out, or mark the end in the row at which it happens"
        findings.append(invalid(problem, f"first in {table.place(int(late.argmax()))}", fix))
    return findings


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
    values, findings = table.subject_values(name) if name != schema.time.stop else (_stops(table, name), [])
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


def _stops(table: Table, name: str) -> pl.Series:
    """Return when the last interval of each subject `[N]` ends."""
    return table.column(name).gather(pl.Series(table.last_rows))


def _wrong(table: Table, name: str, wrong: NDArray[np.bool_], one: str, what: str, fix: str) -> Diagnostic:
    problem = f"column '{name}': {counted(int(wrong.sum()), one)} {what}"
    return invalid(problem, f"first in {table.subject_place(name, int(wrong.argmax()))}", fix)
