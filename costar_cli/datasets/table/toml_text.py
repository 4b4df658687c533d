"""TOML as text, which the standard library reads and does not write."""

import json
import math
import re
from collections.abc import Mapping, Sequence

__all__ = ["toml_key", "toml_row", "toml_value"]

_BARE = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_DELETE = "\x7f"  # the one control character that JSON leaves as it is


def toml_key(name: str) -> str:
    """Return a key, in quotes where it needs them."""
    return name if _BARE.fullmatch(name) else toml_value(name)


def toml_value(value: object) -> str:
    """Return a value on one line: text, numbers, truth values, lists and inline tables.

    Raises:
        TypeError: TOML has no such value.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace(_DELETE, "\\u007f")
    if isinstance(value, Mapping):
        inside = ", ".join(f"{toml_key(str(key))} = {toml_value(item)}" for key, item in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, Sequence):
        return f"[{', '.join(toml_value(item) for item in value)}]"
    raise TypeError(f"{type(value).__name__} has no place in TOML")


def toml_row(name: str, value: object) -> str:
    """Return `key = value`."""
    return f"{toml_key(name)} = {toml_value(value)}"
