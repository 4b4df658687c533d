"""Which known name a mistyped one is likely to mean."""

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

LONGEST = 100  # characters that are compared
LEAST_PREFIX = 3
FEWEST_LETTERS = 3  # of a name that may be mistyped: one edit of a shorter one is another name
_NUMBER = re.compile(r"[-+]?[\d.,]+")
_LEADING_ZEROS = re.compile(r"(?<![\d.,])0+(?=\d)")


def did_you_mean(name: str, known: Iterable[str], *, lead: str = "", quoted: bool = False) -> str:
    """Return `did you mean ...?` for the nearest known name, behind `lead`; nothing where all are far.

    Names of costar's own stand in backticks; `quoted` is for those that people gave, which may hold anything.
    """
    near = nearest(name, known)
    return "" if near is None else f"{lead}did you mean {repr(near) if quoted else f'`{near}`'}?"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that takes the fewest edits, None where all are far.

    A name of which more than a third differs is still found by its beginning, or by the runs of letters that it shares.
    """
    names = list(known)
    if (near := nearest_by_edits(name, names)) is not None or not _mistypable(name):
        return near
    wanted = name[:LONGEST].casefold()
    begun = [other for other in names if len(wanted) >= LEAST_PREFIX and other.casefold().startswith(wanted)]
    return next(iter([*begun, *get_close_matches(name[:LONGEST], names, n=1)]), None)


def nearest_by_edits(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that takes the fewest edits, None where each takes more than a third of the name's length.

    An edit inserts, deletes or replaces a letter, or swaps two neighbours. A name of one or two letters and a number
    are not edited: only their case, blanks around them and leading zeros may differ.
    """
    names = list(known)
    if same := spelt_otherwise(name, names):
        return same[0]
    if not _mistypable(name):
        return None
    wanted = name[:LONGEST].casefold()
    distance = {other: _edits(wanted, other[:LONGEST].casefold()) for other in names}
    near = min(names, key=distance.__getitem__, default=None)
    return near if near is not None and distance[near] <= max(1, len(wanted) // 3) else None


def nearly(name: str, known: Sequence[str], most: int) -> list[str]:
    """Return the known names, `most` at most, that share runs of letters with a mistyped one, the nearest first."""
    return get_close_matches(name[:LONGEST], known, n=most) if _mistypable(name) else []


def spelt_otherwise(name: str, known: Iterable[str]) -> list[str]:
    """Return the known names that differ from one only in case, blanks around it, or leading zeros of its numbers."""
    return [other for other in known if _bare(other) == _bare(name)]


def _mistypable(name: str) -> bool:
    return len(name.strip()) >= FEWEST_LETTERS and not _NUMBER.fullmatch(name.strip())


def _bare(name: str) -> str:
    return _LEADING_ZEROS.sub("", name.strip().casefold())


def _edits(one: str, other: str) -> int:
    """Return the restricted Damerau-Levenshtein distance."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, start=1):
        above, row_before = row, before
        row = [i]
        for j, b in enumerate(other, start=1):
            cost = min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and one[i - 2] == b:
                cost = min(cost, row_before[j - 2] + 1)
            row.append(cost)
        before = above
    return row[-1]
