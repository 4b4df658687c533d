"""Text that is safe to print, JSON that is safe to parse, colour that can be switched off."""

import json
import math
import os
import shutil
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import PurePath
from typing import Any, TextIO

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def is_interactive(stream: TextIO) -> bool:
    """Return whether a person watches the stream in a terminal that can redraw."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def columns_of(stream: TextIO) -> int | None:
    """Return how many columns fit where a person reads: in a terminal, or as `COLUMNS` says; None in a pipe."""
    if is_interactive(stream) or os.environ.get("COLUMNS", "").isdigit():
        return shutil.get_terminal_size().columns
    return None


def paint(text: str, style: str, stream: TextIO) -> str:
    """Return the text in a style where the stream shows styles and `NO_COLOR` is not set."""
    if os.environ.get("NO_COLOR") or not is_interactive(stream):
        return text
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m"


def in_words(seconds: float) -> str:
    """Return a duration as people say it: `40 s`, `4 min`, `2.5 h`."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"


def dump_json(document: object) -> str:
    """Return one JSON document; numbers that are not finite become null."""
    return json.dumps(_clean(document), allow_nan=False, indent=2)


def _clean(value: Any) -> Any:  # noqa: ANN401 - any value that a workflow returns
    """Return the value in JSON's own types; numpy scalars and arrays know `tolist`."""
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, Mapping):
        return {str(key): _clean(item) for key, item in value.items()}
    if isinstance(value, Sequence | AbstractSet):
        return [_clean(item) for item in value]
    if isinstance(value, PurePath):
        return str(value)
    if hasattr(value, "tolist"):
        return _clean(value.tolist())
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")
