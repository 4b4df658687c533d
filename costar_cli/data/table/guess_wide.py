"""Tables with a row per subject and a column per time: seen by their names, and how to reshape them (polars)."""

import re
from pathlib import Path
from typing import Final

from costar_cli.data.table.guess_keys import Guess, ascends, score
from costar_cli.data.table.profile import SUBJECT, SUBJECT_TOO, Facts
from costar_cli.errors import DataError

FEWEST_TIMES: Final = 3  # of one variable; of several, 2 are enough
MOST_NAMED: Final = 6  # variables that the ways to reshape name
NUMBERED: Final = re.compile(
    r"(?P<name>.*?[^\W\d_])(?P<between>[\W_]*([\W_](t|v|w|m|d|y|week|day|month|visit|wave|year)[\W_]*)?)\d{1,4}",
    re.IGNORECASE,
)


def refuse_wide(guess: Guess, path: Path) -> None:
    """Stop where each row is a subject and numbered columns are times: `bp_0`, `bp_1`, `bp_2`.

    A table whose subjects, or rows, follow each other in time is none.

    Raises:
        DataError: it is so; the fix is a line of pandas or R that makes a row per subject and time.
    """
    variables: dict[str, dict[str, list[Facts]]] = {}
    for column in guess.sample.columns.values():
        if found := NUMBERED.fullmatch(column.name):
            variables.setdefault(found["between"], {}).setdefault(found["name"], []).append(column)
    between = max(variables, key=lambda between: sum(map(len, variables[between].values())), default="")
    wide = {name: columns for name, columns in variables.get(between, {}).items() if len(columns) > 1}
    numbered = {column.name for columns in wide.values() for column in columns}
    keys = [c for c in guess.sample.columns.values() if score(c, SUBJECT, SUBJECT_TOO) and c.name not in numbered]
    alone = [c for c in keys if c.distinct == c.count]
    several = len(wide) > 1 or (bool(alone) and max(map(len, wide.values()), default=0) >= FEWEST_TIMES)
    if not several or len(alone) < len([c for c in keys if c.distinct > 1]) or _in_time(guess, numbered):
        return
    spans = ", ".join(f"'{columns[0].name}' to '{columns[-1].name}'" for columns in list(wide.values())[:2])
    spans += " and others" if len(wide) > 2 else ""
    some = list(wide)[:MOST_NAMED]
    frame, key = ("df", alone[0].name) if alone else ("df.reset_index()", "index")
    pattern = f"^({'|'.join(_plain(name) for name in some)}){_plain(between)}([0-9]+)$"
    pandas = f"pd.wide_to_long({frame}, {some!r}, i={key!r}, j='time', sep={between!r}).reset_index()"
    r = f"tidyr::pivot_longer(df, matches('{pattern}'), names_to = c('.value', 'time'), names_pattern = '{pattern}')"
    raise DataError(
        f"the table is wide: it has a row per subject, and {spans} look like one variable at several times",
        where=str(path),
        fix=f"make a row per subject and time: in pandas `{pandas}`, in R `{r}`",
    )


def _in_time(guess: Guess, numbered: set[str]) -> bool:
    """Return whether rows of a subject follow each other by a time that is none of the numbered columns."""
    if guess.subject is None or guess.time is None or {guess.subject, guess.time} & numbered:
        return False
    return ascends(guess.facts(guess.subject), guess.facts(guess.time))


def _plain(text: str) -> str:
    """Return a regular expression of R and pandas, without a backslash."""
    return re.sub(r"[^\w ]", ".", text)
