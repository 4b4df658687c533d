"""A schema to start from, guessed from names and values, with a remark on every line (polars)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import polars as pl

from costar_cli.config.table import RESERVED_NAMES
from costar_cli.config.toml_text import toml_key, toml_value
from costar_cli.errors import DataError
from costar_cli.panel.tables.facts import Facts, Sample, few, sample_of
from costar_cli.panel.tables.files import open_files
from costar_cli.panel.tables.guess_doubts import cells_in_doubt, keys_in_doubt, stray_static
from costar_cli.panel.tables.guess_steps import Spacing, ordered, spacing_of
from costar_cli.panel.tables.guess_words import DOMAIN, OUTCOME, SPLIT, STATIC, SUBJECT, SUBJECT_TOO, TIME, TREATMENT
from costar_cli.panel.tables.parts import SPELT
from costar_cli.panel.tables.treatments import MOST_LEVELS

__all__ = ["GuessedSchema", "guess_schema"]

MOST_CATEGORIES: Final = 20
LONGEST_HORIZON: Final = 6
CANDIDATES: Final = 8
GAPS: Final = {
    "fill": "a step without a row is a missing value",
    "ignore": "times are no whole number of steps apart: each row is the next step",
}


@dataclass(frozen=True, slots=True)
class GuessedSchema:
    """A schema as commented TOML, and what is doubtful about it: a sentence each, the first word a column's name."""

    text: str
    doubts: tuple[str, ...]


