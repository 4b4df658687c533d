"""What is doubtful about a guessed column: cells that do not fit, and what its name says beside its values."""

from collections.abc import Mapping

import polars as pl

from costar_cli.datasets.table.guess_keys import Guess
from costar_cli.datasets.table.guess_steps import ordered
from costar_cli.datasets.table.guess_words import OUTCOME, OUTCOME_TOO, TREATMENT, is_death, is_remedy, is_site
from costar_cli.datasets.table.profile import Facts, Sample, few
from costar_cli.datasets.table.treatments import MOST_LEVELS, guessed_levels
from costar_cli.panel.findings import counted, shown

__all__ = ["cells_in_doubt", "role_in_doubt", "stray_static", "unit_in_doubt"]


def stray_static(sample: Sample, subject: str, column: Facts) -> str:
    """Return what is odd about a column that is steady but for single cells of a few subjects; nothing otherwise.

    Columns of 0 and 1 never count: what is given or happens once looks the same.
    """
    changing = sample.changing(subject, column.name)
    if column.binary or not 0 < len(changing) <= few(sample.columns[subject].distinct):
        return ""
    if any(rows - most != 1 or most < 2 for rows, most in changing.values()):
        return ""
    return f"changes within {counted(len(changing), 'subject')}, first {next(iter(changing))}, which a static must not"


def cells_in_doubt(column: Facts, entry: Mapping[str, object]) -> str:
    """Return how many cells of a column do not fit what it seems to be; nothing where all do."""
    role, what = str(entry["role"]), "number" if column.numbers is not None else "date"
    texts = role in ("subject", "treatment", "domain", "split", "cluster") or entry.get("kind") == "categorical"
    if texts or not column.odd:
        return ""
    number = len(column.odd)
    these, them = (f"1 value is no {what}", "it") if number == 1 else (f"{number:,} values are no {what}s", "them")
    blank = "" if role == "time" else ", or add the text to `blank` where it means a missing value"
    return f"{these} ({shown(dict.fromkeys(column.odd), 2)}): correct {them}{blank}"


def role_in_doubt(guess: Guess, column: Facts, role: str) -> str:
    """Return what must be confirmed about a column by who knows the data: treatments, outcomes, telling names."""
    if role == "treatment":
        named = bool(column.words & TREATMENT) or is_remedy(column.words)
        return _treatment_in_doubt(guess, column, by_name=named)
    if role == "outcome":
        how = "by its name" if column.words & (OUTCOME | OUTCOME_TOO) else "as the numbers that change"
        holes = f', and {counted(column.missing, "value")} missing: correct them, or say `missing = "fill"`'
        return f"guessed {how}: is it what shall be predicted{holes if column.missing else ''}?"
    if role == "cluster":
        return "guessed by its name: do subjects that share one resemble each other? Splits keep them together"
    return _other_in_doubt(guess, column, role) if role in ("covariate", "static") else ""


def _other_in_doubt(guess: Guess, column: Facts, role: str) -> str:
    """Return what a covariate or static may be instead, by its name."""
    if column.words & TREATMENT or is_remedy(column.words):
        return f"is this {role} a drug or an intervention? {_as_treatment(guess, column, role)}"
    if role == "static":
        return unit_in_doubt(guess, column)
    if column.words & OUTCOME:
        return "named like an outcome: is this what shall be predicted?"
    return "named like death: does its row know it?" if is_death(column.words) else ""


def unit_in_doubt(guess: Guess, column: Facts) -> str:
    """Return the question whether a column that is steady and called a place or the like is a unit of subjects."""
    if guess.subject is None or not is_site(column.words):
        return ""
    in_rows = column.name in guess.sample.columns
    if column.distinct >= guess.facts(guess.subject).distinct:
        return ""
    if in_rows and guess.sample.changing(guess.subject, column.name):
        return ""
    other = f" in the place of '{guess.named('cluster')[0]}'" if guess.named("cluster") else ""
    which = f'then `role = "cluster"`{other} keeps its subjects in one split'
    return f"is this a unit of several subjects that a split must not divide? {which[0].upper()}{which[1:]}"


def _as_treatment(guess: Guess, column: Facts, role: str) -> str:
    """Return what to do with a covariate or static that may be what plans shall vary."""
    what = 'say `role = "treatment"` if plans shall vary it'
    keep = f"keep `{role}` if it only describes the subject" + (" at that time" if role == "covariate" else "")
    if column.name not in guess.sample.columns:
        return f"Copy it into each row of the table and {what}; {keep}"
    if column.distinct > MOST_LEVELS:
        return f"Put its values into at most {MOST_LEVELS} classes and {what}; {keep}"
    return f"{what[0].upper()}{what[1:]}; {keep}"


def _treatment_in_doubt(guess: Guess, column: Facts, *, by_name: bool) -> str:
    counts = {str(text): int(rows) for text, rows in column.known.value_counts().rows()}
    levels, by_name = guessed_levels(counts)
    text = f"guessed {'by its name' if by_name else 'by its values'}: is it given after its row was measured, and is "
    text += f"'{levels[0]}' not given?"
    text += "" if by_name else " It is only the most frequent: `levels` names the reference first."
    if guess.subject is not None and not guess.sample.changing(guess.subject, column.name):
        text += " It never changes within a subject."
    if holes := _holes(guess, column):
        text += f' {counted(holes, "value")} missing: does that mean not given (`missing = "fill"`)?'
    return text


def _holes(guess: Guess, column: Facts) -> int:
    """Return how many values of a treatment are missing elsewhere than at the last row of a subject."""
    if not column.missing or guess.subject is None or guess.time is None:
        return column.missing
    when = ordered(guess.facts(guess.time))
    frame = pl.DataFrame({"s": guess.facts(guess.subject).text, "t": when, "missing": column.text.is_null()})
    last = frame.select(pl.col("t") == pl.col("t").max().over("s")).to_series().fill_null(value=False)
    return int((frame["missing"] & ~last).sum())
