"""New subjects from a table, read as the data of a model were: one is enough, nobody to learn from (polars)."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from costar_cli.config.nearest import did_you_mean
from costar_cli.data.base import Possible
from costar_cli.data.check import check_dataset
from costar_cli.data.compatible import require_compatible
from costar_cli.data.dataset import LIKE, Dataset, Part
from costar_cli.data.findings import counted, invalid, shown
from costar_cli.data.queries import rolling_origin
from costar_cli.data.schema import PanelSchema
from costar_cli.data.table.context import EncodingContext, Mask, Table
from costar_cli.data.table.files import open_files
from costar_cli.data.table.ingest import ROLLING, build_panels, encode_columns, ingestion_record
from costar_cli.data.table.inputs import TableInputs, check_columns, read_table
from costar_cli.data.table.parse import Reading, as_read, wrong_values
from costar_cli.data.table.preprocessing import KEY, Preprocessing
from costar_cli.data.table.schema import TableSchema
from costar_cli.data.table.schema_column import STEP_WORDS, TimeSchema
from costar_cli.data.table.scratch import NoRoomError, Scratch, told_of_memory
from costar_cli.data.table.splits import DOMAINS, condition_readings, domains_of, has_target
from costar_cli.data.table.variables import values_of
from costar_cli.data.table.written import PLAIN, Written
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import DataError
from costar_cli.reporting import Reporter

AS_THEY_STAND: Final = "the order of the rows"  # a column of time that a frame may do without
NEW: Final = ", new subjects"  # ends the name of such a data set
_OF_SCHEMA: Final = re.compile(
    r"\bdeclare\b|\[(time|treatments|columns|domain)\]|\brole =|"
    r"`(levels|classes|categories|blank|decimal|thousands|comment|format|gaps|missing|unseen|min_length|max_length)\b"
)
_BETWEEN: Final = re.compile(r"(, or |; |: |, )")  # advice that can be followed alone


@told_of_memory()
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
    inputs, schema, columns = _as_like(inputs, like, subject, time, ordered=ordered)
    if unread := sorted(columns - schema.file_columns - set(condition_readings(schema))):
        reporter.say(Diagnostic.of("columns-unused", names=shown(unread, 8)))
    with _without_schema(inputs, like), Scratch(inputs.scratch) as scratch:
        return _made(inputs, schema, like, reporter, scratch)


@told_of_memory()
def check_new(inputs: TableInputs, like: Preprocessing) -> None:
    """See that a table of new subjects has the columns that it needs, without reading its rows.

    Raises:
        DataError: files or columns that are missing.
    """
    inputs, schema, _ = _as_like(inputs, like)
    with _without_schema(inputs, like):
        check_columns(inputs, schema)


def _as_like(
    inputs: TableInputs,
    like: Preprocessing,
    subject: str | None = None,
    time: str | None = None,
    *,
    ordered: bool = False,
) -> tuple[TableInputs, TableSchema, set[str]]:
    """Return the tables, opened, with the schema by which to read them, and all their columns."""
    written = Written.of(like.schema) if like.schema else PLAIN
    tables = open_files(inputs.tables, written=written)
    wide = open_files([inputs.statics], "the statics file", written=written)[0] if inputs.statics else None
    columns = {name for file in (*tables, *([wide] if wide else [])) for name in file.columns}
    when = time or like.schema_for(columns).named("time")[0]
    word = like.panel.step
    clock = None
    if ordered and time is None and when not in columns:
        time = AS_THEY_STAND  # the numbers of rows as a column
        tables = [
            replace(table, columns=table.columns | {time: -1}, types=table.types | {time: pl.UInt32()})
            for table in tables
        ]
        clock = TimeSchema(unit=word, gaps="ignore")
    elif like.schema is None and when in tables[0].columns:
        first, type_ = tables[0], tables[0].types[when]
        dated = isinstance(type_, pl.Date | pl.Datetime)
        if type_ == pl.String:  # the first value tells
            raw = as_read(first.column(when), type_, Reading(when, "number"), [], written=first.written)
            value = first.scan.select(raw.alias("value")).drop_nulls().head(1).collect()["value"]
            dated = bool(value.is_nan().any())
        if dated and word in STEP_WORDS:
            clock = TimeSchema(step=f"1{STEP_WORDS[word]}", unit=word)
        elif dated:  # each row is a step where the word is no duration
            clock = TimeSchema(step="1s", unit=word, gaps="ignore")
    schema = like.schema_for(columns, subject=subject, time=time, clock=clock)
    return replace(inputs, tables=tables, statics=wide), schema, columns


@contextmanager
def _without_schema(inputs: TableInputs, like: Preprocessing) -> Iterator[None]:
    """Say of errors that the table differs from the one behind the other data set; no schema can be corrected."""
    try:
        yield
    except NoRoomError:
        raise
    except DataError as error:
        alone = invalid(error.problem, error.where or "", error.fix or "")
        lines = [without_schema_advice(line) for line in error.details or [str(alone)]]
        problem = f"the new subjects do not fit `{like.name}`, which the model was trained on"
        fix = "correct the table; its schema is that of the training data, and changes only by training again"
        raise DataError(
            problem, where=", ".join(table.name for table in inputs.tables), fix=fix, details=lines
        ) from None


def without_schema_advice(line: str) -> str:
    """Return a line of an error without what its fix says of the schema, which new subjects do not have."""
    if not line.endswith(")"):
        return line
    depth = 0
    for start in range(len(line) - 1, -1, -1):
        depth += (line[start] == ")") - (line[start] == "(")
        if depth == 0:
            break
    problem, fix = line[:start], line[start + 1 : -1]
    if not _OF_SCHEMA.search(fix):
        return line
    first, *more = _BETWEEN.split(fix)
    pairs = [("", first), *zip(more[::2], more[1::2], strict=True)]
    kept = [(lead, words) for lead, words in pairs if not _OF_SCHEMA.search(words)]
    left = "".join(words if i == 0 else lead + words for i, (lead, words) in enumerate(kept))
    return f"{problem}({left})" if left else problem.rstrip()


def _made(
    inputs: TableInputs, schema: TableSchema, like: Preprocessing, reporter: Reporter, scratch: Scratch
) -> Dataset:
    """Return the data set of tables that are read by training's schema."""
    wrong: list[Diagnostic] = []
    table = read_table(inputs, schema, reporter, scratch=scratch, wrong=wrong)
    table = _until_plans(table, schema, reporter)
    with_target = has_target(schema)
    unexpected = list(_strange_domains(table, schema)) if with_target else []
    domain = domains_of(table, schema) if with_target and not unexpected else np.full(len(table.keys.subjects), "")
    if not unexpected and (unstated := domain == "").any() and like.has_target:
        who = counted(int(unstated.sum()), "subject")
        reporter.say(Diagnostic.of("domain-assumed", subjects=who, domain=like.domain))
    numbers = {domain: Part.all().index(Part(domain, "test")) for domain in ("source", "target")}
    part = np.array([numbers[name or like.domain] for name in domain.tolist()], dtype=np.int64)
    context = EncodingContext(table, part, schema, reporter, known=like.learned, findings=[*wrong, *unexpected])
    context.findings += _impossible(context, like.possible)
    panel_schema, by_cell, by_subject = _in_order_of(like.panel, *encode_columns(context))
    panels = build_panels(context, by_cell, by_subject)
    asked = {part: rolling_origin(panel, like.horizon) for part, panel in panels.items() if panel_schema.outcomes}
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
    for name, count in context.filled.items():
        categorical = context.schema.columns[name].kind == "categorical"
        rest = "left without a category" if categorical else "with the training mean"
        missing, carried, learned = counted(count["missing"], "missing value"), count["carried"], count["learned"]
        reporter.say(Diagnostic.of("values-filled", name, missing=missing, carried=carried, learned=learned, rest=rest))
    if again := [name for name in table.keys.subjects.names if str(name) in like.trained]:
        who = counted(len(again), "subject has the id of one", "subjects have ids of some")
        reporter.say(Diagnostic.of("ids-repeated", subjects=who, names=shown(again)))
    for unlike in _unlike(context, like):
        reporter.say(unlike)
    check_dataset(dataset, reporter)
    return dataset


