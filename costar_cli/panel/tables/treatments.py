"""Treatments as classes or 0/1 numbers: levels and combinations that are given, or learned from source-train."""

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from costar_cli.config.table import label_of
from costar_cli.errors import DataError
from costar_cli.panel.findings import Finding, counted, raise_errors, shown
from costar_cli.panel.schema import TreatmentEncoding
from costar_cli.panel.tables.keys import Ints
from costar_cli.panel.tables.values import Mask
from costar_cli.panel.tables.variables import Learner

__all__ = [
    "UNKNOWN",
    "class_numbers",
    "encode_treatments",
    "guessed_levels",
    "level_codes",
    "names_are_numbers",
    "place_of_level",
    "unknown_level",
]

MOST_LEVELS: Final = 50  # a number with more values is a dose, not a treatment
MOST_CLASSES: Final = 200
UNTREATED: Final = ("0", "none", "no", "off", "false", "never", "control", "placebo", "untreated", "baseline", "usual")
SWITCHES: Final = ({"0", "1"}, {"false", "true"})
MISSING, UNKNOWN = -1, -2


def encode_treatments(learner: Learner) -> tuple[TreatmentEncoding, NDArray[np.float32]]:
    """Return the encoding and the treatments per cell `[M,da]`, zeros where a subject's last cell has none.

    Raises:
        DataError: levels or combinations that are unknown, missing treatments; all at once.
    """
    names = learner.schema.named("treatment")
    texts = [learner.values.texts(name) for name in names]
    levels = [_levels(learner, name, text) for name, text in zip(names, texts, strict=True)]
    raise_errors(learner.findings, what="the table")
    code = np.stack([level_codes(t, known) for t, known in zip(texts, levels, strict=True)], axis=-1)
    unrecorded = _missing(learner, names, code)
    for i, name in enumerate(names):
        unknown = code[:, i] == UNKNOWN
        if unknown.any():
            learner.findings.append(unknown_level(name, texts[i], levels[i], unknown, learner.values.place))
    raise_errors(learner.findings, what="the table")
    given = ~unrecorded
    encoding = _encoding(learner, names, levels, code[given & learner.train_cells])
    if encoding.mode == "multilabel":
        return encoding, np.maximum(code, 0).astype(np.float32)
    number = class_numbers(code, encoding)
    if (classless := given & (number < 0)).any():
        raise_errors([_classless(learner, encoding, code, classless)], what="the table")
    encoded = np.zeros((len(code), encoding.width), dtype=np.float32)
    encoded[np.flatnonzero(given), number[given]] = 1
    return encoding, encoded


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
    places = pl.Series([place_of_level(str(text), levels) for text in distinct.to_list()], dtype=pl.Int64)
    found = texts.replace_strict(distinct, places, default=MISSING, return_dtype=pl.Int64)
    return found.to_numpy().astype(np.int64)


def place_of_level(text: str, levels: Sequence[str]) -> int:
    """Return which level a text says: its name, a number equal to it, its number, or true and false.

    Numbers count levels only where no level is called a number itself.
    """
    if text in levels:
        return list(levels).index(text)
    if text.lower() in ("true", "false"):
        if text.lower() in levels:
            return list(levels).index(text.lower())
        return int(text.lower() == "true") if len(levels) == 2 else UNKNOWN
    number = _number(text)
    if number is None:
        return UNKNOWN
    if names_are_numbers(levels):
        return next((i for i, label in enumerate(levels) if _number(label) == number), UNKNOWN)
    return int(number) if number in range(len(levels)) else UNKNOWN


def names_are_numbers(levels: Sequence[str]) -> bool:
    """Return whether some level is called by a number other than its own place."""
    return any(_number(label) is not None for label in levels) and tuple(levels) != tuple(map(str, range(len(levels))))


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _levels(learner: Learner, name: str, texts: pl.Series) -> tuple[str, ...]:
    """Return the levels of the schema, or guess them from source-train: the reference first."""
    given = learner.schema.columns[name].labels("levels")
    if given is not None:
        return given
    seen = texts.filter(pl.Series(learner.train_cells)).drop_nulls().value_counts(name="rows")
    if seen.height > MOST_LEVELS:
        problem = f"treatment '{name}' has {seen.height:,} different values in source-train, more than {MOST_LEVELS}"
        fix = "a treatment has few levels: put doses into classes first"
        learner.findings.append(Finding("error", problem, "", fix))
        return ()
    count = {str(text): int(rows) for text, rows in seen.rows()}
    if set(map(str.lower, count)) in SWITCHES:
        return ("off", "on")
    if len(count) < 2:
        only = f"it is always '{next(iter(count))}'" if count else "it is always missing"
        problem = f"treatment '{name}' never changes in source-train: {only}"
        learner.findings.append(Finding("error", problem, "", "leave it out: nothing can be learned of it"))
        return ()
    levels = guessed_levels(count)
    learner.reporter.note(f"treatment '{name}': levels {shown(levels, 12)}, the first is the reference (`levels`)")
    return levels


