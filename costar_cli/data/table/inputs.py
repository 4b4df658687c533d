"""The files of a data set, their columns checked and read, laid out along the panel (polars)."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from costar_cli.config.nearest import did_you_mean
from costar_cli.data.findings import counted, invalid, raise_errors, shown
from costar_cli.data.schema import JOINT
from costar_cli.data.table.bins import Bins, EventLog
from costar_cli.data.table.context import Table
from costar_cli.data.table.ends import WORDS, closed_by, place_ends, tell_of_unused
from costar_cli.data.table.files import TableFile, open_files, without_rows
from costar_cli.data.table.index import Ints, long_enough, number_subjects, read_keys, usable_rows
from costar_cli.data.table.parse import As, Reading, Rows, as_read, read_rows, unreadable, unusable, wrong_values
from costar_cli.data.table.schema import TableSchema
from costar_cli.data.table.schema_column import ENDS, OF_STEPS
from costar_cli.data.table.scratch import Scratch, told_of_memory
from costar_cli.data.table.splits import condition_readings
from costar_cli.data.table.treatments import UNKNOWN, level_codes, unknown_level
from costar_cli.data.table.variables import UNSEEN, category_codes, unseen_category
from costar_cli.data.table.written import Written
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import DataError
from costar_cli.reporting import Reporter

SUBJECT: Final = "__costar_subject__"
PER_SUBJECT: Final = ("static", "domain", "split", "cluster")  # roles that a statics file may have


@dataclass(frozen=True, slots=True)
class TableInputs:
    """The files of a data set: the long table's, and perhaps one of statics and one of known queries.

    `scratch` is the folder in which the rows of a long table wait that are too many to hold: by default that of the
    system for temporary files.
    """

    tables: Sequence[Path | TableFile]
    statics: Path | TableFile | None = None
    queries: Path | TableFile | None = None
    scratch: Path | None = None

    @property
    def by_role(self) -> dict[str, Path | TableFile]:
        """Return the files by what each is to the data set: `table`, `table-2`, `statics`, `queries`."""
        named = {"table" if i == 0 else f"table-{i + 1}": file for i, file in enumerate(self.tables)}
        return named | {role: file for role, file in (("statics", self.statics), ("queries", self.queries)) if file}

    @property
    def paths(self) -> dict[str, Path]:
        """Return the paths of those that are files on disk, by role."""
        return {role: file for role, file in self.by_role.items() if isinstance(file, Path)}


def read_table(
    inputs: TableInputs,
    schema: TableSchema,
    reporter: Reporter,
    *,
    scratch: Scratch,
    wrong: list[Diagnostic] | None = None,
) -> Table:
    """Return the files' columns, laid out along the cells of the panel.

    Rows of the long table may stay in a file of `scratch`. With a list `wrong`, what is wrong with rows goes there, so
    that it can be told together with what is found later.

    Raises:
        DataError: files or columns that are missing or cannot be read, subjects and times that make no panel.
    """
    tables, wide = _opened(inputs, schema)
    tell_of_unused(tables[0].columns, schema, reporter)
    long_readings, wide_readings, found = _readings(schema, tables, wide)
    subject = Reading(schema.named("subject")[0], "text")
    on = Reading(schema.statics.on, "text") if wide is not None and schema.statics.on else subject
    time = Reading.of_time(schema.in_file(schema.named("time")[0]), schema.time)
    parts = [Reading(part, "text") for part in schema.subject or ()]
    log, bins = EventLog.of(schema, long_readings), Bins.of(schema, long_readings)
    wanted = [subject, time, *parts, on, *([log.code] if log else []), *long_readings.values()]
    _refuse(tables, wanted, schema, found)
    learns = wrong is None  # new subjects are as those that a model learned from
    if unit := closed_by(tables, schema, subject) if learns or schema.time.closed else "":
        stop = schema.time.stop or ""
        long_readings[stop] = replace(long_readings[stop], after=unit, offset=float(unit == "1"))
        reporter.say(Diagnostic.of("intervals-closed", stop, unit=WORDS[unit]))
    wanted = [subject, time, *parts, on, *([log.code] if log else []), *long_readings.values()]
    rows = read_rows(tables, wanted, schema.blank, scratch)
    if rows.blank_rows:
        reporter.say(Diagnostic.of("rows-empty", rows=counted(rows.blank_rows, "empty row")))
    if not rows.height:
        raise without_rows(tables[0].path, "row per subject and time")
    findings = _joints(rows, parts)
    if log:
        findings += log.problems(rows)
        if wrong is None:
            log.refuse_unknown(rows)
    else:
        findings += unreadable(rows, long_readings.values())
    rows, unplaced = usable_rows(rows, subject, time)
    if log and rows.height:
        rows, long_readings = log.by_step(rows, subject, time, reporter), log.readings(long_readings)
    levels = [finding for reading in long_readings.values() for finding in _unknown_texts(rows, reading, schema)]
    if bins and rows.height:
        findings, levels = [*findings, *levels], []  # they may not be what a step becomes
        rows, long_readings = bins.by_step(rows, subject, time, reporter), bins.readings(long_readings)
    found = [*findings, *unplaced]
    raise_errors([] if rows.height else [*found, *levels], what="the table")
    whole = not unplaced
    timed = bool(schema.time.stop) or any(column.at for column in schema.columns.values())
    of_any_length = schema.model_copy(update={"min_length": 1}) if timed else schema
    keys = read_keys(
        rows, subject, time, of_any_length, reporter, findings=found, also=levels, wrong=wrong, whole=whole
    )
    nowhere = np.full(len(keys.subjects), -1, dtype=np.int64)
    table = Table(keys, time, rows, long_readings, None, {}, nowhere)
    if wide is not None:
        wide_rows = read_rows([wide], [on, *wide_readings.values()], schema.blank)
        wide_row = _wide_rows(
            wide_rows, on, wide_readings, table, reporter, by_subject=on == subject, also=levels, wrong=wrong
        )
        table = replace(table, wide=wide_rows, wide_readings=wide_readings, wide_row=wide_row)
    return _with_ends(table, schema, reporter, wrong) if timed else table


@told_of_memory()
def check_columns(inputs: TableInputs, schema: TableSchema) -> None:
    """See that the files have the schema's columns, without reading their rows.

    Raises:
        DataError: files or columns that are missing.
    """
    raise_errors(_readings(schema, *_opened(inputs, schema))[2], what="the table")


def _opened(inputs: TableInputs, schema: TableSchema) -> tuple[list[TableFile], TableFile | None]:
    """Return the long table's files and that of statics, if there is one, with the subject's name as a column."""
    written = Written.of(schema)
    names = {*schema.file_columns, *condition_readings(schema)}
    tables = [with_subject(file, schema) for file in open_files(inputs.tables, names=names, written=written)]
    if not inputs.statics:
        return tables, None
    return tables, with_subject(
        open_files([inputs.statics], "the statics file", names=names, written=written)[0], schema
    )


def _with_ends(table: Table, schema: TableSchema, reporter: Reporter, wrong: list[Diagnostic] | None) -> Table:
    """Return a table with the cells of ends whose time a column tells, of the subjects that are then long enough."""
    table, found = place_ends(table, schema)  # after a subject's last row, which may be its first
    if wrong is None:
        raise_errors(found, what="the table")
    else:
        wrong += found
    return table.keep(long_enough(table.keys, schema.min_length, reporter))


def with_subject(file: TableFile, schema: TableSchema) -> TableFile:
    """Return a file with the name of the subject as a column, where the schema says it in several that the file has.

    Where it says it in none, all rows are one series, called `series`.
    """
    if schema.subject is None or not set(schema.subject) <= set(file.columns):
        return file
    readings = [Reading(part, "text") for part in schema.subject]
    texts = [as_read(file.column(r.column), file.types[r.column], r, schema.blank) for r in readings]
    name, place = schema.named("subject")[0], len(file.scan.collect_schema()) - 1
    label = pl.concat_str(texts, separator=JOINT) if texts else pl.lit("series")
    scan = file.scan.with_columns(label.alias(SUBJECT))
    return replace(file, scan=scan, columns=file.columns | {name: place}, types=file.types | {name: pl.String()})


def _joints(rows: Rows, parts: Sequence[Reading]) -> list[Diagnostic]:
    """Find parts of subjects' names that hold what joins them: two subjects might have one name."""
    findings = []
    for part in parts:
        odd = rows.series(part).str.contains(JOINT, literal=True).fill_null(value=False)
        if odd.any():
            what = f"with `{JOINT}`, which joins the parts of a subject's name"
            findings.append(wrong_values(part.column, odd, what, rows.place, "write another letter, in all tables"))
    return findings


