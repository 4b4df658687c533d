"""How a value that somebody wrote names a level of a treatment: in plans, tables, query files and schemas alike."""

import math
import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Final

Scalar = bool | int | float | str

NO: Final = (
    "0", "none", "no", "off", "false", "absent", "not given", "not treated", "untreated", "no treatment", "never",
    "nein", "keine", "non", "aucun", "nee", "nej", "não", "нет",
)  # fmt: skip
"""Words that say no more than not given, the plainest first."""
COMPARISON: Final = (
    "unexposed", "unvaccinated", "inactive", "negative", "nothing", "nil", "without", "zero", "placebo", "sham",
    "control", "controls", "control group", "comparator", "baseline", "observation", "watchful waiting",
    "standard", "standard care", "standard of care", "standard treatment", "soc", "usual", "usual care", "unchanged",
)  # fmt: skip
"""What a treatment is compared with: not given, but worth its name."""
YES: Final = ("1", "yes", "on", "true", "present", "given", "treated", "ja", "oui", "sí", "si", "sim", "да")
GIVEN: Final = ("exposed", "vaccinated", "active", "verum", "experimental")
LETTERS: Final = (("n", "y"), ("f", "t"), ("n", "j"), ("-", "+"))  # alone, a letter may stand for anything
WITHOUT: Final = ("no", "not", "without", "never")  # first words of `no surgery`
MOST_SHOWN: Final = 6
MOST_DIGITS: Final = 100  # of a number; no dose has more


def label_of(value: Scalar) -> str:
    """Return a value as a table would spell it: `true`, `5`, `0.5`, `north`."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return str(value)


def find_level(value: object, levels: Sequence[str]) -> int | None:
    """Return the place of the level that a value names, None where it names none or more than one.

    The first rule that applies decides. A place, other than by the last rule, is no name.

    1. The level's exact text; numbers are spelt as a table would (`1.0` as `1`), truth values as `true` and `false`.
    2. `true` and `false` name levels called so in capitals (`True`).
    3. Where a level is called by a number, numbers name the level that is equal to them: `1`, `1.0` and `"1"` are one.
       `false` is 0, and `true` is 1 of a binary treatment.
    4. Otherwise 1 and `true` name the second level of a binary treatment, given, and 0 and `false` its first, not
       given, where the names say that it is so: `no` and `yes`, `placebo` and `drug X`. `false` is the reference of
       any other treatment, where that is called like none.
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
    if len(levels) == 2:
        meant = number in (0, 1) and _in_order(levels)
    else:
        meant = truth is False and known_reference(levels) == levels[0]
    return int(number) if meant and number is not None else None


def is_switch(levels: Sequence[str]) -> bool:
    """Return whether 0 names the first of two levels and 1 the second."""
    return len(levels) == 2 and [find_level(value, levels) for value in (0, 1)] == [0, 1]


def is_on_off(levels: Sequence[str]) -> bool:
    """Return whether the names of two levels say no more than not given and given, as `off` and `on` do."""
    if len(levels) != 2:
        return False
    first, second = map(_plain, levels)
    return (first in NO and second in YES) or (first, second) in LETTERS


def known_reference(levels: Sequence[str]) -> str | None:
    """Return the level whose name says that nothing is given, the plainest of several, None where no name says so."""
    if len(levels) == 2:
        both = (levels[0], levels[1]), (levels[1], levels[0])
        if ordered := [pair for pair in both if _in_order(pair)]:
            return ordered[0][0]
    words = (*NO, *COMPARISON)
    rank = {level: words.index(word) if (word := _plain(level)) in words else len(words) for level in levels}
    named = [level for level in levels if _not_given(level)]
    return min(named, key=rank.__getitem__, default=None)


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


def in_order(levels: Sequence[str]) -> list[int]:
    """Return the places of levels in the order of the numbers that their names hold, if most of them hold any.

    `below -5 %` comes before `-5 % to 0 %`, and `above 5 %` behind what begins with 5; what is not given counts as 0.
    Names without a number stand last.
    """
    keys: list[tuple[float, int] | None] = []  # the middle of the numbers in a name, and a step to their side
    for place, level in enumerate(levels):
        numbers = [float(text) for text in re.findall(r"(?<![\w.])[-+]?\d+(?:\.\d+)?", level)]
        side = {"below": -1, "under": -1, "<": -1, "above": 1, "over": 1, ">": 1}.get(re.split(r"[\s\d]", level)[0], 0)
        unnumbered = (0.0, 0) if place == 0 else None
        keys.append((sum(numbers) / len(numbers), side) if numbers else unnumbered)
    if 2 * sum(key is not None for key in keys[1:]) <= len(levels) - 1:
        return [*range(len(levels))]
    return sorted(range(len(levels)), key=lambda place: keys[place] or (math.inf, place))


def known_levels(levels: Sequence[str]) -> str:
    """Return how levels are written, for a message: `0 = 'off', 1 = 'on'`, or names, the first of many and the last."""
    if is_switch(levels) and not are_doses(levels):
        return f"0 = {levels[0]!r}, 1 = {levels[1]!r}"
    if len(levels) <= MOST_SHOWN:
        return ", ".join(map(repr, levels))
    first = ", ".join(map(repr, levels[: MOST_SHOWN - 2]))
    return f"{first}, ..., {levels[-1]!r} ({len(levels)} levels)"


def _in_order(levels: Sequence[str]) -> bool:
    """Return whether the names of two levels leave no doubt that the first is not given and the second is."""
    first, second = levels
    if (_plain(first), _plain(second)) in LETTERS:
        return True
    known, contrary = _not_given(first) or _given(second), _not_given(second) or _given(first)
    return known and not contrary


def _not_given(level: str) -> bool:
    word = _plain(level)
    return word in NO or word in COMPARISON or word.split(" ")[0] in WITHOUT


def _given(level: str) -> bool:
    return _plain(level) in (*YES, *GIVEN)


def _plain(level: str) -> str:
    """Return a level's words without case, underscores and hyphens between them."""
    text = level.strip().casefold()
    return " ".join(text.replace("_", " ").replace("-", " ").split()) or text