def _until_plans(table: Table, schema: TableSchema, reporter: Reporter) -> Table:
    """Return a table without rows that say neither treatment nor outcome, beyond the first one without a treatment.

    A plan begins there. Where a later row has an outcome, all rows are kept: a treatment is missing.
    """
    keys = table.keys
    given, seen = (
        np.any([table.column(name).is_not_null().to_numpy() for name in schema.named(role)], axis=0)
        for role in ("treatment", "outcome")
    )
    last = np.full(len(keys.subjects), -1, dtype=np.int64)
    np.maximum.at(last, keys.subject[given], keys.step[given])
    later: Mask = keys.step > last[keys.subject] + 1
    whole = np.zeros(len(keys.subjects), dtype=bool)
    whole[keys.subject[later & seen]] = True
    kept: Mask = ~later | whole[keys.subject]
    if kept.all():
        return table
    rows = counted(int((~kept).sum()), "row")
    reporter.say(Diagnostic.of("rows-after-plans", rows=rows))
    length = np.bincount(keys.subject[kept], minlength=len(keys.subjects)).astype(np.int64)
    cells = {name: getattr(keys, name)[kept] for name in ("subject", "step", "row")}
    return replace(table, keys=replace(keys, **cells, length=length))


def _in_order_of(
    wanted: PanelSchema, made: PanelSchema, by_cell: dict[str, Any], by_subject: dict[str, Any]
) -> tuple[PanelSchema, dict[str, Any], dict[str, Any]]:
    """Return what columns became, with covariates and statics in the wanted order where both have the same ones.

    Ends of series get the numbers of the wanted ones, whichever of them the table tells of.
    """
    changed: dict[str, Any] = {"ends": wanted.ends}
    if "end" in by_subject:
        names = [end.name for end in wanted.ends]
        number_E = np.array([0, *(names.index(end.name) + 1 for end in made.ends)])
        by_subject = {**by_subject, "end": number_E[by_subject["end"]]}
    arrays = {"covariates": by_cell, "statics": by_subject}
    for role, held in arrays.items():
        variables = getattr(made, role)
        have, want = ([variable.name for variable in getattr(schema, role)] for schema in (made, wanted))
        if have != want and sorted(have) == sorted(want):
            order = [have.index(name) for name in want]
            arrays[role] = {**held, role: held[role][:, order]}
            changed[role] = tuple(variables[i] for i in order)
    return made.model_copy(update=changed), arrays["covariates"], arrays["statics"]


