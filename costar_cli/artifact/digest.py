"""Canonical bytes of JSON and arrays, and their SHA-256."""

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

MAX_JSON_DEPTH: Final = 64


def sha256(data: bytes) -> str:
    """Return the SHA-256 of bytes in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def file_sha256(path: Path, *, start: int = 0) -> str:
    """Return the SHA-256 of a file's bytes from a position on."""
    with path.open("rb") as file:
        if start:
            file.seek(start)
        return hashlib.file_digest(file, "sha256").hexdigest()


def flat_bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Return a C-contiguous array's memory as flat bytes, without a copy."""
    return array.reshape(-1).view(np.uint8)


def array_sha256(array: NDArray[Any]) -> str:
    """Return the SHA-256 of a C-contiguous array's bytes, without a copy."""
    return hashlib.sha256(flat_bytes(array).data).hexdigest()


def canonical_json(value: object) -> bytes:
    """Return the UTF-8 JSON of a value: keys sorted, no spaces, shortest round-trip numbers.

    Raises:
        ValueError: something that JSON cannot hold (NaN, other keys than strings, other types), and where it is.
    """
    plain = _plain(value)
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def parse_json(data: bytes) -> Any:  # noqa: ANN401 - JSON is anything
    """Return the value of UTF-8 JSON; stricter than `json.loads`.

    Raises:
        ValueError: not JSON, repeated keys, NaN or infinity, lone surrogates, or too deeply nested.
    """
    try:
        value = json.loads(data.decode(), parse_constant=_refuse_constant, object_pairs_hook=_unique)
    except RecursionError:
        raise ValueError(f"nested deeper than {MAX_JSON_DEPTH} levels") from None
    return _plain(value)


def _plain(value: object, depth: int = 0) -> Any:  # noqa: ANN401 - JSON is anything
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f": {value} is not a JSON number")
        return value
    if isinstance(value, str):
        value.encode()  # raises UnicodeEncodeError, a ValueError, for lone surrogates
        return value
    if depth >= MAX_JSON_DEPTH:
        raise ValueError(f": nested deeper than {MAX_JSON_DEPTH} levels")
    if isinstance(value, Mapping):
        return _plain_members(value, depth)
    if isinstance(value, list | tuple):
        return [_plain(item, depth + 1) for item in value]
    raise ValueError(f": {type(value).__name__} is not JSON")


def _plain_members(value: Mapping[Any, object], depth: int) -> dict[str, Any]:
    members = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise ValueError(f": the key {key!r} is not a string")
        try:
            members[str(_plain(key))] = _plain(item, depth + 1)
        except UnicodeEncodeError:
            raise ValueError(f"/{key!a}: not Unicode text") from None
        except ValueError as error:
            raise ValueError(f"/{key}{error}") from None
    return members


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a key appears twice in one object")
    return members
