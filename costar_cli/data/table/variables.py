"""Covariates, outcomes and statics as numbers: missing values filled, categories as 0/1 columns, masks beside them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Literal, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from costar_cli.config.nearest import did_you_mean
from costar_cli.data.findings import invalid, shown
from costar_cli.data.schema import Variable, transformed_unit
from costar_cli.data.table.context import Column, EncodingContext, Mask, Table
from costar_cli.data.table.index import Ints
from costar_cli.data.table.parse import wrong_values
from costar_cli.data.table.schema_column import MONTHS, ColumnSchema
from costar_cli.data.table.splits import fix_of_constant
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import cut, key_path

MOST_CATEGORIES: Final = 100  # beyond, a column is rather an identifier
OTHER: Final = "other"
MISSING, UNSEEN = -1, -2

Number = TypeVar("Number", np.float64, np.int64)


@dataclass(frozen=True, eq=False, slots=True)
class Encoded:
    """One column of the panel: per cell `[M]`, or per subject `[N]` for a static.

    `observed` says which values were not filled; it is None where none were.
    """

    variable: Variable
    values: NDArray[np.float32]
    observed: Mask | None = None


@dataclass(frozen=True, eq=False, slots=True)
class _Column:
    """A column as it was read, per cell `[M]`, or per subject `[N]` for a static.

    `due` says where a value is wanted (a lag or a difference has none at first, a series that ended none at last),
    `train` which are of source-train, `place` where one comes from, and `carried` which value fills a hole: the
    subject's last, -1 where there is none. Where there are no holes it is empty.
    """

    name: str
    schema: ColumnSchema
    data: pl.Series
    observed: Mask
    due: Mask
    train: Mask
    place: Callable[[int], str]
    carried: Ints


def encode_variables(
    context: EncodingContext, role: Literal["covariate", "outcome", "static"]
) -> tuple[list[Encoded], list[Encoded]]:
    """Return the columns of a role in the order of the schema, and the masks of those that were filled.

    What is wrong goes to the context's findings.
    """
    columns: list[Encoded] = []
    masks: list[Encoded] = []
    for name in context.schema.named(role):
        column = _column(context, name, role)
        schema, observed, train = column.schema, column.observed, column.train
        missing = schema.missing or (context.schema.missing if role != "outcome" else "error")
        holes = ~observed & column.due
        if missing == "error" and holes.any():
            fix = 'give them, or declare `missing = "fill"`'
            context.findings.append(wrong_values(name, holes, "missing", column.place, fix))
            continue
        made = _categories(context, column) if schema.kind == "categorical" else _numbers(context, column)
        if not observed.all():
            made = [replace(encoded, observed=observed) for encoded in made]
        if role == "outcome":
            context.outcomes_observed[name] = observed
        learned = (encoded.values[train] for encoded in made)
        steady = not context.known and bool(made) and all((values == values[:1]).all() for values in learned)
        if steady and role == "outcome":
            problem = f"outcome '{name}' never changes in source-train"
            other = column.observed & np.any([e.values != e.values[train][:1] for e in made], axis=0)
            fix = fix_of_constant(context, other, "choose an outcome that changes")
            context.findings.append(invalid(problem, key_path(("columns", name)), fix))
        if steady and role != "outcome" and context.schema.constant == "drop":
            context.dropped.append(name)
            context.room.widen(role, -len(made))
            continue
        columns += made
        if schema.indicator and (context.known or holes[train].any()):
            context.learned.masks.append(name)
            context.room.widen("static" if role == "static" else "covariate", 1)
            mask = Variable(name=f"{name}_observed", kind="binary", standardize=False)
            masks.append(Encoded(mask, observed.astype(np.float32)))
    return columns, masks


def _column(context: EncodingContext, name: str, role: str) -> _Column:
    """Return a column, and put what is wrong with a static's place in the files among the findings."""
    table, schema = context.table, context.schema.columns[name]
    static = role == "static"
    place = partial(table.subject_place, name) if static else table.place
    data, found, refused = values_of(table, name, schema)
    context.findings += found
    if refused.any():
        zeros = ': `"log1p"` takes zeros' if schema.transform == "log" else ""
        fix = f"correct them, or choose another transform{zeros}"
        context.findings.append(wrong_values(name, refused, f"without a {schema.transform}", place, fix))
    if schema.transform and role != "outcome":
        unit = transformed_unit(schema.transform, schema.unit)
        schema = schema.model_copy(update={"kind": "continuous", "unit": unit})
    observed = data.is_not_null().to_numpy()
    if static:
        carried = np.where(observed, np.arange(len(observed)), -1).astype(np.int64)
        return _Column(name, schema, data, observed, ~refused, context.train, place, carried)
    due = (table.keys.step >= schema.shift + (schema.transform == "difference" and role != "outcome")) & ~refused
    due &= True if context.final is None else ~context.final
    carried = np.zeros(0, dtype=np.int64) if observed.all() else table.carried(observed)
    return _Column(name, schema, data, observed, due, context.train_cells, place, carried)


