"""A guess as TOML with a remark on every line; what is to be settled is marked (see `open_guesses`)."""

from collections.abc import Iterator
from keyword import iskeyword
from typing import Final

import polars as pl

from costar_cli.datasets.table.guess_keys import Guess
from costar_cli.datasets.table.guess_steps import ordered
from costar_cli.datasets.table.profile import Facts
from costar_cli.datasets.table.schema import RESERVED_NAMES
from costar_cli.datasets.table.schema_file import CHECK
from costar_cli.datasets.table.toml_text import toml_key, toml_value

__all__ = ["not_found", "schema_lines"]

LONGEST_HORIZON: Final = 6
LONGEST_REMARK: Final = 400
OLDEST: Final = 0.8  # the quantile of a static from which the example of a target begins
KEYS: Final = (("subject", "tells subjects apart"), ("time", "orders a subject's rows"))


def not_found(guess: Guess) -> list[str]:
    """Return the roles that a schema needs and no column seems to have."""
    return [role for role in ("subject", "time", "treatment", "outcome") if not guess.named(role)]


def schema_lines(guess: Guess, files: str) -> Iterator[str]:
    """Yield the lines of the file."""
    yield f"# Guessed from {_comment(files)}. docs/data-own.md explains the keys."
    yield "# Read every line. Where it says CHECK, correct it and delete the comment: until then `costar ingest table`"
    yield "# refuses the schema, unless you add --accept-guesses."
    yield f"name = {toml_value(_name(guess.sample.name))}"
    yield f"horizon = {_horizon(guess)}  # steps predicted from an origin"
    yield "\n[columns]  # { role = ..., kind = ..., unit = ... }"
    what = dict(KEYS)
    for role in not_found(guess):
        one = f"the one that {what[role]}" if role in what else "one"
        yield f'# NAME = {{ role = "{role}" }}  {CHECK}no column seems to be {one}'
    for name, entry in guess.entries.items():
        facts = _facts_on(guess, guess.facts(name), str(entry["role"]))
        yield f"{toml_key(name)} = {toml_value(entry)}  {_remark(guess, name, facts)}"
    for name, why in guess.left_out.items():
        asked = any(doubt.startswith("left out") for doubt in guess.doubts.get(name, ()))
        remark = _remark(guess, name, "" if asked else f"left out since it {why}")
        yield f'# {_comment(toml_key(name))} = {{ role = "..." }}  {remark}'
    yield "\n[time]"
    yield from _time_lines(guess)
    if not guess.named("split"):
        yield "\n[split]  # shares of the subjects\ntrain = 0.7\nval = 0.15\ntest = 0.15\nseed = 0"
    if not guess.named("domain"):
        yield "\n# [domain]  # who the target is: subjects that models are transferred to"
        yield f"# target = {toml_value(_comment(_target(guess)))}"
    yield "# few_shot = 0.1 in [split] keeps that share of the target's training subjects"


def _time_lines(guess: Guess) -> Iterator[str]:
    spacing = guess.spacing
    yield f"step = {toml_value(spacing.step)}" + (f"  # {spacing.remark}" if spacing.remark else "")
    if spacing.unit:
        yield f"unit = {toml_value(spacing.unit)}  # what results call a step"
    if guess.time is not None and (formats := guess.facts(guess.time).date_formats) and formats[0]:
        yield f"format = {toml_value(formats[0])}"
    remarks = {"fill": "a step without a row is a missing value", "ignore": "each row is the next step"}
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
        rows = f"{lengths[0]} rows each" if lengths[0] == lengths[-1] else f"{lengths[0]} to {lengths[-1]} rows"
        return f"{column.distinct:,} subjects of {rows}"
    if role == "treatment":
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


def _horizon(guess: Guess) -> int:
    if guess.subject is None:
        return LONGEST_HORIZON
    lengths = guess.sample.lengths(guess.subject)
    return max(1, min(LONGEST_HORIZON, (lengths[len(lengths) // 2] - 1) // 2))


def _name(stem: str) -> str:
    kept = "".join(letter if (letter.isascii() and letter.isalnum()) or letter in "-_." else " " for letter in stem)
    name = " ".join(kept.split()).strip("-_. ")[:48] or "table"
    return f"{name} table" if name.casefold() in RESERVED_NAMES else name
