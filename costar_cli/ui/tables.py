"""Plain tables: aligned columns, no frames, no folding, so that `grep`, `cut` and `awk` work on them."""

import re
from collections.abc import Sequence

from costar_cli.ui.text import plain

__all__ = ["render_table", "split_columns"]

GAP = 2  # spaces between columns


def render_table(
    headers: Sequence[str], rows: Sequence[Sequence[object]], *, width: int | None = None, keys: int = 0
) -> list[str]:
    """Return one line per row under a line of headers; columns of numbers are aligned to the right.

    Args:
        headers: one title per column.
        rows: cells as they shall be read; None is an empty cell, a float is shown with four digits.
        width: columns of the terminal; None where nothing has to fit.
        keys: how many of the first columns say what a row is. A table of such that does not fit is printed in blocks
            of columns: each begins with the last key, and the others stand above the rows that share them.
    """
    cells = [[plain(title) for title in headers], *([_cell(value) for value in row] for row in rows)]
    widths = [max(_width(row[column]) for row in cells) for column in range(len(headers))]
    right = [_is_numeric([row[column] for row in rows]) for column in range(len(headers))]
    if not keys or width is None or sum(widths) + GAP * (len(widths) - 1) <= width:
        return [_line(row, widths, right) for row in cells]
    lines: list[str] = []
    for block in split_columns(widths[keys:], width - widths[keys - 1]):
        chosen = [keys - 1, *(keys + column for column in block)]
        above: list[str] = []
        for row in cells:
            if row is not cells[0] and row[: keys - 1] != above:
                above = row[: keys - 1]
                lines.append(", ".join(filter(None, above)))
            lines.append(_line([row[c] for c in chosen], [widths[c] for c in chosen], [right[c] for c in chosen]))
    return lines


def split_columns(widths: Sequence[int], room: int, gap: int = GAP) -> list[list[int]]:
    """Return columns in blocks that fit into a room, in order; one that alone is too wide is a block of its own."""
    blocks: list[list[int]] = []
    used = 0
    for column, width in enumerate(widths):
        if not blocks or used + gap + width > room:
            blocks.append([])
            used = 0
        blocks[-1].append(column)
        used += gap + width
    return blocks


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
