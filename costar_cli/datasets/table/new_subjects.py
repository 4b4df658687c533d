"""New subjects from a table, read as the data of a model were: one is enough, nobody to learn from (polars)."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np
import polars as pl

from costar_cli.datasets.table.context import EncodingContext, Mask, Table
from costar_cli.datasets.table.files import TableFile, open_files
from costar_cli.datasets.table.ingest import ROLLING, build_panels, encode_columns, ingestion_record
from costar_cli.datasets.table.inputs import TableInputs, read_table
from costar_cli.datasets.table.parse import Reading, as_read
from costar_cli.datasets.table.preprocessing import KEY, Preprocessing
from costar_cli.datasets.table.schema import STEP_WORDS, TableSchema, TimeSchema
from costar_cli.datasets.table.splits import condition_readings, domains_of, has_target
from costar_cli.errors import DataError
from costar_cli.panel.check import check_dataset
from costar_cli.panel.compatible import require_compatible
from costar_cli.panel.dataset import LIKE, Dataset, Part
from costar_cli.panel.findings import counted, shown
from costar_cli.panel.queries import rolling_origin
from costar_cli.panel.schema import PanelSchema
from costar_cli.reporting import Reporter

AS_THEY_STAND: Final = "the order of the rows"  # a column of time that a frame may do without
NEW: Final = ", new subjects"  # ends the name of such a data set


def ingest_new(
    inputs: TableInputs,
    like: Preprocessing,
    reporter: Reporter,
    *,
    subject: str | None = None,
    time: str | None = None,
    ordered: bool = False,
) -> Dataset:
    """Make a data set of new subjects, read as another data set was; nothing is learned from them.

    They are in the test part of the domain that the table tells, or else of the one that `like` names. Questions are
    what came next, where subjects have as many steps.

    Args:
        inputs: the tables.
        like: how the other data set was read.
        reporter: hears of what is ignored, filled or left out.
        subject: the column that says whose row it is, where it is called otherwise.
        time: the column of time, likewise.
        ordered: rows of a subject may come without a column of time, in their order, if `time` is not given.

    Raises:
        DataError: whatever differs from the other data set, all at once.
    """
    tables = open_files(inputs.tables)
    wide = open_files([inputs.statics], "the statics file")[0] if inputs.statics else None
    columns = {name for file in (*tables, *([wide] if wide else [])) for name in file.columns}
    when = time or like.schema_for(columns).named("time")[0]
    clock = None
    if ordered and time is None and when not in columns:
        tables, time = [_with_order(table) for table in tables], AS_THEY_STAND
        clock = TimeSchema(unit=like.panel.step, gaps="ignore")
    elif like.schema is None and _has_dates(tables[0], when):
        clock = _clock_of_dates(like.panel.step)
    schema = like.schema_for(columns, subject=subject, time=time, clock=clock)
    inputs = replace(inputs, tables=tables, statics=wide)
    if unread := sorted(columns - set(schema.columns) - set(condition_readings(schema))):
        reporter.note(f"columns that are not used: {shown(unread, 8)}")
    try:
        return _made(inputs, schema, like, reporter)
    except DataError as error:
        lines = error.details or [f"{error.where or ''}: {error.problem} ({error.fix})".removeprefix(": ")]
        problem = f"the new subjects do not fit `{like.name}`, which the model was trained on"
        fix = "correct the table; its schema is that of the training data, and changes only by training again"
        raise DataError(problem, where=", ".join(table.name for table in tables), fix=fix, details=lines) from None


def _made(inputs: TableInputs, schema: TableSchema, like: Preprocessing, reporter: Reporter) -> Dataset:
    table = _until_plans(read_table(inputs, schema, reporter), schema, reporter)
    domain = domains_of(table, schema) if has_target(schema) else np.full(len(table.keys.subjects), "")
    if (untold := domain == "").any() and like.has_target:
        who = counted(int(untold.sum()), "subject")
        reporter.note(f"{who} whose domain the table does not tell: taken as of the {like.domain}")
    numbers = {domain: Part.all().index(Part(domain, "test")) for domain in ("source", "target")}
    part = np.array([numbers[name or like.domain] for name in domain.tolist()], dtype=np.int64)
    context = EncodingContext(table, part, schema, reporter, known=like.learned)
    panel_schema, by_cell, by_subject = _in_order_of(like.panel, *encode_columns(context))
    panels = build_panels(context, by_cell, by_subject)
    asked = {part: rolling_origin(panel, like.horizon) for part, panel in panels.items()}
    config: dict[str, Any] = {LIKE: like.digest, **ingestion_record(context)}
    if like.stored:
        config[KEY] = dict(like.stored)
    dataset = Dataset(
        like.name.removesuffix(NEW) + NEW,
        panel_schema,
        like.horizon,
        panels,
        {part: {ROLLING: queries} for part, queries in asked.items() if queries is not None},
        config=config,
    )
    require_compatible(dataset, like.panel, model="the model")
    for line in _fillings(context):
        reporter.note(line)
    for line in _beyond(context, like):
        reporter.warn(line)
    check_dataset(dataset, reporter)
    return dataset


def _with_order(table: TableFile) -> TableFile:
    """Return a file with the numbers of its rows as a column."""
    columns, types = {**table.columns, AS_THEY_STAND: -1}, {**table.types, AS_THEY_STAND: pl.UInt32()}
    return replace(table, columns=columns, types=types)


def _has_dates(table: TableFile, column: str) -> bool:
    """Return whether a column of time holds dates: by its type, or by its first value."""
    if column not in table.columns:
        return False
    kind = table.types[column]
    if kind != pl.String:
        return isinstance(kind, pl.Date | pl.Datetime)
    raw = as_read(table.column(column), kind, Reading(column, "number"), [])
    first = table.scan.select(raw.alias("value")).drop_nulls().head(1).collect()["value"]
    return bool(first.is_nan().any())


def _clock_of_dates(word: str) -> TimeSchema:
    """Return how dates become steps that are called so; each row is a step where the word is no duration."""
    if word in STEP_WORDS:
        return TimeSchema(step=f"1{STEP_WORDS[word]}", unit=word)
    return TimeSchema(step="1s", unit=word, gaps="ignore")


def _until_plans(table: Table, schema: TableSchema, reporter: Reporter) -> Table:
    """Return a table without rows that say neither treatment nor outcome, beyond the first one without a treatment.

    A plan begins there. Where a later row has an outcome, all rows are kept: a treatment is missing.
    """
    keys = table.keys
    given, seen = (_any_known(table, schema.named(role)) for role in ("treatment", "outcome"))
    last = np.full(len(keys.subjects), -1, dtype=np.int64)
    np.maximum.at(last, keys.subject[given], keys.step[given])
    later: Mask = keys.step > last[keys.subject] + 1
    whole = np.zeros(len(keys.subjects), dtype=bool)
    whole[keys.subject[later & seen]] = True
    kept: Mask = ~later | whole[keys.subject]
    if kept.all():
        return table
    rows = counted(int((~kept).sum()), "row")
    reporter.note(f"{rows} behind the one where plans begin left out: neither treatment nor outcome is known there")
    length = np.bincount(keys.subject[kept], minlength=len(keys.subjects)).astype(np.int64)
    cells = {name: getattr(keys, name)[kept] for name in ("subject", "step", "row")}
    return replace(table, keys=replace(keys, **cells, length=length))


def _any_known(table: Table, names: list[str]) -> Mask:
    known: Mask = np.any([table.column(name).is_not_null().to_numpy() for name in names], axis=0)
    return known


def _in_order_of(
    wanted: PanelSchema, made: PanelSchema, by_cell: dict[str, Any], by_subject: dict[str, Any]
) -> tuple[PanelSchema, dict[str, Any], dict[str, Any]]:
    """Return what columns became, with covariates and statics in the wanted order where both have the same ones."""
    arrays = {"covariates": by_cell, "statics": by_subject}
    changed = {}
    for role, held in arrays.items():
        variables = getattr(made, role)
        have, want = ([variable.name for variable in getattr(schema, role)] for schema in (made, wanted))
        if have != want and sorted(have) == sorted(want):
            order = [have.index(name) for name in want]
            arrays[role] = {**held, role: held[role][:, order]}
            changed[role] = tuple(variables[i] for i in order)
    return made.model_copy(update=changed), arrays["covariates"], arrays["statics"]


def _fillings(context: EncodingContext) -> Iterator[str]:
    for name, count in context.filled.items():
        means = f", {count['learned']} of them the training mean" if count["learned"] else ""
        yield f"column '{name}': {counted(count['missing'], 'missing value')} taken from the subject's past{means}"


def _beyond(context: EncodingContext, like: Preprocessing) -> Iterator[str]:
    """Yield a line for each column of numbers without any value that training had: it may be in another unit."""
    for name, (low, high) in like.learned.ranges.items():
        column = context.schema.columns[name]
        values = context.table.static_values(name)[0] if column.role == "static" else context.table.column(name)
        known = values.drop_nulls().to_numpy().astype(np.float64)
        if len(known) and ((known < low) | (known > high)).all():
            unit = f" {column.unit}" if column.unit else ""
            yield (
                f"column '{name}': all {counted(len(known), 'value')} lie outside of training's {low:g} to "
                f"{high:g}{unit}: is it in the same unit?"
            )