def values_of(table: Table, name: str, schema: ColumnSchema) -> tuple[pl.Series, list[Diagnostic], Mask]:
    """Return a column as the panel has it, what is wrong with a static's place, and which values its transform refuses.

    A static has a value per subject `[N]`, all others per cell `[M]` (spec TABLE-10). Outcomes stay as they are: models
    transform them.
    """
    data, found = table.static_values(name) if schema.role == "static" else (table.column(name), [])
    refused = np.zeros(len(data), dtype=bool)
    if schema.transform is None:
        return data, found, refused
    values = data.to_numpy().astype(np.float64)
    if schema.transform == "difference":
        made = np.where(table.keys.step > 0, np.diff(values, prepend=np.nan), np.nan)
    else:
        argument = values + (schema.transform == "log1p")
        refused = argument <= 0
        made = np.log(argument, out=np.full(len(values), np.nan), where=argument > 0)
    if schema.role == "outcome":
        return data, found, refused
    return pl.Series(made).fill_nan(None), found, refused


def _filled(context: EncodingContext, column: _Column, values: NDArray[Number], rest: float) -> NDArray[Number]:
    """Return values with holes filled, from the subject's past or else with the rest, and note how many were."""
    if column.observed.all():
        return values
    holes, known = ~column.observed & column.due, column.carried >= 0
    if holes.any():
        count = {"missing": int(holes.sum()), "carried": int((holes & known).sum())}
        count["learned"] = count["missing"] - count["carried"]
        context.filled[column.name] = {"values": len(holes), **count}
    return np.where(known, values[np.maximum(column.carried, 0)], rest).astype(values.dtype)


def _numbers(context: EncodingContext, column: _Column) -> list[Encoded]:
    schema = column.schema
    kind = schema.kind or "continuous"
    assert kind != "categorical"  # noqa: S101 - such a column becomes several
    numbers = column.data.to_numpy().astype(np.float64, copy=False)
    if kind == "count":
        odd = column.observed & ~np.isnan(numbers) & ((numbers < 0) | (numbers != np.floor(numbers)))
        if odd.any():
            fix = 'correct them, or declare `kind = "continuous"`'
            found = wrong_values(column.name, odd, "negative or fractional", column.place, fix)
            context.findings.append(replace(found, subject=f"{found.subject}, {numbers[odd][0]:g}"))
    # What stands for a missing value of a subject without any so far: source-train's mean
    if context.known is not None:
        rest = context.known.fills.get(column.name, 0.0)
        if column.name not in context.known.fills and not column.observed.all():
            missing = (column.carried < 0) & ~column.observed
            if missing.any():
                what, fix = "missing, of subjects without one so far", "give each subject's first value"
                context.findings.append(wrong_values(column.name, missing, what, column.place, fix))
    else:
        known = numbers[column.train & column.observed]
        if not len(known) and not column.observed.all():
            context.reporter.say(Diagnostic.of("column-without-values", column.name))
        mean = float(known.mean()) if len(known) else 0.0
        rest = context.learned.fills[column.name] = mean if kind == "continuous" else float(np.floor(mean + 0.5))
        if len(known):
            context.learned.ranges[column.name] = float(known.min()), float(known.max())
    filled = _filled(context, column, numbers, rest)
    standardize = schema.standardize if schema.standardize is not None else kind != "binary"
    transform = schema.transform if schema.role == "outcome" else None
    variable = Variable(name=column.name, unit=schema.unit, kind=kind, standardize=standardize, transform=transform)
    return [Encoded(variable, filled.astype(np.float32))]


