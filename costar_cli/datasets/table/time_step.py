"""The step of a table's time: a number, or a duration such as `1h`."""

import re
from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["Step", "parse_step"]


@dataclass(frozen=True, slots=True)
class Step:
    """How far two neighbouring rows of a subject are apart: `size` numbers, microseconds or months."""

    scale: Literal["number", "us", "month"]
    size: float
    word: str


_DURATION = re.compile(r"([1-9]\d{0,4})\s*(s|min|h|d|w|mo|y)")
_UNITS: Final[dict[str, tuple[Literal["us", "month"], int, str]]] = {
    "s": ("us", 10**6, "second"),
    "min": ("us", 60 * 10**6, "minute"),
    "h": ("us", 3_600 * 10**6, "hour"),
    "d": ("us", 86_400 * 10**6, "day"),
    "w": ("us", 7 * 86_400 * 10**6, "week"),
    "mo": ("month", 1, "month"),
    "y": ("month", 12, "year"),
}


def parse_step(step: float | str) -> Step:
    """Return a step in numbers, called by its own word: `hour`, `2 days`, `step`.

    Raises:
        ValueError: it is neither a positive number nor a duration.
    """
    if not isinstance(step, str):
        if isinstance(step, bool) or not 0 < step < 2**53:
            raise ValueError("step must be above 0")
        return Step("number", float(step), "step")
    found = _DURATION.fullmatch(step)
    if not found:
        raise ValueError(f"step {step!r} is no duration such as `1h`, `1d` or `1w`")
    count, (scale, size, word) = int(found[1]), _UNITS[found[2]]
    return Step(scale, count * size, word if count == 1 else f"{count} {word}s")