def _strange_domains(table: Table, schema: TableSchema) -> Iterator[Diagnostic]:
    """Yield an error for a column of domains with values that are neither of the source nor of the target."""
    for name in schema.named("domain"):
        column, said = schema.columns[name], table.column(name)
        targets, sources = column.domain_values("target"), column.domain_values("source")
        if targets is not None and sources is None:
            continue  # all others are of the source
        known = [*(sources or DOMAINS[:1]), *(targets or DOMAINS[1:])]
        texts = said.str.to_lowercase() if set(known) <= {"true", "false"} else said
        unknown = (texts.is_not_null() & ~texts.is_in(known)).to_numpy()
        if unknown.any():
            odd = texts.filter(pl.Series(unknown)).unique().sort().to_list()
            fix = (
                did_you_mean(str(odd[0]), known, quoted=True) or f"known are {shown(known)}; leave it empty if unknown"
            )
            what = "that is not a domain" if unknown.sum() == 1 else "that are not domains"
            yield wrong_values(name, unknown, f"{what}: {shown(odd)}", table.place, fix)


def _impossible(context: EncodingContext, possible: Mapping[str, Possible]) -> Iterator[Diagnostic]:
    """Yield an error for each column with values that the data set of the model cannot have."""
    for name, limit in possible.items():
        if name not in context.schema.columns:
            continue
        values, place = _numbers(context, name)
        wrong = limit.refuses(values)
        if wrong.any():
            what = f"that cannot be: {shown([f'{value:g}' for value in np.unique(values[wrong])])}"
            yield wrong_values(name, wrong, what, place, f"it {limit}")


def _numbers(context: EncodingContext, name: str) -> tuple[NDArray[np.float64], Callable[[int], str]]:
    """Return the values of a column, and what says where one of them stands."""
    table, schema = context.table, context.schema.columns[name]
    values = values_of(table, name, schema)[0].to_numpy().astype(np.float64)
    return values, partial(table.subject_place, name) if schema.role == "static" else table.place


def _unlike(context: EncodingContext, like: Preprocessing) -> Iterator[Diagnostic]:
    """Warn of outcomes that some subjects have no value of, and of columns of numbers unlike training's (spec TABLE-8).

    The answers of the former do not start from theirs; the latter are of another unit, or written wrongly.
    """
    keys = context.table.keys
    for name, observed in context.outcomes_observed.items():
        never = np.bincount(keys.subject[observed], minlength=len(keys.subjects)) == 0
        if never.any():
            who = [keys.subjects.names[i] for i in np.flatnonzero(never).tolist()]
            count = counted(len(who), "subject")
            yield Diagnostic.of("outcome-unknown-of-subjects", name, count=count, names=shown(who))
    for name, limits in like.learned.ranges.items():
        if (column := context.schema.columns.get(name)) is None:
            continue
        values, place = _numbers(context, name)
        with np.errstate(over="ignore"):  # in the precision of panels, of which the range may be
            values, (low, high) = values.astype(np.float32), np.array(limits, dtype=np.float32)
        known = values[~np.isnan(values)]
        if not len(known):
            continue
        unit = f" {column.unit}" if column.unit else ""
        if ((known < low) | (known > high)).all():
            which = "its only value lies" if len(known) == 1 else f"all {len(known)} values lie"
            yield Diagnostic.of("values-outside-training", name, values=which, low=low, high=high, unit=unit)
            continue
        width = high - low
        far = (values < low - width) | (values > high + width) | ((values < 0) & (low >= 0))
        if far.any():
            first = f"{values[far][0]:g}{unit}, in {place(int(far.argmax()))}"
            many = counted(int(far.sum()), "value")
            yield Diagnostic.of(
                "values-far-from-training", name, values=many, low=low, high=high, unit=unit, first=first
            )