def _categories(context: EncodingContext, column: _Column) -> list[Encoded]:
    """Return a 0/1 column per category; where none is known, all are 0."""
    schema, texts = column.schema, column.data
    categories = schema.labels("categories")
    if categories is None:
        seen = [str(text) for text in texts.filter(pl.Series(column.train & column.observed)).unique().to_list()]
        try:  # in the order of their numbers where all are numbers, else of their letters
            categories = tuple(sorted(seen, key=lambda text: (float(text), text)))
        except ValueError:
            categories = tuple(sorted(seen))
    if len(categories) > MOST_CATEGORIES:
        problem = (
            f"column '{column.name}' has {len(categories)} categories in source-train, more than {MOST_CATEGORIES}"
        )
        fix = 'leave it out, group its values, or list the `categories` that matter with `unseen = "other"`'
        context.findings.append(invalid(problem, "", fix))
        return []
    if broken := of_several_lines(column.name, categories, texts, column.place):
        context.findings += broken
        return []
    context.learned.categories[column.name] = categories
    code = category_codes(texts, categories)
    unseen = code == UNSEEN
    labels = categories
    if schema.unseen == "other":
        labels = (*categories, OTHER)
        code = np.where(unseen, len(categories), code)
    elif unseen.any():
        context.findings.append(unseen_category(column.name, texts, categories, unseen, column.place))
    role: Column = "static" if schema.role == "static" else "covariate"
    context.room.widen(role, len(labels) - 1)
    filled = _filled(context, column, code, MISSING)
    made = []
    for i, label in enumerate(labels):
        standardize = bool(schema.standardize)
        variable = Variable(name=f"{column.name}={label}", unit=schema.unit, kind="binary", standardize=standardize)
        made.append(Encoded(variable, (filled == i).astype(np.float32)))
    return made


def of_several_lines(
    column: str, names: Sequence[str], texts: pl.Series, place: Callable[[int], str]
) -> list[Diagnostic]:
    """Find the values of a column that are to be names of levels, categories or events and hold a line break."""
    broken = [name for name in names if "\n" in name]
    if not broken:
        return []
    what = f"with a line break, first {cut(repr(broken[0]), 40)}"
    return [wrong_values(column, texts.is_in(broken).fill_null(value=False), what, place, "write each on one line")]


def category_codes(texts: pl.Series, labels: tuple[str, ...]) -> Ints:
    """Return the place of each text among the labels, MISSING for null, UNSEEN for another text."""
    known = pl.Series(labels, dtype=pl.String)
    places = pl.Series(range(len(labels)), dtype=pl.Int64)
    found = texts.replace_strict(known, places, default=UNSEEN, return_dtype=pl.Int64)
    return pl.select(pl.when(texts.is_null()).then(MISSING).otherwise(found)).to_series().to_numpy().astype(np.int64)


def unseen_category(
    name: str, texts: pl.Series, categories: tuple[str, ...], unseen: Mask, place: Callable[[int], str]
) -> Diagnostic:
    """Say that some values `[M]` of a column are no categories, and where the first of them is."""
    odd = texts.filter(pl.Series(unseen)).unique().sort().to_list()
    guess = did_you_mean(str(odd[0]), categories, quoted=True)
    fix = f'{guess} correct them, or declare `unseen = "other"` or `categories`'.strip()
    return wrong_values(name, unseen, f"that source-train does not have: {shown(odd)}", place, fix)


WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
HOURS: Final = 24


def calendar_columns(context: EncodingContext) -> Iterator[Encoded]:
    """Yield the columns per cell `[M]` that `calendar` in `[time]` asks for, by the clocks of its `zone`."""
    clock = context.schema.time
    if not clock.calendar:
        return
    when_M = context.times
    if clock.parsed.scale == "month":
        month_M, day_M, hour_M = when_M % MONTHS, np.zeros(len(when_M)), np.zeros(len(when_M))
    else:
        local = pl.Series(when_M.astype(np.int64)).cast(pl.Datetime("us"))
        if clock.zone:
            local = local.dt.replace_time_zone("UTC").dt.convert_time_zone(clock.zone)
        month_M, day_M = local.dt.month().to_numpy() - 1, local.dt.weekday().to_numpy() - 1
        hour_M = local.dt.hour().to_numpy() + local.dt.minute().to_numpy() / 60
    if "weekday" in clock.calendar:
        for number, name in enumerate(WEEKDAYS):
            variable = Variable(name=f"weekday={name}", kind="binary", standardize=False)
            yield Encoded(variable, (day_M == number).astype(np.float32))
    for name, value_M, period in (("month", month_M, MONTHS), ("hour", hour_M, HOURS)):
        if name in clock.calendar:
            turn_M = 2 * np.pi * value_M / period
            for wave, values in (("sine", np.sin(turn_M)), ("cosine", np.cos(turn_M))):
                yield Encoded(Variable(name=f"{name}, {wave}", standardize=False), values.astype(np.float32))
