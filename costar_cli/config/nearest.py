"""Which known name a mistyped one is likely to mean."""

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["nearest", "nearest_by_edits"]

LONGEST = 100  # characters that are compared
LEAST_PREFIX = 3


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that takes the fewest edits, None where all are far.

    A name of which more than a third differs is still found by its beginning, or by the runs of letters that it shares.
    """
    wanted, names = name[:LONGEST].casefold(), list(known)
    if (near := nearest_by_edits(name, names)) is not None:
        return near
    begun = [other for other in names if len(wanted) >= LEAST_PREFIX and other.casefold().startswith(wanted)]
    return next(iter([*begun, *get_close_matches(name[:LONGEST], names, n=1)]), None)


def nearest_by_edits(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that takes the fewest edits, None where each takes more than a third of the name's length.

    An edit inserts, deletes or replaces a letter, or swaps two neighbours.
    """
    wanted, names = name[:LONGEST].casefold(), list(known)
    distance = {other: _edits(wanted, other[:LONGEST].casefold()) for other in names}
    near = min(names, key=distance.__getitem__, default=None)
    return near if near is not None and distance[near] <= max(1, len(wanted) // 3) else None


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