def _refuse(
    tables: Sequence[TableFile], readings: Sequence[Reading], schema: TableSchema, found: list[Diagnostic]
) -> None:
    """Stop where columns are missing or of another type; what is wrong with the values of the others is told, too.

    Raises:
        DataError: all of it.
    """
    odd = unusable(tables, readings)
    if not found and not odd:
        return
    readable = [r for r in readings if r not in odd and all(r.column in table.columns for table in tables)]
    rows = read_rows(tables, readable, schema.blank)
    unknown = [finding for reading in readable for finding in _unknown_texts(rows, reading, schema)]
    raise_errors([*found, *odd.values(), *unreadable(rows, readable), *unknown], what="the table")


def _unknown_texts(rows: Rows, reading: Reading, schema: TableSchema) -> list[Diagnostic]:
    """Return that a column has other values than the levels or categories that the schema lists, if it does."""
    column = schema.columns.get(reading.column)
    if column is None or column.is_dose:
        return []
    levels, categories = column.labels("levels"), column.labels("categories")
    texts = rows.series(reading)
    if levels is not None:
        unknown = level_codes(texts, levels) == UNKNOWN
        return [unknown_level(reading.column, texts, levels, unknown, rows.place)] if unknown.any() else []
    if categories is None or column.unseen != "error":
        return []
    unknown = category_codes(texts, categories) == UNSEEN
    return [unseen_category(reading.column, texts, categories, unknown, rows.place)] if unknown.any() else []


