"""A schema to start from, guessed from names and values, with a remark on every line."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from keyword import iskeyword
from pathlib import Path
from typing import Final

import polars as pl

from costar_cli.data.findings import counted
from costar_cli.data.registry import RESERVED_NAMES
from costar_cli.data.table.files import leading_comment, open_files, without_rows
from costar_cli.data.table.guess_cells import cells_in_doubt
from costar_cli.data.table.guess_dosing import bin_doses, find_dosing
from costar_cli.data.table.guess_events import find_log
from costar_cli.data.table.guess_intervals import find_intervals
from costar_cli.data.table.guess_keys import Guess, doubt_keys, find_keys, find_steps, ordered
from costar_cli.data.table.guess_roles import find_roles, role_in_doubt
from costar_cli.data.table.guess_split import SplitGuess, find_split
from costar_cli.data.table.guess_wide import refuse_wide
from costar_cli.data.table.guess_written import WrittenGuess, written_lines
from costar_cli.data.table.profile import Facts, Sample, sample_of
from costar_cli.data.table.schema import SERIES
from costar_cli.data.table.schema_file import CHECK, toml_key, toml_row, toml_value
from costar_cli.data.table.written import Written


@dataclass(frozen=True, slots=True)
class GuessedSchema:
    """A schema as commented TOML, and what is to be settled about it: a sentence each, a column's name first."""

    text: str
    doubts: tuple[str, ...]


def guess_schema(paths: Sequence[Path], statics: Path | None = None) -> GuessedSchema:
    """Return a schema for the tables, from the names and the first 200,000 rows.

    A few cells that do not fit, such as a bad date, say nothing about their column: they are told as doubts. So are all
    treatments and outcomes: who knows the data must confirm them.

    Raises:
        DataError: a file cannot be read, has no rows, or has a row per subject and a column per time.
    """
    sample = _sample(paths, "row per subject and time")
    log = find_log(sample)
    wide = _sample([statics], "row per subject") if statics else Sample("", {})
    guess = Guess(log.as_table() if log else sample, wide)
    if log:
        log.tell(guess)
        find_roles(guess)
        log.settle(guess)
    else:
        find_keys(guess)
        refuse_wide(guess, paths[0])
        find_intervals(guess)
        find_roles(guess)
        find_dosing(guess)
        find_steps(guess)
        bin_doses(guess)
    for name, entry in guess.entries.items():
        for what in cells_in_doubt(guess.facts(name), entry):
            guess.doubt(name, what)
        guess.doubt(name, role_in_doubt(guess, guess.facts(name), str(entry["role"])))
    doubt_keys(guess)
    split = find_split(guess)
    if statics is not None and guess.subject is not None and guess.subject not in guess.wide.columns:
        guess.doubt(guess.subject, f"{statics.name} has no such column, by which its rows would be found")
    files = ", ".join(path.name for path in (*paths, *([statics] if statics else [])))
    events = {"code": log.code.name, "value": log.value.name} if log else {}
    text = "\n".join(_schema_lines(guess, split, files, events)) + "\n"
    doubts = [f"{name}: {'; '.join(whats)}" for name, whats in guess.doubts.items()]
    return GuessedSchema(text, (*doubts, *(f"no column seems to be the {role}" for role in _not_found(guess))))


def _sample(paths: Sequence[Path], row: str) -> Sample:
    comment = next((mark for path in paths if path.is_file() and (mark := leading_comment(path))), "")
    sample = sample_of(open_files(paths, written=Written(comment=comment)))
    if not sample.height:
        raise without_rows(paths[0], row)
    return sample


LONGEST_REMARK: Final = 400
OLDEST: Final = 0.8  # the quantile of a static from which the example of a target begins
KEYS: Final = (("subject", "tells subjects apart"), ("time", "orders a subject's rows"))


def _not_found(guess: Guess) -> list[str]:
    """Return the roles that a schema needs and no column seems to have."""
    return [role for role in ("subject", "time", "treatment", "outcome") if not guess.named(role)]