def guessed_levels(count: Mapping[str, int]) -> tuple[str, ...]:
    """Return levels, the reference first: what sounds like no treatment, the smallest number, or the most frequent."""
    labels = sorted(count, key=lambda label: (_number(label) is None, _number(label) or 0.0, label))
    untreated = [label for label in labels if label.lower() in UNTREATED]
    if untreated:
        reference = untreated[0]
    elif all(_number(label) is not None for label in labels):
        reference = labels[0]
    else:
        reference = max(labels, key=lambda label: (count[label], -labels.index(label)))
    return (reference, *(label for label in labels if label != reference))


def _missing(learner: Learner, names: Sequence[str], code: Ints) -> Mask:
    """Return the last cells without any treatment; put the reference where the schema says so; find the others."""
    unrecorded: Mask = learner.values.keys.last_of_subject & (code == MISSING).all(axis=1)
    for i, name in enumerate(names):
        holes = (code[:, i] == MISSING) & ~unrecorded
        if not holes.any():
            continue
        if learner.schema.columns[name].missing == "fill":
            code[holes, i] = 0
            learner.reporter.note(
                f"treatment '{name}': {counted(int(holes.sum()), 'missing value')} count as not given"
            )
            continue
        problem = f"column '{name}': {counted(int(holes.sum()), 'treatment')} missing"
        fix = 'give them, or declare `missing = "fill"` if that means not given; a subject\'s last row may have none'
        where = f"first in {learner.values.place(int(holes.argmax()))}"
        learner.findings.append(Finding("error", problem, where, fix))
    return unrecorded


def unknown_level(
    name: str, texts: pl.Series, levels: Sequence[str], unknown: Mask, place: Callable[[int], str]
) -> Finding:
    """Say that some values `[M]` of a treatment are no levels, and where the first of them is."""
    odd = texts.filter(pl.Series(unknown)).unique().sort().to_list()
    near = difflib.get_close_matches(str(odd[0]), levels, n=1)
    problem = f"column '{name}': {counted(int(unknown.sum()), 'value')} of no known level: {shown(odd)}"
    fix = f"did you mean '{near[0]}'?" if near else f"known are {shown(levels, 12)}; others belong in `levels`"
    return Finding("error", problem, f"first in {place(int(unknown.argmax()))}", fix)


def _encoding(
    learner: Learner, names: Sequence[str], levels: Sequence[tuple[str, ...]], learned: Ints
) -> TreatmentEncoding:
    """Return the encoding that the schema asks for, with the combinations of source-train where it lists none."""
    wanted = learner.schema.treatments
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
        if len(classes) > MOST_CLASSES:
            problem = f"{len(classes)} combinations of treatments in source-train, more than {MOST_CLASSES}"
            raise DataError(problem, fix="give fewer treatments or levels")
    try:
        return TreatmentEncoding(mode=mode, names=tuple(names), levels=tuple(levels), classes=classes)
    except ValueError as error:
        problem = str(error).split("Value error, ")[-1].split(" [type=")[0]
        raise DataError(problem, where="treatments", fix="correct `levels` and `classes`") from None


def _class(row: Sequence[bool | int | float | str], levels: Sequence[tuple[str, ...]]) -> tuple[int, ...]:
    places = tuple(place_of_level(label_of(value), known) for value, known in zip(row, levels, strict=True))
    for value, place, known in zip(row, places, levels, strict=True):
        if place < 0:
            fix = f"use one of {shown(known, 12)}"
            raise DataError(f"{value!r} is no level of its treatment", where="treatments.classes", fix=fix)
    return places


def _classless(learner: Learner, encoding: TreatmentEncoding, code: Ints, classless: Mask) -> Finding:
    at = int(classless.argmax())
    what = encoding.describe(code[at])
    problem = f"{counted(int(classless.sum()), 'row')} with a combination of treatments that is no class: {what}"
    if learner.schema.treatments.classes is None:
        problem += ", which source-train does not have"
    fix = "leave the rows out, or list `classes` in [treatments]"
    return Finding("error", problem, f"first in {learner.values.place(at)}", fix)