@dataclass
class _Guess:
    """What the table seems to be: a column's entry and a remark each, the remarks on those left out, the doubts."""

    sample: Sample
    subject: str | None = None
    time: str | None = None
    entries: dict[str, dict[str, object]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    doubts: dict[str, list[str]] = field(default_factory=dict)
    spacing: Spacing = field(default_factory=lambda: Spacing(1, "error"))

    def named(self, role: str) -> list[str]:
        return [name for name, entry in self.entries.items() if entry["role"] == role]

    def doubt(self, name: str, what: str) -> None:
        if what:
            self.doubts.setdefault(name, []).append(what)


def guess_schema(paths: Sequence[Path]) -> GuessedSchema:
    """Return a schema for the tables, from the names and the first 200,000 rows.

    A few cells that do not fit, such as a bad date, say nothing about their column: they are told as doubts.

    Raises:
        DataError: a file cannot be read, or has no rows.
    """
    sample = sample_of(open_files(paths))
    if not sample.height:
        raise DataError("the table has no rows", where=str(paths[0]), fix="give at least one row per subject and time")
    guess = _Guess(sample)
    _find_keys(guess)
    _find_roles(guess)
    _find_steps(guess)
    _find_doubts(guess)
    text = "\n".join(_lines(guess, ", ".join(path.name for path in paths))) + "\n"
    doubts = [f"{name}: {'; '.join(whats)}" for name, whats in guess.doubts.items()]
    return GuessedSchema(text, (*doubts, *(f"no column seems to be the {role}" for role in _not_found(guess))))


def _find_keys(guess: _Guess) -> None:
    """Choose the pair of columns, by name first, whose values tell all rows apart."""
    columns = [c for c in guess.sample.columns.values() if c.missing <= few(guess.sample.height)]
    subjects = [c for c in columns if 1 < c.distinct < len(c.known) and c.moments is None and not c.words & STATIC]
    subjects = sorted(subjects, key=lambda c: (-_score(c, SUBJECT, SUBJECT_TOO), c.numbers is not None))[:CANDIDATES]
    times = [c for c in columns if c.distinct > 1 and ordered(c) is not c.text]
    times = sorted(times, key=lambda c: (-_score(c, TIME), c.moments is None))[:CANDIDATES]
    pairs = [(s, t) for s in subjects for t in times if s.name != t.name]
    named = [(s, t) for s, t in pairs if _score(s, SUBJECT, SUBJECT_TOO) and _score(t, TIME)]
    slips = few(guess.sample.height)
    tried = [(s.name, t.name, most) for group, most in ((named, 0), (named, slips), (pairs, 0)) for s, t in group]
    for subject, time, most in tried:
        if guess.sample.repeated(subject, time) <= most:
            guess.subject, guess.time = subject, time
            break
    else:
        guess.subject, guess.time = next(((s.name, t.name) for s, t in named), (None, None))
    for role, name in (("subject", guess.subject), ("time", guess.time)):
        if name is not None:
            guess.entries[name] = {"role": role}


def _score(column: Facts, *words: frozenset[str]) -> int:
    """Return how well a name fits: the whole name, one of its words, words of the second choice, or not."""
    for i, known in enumerate(words):
        if column.words & known:
            return 3 - i
    return 0


def _find_roles(guess: _Guess) -> None:
    sample, changing = guess.sample, []
    for column in sample.columns.values():
        if column.name in guess.entries:
            continue
        if column.distinct < 2:
            guess.left_out[column.name] = f"never changes: {column.summary}"
        elif column.moments is not None:
            guess.left_out[column.name] = f"a date: {column.summary}"
        elif column.numbers is None and column.distinct > MOST_CATEGORIES and not column.words & SPLIT:
            guess.left_out[column.name] = _texts(guess, column)
        elif _is_static(guess, column):
            guess.entries[column.name] = _per_subject(guess, column)
        else:
            changing.append(column)
    for name in sample.unusable:
        guess.left_out[name] = "a type that costar does not read"
    _find_treatments(guess, changing)
    guess.entries = {name: guess.entries[name] for name in sample.columns if name in guess.entries}


def _texts(guess: _Guess, column: Facts) -> str:
    """Return why a column of texts is left out; it is doubtful where many of them are numbers."""
    numbers = int(column.known.cast(pl.Float64, strict=False).is_finite().sum())
    some = f", {numbers:,} of {len(column.known):,} values are numbers" if 2 * numbers >= len(column.known) else ""
    guess.doubt(column.name, f"left out{some}" if some else "")
    return f"{column.distinct:,} different texts{some}"


def _is_static(guess: _Guess, column: Facts) -> bool:
    if guess.subject is None:
        return bool(column.words & STATIC)
    if not guess.sample.changing(guess.subject, column.name):
        return True
    stray = "" if column.words & (TREATMENT | OUTCOME) else stray_static(guess.sample, guess.subject, column)
    guess.doubt(column.name, stray)
    return bool(stray)


def _per_subject(guess: _Guess, column: Facts) -> dict[str, object]:
    values = {value.lower() for value in column.values}
    if column.words & SPLIT and values <= set(SPELT) and not guess.named("split"):
        return {"role": "split"}
    if column.words & DOMAIN and column.distinct == 2 and not column.missing and not guess.named("domain"):
        rarer = min(column.values, key=lambda value: (int((column.known == value).sum()), value))
        return {"role": "domain", "target": "target" if values == {"source", "target"} else rarer}
    return {"role": "static", **_kind(column)}


def _kind(column: Facts) -> dict[str, object]:
    kind = "categorical" if column.numbers is None and not column.binary else "binary" if column.binary else ""
    entry: dict[str, object] = {"kind": kind} if kind else {}
    return entry | ({"missing": "fill"} if column.missing else {})


def _find_treatments(guess: _Guess, changing: list[Facts]) -> None:
    """Sort columns that change in time into treatments, outcomes and covariates."""
    few = [c for c in changing if c.distinct <= MOST_LEVELS]
    treatments = [c for c in few if c.words & TREATMENT]
    treatments = treatments or [c for c in few if c.binary] or [c for c in few if c.numbers is None][:1]
    numeric = [c for c in changing if c.numbers is not None and c not in treatments]
    outcomes = [c for c in numeric if c.words & OUTCOME]
    if guess.subject is not None:
        outcomes = outcomes or [c for c in numeric if not c.binary and not c.words & STATIC][-1:]
    for column in changing:
        if column in treatments:
            hole = _holes(guess, column)
            guess.entries[column.name] = _entry("treatment", missing=hole)
        elif column in outcomes[:1]:
            guess.entries[column.name] = _entry("outcome", missing=column.missing > 0)
        else:
            guess.entries[column.name] = {"role": "covariate", **_kind(column)}


def _entry(role: str, *, missing: bool) -> dict[str, object]:
    return {"role": role, "missing": "fill"} if missing else {"role": role}


def _holes(guess: _Guess, column: Facts) -> bool:
    """Return whether a treatment is missing elsewhere than at the last row of a subject."""
    if not column.missing or guess.subject is None or guess.time is None:
        return bool(column.missing)
    when = guess.sample.columns[guess.time]
    frame = pl.DataFrame(
        {"s": guess.sample.columns[guess.subject].text, "t": ordered(when), "missing": column.text.is_null()}
    )
    last = frame.select(pl.col("t") == pl.col("t").max().over("s")).to_series()
    return bool((frame["missing"] & ~last).any())


def _find_steps(guess: _Guess) -> None:
    if guess.subject is None or guess.time is None:
        return
    columns = guess.sample.columns
    guess.spacing = spacing_of(columns[guess.subject].text, columns[guess.time])
    if guess.spacing.gaps == "fill":
        for entry in guess.entries.values():
            if entry["role"] in ("covariate", "outcome", "treatment"):
                entry["missing"] = "fill"


def _find_doubts(guess: _Guess) -> None:
    for name, entry in guess.entries.items():
        guess.doubt(name, cells_in_doubt(guess.sample.columns[name], entry))
    for name, what in keys_in_doubt(guess.sample, guess.subject, guess.time):
        guess.doubt(name, what)


def _not_found(guess: _Guess) -> list[str]:
    return [role for role in ("subject", "time", "treatment", "outcome") if not guess.named(role)]


def _lines(guess: _Guess, files: str) -> Iterator[str]:
    sample = guess.sample
    yield f"# Guessed from {_comment(files)}: check every line. docs/data-own.md explains the keys."
    if guess.doubts:
        yield "# Lines with CHECK are doubtful."
    yield f"name = {toml_value(_name(sample.name))}"
    yield f"horizon = {_horizon(guess)}  # steps predicted from an origin"
    yield "\n[columns]  # { role = ..., kind = ..., unit = ... }"
    for role, what in (("subject", "tells subjects apart"), ("time", "orders a subject's rows")):
        if not guess.named(role):
            yield f'# NAME = {{ role = "{role}" }}  # no column seems to be the one that {what}'
    for role in ("treatment", "outcome"):
        if not guess.named(role):
            yield f'# NAME = {{ role = "{role}" }}  # no column seems to be one'
    for name, entry in guess.entries.items():
        yield f"{toml_key(name)} = {toml_value(entry)}  # {_comment(_remark(guess, name, str(entry['role'])))}"
    for name, why in guess.left_out.items():
        check = "CHECK: " if name in guess.doubts else ""
        yield f'# {_comment(toml_key(name))} = {{ role = "..." }}  # {check}left out: {_comment(why)}'
    yield "\n[time]"
    yield f"step = {toml_value(guess.spacing.step)}"
    if guess.spacing.gaps != "error":
        yield f"gaps = {toml_value(guess.spacing.gaps)}  # {GAPS[guess.spacing.gaps]}"
    if not guess.named("split"):
        yield "\n[split]  # shares of the subjects\ntrain = 0.7\nval = 0.15\ntest = 0.15\nseed = 0"
    if not guess.named("domain"):
        yield '\n# [domain]  # who the target is: subjects that models are transferred to\n# target = "age >= 85"'
    yield "# few_shot = 0.1 in [split] keeps that share of the target's training subjects"


def _remark(guess: _Guess, name: str, role: str) -> str:
    column = guess.sample.columns[name]
    check = f"CHECK: {'; '.join(guess.doubts[name])}. " if name in guess.doubts else ""
    return check + _facts_on(guess, column, role)


def _facts_on(guess: _Guess, column: Facts, role: str) -> str:
    if role == "subject":
        lengths = guess.sample.lengths(column.name)
        return f"{column.distinct:,} subjects of {lengths[0]} to {lengths[-1]} rows"
    if role == "outcome" and not column.words & OUTCOME:
        return f"{column.summary}; guessed as the last numbers that change: is it the outcome?"
    if role == "treatment":
        return f"{column.summary}; levels = [...] names them, the reference first"
    if role == "domain":
        return f"{column.summary}: which is the target?"
    return column.summary


def _comment(text: str) -> str:
    """Return text that stays on one line of a comment."""
    return "".join(letter if letter.isprintable() else " " for letter in text)[:240]


def _horizon(guess: _Guess) -> int:
    if guess.subject is None:
        return LONGEST_HORIZON
    lengths = guess.sample.lengths(guess.subject)
    return max(1, min(LONGEST_HORIZON, (lengths[len(lengths) // 2] - 1) // 2))


def _name(stem: str) -> str:
    kept = "".join(letter if (letter.isascii() and letter.isalnum()) or letter in "-_." else " " for letter in stem)
    name = " ".join(kept.split()).strip("-_. ")[:48] or "table"
    return f"{name} table" if name.casefold() in RESERVED_NAMES else name
