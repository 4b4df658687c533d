"""Covariates, outcomes and statics as numbers: missing values filled, categories as 0/1 columns, masks beside them."""

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from costar_cli.datasets.table.index import Ints
from costar_cli.datasets.table.schema import ColumnSchema, TableSchema
from costar_cli.datasets.table.values import Mask, Values
from costar_cli.panel.findings import Finding, counted, shown
from costar_cli.panel.schema import Variable
from costar_cli.reporting import Reporter

__all__ = ["Encoded", "Filled", "Learner", "encode_variables"]

MOST_CATEGORIES: Final = 100  # beyond, a column is rather an identifier
OTHER: Final = "other"
MISSING, UNSEEN = -1, -2


@dataclass(frozen=True, slots=True)
class Filled:
    """How the missing values of a column were filled: from the subject's past, or with what source-train says."""

    values: int
    missing: int
    carried: int
    learned: int

    def to_json(self) -> dict[str, int]:
        """Return the counts as plain data."""
        return {"values": self.values, "missing": self.missing, "carried": self.carried, "learned": self.learned}


@dataclass(frozen=True, eq=False, slots=True)
class Encoded:
    """One column of the panel: per cell `[M]`, or per subject `[N]` for a static."""

    variable: Variable
    values: NDArray[np.float32]


@dataclass(eq=False)
class Learner:
    """What the encoding of all columns shares, and what it finds.

    Args:
        values: the columns.
        schema: what they mean.
        train: the subjects `[N]` of source-train, from whom means, categories and levels are learned.
        reporter: told what is dropped.
    """

    values: Values
    schema: TableSchema
    train: Mask
    reporter: Reporter
    findings: list[Finding] = field(default_factory=list)
    filled: dict[str, Filled] = field(default_factory=dict)
    dropped: list[str] = field(default_factory=list)
    outcomes_observed: dict[str, Mask] = field(default_factory=dict)

    @property
    def train_cells(self) -> Mask:
        """Return the cells `[M]` of source-train."""
        cells: Mask = self.train[self.values.keys.subject]
        return cells


@dataclass(frozen=True, eq=False)
class _Axis:
    """Cells or subjects: which of them are source-train, where they come from, and what fills a hole."""

    train: Mask
    place: Callable[[int], str]
    carried: Callable[[Mask], Ints]


def encode_variables(
    learner: Learner, role: Literal["covariate", "outcome", "static"]
) -> tuple[list[Encoded], list[Encoded]]:
    """Return the columns of a role in the order of the schema, and the masks of those that were filled.

    What is wrong goes to the learner's findings.
    """
    columns: list[Encoded] = []
    masks: list[Encoded] = []
    for name in learner.schema.named(role):
        column = learner.schema.columns[name]
        data, axis = _data(learner, name, role)
        observed = data.is_not_null().to_numpy()
        missing = column.missing or (learner.schema.missing if role != "outcome" else "error")
        if missing == "error" and not observed.all():
            holes = ~observed
            problem = f"column '{name}': {counted(int(holes.sum()), 'value')} missing"
            fix = 'give them, or declare `missing = "fill"`'
            learner.findings.append(Finding("error", problem, f"first in {axis.place(int(holes.argmax()))}", fix))
            continue
        source = _Source(name, column, data, observed, axis)
        made = _categories(learner, source) if column.kind == "categorical" else _numbers(learner, source)
        if role == "outcome":
            learner.outcomes_observed[name] = observed
        steady = bool(made) and all(_constant(encoded, axis.train) for encoded in made)
        if steady and role == "outcome":
            problem = f"outcome '{name}' never changes in source-train"
            learner.findings.append(Finding("error", problem, "", "there is nothing to predict"))
        if steady and role != "outcome" and learner.schema.constant == "drop":
            learner.dropped.append(name)
            continue
        columns += made
        if column.indicator and not observed[axis.train].all():
            mask = Variable(name=f"{name}_observed", kind="binary", standardize=False)
            masks.append(Encoded(mask, observed.astype(np.float32)))
    return columns, masks


@dataclass(frozen=True, eq=False, slots=True)
class _Source:
    """A column as it was read."""

    name: str
    column: ColumnSchema
    data: pl.Series
    observed: Mask
    axis: _Axis


def _data(learner: Learner, name: str, role: str) -> tuple[pl.Series, _Axis]:
    values = learner.values
    if role != "static":
        return values.texts(name), _Axis(learner.train_cells, values.place, values.carried)
    data, found = values.static_values(name)
    learner.findings += found

    def nothing(observed: Mask) -> Ints:
        return np.where(observed, np.arange(len(observed)), -1).astype(np.int64)

    return data, _Axis(learner.train, lambda subject: values.subject_place(name, subject), nothing)


def _constant(encoded: Encoded, train: Mask) -> bool:
    values = encoded.values[train]
    return bool((values == values[:1]).all())


