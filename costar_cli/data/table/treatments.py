"""Treatments as classes or 0/1 numbers: levels and combinations that are given, or learned from source-train."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import ValidationError

from costar_cli.config.nearest import did_you_mean
from costar_cli.data.dose import ABSURD, Dose
from costar_cli.data.findings import counted, invalid, raise_errors, shown
from costar_cli.data.levels import are_doses, as_number, find_level, known_levels, known_reference
from costar_cli.data.schema import TreatmentEncoding
from costar_cli.data.table.context import EncodingContext, Mask
from costar_cli.data.table.index import Ints
from costar_cli.data.table.parse import wrong_values
from costar_cli.data.table.splits import fix_of_constant
from costar_cli.data.table.variables import of_several_lines
from costar_cli.data.visits import ELAPSED, dose_of_gaps
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import DataError, complaint, key_path

MOST_LEVELS: Final = 50  # a number with more values is a dose, not a treatment
MOST_CLASSES: Final = 200
RARE_ROWS: Final = 10
SOME_TREATED: Final = 0.1  # of the rows that mark an event
SWITCHES: Final = ({"0", "1"}, {"false", "true"})
MISSING, UNKNOWN = -1, -2


def encode_treatments(context: EncodingContext) -> tuple[TreatmentEncoding, NDArray[np.float32]]:
    """Return the encoding and the treatments per cell `[M,A]`, zeros where a subject's last cell has none.

    Raises:
        DataError: levels or combinations that are unknown, missing treatments; all at once.
    """
    names, (dosed, dose_MD) = context.schema.leveled, read_doses(context)
    levels, code = _read_levels(context, names)
    unrecorded = _unrecorded(context, [*names, *dosed], np.concatenate([code == MISSING, np.isnan(dose_MD)], axis=1))
    code[unrecorded], dose_MD[unrecorded] = MISSING, np.nan
    # Put the reference, or the last level, where the schema says so; find other levels that are missing
    for i, name in enumerate(names):
        holes = (code[:, i] == MISSING) & ~unrecorded
        if not holes.any():
            continue
        observed = code[:, i] != MISSING
        if context.schema.columns[name].missing in ("fill", "carry"):
            source = context.fill_treatment(name, holes, observed)
            code[holes, i] = np.where(source < 0, 0, np.maximum(code[source, i], 0))
        else:
            context.findings.append(context.missing_treatment(name, holes, observed, one="treatment"))
    doses = learn_doses(context, dosed, dose_MD, unrecorded)
    for i, name in enumerate(names):
        unknown = code[:, i] == UNKNOWN
        if unknown.any():
            texts = context.table.column(name)
            context.findings.append(unknown_level(name, texts, levels[i], unknown, context.table.place))
    raise_errors(context.findings, what="the table")
    _warn_of_treated_ends(context, (code > 0).any(axis=1) | (np.nan_to_num(dose_MD) != 0).any(axis=1))
    given = ~unrecorded
    if context.schema.time.gaps == "elapsed":
        gap_M = elapsed_time(context)
        doses.append(learn_elapsed(context, gap_M))
        dose_MD = np.column_stack([dose_MD, gap_M])
    encoding = _encoding(context, names, levels, code[given & context.train_cells], doses)
    context.room.widen("treatment", encoding.width - len(context.schema.named("treatment")))
    columns = [dose.encode(dose_M) for dose, dose_M in zip(doses, dose_MD.T, strict=True)]
    if encoding.mode == "multilabel":
        return encoding, np.concatenate([np.maximum(code, 0), *columns], axis=1, dtype=np.float32)
    number = class_numbers(code, encoding)
    if (classless := given & (number < 0)).any():
        at = int(classless.argmax())
        what = encoding.describe_levels(code[at])
        problem = f"{counted(int(classless.sum()), 'row')} with a combination of treatments that is not a class: {what}"
        if context.schema.treatments.classes is None:
            problem += ", which source-train does not have"
        fix = "leave the rows out, or list `classes` in [treatments]"
        raise_errors([invalid(problem, f"first in {context.table.place(at)}", fix)], what="the table")
    encoded = np.zeros((len(code), encoding.level_width), dtype=np.float32)
    encoded[np.flatnonzero(given), number[given]] = 1
    return encoding, np.concatenate([encoded, *columns], axis=1, dtype=np.float32)


def _read_levels(context: EncodingContext, names: Sequence[str]) -> tuple[list[tuple[str, ...]], Ints]:
    """Return the levels of each treatment, and which of them each cell has `[M, names]`; texts are held one at a time.

    Raises:
        DataError: a treatment has no levels; with all that is wrong so far.
    """
    levels, code = [], np.zeros((len(context.table.keys.row), len(names)), dtype=np.int64)
    for i, name in enumerate(names):
        texts = context.table.column(name)
        levels.append(_levels(context, name, texts))
        code[:, i] = level_codes(texts, levels[i])
    if () in levels:  # nothing to look values up in
        raise_errors(context.findings, what="the table")
    return levels, code


def class_numbers(code: Ints, encoding: TreatmentEncoding) -> Ints:
    """Return the class of each row of levels `[M, names]`, -1 for a combination that has none."""
    size = np.array([len(levels) for levels in encoding.levels])
    weight = np.concatenate([[1], np.cumprod(size[:-1])])
    keys = np.array(encoding.classes) @ weight
    order = np.argsort(keys)
    asked = np.where((code >= 0).all(axis=1), code @ weight, -1)
    at = order[np.minimum(np.searchsorted(keys, asked, sorter=order), len(keys) - 1)]
    return np.where(keys[at] == asked, at, -1).astype(np.int64)


def level_codes(texts: pl.Series, levels: Sequence[str]) -> Ints:
    """Return the level of each text, MISSING for null, UNKNOWN for what is no level."""
    distinct = texts.drop_nulls().unique()
    found = [find_level(str(text), levels) for text in distinct.to_list()]
    places = pl.Series([UNKNOWN if place is None else place for place in found], dtype=pl.Int64)
    code = texts.replace_strict(distinct, places, default=MISSING, return_dtype=pl.Int64)
    return code.to_numpy().astype(np.int64, copy=False)


def _levels(context: EncodingContext, name: str, texts: pl.Series) -> tuple[str, ...]:
    """Return the levels of the schema, or guess them from source-train: the reference first."""
    given = context.schema.columns[name].labels("levels")
    if given is not None:
        return given
    seen = texts.filter(pl.Series(context.train_cells)).drop_nulls().value_counts(name="rows")
    if seen.height > MOST_LEVELS:
        problem = f"treatment '{name}' has {seen.height:,} different values in source-train, more than {MOST_LEVELS}"
        fix = 'declare a dose as `kind = "continuous"`, or bin it: other treatments take few levels'
        context.findings.append(invalid(problem, key_path(("columns", name)), fix))
        return ()
    if broken := of_several_lines(name, seen.to_series().to_list(), texts, context.table.place):
        context.findings += broken
        return ()
    # Rows of one number, such as `1` and `1.0`, count under its shortest spelling
    written = {str(text): int(rows) for text, rows in seen.rows()}
    key = {text: text if (value := as_number(text)) is None else value for text in written}
    spelling: dict[object, str] = {}
    for text in sorted(written, key=lambda text: (len(text), text)):
        spelling.setdefault(key[text], text)
    count = dict.fromkeys(spelling.values(), 0)
    for text, rows in written.items():
        count[spelling[key[text]]] += rows
    if set(map(str.lower, count)) in SWITCHES:
        return ("off", "on")
    if len(count) < 2:
        only = f"it is always '{next(iter(count))}'" if count else "it is always missing"
        problem = f"treatment '{name}' never changes in source-train: {only}"
        known = texts.is_not_null().to_numpy() & (level_codes(texts, tuple(count)) == UNKNOWN)
        fix = fix_of_constant(context, known, "omit it: its effect cannot be learned")
        context.findings.append(invalid(problem, key_path(("columns", name)), fix))
        return ()
    levels, by_name = guessed_levels(count)
    first = "the first is" if by_name else "the first, the most frequent, is taken as"
    context.reporter.say(Diagnostic.of("levels-found", name, levels=shown(levels, 12), reference=first))
    return levels


def guessed_levels(count: Mapping[str, int]) -> tuple[tuple[str, ...], bool]:
    """Return levels, the reference first, and whether names or numbers tell it.

    It is what is called like no treatment, the smallest number, or, told by nothing else, the most frequent.
    """
    labels = sorted(count, key=lambda label: (as_number(label) is None, as_number(label) or 0, label))
    told = labels[0] if are_doses(labels) else known_reference(labels)
    reference = told or max(labels, key=lambda label: (count[label], -labels.index(label)))
    return (reference, *(label for label in labels if label != reference)), told is not None


def _warn_of_treated_ends(context: EncodingContext, treated_M: Mask) -> None:
    """Warn where rows that mark an event have a treatment, as those of gfoRmula do: events seem to be caused by none.

    On pygformula's sample data always less never then is +.24, where it is -.45.
    """
    schema = context.schema
    events = schema.named("event")
    if context.final is None or schema.time.stop or any(schema.columns[name].at for name in events):
        return
    rows, treated = int(context.final.sum()), int((context.final & treated_M).sum())
    if treated > SOME_TREATED * rows:
        shown_rows = counted(rows, "row")
        context.reporter.say(Diagnostic.of("event-rows-treated", events[0], rows=shown_rows, treated=f"{treated:,}"))


def _unrecorded(context: EncodingContext, names: Sequence[str], missing_MN: Mask) -> Mask:
    """Return the last cells, and those of events, without any treatment, or without one of the row after it."""
    later = [context.schema.columns[name].shift < 0 for name in names]
    none: Mask = np.asarray(missing_MN.all(axis=1) | missing_MN[:, later].any(axis=1))
    last = context.table.keys.last_of_subject
    return none & (last if context.final is None else last | context.final)


def unknown_level(
    name: str, texts: pl.Series, levels: Sequence[str], unknown: Mask, place: Callable[[int], str]
) -> Diagnostic:
    """Say that some values `[M]` of a treatment are no levels, and where the first of them is."""
    odd = texts.filter(pl.Series(unknown)).unique().sort().to_list()
    if are_doses([*levels, *map(str, odd)]):
        fix = f'known are {shown(levels, 12)}: declare a dose as `kind = "continuous"`, or list them all in `levels`'
    else:
        near = did_you_mean(str(odd[0]), levels, quoted=True)
        fix = near or f"it takes {known_levels(levels)}; others belong in `levels`"
    what = "that is not a level" if unknown.sum() == 1 else "that are not levels"
    return wrong_values(name, unknown, f"{what}: {shown(odd)}", place, fix)


def _encoding(
    context: EncodingContext,
    names: Sequence[str],
    levels: Sequence[tuple[str, ...]],
    learned: Ints,
    doses: Sequence[Dose],
) -> TreatmentEncoding:
    """Return the encoding that the schema asks for, with the combinations of source-train where it lists none."""
    wanted = context.schema.treatments
    binary = all(len(known) == 2 for known in levels)
    mode = wanted.mode or ("multilabel" if binary and wanted.classes is None else "multiclass")
    if mode == "multilabel" and not binary:
        many = [name for name, known in zip(names, levels, strict=True) if len(known) > 2]
        raise DataError(f"{shown(many)} has more than two levels", where="treatments.mode", fix='use "multiclass"')
    classes: tuple[tuple[int, ...], ...] = ()
    if mode == "multiclass":
        if wanted.classes is not None:
            classes = tuple(_class(row, levels) for row in wanted.classes)
        else:
            found = {tuple(int(v) for v in row) for row in np.unique(learned, axis=0)} | {(0,) * len(names)}
            classes = tuple(sorted(found, key=lambda row: (any(row), row[::-1])))
        if len(classes) > MOST_CLASSES:  # more than models learn; the message says how to make fewer
            size = {name: len(known) for name, known in zip(names, levels, strict=True)}
            most = ", ".join(f"'{name}' has {n} levels" for name, n in sorted(size.items(), key=lambda of: -of[1])[:3])
            fixes = []
            if numbers := [n for n, known in zip(names, levels, strict=True) if len(known) > 2 and are_doses(known)]:
                keys = '`kind = "ordinal"` (these amounts) or `kind = "continuous"` (any amount)'
                fixes.append(f"declare {shown(numbers)} as {'a dose' if len(numbers) == 1 else 'doses'} by {keys}")
            rows = np.unique(learned, axis=0, return_counts=True)[1]
            rare = int((rows < RARE_ROWS).sum())
            fixes.append(f"group rare levels ({rare:,} of the combinations have fewer than {RARE_ROWS} rows)")
            fixes.append("leave treatments out")
            problem = f"{len(classes):,} combinations of treatments in source-train, more than {MOST_CLASSES}: {most}"
            raise DataError(problem, where="columns", fix=", or ".join(fixes))
    try:
        return TreatmentEncoding(
            mode=mode, names=tuple(names), levels=tuple(levels), classes=classes, doses=tuple(doses)
        )
    except ValidationError as error:
        raise DataError(
            complaint(error.errors()[0]), where="treatments", fix="correct `levels` and `classes`"
        ) from None


def _class(row: Sequence[bool | int | float | str], levels: Sequence[tuple[str, ...]]) -> tuple[int, ...]:
    places = []
    for value, known in zip(row, levels, strict=True):
        place = find_level(value, known)
        if place is None:
            fix = f"it takes {known_levels(known)}"
            raise DataError(f"{value!r} is not a level of its treatment", where="treatments.classes", fix=fix)
        places.append(place)
    return tuple(places)


USUAL: Final = 0.95  # quantile of the size of doses given; beyond `ABSURD` times it, one is a slip

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
