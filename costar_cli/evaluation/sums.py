"""Sums that scoring leaves: of single subjects, cut to some of them and put behind one another, or of all, added."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import reduce
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["arrays_in", "cut", "joined"]

T = TypeVar("T")


def cut(sums: T, subjects: slice) -> T:
    """Return sums with the rows of some subjects alone: of the arrays that its class's `ALONG` names, by their axis.

    They are copies, unless all rows are kept, so that memory can forget the others.
    """
    along: Mapping[str, int] = getattr(sums, "ALONG", {})
    arrays = {name: array for name in along if (array := getattr(sums, name)) is not None}
    rows = {name: _rows(array, along[name], subjects) for name, array in arrays.items()}
    return replace(sums, **rows)  # type: ignore[type-var]  # only of dataclasses


def _rows(array: NDArray[Any], axis: int, subjects: slice) -> NDArray[Any]:
    some = array[(*[slice(None)] * axis, subjects)]
    return array if some.shape == array.shape else some.copy()


def joined(parts: Sequence[T], *, along: bool = True) -> T:
    """Return the sums of parts as those of one: in the order of the parts along `ALONG`, and added elsewhere.

    What is no array is that of the first part; a mapping has what is in any of them. Not `along`, all is added.

    Raises:
        ValueError: arrays do not fit together.
    """
    first: Any = parts[0]
    if isinstance(first, Mapping):
        several: Any = parts
        keys = dict.fromkeys(key for part in several for key in part)
        both: Any = {key: joined([part[key] for part in several if key in part], along=along) for key in keys}
        return both  # type: ignore[no-any-return]
    if isinstance(first, np.ndarray):
        added: Any = reduce(np.add, parts)  # type: ignore[arg-type]
        return added  # type: ignore[no-any-return]
    if not is_dataclass(first) or isinstance(first, type):
        return parts[0]
    axes: Mapping[str, int] = getattr(first, "ALONG", {}) if along else {}
    found = {}
    for field in fields(first):
        values = [getattr(part, field.name) for part in parts]
        if values[0] is not None:
            axis = axes.get(field.name)
            found[field.name] = joined(values, along=along) if axis is None else np.concatenate(values, axis=axis)
    return replace(first, **found)  # type: ignore[return-value]


def arrays_in(value: object, name: str = "") -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield every array in dataclasses and mappings, with its place in words between slashes."""
    if isinstance(value, np.ndarray):
        yield name, value
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from arrays_in(one, f"{name}/{key}".strip("/"))
    elif isinstance(value, tuple | list):
        for i, one in enumerate(value):
            yield from arrays_in(one, f"{name}/{i}".strip("/"))
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from arrays_in(getattr(value, field.name), f"{name}/{field.name}".strip("/"))