def _schema_lines(guess: Guess, split: SplitGuess, files: str, events: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of the file; `events` names the columns of code and value, where it is a log."""
    yield f"# Guessed from {_comment(files)}. `costar settings schema` explains the keys."
    yield "# Read every line. Where it says CHECK, correct it and delete the comment: until then `costar ingest table`"
    yield "# rejects the schema, unless you add --accept-guesses."
    yield f"name = {toml_value(_name(guess.sample.name))}"
    yield f"horizon = {split.horizon}  # steps predicted from an origin"
    if guess.subject == SERIES:
        yield f"subject = []  {_remark(guess, SERIES, f'one series of {guess.sample.height:,} rows')}"
    wide = guess.wide.written
    written = guess.sample.written if guess.sample.written != WrittenGuess() else wide
    for key, value, remark in written_lines(written, CHECK):
        yield f"{toml_row(key, value)}  {remark}".rstrip()
    if events:
        yield f"\n[events]  {CHECK}is this a log, with a row per event? Then each code below is a column of its steps"
        yield from (toml_row(key, name) for key, name in events.items())
    yield "\n[columns]  # { role = ..., kind = ..., unit = ... }"
    what = dict(KEYS)
    for role in _not_found(guess):
        one = f"the one that {what[role]}" if role in what else "one"
        yield f'# NAME = {{ role = "{role}" }}  {CHECK}no column seems to be {one}'
    for name, entry in guess.entries.items():
        if name == SERIES:
            continue
        facts = _facts_on(guess, guess.facts(name), str(entry["role"]))
        yield f"{toml_key(name)} = {toml_value(entry)}  {_remark(guess, name, facts)}"
    for name, why in guess.left_out.items():
        asked = any(doubt.startswith("left out") for doubt in guess.doubts.get(name, ()))
        remark = _remark(guess, name, "" if asked else f"left out since it {why}")
        yield f'# {_comment(toml_key(name))} = {{ role = "..." }}  {remark}'
    yield "\n[time]"
    yield from _time_lines(guess)
    if not guess.named("split"):
        yield from split.lines()
    if not guess.named("domain"):
        yield "\n# [domain]  # who the target is: subjects that models are transferred to"
        yield f"# target = {toml_value(_comment(_target(guess)))}"
    yield "# few_shot = 0.1 in [split] keeps that share of the target's training subjects"


def _time_lines(guess: Guess) -> Iterator[str]:
    spacing = guess.spacing
    yield f"step = {toml_value(spacing.step)}" + (f"  # {spacing.remark}" if spacing.remark else "")
    if spacing.unit:
        yield f"unit = {toml_value(spacing.unit)}  # what results call a step"
    if guess.stop:
        yield f"stop = {toml_value(guess.stop)}  # the end of each row's interval, at which an event of the row came"
    if guess.closed:
        yield "closed = true  # each interval includes its end"
    formats = guess.facts(guess.time).date_formats if guess.time is not None else ()
    if written := spacing.format or next(iter(formats), ""):
        yield f"format = {toml_value(written)}"
    if guess.bins:
        yield "bin = true  # rows of one time, of a dose and of a measurement, are one step"
    remarks = {"fill": "a step without a row is a missing value", "elapsed": "visits at any time"}
    if spacing.gaps in remarks:
        yield f"gaps = {toml_value(spacing.gaps)}  # {remarks[spacing.gaps]}"


def _remark(guess: Guess, name: str, facts: str) -> str:
    """Return a line's comment: what is to be settled about the column, and what its values are."""
    doubts = "; ".join(guess.doubts.get(name, ()))
    doubts += "" if doubts.endswith(("?", ".")) or not (doubts and facts) else "."
    return (CHECK if doubts else "# ") + _comment(" ".join(text for text in (doubts, facts) if text))


def _facts_on(guess: Guess, column: Facts, role: str) -> str:
    if role == "subject":
        lengths = guess.sample.lengths(column.name)
        each = " each" if len(lengths) > 1 else ""
        rows = f"{lengths[0]} rows{each}" if lengths[0] == lengths[-1] else f"{lengths[0]} to {lengths[-1]} rows"
        return f"{counted(column.distinct, 'subject')} of {rows}"
    if role == "treatment" and "kind" not in guess.entries[column.name]:
        return f"{column.summary}; levels = [...] names them, the reference first"
    if role == "cluster":
        return f"{column.distinct:,} clusters"
    if role == "domain":
        return f"{column.summary}: which is the target?"
    return column.summary


def _target(guess: Guess) -> str:
    """Return an example of a condition, which about a fifth of the subjects meet: on a numeric static, age first."""
    statics = [guess.facts(name) for name in guess.named("static") if "`" not in name]
    statics = [c for c in statics if c.numbers is not None and not c.binary and "kind" not in guess.entries[c.name]]
    for column in sorted(statics, key=lambda c: "age" not in c.words):
        known = _per_subject(guess, column)
        high = known.quantile(OLDEST, "nearest")
        if high is not None and (known < high).any():
            plain = column.name.isidentifier() and column.name.isascii() and not iskeyword(column.name.lower())
            name = column.name if plain else f"`{column.name}`"
            return f"{name} >= {high:.12g}"
    return "COLUMN >= NUMBER"


def _per_subject(guess: Guess, column: Facts) -> pl.Series:
    """Return the numbers of a static, one per subject."""
    numbers = ordered(column)
    if guess.subject is None or column.name not in guess.sample.columns:
        return numbers.drop_nulls()
    frame = pl.DataFrame({"s": guess.facts(guess.subject).text, "x": numbers}).drop_nulls()
    return frame.unique("s", keep="first", maintain_order=True)["x"]


def _comment(text: str) -> str:
    """Return text that stays on one line of a comment."""
    return "".join(letter if letter.isprintable() else " " for letter in text)[:LONGEST_REMARK]


def _name(stem: str) -> str:
    kept = "".join(letter if (letter.isascii() and letter.isalnum()) or letter in "-_." else " " for letter in stem)
    name = " ".join(kept.split()).strip("-_. ")[:48] or "table"
    return f"{name} table" if name.casefold() in RESERVED_NAMES else name
