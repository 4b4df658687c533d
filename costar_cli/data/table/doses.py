"""Treatments that are numbers: checked row by row, and learned from source-train (spec TABLE-14)."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from costar_cli.data.dose import ABSURD, Dose
from costar_cli.data.findings import invalid, shown
from costar_cli.data.table.context import EncodingContext, Mask
from costar_cli.data.table.parse import wrong_values
from costar_cli.data.table.time_split import fix_of_constant
from costar_cli.data.visits import ELAPSED, dose_of_gaps
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import DataError

USUAL: Final = 0.95  # quantile of the size of doses given; beyond `ABSURD` times it, one is a slip
MOST_LEVELS: Final = 50

Floats = NDArray[np.float64]


def read_doses(context: EncodingContext) -> tuple[list[str], Floats]:
    """Return the names of doses and their values `[M,D]`, NaN where one is missing."""
    names = context.schema.doses
    columns = [context.table.column(name).cast(pl.Float64).to_numpy() for name in names]
    return names, np.stack(columns, axis=-1).astype(np.float64) if names else np.zeros((len(context.table.keys.row), 0))


def learn_doses(context: EncodingContext, names: Sequence[str], dose_MD: Floats, unrecorded: Mask) -> list[Dose]:
    """Return the doses as source-train was given them, or as they are known.

    What is missing in `dose_MD` becomes 0, or the subject's last dose where the schema says that it goes on. What is
    wrong goes to the context's findings; those doses are left out.
    """
    learned = []
    for i, name in enumerate(names):
        column, values = context.schema.columns[name], dose_MD[:, i]
        empty = context.table.column(name).is_null().to_numpy()  # what cannot be read is told elsewhere
        holes = empty & ~unrecorded
        source = np.full(int(holes.sum()), -1)
        if holes.any() and column.missing not in ("fill", "carry"):
            context.findings.append(context.missing_treatment(name, holes, ~empty, one="dose"))
        elif holes.any():
            source = context.fill_treatment(name, holes, ~empty)
        known = None if context.known is None else context.known.doses.get(name)
        train = values[context.train_cells & ~np.isnan(values)]
        if wrong := list(_impossible(context, name, values, train, known)):
            context.findings += wrong
        elif known is not None:
            learned.append(known)
        else:
            learned += _learned(context, name, values, train)
        values[holes] = np.where(source < 0, 0.0, values[source])  # after learning: what goes on is no dose of its own
        dose_MD[:, i] = np.nan_to_num(values)
    return learned


def _learned(context: EncodingContext, name: str, values: Floats, train: Floats) -> list[Dose]:
    column = context.schema.columns[name]
    levels = sorted(map(float, column.labels("levels") or ())) or np.unique(train).tolist()
    if column.kind == "ordinal" and len(levels) > MOST_LEVELS:
        problem = f"dose '{name}' has {len(levels):,} different values in source-train, more than {MOST_LEVELS}"
        context.findings.append(invalid(problem, "", 'declare `kind = "continuous"`'))
        return []
    try:
        dose = Dose.learn(
            name, train, unit=column.unit, basis=column.basis, levels=levels if column.kind == "ordinal" else ()
        )
    except ValueError as error:
        why = error if len(train) else "it is always missing"
        problem = f"dose '{name}' cannot be learned from source-train: {why}"
        fix = 'choose `basis = "identity"`'
        if len(np.unique(train)) < 2:
            other = ~np.isnan(values) & ~np.isin(values, train)
            fix = fix_of_constant(context, other, "omit it: its effect cannot be learned")
        context.findings.append(invalid(problem, "", fix))
        return []
    context.learned.ranges[name] = dose.low, dose.high
    return [dose]


def _impossible(
    context: EncodingContext, name: str, values: Floats, train: Floats, known: Dose | None
) -> Iterator[Diagnostic]:
    """Yield an error for doses that are negative, or far beyond all others, or no level, with the first row."""
    column, wrong = context.schema.columns[name], partial(wrong_values, name, place=context.table.place, one="dose")
    usual = float(np.quantile(np.abs(train[train != 0]), USUAL, method="lower")) if (train != 0).any() else np.inf
    low, high = column.range or (0.0, ABSURD * usual)
    if known is not None and column.range is None:
        high = ABSURD * max(abs(known.low), abs(known.high))
        low = -high if known.low < 0 else 0.0
    above = f"above {high:g}" + ("" if column.range else f", {ABSURD} times what is usual")
    fix = "correct the rows, or declare what doses there may be by `range = [0,100]`"
    for odd, what in ((values < low, "negative" if low == 0 else f"below {low:g}"), (values > high, above)):
        if odd.any():
            yield wrong(odd, f"{what}: {shown(f'{value:g}' for value in np.unique(values[odd]))}", fix=fix)
    levels = known.levels if known is not None else tuple(map(float, column.labels("levels") or ()))
    strange = ~np.isnan(values) & ~np.isin(values, [0.0, *levels])
    if levels and strange.any():
        odd_ones = shown(f"{value:g}" for value in np.unique(values[strange]))
        yield wrong(strange, f"that is not a level: {odd_ones}", fix="correct the rows, or list all `levels`")


def elapsed_time(context: EncodingContext) -> Floats:
    """Return how long it is from each cell `[M]` to the subject's next one, in steps; 0 at its last."""
    gap_M = np.append(np.diff(context.times.astype(np.float64)), 0.0) / context.schema.time.parsed.size
    return np.where(context.table.keys.last_of_subject, 0.0, gap_M)


def learn_elapsed(context: EncodingContext, gap_M: Floats) -> Dose:
    """Return the time until the next step as source-train has it, or as it is known.

    Raises:
        DataError: it never changes.
    """
    if context.known is not None and ELAPSED in context.known.doses:
        return context.known.doses[ELAPSED]
    train = gap_M[context.train_cells & (gap_M > 0)]
    if len(np.unique(train)) < 2:
        raise DataError("all steps are of one length", where="time.gaps", fix='choose `gaps = "error"`')
    step = context.schema.time.parsed
    return dose_of_gaps(train, unit=step.word, microseconds=int(step.size) if step.scale == "us" else None)


def dose_column(dose: Dose) -> Mapping[str, Any]:
    """Return the keys of a schema's column that is read as this dose."""
    most = ABSURD * max(abs(dose.low), abs(dose.high))
    made: dict[str, Any] = {"role": "treatment", "kind": "ordinal" if dose.levels else "continuous"}
    made |= {"unit": dose.unit} if dose.unit else {}
    made |= {"basis": dose.basis} if dose.basis != "identity" else {}
    made |= {"range": [-most, most]} if dose.low < 0 else {}
    return made | ({"levels": list(dose.levels)} if dose.levels else {})
