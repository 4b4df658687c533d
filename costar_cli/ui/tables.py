"""Plain tables: aligned columns, no frames, no folding, so that `grep`, `cut` and `awk` work on them."""

import re
from collections.abc import Sequence

from costar_cli.ui.text import plain

__all__ = ["render_table"]


def render_table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Return one line per row under a line of headers; columns of numbers are aligned to the right.

    Args:
        headers: one title per column.
        rows: cells as they shall be read; None is an empty cell, a float is shown with four digits.
    """
    cells = [[plain(title) for title in headers], *([_cell(value) for value in row] for row in rows)]
    widths = [max(_width(row[column]) for row in cells) for column in range(len(headers))]
    right = [_is_numeric([row[column] for row in rows]) for column in range(len(headers))]
    return [_line(row, widths, right) for row in cells]


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}" if value == value else "-"  # noqa: PLR0124 - NaN is not equal to itself
    return plain(value).replace("\n", " ").replace("\t", " ")


def _line(row: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = []
    for text, width, numeric in zip(row, widths, right, strict=True):
        fill = " " * (width - _width(text))
        padded.append(fill + text if numeric else text + fill)
    return "  ".join(padded).rstrip()


def _is_numeric(column: Sequence[object]) -> bool:
    """Return whether every cell of a column is empty or reads as a number, such as `1,204` or `0.93 ± 0.02`."""
    return all(value is None or isinstance(value, int | float) or re.match(r"[+-]?\d", str(value)) for value in column)


def _width(text: str) -> int:
    """Return the terminal cells that a text takes: wide letters take two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # noqa: PLC0415 - only for names beyond ASCII

    return cell_len(text)
