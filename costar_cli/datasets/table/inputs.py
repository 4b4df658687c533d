"""The files of a data set, their columns checked and read, laid out along the panel (polars)."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np

from costar_cli.config.nearest import did_you_mean
from costar_cli.datasets.table.context import Table
from costar_cli.datasets.table.files import TableFile, open_files
from costar_cli.datasets.table.index import Ints, Keys, read_keys, usable_rows
from costar_cli.datasets.table.parse import Reading, Rows, read_rows, unreadable, unusable
from costar_cli.datasets.table.schema import TableSchema
from costar_cli.datasets.table.splits import condition_readings
from costar_cli.datasets.table.treatments import UNKNOWN, level_codes, unknown_level
from costar_cli.datasets.table.variables import UNSEEN, category_codes, unseen_category
from costar_cli.errors import DataError
from costar_cli.panel.findings import Finding, counted, raise_errors, shown
from costar_cli.reporting import Reporter

PER_SUBJECT: Final = ("static", "domain", "split", "cluster")  # roles that a statics file may have


@dataclass(frozen=True, slots=True)
class TableInputs:
    """The files of a data set: the long table's, and perhaps one of statics and one of known queries."""

    tables: Sequence[Path | TableFile]
    statics: Path | TableFile | None = None
    queries: Path | TableFile | None = None

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
    inputs: TableInputs, schema: TableSchema, reporter: Reporter, *, wrong: list[Finding] | None = None
) -> Table:
    """Return the files' columns, laid out along the cells of the panel.

    With a list `wrong`, what is wrong with rows goes there, so that it can be told together with what is found later.

    Raises:
        DataError: files or columns that are missing or cannot be read, subjects and times that make no panel.
    """
    names = {*schema.columns, *condition_readings(schema)}
    tables = open_files(inputs.tables, names=names)
    wide = open_files([inputs.statics], "the statics file", names=names)[0] if inputs.statics else None
    long_readings, wide_readings, found = _readings(schema, tables, wide)
    subject = Reading(schema.named("subject")[0], "text")
    time = Reading.of_time(schema.named("time")[0], schema.time.parsed, schema.time.format)
    _refuse(tables, [subject, time, *long_readings.values()], schema, found)
    rows = read_rows(tables, [subject, time, *long_readings.values()], schema.blank)
    if rows.blank_rows:
        reporter.note(f"{counted(rows.blank_rows, 'empty row')} dropped")
    if not rows.height:
        nothing = Finding("error", "the table has no rows", fix="give at least one row per subject and time")
        raise_errors([nothing], what="the table")
    findings = [finding for reading in long_readings.values() for finding in unreadable(rows, reading)]
    levels = [finding for reading in long_readings.values() for finding in _unknown_texts(rows, reading, schema)]
    rows, unplaced = usable_rows(rows, subject, time)
    found = [*findings, *unplaced]
    raise_errors([] if rows.height else [*found, *levels], what="the table")
    whole = not unplaced
    keys = read_keys(rows, subject, time, schema, reporter, findings=found, also=levels, wrong=wrong, whole=whole)
    wide_rows, wide_row = None, np.full(len(keys.subjects), -1, dtype=np.int64)
    if wide is not None:
        wide_rows = read_rows([wide], [subject, *wide_readings.values()], schema.blank)
        wide_row = _wide_rows(wide_rows, subject, wide_readings, keys, reporter, also=levels, wrong=wrong)
    times = rows.series(time).to_numpy()
    return Table(keys, times, rows, long_readings, wide_rows, wide_readings, wide_row)


