"""Levels that are called by numbers, and which level a shift makes of each (spec PLAN-3)."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from costar_cli.data.levels import as_number, is_switch, known_reference

SHARE: Final = "%"
DIGITS: Final = 9  # of numbers that levels are called by
BELOW: Final = ("below", "under", "up to", "at most", "<", "<=")
_NUMBER: Final = r"[+-]?(?:\d+\.?\d*|\.\d+)"
_SPAN: Final = re.compile(
    rf"(?P<side>below|under|up to|at most|<=?|above|over|at least|>=?)?\s*(?P<first>{_NUMBER})\s*%?"
    rf"(?:\s*(?:to|-|\.\.)\s*(?P<second>{_NUMBER})\s*%?)?",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Span:
    """The numbers that a level stands for, from `low` to `high`; it is moved as its `number`."""

    low: float
    number: float
    high: float

    def distance(self, target: float) -> float:
        """Return how far a number is from those of the level."""
        return max(self.low - target, target - self.high, 0.0)


def level_spans(levels: Sequence[str]) -> tuple[list[Span | None], bool]:
    """Return what levels stand for, None where that is no number, and whether these are percentages.

    A level is called by a number (`5`, `+5 %`), two (`-5 % to 5 %`), or one that it is `below` or `above`. The
    reference, if it is called otherwise, stands for 0.
    """
    spans: list[Span | None] = []
    for level in levels:
        if (found := _SPAN.fullmatch(level.strip())) is None:
            spans.append(None)
            continue
        low = number = high = float(found["first"])
        if found["second"]:
            high = float(found["second"])
            number = (low + high) / 2
        elif found["side"] and found["side"].lower() in BELOW:
            low = -math.inf
        elif found["side"]:
            high = math.inf
        spans.append(Span(low, number, high))
    if any(spans):
        reference = known_reference(levels) or levels[0]
        zero = Span(0.0, 0.0, 0.0)
        spans = [zero if of is None and name == reference else of for of, name in zip(spans, levels, strict=True)]
    return spans, any(level.rstrip().endswith(SHARE) for level in levels)


def level_numbers(levels: Sequence[str]) -> list[float] | None:
    """Return the numbers that levels are compared by, NaN where one has none; None where none has any.

    Levels that no number calls, but that say whether a treatment is given, count as 0 and 1.
    """
    spans, _ = level_spans(levels)
    if any(spans):
        return [span.number if span else math.nan for span in spans]
    return [0.0, 1.0] if is_switch(levels) else None


def moved_by(amount: object) -> tuple[float, bool]:
    """Return the number that a shift says, and whether it is a share, in percent.

    Raises:
        ValueError: it says none.
    """
    text = str(amount).strip()
    by = as_number(text.removesuffix(SHARE).strip()) if isinstance(amount, int | float | str) else None
    if by is None or isinstance(amount, bool):
        raise ValueError("a shift is a number or a share such as '-5 %'")
    return float(by), text.endswith(SHARE)


def shifted_levels(levels: Sequence[str], allowed: Sequence[int], amount: object) -> tuple[tuple[int, ...], bool]:
    """Return the level that each level becomes when its number is moved, and whether all numbers were met.

    Numbers are moved by `amount`, `-5` or `"-5 %"`: by so much, or of doses by such a share. Levels without a number
    stay. The nearest of the `allowed` levels is taken, of several the one nearer to where it was.

    Raises:
        ValueError: levels have no numbers, or the amount is none.
    """
    spans, share = level_spans(levels)
    moved, is_share = moved_by(amount)
    if sum(span is not None for span in spans) < 2:
        raise ValueError("its levels are not called by numbers, so that they cannot be shifted")
    of_dose = is_share and not share
    known = [(i, span) for i in allowed if (span := spans[i]) is not None]
    made, exact = [], True
    for place, own in enumerate(spans):
        if own is None or not known:
            made.append(place)
            continue
        target = round(own.number * (1 + moved / 100) if of_dose else own.number + moved, DIGITS)
        away = [(span.distance(target), abs(span.number - own.number)) for _, span in known]
        made.append(known[away.index(min(away))][0])
        exact &= min(away)[0] == 0
    return tuple(made), exact