def _readings(
    schema: TableSchema, tables: Sequence[TableFile], wide: TableFile | None
) -> tuple[dict[str, Reading], dict[str, Reading], list[Diagnostic]]:
    """Return how to read each column but subject and time, in the long table and in the statics file.

    Columns that no file has, or that both have, are found.

    Raises:
        DataError: a column is compared with what it is not.
    """
    keys = {*schema.named("subject", "time")}
    asked = {name: reading_of(schema, name) for name in schema.columns if name not in keys}
    for name, reading in condition_readings(schema).items():
        if name in asked and asked[name].as_ != reading.as_ and {asked[name].as_, reading.as_} != {"number", "binary"}:
            problem = f"[domain] compares '{name}' with {reading.as_}s, its kind says otherwise"
            raise DataError(problem, where="[domain]", fix="compare it with a constant of its kind")
        asked.setdefault(name, reading)
    if schema.time.stop:
        asked[schema.time.stop] = Reading.of_time(schema.time.stop, schema.time)
    findings: list[Diagnostic] = []
    in_wide: dict[str, Reading] = {}
    subjects = schema.subject or schema.named("subject")
    on = [schema.statics.on] if schema.statics.on and wide is not None else subjects
    findings += [no_column(name, wide) for name in on if wide is not None and name not in wide.columns]
    code = [schema.events.code] if schema.events else []
    for name in dict.fromkeys([*subjects, *on, *schema.named("time"), *code, *asked]):
        called = asked[name].column if name in asked else schema.in_file(name)
        lacking = [table for table in tables if called not in table.columns]
        in_time = name in schema.columns and schema.columns[name].role not in (*PER_SUBJECT, "subject")
        in_time &= name not in schema.columns or not schema.columns[name].at
        in_time |= name == schema.time.stop
        is_key = name not in asked or name in (*on, *subjects)
        if wide is not None and called in wide.columns and not is_key and not in_time:
            if not lacking:
                problem = f"column '{called}' is in {tables[0].name} and in {wide.name}"
                findings.append(invalid(problem, "", "keep it in one of the two"))
            in_wide[name] = asked[name]
        elif lacking:
            unit = schema.columns[name].unit if name in schema.columns else ""
            lost = no_column(called, lacking[0], wide if not in_time else None, unit=unit)
            if wide is None and schema.statics.on and not in_time:
                lost = replace(lost, fix=f"give `--statics`, which the schema joins by '{schema.statics.on}'")
            findings.append(lost)
    if wide is not None and not in_wide and not findings:
        others = [name for name in wide.columns if name not in schema.columns]
        problem = f"no column of {wide.name} is used" + (f": it has {shown(others, 8)}" if others else "")
        fix = "declare its columns in [columns], or leave `--statics` out"
        findings.append(invalid(problem, "--statics", fix))
    found = list(dict.fromkeys(findings))
    return {name: reading for name, reading in asked.items() if name not in in_wide}, in_wide, found


