"""How a value that somebody wrote names a level of a treatment: in plans, tables, query files and schemas alike."""

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Final

from costar_cli.config.table import label_of

__all__ = ["UNTREATED", "are_doses", "as_number", "find_level", "is_on_off", "is_switch", "known_levels"]

UNTREATED: Final = ("0", "none", "no", "off", "false", "never", "control", "placebo", "untreated", "baseline", "usual")
GIVEN: Final = ("1", "yes", "on", "true", "given", "treated")
MOST_SHOWN: Final = 6
MOST_DIGITS: Final = 100  # of a number; no dose has more


def find_level(value: object, levels: Sequence[str]) -> int | None:
    """Return the place of the level that a value names, None where it names none or more than one.

    The first rule that applies decides. A place, other than by the last rule, is no name.

    1. The level's exact text; numbers are spelt as a table would (`1.0` as `1`), truth values as `true` and `false`.
    2. `true` and `false` name levels called so in capitals (`True`).
    3. Where a level is called by a number, numbers name the level that is equal to them: `1`, `1.0` and `"1"` are one.
       `false` is 0, and `true` is 1 of a binary treatment.
    4. Otherwise 1 and `true` name the second level of a binary treatment, given, and 0 and `false` its first, not
       given, unless the names say the contrary (`yes` before `no`). `false` is the reference of any other treatment.
    """
    if not isinstance(value, str | int | float):
        return None
    text = value if isinstance(value, str) else label_of(value)
    if text in levels:
        return list(levels).index(text)
    truth = {"true": True, "false": False}.get(text.lower())
    if truth is not None and (same := [i for i, level in enumerate(levels) if level.lower() == text.lower()]):
        return same[0] if len(same) == 1 else None
    if truth and len(levels) > 2:
        return None
    number = as_number(text) if truth is None else Decimal(truth)
    numbers = [as_number(level) for level in levels]
    if any(known is not None for known in numbers):
        equal = [i for i, known in enumerate(numbers) if known is not None and known == number]
        return equal[0] if len(equal) == 1 else None
    by_place = number in (0, 1) if len(levels) == 2 else truth is False
    return int(number) if by_place and number is not None and not _contrary(levels) else None


def is_switch(levels: Sequence[str]) -> bool:
    """Return whether 0 names the first of two levels and 1 the second."""
    return len(levels) == 2 and [find_level(value, levels) for value in (0, 1)] == [0, 1]


def is_on_off(levels: Sequence[str]) -> bool:
    """Return whether the names of two levels say no more than not given and given, as `off` and `on` do."""
    return len(levels) == 2 and levels[0].lower() in UNTREATED and levels[1].lower() in GIVEN


def are_doses(levels: Sequence[str]) -> bool:
    """Return whether all levels are called by numbers."""
    return all(as_number(level) is not None for level in levels)


def as_number(text: str) -> Decimal | None:
    """Return the number that a text spells, None where it spells none."""
    try:
        number = Decimal(text) if len(text) <= MOST_DIGITS and "_" not in text else None
    except InvalidOperation:
        return None
    return number if number is not None and number.is_finite() else None


def known_levels(levels: Sequence[str]) -> str:
    """Return how levels are written, for a message: `0 = 'off', 1 = 'on'`, or names, the first of many and the last."""
    if is_switch(levels) and not are_doses(levels):
        return f"0 = {levels[0]!r}, 1 = {levels[1]!r}"
    if len(levels) <= MOST_SHOWN:
        return ", ".join(map(repr, levels))
    first = ", ".join(map(repr, levels[: MOST_SHOWN - 2]))
    return f"{first}, ..., {levels[-1]!r} ({len(levels)} levels)"


def _contrary(levels: Sequence[str]) -> bool:
    """Return whether the first level sounds like a treatment that is given, or a later one like none."""
    untreated = [level.lower() in UNTREATED for level in levels]
    given = [level.lower() in GIVEN for level in levels]
    return (any(untreated[1:]) and not untreated[0]) or (given[0] and not all(given))
