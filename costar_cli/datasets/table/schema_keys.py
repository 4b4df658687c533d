"""The keys of a table's schema, for the reference and for `costar settings schema`."""

from collections.abc import Iterator
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from costar_cli.datasets.table.schema import ColumnSchema, TableSchema

_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def keys(model: type[BaseModel] = TableSchema, prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Yield every key with its dotted name; those of a column as `columns.NAME.role`."""
    for name, field in model.model_fields.items():
        inner = next(
            (kind for kind in _kinds(field.annotation) if isinstance(kind, type) and issubclass(kind, BaseModel)), None
        )
        if name == "columns" and model is TableSchema:
            yield from keys(ColumnSchema, "columns.NAME.")
        elif inner is not None:
            yield from keys(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", field


def _kinds(annotation: Any) -> list[Any]:  # noqa: ANN401 - annotations have no common type
    if get_origin(annotation) in (Union, UnionType):
        return [kind for kind in get_args(annotation) if kind is not type(None)]
    return [annotation]


def accepts(field: FieldInfo) -> str:
    """Say what a key accepts: `a number, at least 0`."""
    kinds = _kinds(field.annotation)
    bounds = [text for item in field.metadata for text in _bounds(item)]
    words = list(dict.fromkeys(_word(kind) for kind in kinds))
    if len(words) > 3:
        words = ["a value", "a list of values"]
    return ", ".join([" or ".join(words), *bounds])


def _word(kind: Any) -> str:  # noqa: ANN401
    if get_origin(kind) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(kind))
    if get_origin(kind) is list:
        inner = _kinds(get_args(kind)[0])
        return "a list of lists" if get_origin(inner[0]) is list else "a list"
    return _WORDS.get(kind, "text")


def _bounds(item: object) -> Iterator[str]:
    for name, words in (("ge", "at least"), ("gt", "above"), ("le", "at most"), ("lt", "below")):
        if (bound := getattr(item, name, None)) is not None:
            yield f"{words} {bound:,}" if bound < 2**60 else f"{words} 2^63"


def default_text(field: FieldInfo) -> str:
    """Return a key's default as TOML writes it; `required` where it has none, nothing where it is empty."""
    value = field.get_default(call_default_factory=True)
    if field.is_required():
        return "required"
    return "" if value in (None, "") else _toml(value)


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
