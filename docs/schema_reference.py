"""Write the keys of a table's schema into docs/data-own.md; `--check` says whether they are up to date.

python docs/schema_reference.py [--check]
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from costar_cli.datasets.table.schema import ColumnSchema, TableSchema

TARGET = Path(__file__).with_name("data-own.md")
SECTION = re.compile(r"(<!-- keys: .*? -->\n).*?(<!-- /keys -->)", re.DOTALL)
WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def main() -> int:
    """Write the table, or compare it."""
    before = TARGET.read_text("utf-8")
    after = SECTION.sub(lambda found: found[1] + "\n".join(render()) + "\n" + found[2], before)
    if "--check" not in sys.argv[1:]:
        TARGET.write_text(after, "utf-8")
        return 0
    if before == after:
        return 0
    sys.stderr.write(f"{TARGET} is not up to date: run `python docs/schema_reference.py`\n")
    return 1


def render() -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| key | accepts | default | meaning |"
    yield "|---|---|---|---|"
    for key, field in keys(TableSchema, ""):
        default = field.get_default(call_default_factory=True)
        shown = "required" if field.is_required() else "" if default in (None, "") else f"`{_toml(default)}`"
        yield f"| `{key}` | {_accepts(field)} | {shown} | {_cell(field.description or '')} |"


def keys(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, FieldInfo]]:
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


def _accepts(field: FieldInfo) -> str:
    kinds = _kinds(field.annotation)
    bounds = [text for item in field.metadata for text in _bounds(item)]
    words = list(dict.fromkeys(_word(kind) for kind in kinds))
    if len(words) > 3:
        words = ["a value", "a list of values"]
    return _cell(", ".join([" or ".join(words), *bounds]))


def _word(kind: Any) -> str:  # noqa: ANN401
    if get_origin(kind) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(kind))
    if get_origin(kind) is list:
        inner = _kinds(get_args(kind)[0])
        return "a list of lists" if get_origin(inner[0]) is list else "a list"
    return WORDS.get(kind, "text")


def _bounds(item: object) -> Iterator[str]:
    for name, words in (("ge", "at least"), ("gt", "above"), ("le", "at most"), ("lt", "below")):
        if (bound := getattr(item, name, None)) is not None:
            yield f"{words} {bound:,}" if bound < 2**60 else f"{words} 2^63"


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


if __name__ == "__main__":
    sys.exit(main())