def reading_of(schema: TableSchema, name: str) -> Reading:
    """Return how to read a column of the schema, but subject and time."""
    column = schema.columns[name]
    called = column.column or name
    if schema.events and column.role in OF_STEPS:
        if column.aggregated in ("any", "count"):
            return Reading(schema.events.code, "text")
        called = schema.events.value or ""
    if column.at:
        return Reading.of_time(column.at, schema.time)
    if column.is_dose:
        return Reading(called, "number", factor=column.factor, offset=column.offset, shift=column.shift)
    if column.role in ("treatment", "domain", "split", "cluster", *ENDS) or column.kind == "categorical":
        return Reading(called, "text", shift=column.shift)
    as_: As = "binary" if column.kind == "binary" else "number"
    return Reading(called, as_, factor=column.factor, offset=column.offset, shift=column.shift)


def no_column(name: str, table: TableFile, wide: TableFile | None = None, *, unit: str = "") -> Diagnostic:
    """Say that a column is not there, with the nearest one that is, which may say its unit: `weight (lb)`."""
    known = [*table.columns, *(wide.columns if wide else ())]
    for column in known:
        if found := re.fullmatch(rf"{re.escape(name)}\s*[\[(](.+)[\])]", column):
            convert = f"convert it to {unit} and " if unit and found[1] != unit else ""
            problem = f"there is no column '{name}'{f' in {unit}' * bool(unit)}, but '{column}'"
            return invalid(problem, table.name, f"{convert}call it '{name}'")
    hint = did_you_mean(name, known, quoted=True) or f"it has {shown(table.columns, 8)}"
    return invalid(f"there is no column '{name}'", table.name, hint)


def _wide_rows(
    rows: Rows,
    on: Reading,
    readings: Mapping[str, Reading],
    table: Table,
    reporter: Reporter,
    *,
    by_subject: bool,
    also: Sequence[Diagnostic] = (),
    wrong: list[Diagnostic] | None = None,
) -> Ints:
    """Return the row in the statics file of each subject, by its name or by column `on`; -1 where there is none.

    `also` is told where something is wrong here, too, and all of it goes to `wrong` where that is given.
    """
    what, findings = "subject" if by_subject else on.column, list[Diagnostic]()
    key_N = pl.Series(table.keys.subjects.names, dtype=pl.String)
    if not by_subject:
        key_N, findings = replace(table, readings={on.column: on}).subject_values(on.column)
    findings += unreadable(rows, readings.values())
    keys = rows.series(on)
    if keys.is_null().any():
        place = f"first in {rows.place(int(keys.is_null().arg_max() or 0))}"
        findings.append(invalid(f"column '{on.column}': a row without a {what}", place, "name it"))
    known = number_subjects(key_N.drop_nulls())
    who = known.rows_of(keys)
    order = np.argsort(who, kind="stable")
    frame = rows.frame.drop("file", "row")
    repeated = [(int(a), int(b)) for a, b in pairwise(order) if who[a] == who[b] >= 0]
    for one, other in repeated:
        if frame.row(one) != frame.row(other):
            problem = f"two rows of {what} {keys[one]} with different values"
            where = f"{rows.place(one)} and {rows.place(other)}"
            findings.append(invalid(problem, where, f"keep one row per {what}"))
            break
    if wrong is None:
        raise_errors([*findings, *also] if findings else [], what="the statics file")
    else:
        wrong += findings
    if strangers := int((who < 0).sum()):
        count = counted(strangers, "row")
        reporter.say(Diagnostic.of("statics-unused", count=count, what=what))
    row = np.full(len(known) + 1, -1, dtype=np.int64)  # the last one is of subjects without a key
    row[who[who >= 0]] = np.flatnonzero(who >= 0)
    return row[known.rows_of(key_N)]