def _record(learner: Learner, source: _Source, carried: Ints) -> None:
    holes = ~source.observed
    if holes.any():
        past = int((holes & (carried >= 0)).sum())
        missing = int(holes.sum())
        learner.filled[source.name] = Filled(len(holes), missing, past, missing - past)


def _numbers(learner: Learner, source: _Source) -> list[Encoded]:
    column, axis = source.column, source.axis
    kind = column.kind or "continuous"
    numbers = source.data.to_numpy().astype(np.float64)
    if kind == "count":
        odd = source.observed & ((numbers < 0) | (numbers != np.floor(numbers)))
        if odd.any():
            at = int(odd.argmax())
            problem = f"column '{source.name}': {counted(int(odd.sum()), 'value')} negative or fractional"
            where, fix = f"first in {axis.place(at)}, {numbers[at]:g}", 'correct them, or declare `kind = "continuous"`'
            learner.findings.append(Finding("error", problem, where, fix))
    carried = axis.carried(source.observed)
    known = numbers[axis.train & source.observed]
    mean = float(known.mean()) if len(known) else 0.0
    if not len(known) and not source.observed.all():
        learner.reporter.warn(f"column '{source.name}' has no value in source-train: missing values become 0")
    rest = mean if kind == "continuous" else float(np.floor(mean + 0.5))
    filled = np.where(carried >= 0, numbers[np.maximum(carried, 0)], rest)
    _record(learner, source, carried)
    standardize = column.standardize if column.standardize is not None else kind != "binary"
    variable = Variable(name=source.name, unit=column.unit, kind=_kind(kind), standardize=standardize)
    return [Encoded(variable, filled.astype(np.float32))]


def _kind(kind: str) -> Literal["continuous", "count", "binary", "ordinal"]:
    kinds: tuple[Literal["continuous", "count", "binary", "ordinal"], ...] = (
        "continuous",
        "count",
        "binary",
        "ordinal",
    )
    return next(known for known in kinds if known == kind)


def _categories(learner: Learner, source: _Source) -> list[Encoded]:
    """Return a 0/1 column per category; where none is known, all are 0."""
    axis, column, texts = source.axis, source.column, source.data
    seen = texts.filter(pl.Series(axis.train & source.observed)).unique()
    categories = column.labels("categories") or tuple(_ordered(seen.to_list()))
    if len(categories) > MOST_CATEGORIES:
        problem = (
            f"column '{source.name}' has {len(categories)} categories in source-train, more than {MOST_CATEGORIES}"
        )
        fix = 'leave it out, group its values, or list the `categories` that matter with `unseen = "other"`'
        learner.findings.append(Finding("error", problem, "", fix))
        return []
    code = codes(texts, categories)
    unseen = code == UNSEEN
    labels = categories
    if column.unseen == "other":
        labels = (*categories, OTHER)
        code = np.where(unseen, len(categories), code)
    elif unseen.any():
        learner.findings.append(_unseen(source, categories, unseen))
    carried = axis.carried(source.observed)
    filled = np.where(carried >= 0, code[np.maximum(carried, 0)], MISSING)
    _record(learner, source, carried)
    made = []
    for i, label in enumerate(labels):
        standardize = bool(column.standardize)
        variable = Variable(name=f"{source.name}={label}", unit=column.unit, kind="binary", standardize=standardize)
        made.append(Encoded(variable, (filled == i).astype(np.float32)))
    return made


def codes(texts: pl.Series, labels: tuple[str, ...]) -> Ints:
    """Return the place of each text among the labels, MISSING for null, UNSEEN for another text."""
    known = pl.Series(labels, dtype=pl.String)
    places = pl.Series(range(len(labels)), dtype=pl.Int64)
    found = texts.replace_strict(known, places, default=UNSEEN, return_dtype=pl.Int64)
    return pl.select(pl.when(texts.is_null()).then(MISSING).otherwise(found)).to_series().to_numpy().astype(np.int64)


def _unseen(source: _Source, categories: tuple[str, ...], unseen: Mask) -> Finding:
    at = int(unseen.argmax())
    texts = source.data.filter(pl.Series(unseen)).unique().sort().to_list()
    near = difflib.get_close_matches(str(texts[0]), categories, n=1)
    known = f"did you mean '{near[0]}'? " if near else ""
    problem = (
        f"column '{source.name}': {counted(int(unseen.sum()), 'value')} that source-train does not have: {shown(texts)}"
    )
    where = f"first in {source.axis.place(at)}"
    return Finding("error", problem, where, f'{known}correct them, or declare `unseen = "other"` or `categories`')


def _ordered(labels: Iterable[object]) -> list[str]:
    """Return labels in the order of their numbers where all are numbers, else of their letters."""
    texts = [str(label) for label in labels]
    try:
        return sorted(texts, key=lambda text: (float(text), text))
    except ValueError:
        return sorted(texts)