def _refuse(
    tables: Sequence[TableFile], readings: Sequence[Reading], schema: TableSchema, found: list[Finding]
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
    values = [f for r in readable for f in (*unreadable(rows, r), *_unknown_texts(rows, r, schema))]
    raise_errors([*found, *odd.values(), *values], what="the table")


def _unknown_texts(rows: Rows, reading: Reading, schema: TableSchema) -> list[Finding]:
    """Return that a column has other values than the levels or categories that the schema lists, if it does."""
    column = schema.columns.get(reading.column)
    if column is None:
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
) -> tuple[dict[str, Reading], dict[str, Reading], list[Finding]]:
    """Return how to read each column but subject and time, in the long table and in the statics file.

    Columns that no file has, or that both have, are found.

    Raises:
        DataError: a column is compared with what it is not.
    """
    asked = {name: _reading(schema, name) for name in schema.columns if name not in schema.named("subject", "time")}
    for name, reading in condition_readings(schema).items():
        if name in asked and asked[name].as_ != reading.as_ and {asked[name].as_, reading.as_} != {"number", "binary"}:
            problem = f"[domain] compares '{name}' with {reading.as_}s, its kind says otherwise"
            raise DataError(problem, where="[domain]", fix="compare it with a constant of its kind")
        asked.setdefault(name, reading)
    findings: list[Finding] = []
    in_wide: dict[str, Reading] = {}
    for name in [*schema.named("subject", "time"), *asked]:
        lacking = [table for table in tables if name not in table.columns]
        in_time = name in schema.columns and schema.columns[name].role not in (*PER_SUBJECT, "subject")
        if wide is not None and name in wide.columns and name in asked and not in_time:
            if not lacking:
                problem = f"column '{name}' is in {tables[0].name} and in {wide.name}"
                findings.append(Finding("error", problem, "", "keep it in one of the two"))
            in_wide[name] = asked[name]
        elif lacking:
            unit = schema.columns[name].unit if name in schema.columns else ""
            findings.append(no_column(name, lacking[0], wide if not in_time else None, unit=unit))
        if name in schema.named("subject") and wide is not None and name not in wide.columns:
            findings.append(no_column(name, wide))
    if wide is not None and not in_wide and not findings:
        others = [name for name in wide.columns if name not in schema.columns]
        problem = f"no column of {wide.name} is used" + (f": it has {shown(others, 8)}" if others else "")
        fix = "declare its columns in [columns], or leave `--statics` out"
        findings.append(Finding("error", problem, "--statics", fix))
    return {name: reading for name, reading in asked.items() if name not in in_wide}, in_wide, findings


def _reading(schema: TableSchema, name: str) -> Reading:
    column = schema.columns[name]
    if column.role in ("treatment", "domain", "split", "cluster") or column.kind == "categorical":
        return Reading(name, "text")
    return Reading(name, "binary" if column.kind == "binary" else "number")


def no_column(name: str, table: TableFile, wide: TableFile | None = None, *, unit: str = "") -> Finding:
    """Say that a column is not there, with the nearest one that is, which may say its unit: `weight (lb)`."""
    known = [*table.columns, *(wide.columns if wide else ())]
    for column in known:
        if found := re.fullmatch(rf"{re.escape(name)}\s*[\[(](.+)[\])]", column):
            convert = f"convert it to {unit} and " if unit and found[1] != unit else ""
            problem = f"there is no column '{name}'{f' in {unit}' * bool(unit)}, but '{column}'"
            return Finding("error", problem, table.name, f"{convert}call it '{name}'")
    hint = did_you_mean(name, known, quoted=True) or f"it has {shown(table.columns, 8)}"
    return Finding("error", f"there is no column '{name}'", table.name, hint)


def _wide_rows(
    rows: Rows,
    subject: Reading,
    readings: Mapping[str, Reading],
    keys: Keys,
    reporter: Reporter,
    *,
    also: Sequence[Finding] = (),
    wrong: list[Finding] | None = None,
) -> Ints:
    """Return the row of each subject in the statics file, -1 where there is none.

    `also` is told where something is wrong here, too, and all of it goes to `wrong` where that is given.
    """
    findings = [finding for reading in readings.values() for finding in unreadable(rows, reading)]
    names = rows.series(subject)
    if names.is_null().any():
        place = f"first in {rows.place(int(names.is_null().arg_max() or 0))}"
        findings.append(Finding("error", f"column '{subject.column}': a row without a subject", place, "name it"))
    who = keys.subjects.rows_of(names)
    order = np.argsort(who, kind="stable")
    frame = rows.frame.drop("file", "row")
    repeated = [(int(a), int(b)) for a, b in pairwise(order) if who[a] == who[b] >= 0]
    for one, other in repeated:
        if frame.row(one) != frame.row(other):
            problem = f"two rows of subject {names[one]} with different values"
            where = f"{rows.place(one)} and {rows.place(other)}"
            findings.append(Finding("error", problem, where, "keep one row per subject"))
            break
    if wrong is None:
        raise_errors([*findings, *also] if findings else [], what="the statics file")
    else:
        wrong += findings
    if strangers := int((who < 0).sum()):
        reporter.note(f"{counted(strangers, 'row')} of the statics file about subjects that the table does not have")
    wide_row = np.full(len(keys.subjects), -1, dtype=np.int64)
    wide_row[who[who >= 0]] = np.flatnonzero(who >= 0)
    return wide_row
