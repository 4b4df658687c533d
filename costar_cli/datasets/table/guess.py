"""A schema to start from, guessed from names and values, with a remark on every line."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from costar_cli.datasets.table.files import open_files
from costar_cli.datasets.table.guess_doubts import cells_in_doubt, role_in_doubt
from costar_cli.datasets.table.guess_keys import Guess, doubt_keys, find_keys
from costar_cli.datasets.table.guess_roles import find_roles
from costar_cli.datasets.table.guess_steps import spacing_of
from costar_cli.datasets.table.guess_text import not_found, schema_lines
from costar_cli.datasets.table.profile import Sample, sample_of
from costar_cli.errors import DataError

__all__ = ["GuessedSchema", "guess_schema"]


@dataclass(frozen=True, slots=True)
class GuessedSchema:
    """A schema as commented TOML, and what is to be settled about it: a sentence each, a column's name first."""

    text: str
    doubts: tuple[str, ...]


def guess_schema(paths: Sequence[Path], statics: Path | None = None) -> GuessedSchema:
    """Return a schema for the tables, from the names and the first 200,000 rows.

    A few cells that do not fit, such as a bad date, say nothing about their column: they are told as doubts. So are all
    treatments and outcomes: who knows the data must confirm them.

    Args:
        paths: the files of the table.
        statics: a file of one row per subject.

    Raises:
        DataError: a file cannot be read, or has no rows.
    """
    sample = _sample(paths, "row per subject and time")
    guess = Guess(sample, _sample([statics], "row per subject") if statics else Sample("", {}))
    find_keys(guess)
    find_roles(guess)
    _find_steps(guess)
    for name, entry in guess.entries.items():
        guess.doubt(name, cells_in_doubt(guess.facts(name), entry))
        guess.doubt(name, role_in_doubt(guess, guess.facts(name), str(entry["role"])))
    doubt_keys(guess)
    if statics is not None and guess.subject is not None and guess.subject not in guess.wide.columns:
        guess.doubt(guess.subject, f"{statics.name} has no such column, by which its rows would be found")
    files = ", ".join(path.name for path in (*paths, *([statics] if statics else [])))
    text = "\n".join(schema_lines(guess, files)) + "\n"
    doubts = [f"{name}: {'; '.join(whats)}" for name, whats in guess.doubts.items()]
    return GuessedSchema(text, (*doubts, *(f"no column seems to be the {role}" for role in not_found(guess))))


def _sample(paths: Sequence[Path], row: str) -> Sample:
    sample = sample_of(open_files(paths))
    if not sample.height:
        raise DataError("the table has no rows", where=str(paths[0]), fix=f"give at least one {row}")
    return sample


def _find_steps(guess: Guess) -> None:
    """Guess the step of time; where steps without a row become missing values, covariates are filled."""
    if guess.subject is None or guess.time is None:
        return
    guess.spacing = spacing_of(guess.facts(guess.subject).text, guess.facts(guess.time))
    guess.doubt(guess.time, guess.spacing.doubt)
    if guess.spacing.gaps == "fill":
        for name in guess.named("covariate"):
            guess.entries[name]["missing"] = "fill"
