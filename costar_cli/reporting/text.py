"""Text for people and scripts: what is safe to print, colour, JSON, and tables with marks for the best cells."""

import json
import math
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import PurePath
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Literal, TextIO

from costar_cli.reporting import plain

if TYPE_CHECKING:
    from costar_cli.reporting.output import Output

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


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
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m"


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


GAP = 2  # spaces between columns

Mark = Literal["best", "second", ""]
_SIGNS: Mapping[Mark, str] = {"best": "*", "second": "+", "": ""}
_STYLES: Mapping[Mark, str] = {"best": "bold", "second": "underline", "": ""}


def render_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    width: int | None = None,
    keys: int = 0,
    together: int = 1,
) -> list[str]:
    """Return one line per row under a line of headers; columns of numbers are aligned to the right.

    Args:
        headers: one title per column.
        rows: cells as they shall be read; None is an empty cell, a float is shown with four digits.
        width: columns of the terminal; None where nothing has to fit.
        keys: how many of the first columns say what a row is. A table of such that does not fit is printed in blocks
            of columns that begin with the keys; of keys that leave no room the first stand above the rows that share
            them, by name.
        together: how many columns behind the keys stay in one block, such as an estimate and its truth.
    """
    cells = [[plain(title) for title in headers], *([_cell(value) for value in row] for row in rows)]
    widths = [max(_width(row[column]) for row in cells) for column in range(len(headers))]
    right = [  # where every cell is empty or reads as a number, such as `1,204` or `0.93 ± 0.02`
        all(value is None or isinstance(value, int | float) or re.match(r"[+-]?\d", str(value)) for value in column)
        for column in ([row[place] for row in rows] for place in range(len(headers)))
    ]
    if not keys or width is None or sum(widths) + GAP * (len(widths) - 1) <= width:
        return [_line(row, widths, right) for row in cells]
    lines: list[str] = []
    starts = range(keys, len(widths), together)
    groups = [sum(widths[start : start + together]) + GAP * (together - 1) for start in starts]
    first = 0  # of the keys that are columns of each block; the others stand above the rows that share them
    while first < keys - 1 and sum(widths[first:keys]) + GAP * (keys - first) + max(groups, default=0) > width:
        first += 1
    for block in split_columns(groups, width - sum(widths[first:keys]) - GAP * (keys - first - 1)):
        chosen = [
            *range(first, keys),
            *(c for group in block for c in range(starts[group], starts[group] + together) if c < len(widths)),
        ]
        above: list[str] = []
        for row in cells:
            if row is not cells[0] and row[:first] != above and any(row[:first]):  # blanks: those above
                above = row[:first]
                lines.append(", ".join(f"{name} {key}" for name, key in zip(cells[0], above, strict=False) if key))
            lines.append(_line([row[c] for c in chosen], [widths[c] for c in chosen], [right[c] for c in chosen]))
    return lines


def fold_first(
    headers: Sequence[str], rows: Sequence[Sequence[object]], width: int | None, least: int = 12
) -> list[list[object]]:
    """Return rows whose texts in the first column go on in a row below, where the table is wider than `width`.

    They stay as they are where that would leave fewer than `least` letters of them a line.
    """
    whole = [list(row) for row in rows]
    longest = max((_width(_cell(row[0])) for row in rows), default=0)
    room = longest if width is None else longest - max(map(len, render_table(headers, rows))) + width
    if room >= longest or room < least:
        return whole
    folded: list[list[object]] = []
    for row in whole:
        first, *more = wrap(_cell(row[0]), room, break_on_hyphens=False) or [""]
        nothing: list[object] = [None] * (len(row) - 1)
        folded.append([first, *row[1:]])
        folded += [[text, *nothing] for text in more]
    return folded


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


def _width(text: str) -> int:
    """Return the terminal cells that a text takes: wide letters take two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # noqa: PLC0415 - only for names beyond ASCII

    return cell_len(text)


@dataclass(frozen=True, slots=True)
class Cell:
    """A number as it is shown, what follows it (its spread), and how it ranks."""

    text: str
    spread: str = ""
    mark: Mark = ""


def legend() -> str:
    """Return how the best cells of a block are told from the others."""
    return "bold: best of its block, underlined: second" if _is_styled() else "* best of its block, + second"


def _is_styled() -> bool:
    return is_interactive(sys.stdout) and not os.environ.get("NO_COLOR")


def show_styled(
    out: "Output", title: str, headers: Sequence[str], blocks: Mapping[str, Sequence[Sequence[Cell | str | None]]]
) -> None:
    """Print blocks of rows as one table of the result for people; nothing under `--json`.

    In a terminal a cell has its spread on a second line, and where it is narrow, long names take several; no number is
    ever cut short: a table that is still too wide is printed in blocks of columns. In a pipe each row is one line,
    with the name of its block behind its first cell, so that `grep` and `awk` work.

    The name of a block of rows is shown where it is not empty.
    """
    if out.json:
        return
    if _is_styled():
        _show_rich(title, headers, blocks)
        return
    rows = [
        [_marked(row[0], name), *(_marked(cell) for cell in row[1:])] for name, rows in blocks.items() for row in rows
    ]
    out.table(headers, rows, title=title, keys=1)


def _marked(cell: Cell | str | None, block: str = "") -> str | None:
    if not isinstance(cell, Cell):
        return f"{cell} ({block})" if block else cell
    spread = f" ± {cell.spread}" if cell.spread else ""
    return f"{cell.text}{spread}{_SIGNS[cell.mark]}"


def _show_rich(title: str, headers: Sequence[str], blocks: Mapping[str, Sequence[Sequence[Cell | str | None]]]) -> None:
    from rich import box  # noqa: PLC0415 - only where a person watches
    from rich.cells import cell_len  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    shown: list[list[Text]] = []
    for row in (row for rows in blocks.values() for row in rows):
        shown.append([])
        for cell in row:
            if isinstance(cell, Cell):
                text = Text(plain(cell.text), _STYLES[cell.mark])
                if cell.spread:
                    text.append(f"\n±{plain(cell.spread)}", "dim not bold not underline")
            else:
                text = Text(plain(cell or ""))
            shown[-1].append(text)
    # how narrow columns may become: the first down to its longest word, the others not at all
    words = [word for one in (headers[0], *blocks, *(row[0].plain for row in shown)) for word in plain(one).split()]
    columns = [[headers[place], *(row[place].plain for row in shown)] for place in range(1, len(headers))]
    numbers = [[line for one in column for line in plain(one).split("\n")] for column in columns]
    least = [max(map(cell_len, texts)) for texts in (words, *numbers)]
    terminal = Console(file=sys.stdout).width
    between = 1 if sum(least) + 2 * len(least) <= terminal else 0  # spaces beside that of the box
    parts = split_columns(least[1:], terminal - least[0] - 1, gap=1)
    if len(parts) > 1:
        for part in parts:
            chosen = [0, *(1 + column for column in part)]
            some = {name: [[row[column] for column in chosen] for row in rows] for name, rows in blocks.items()}
            _show_rich(title, [headers[column] for column in chosen], some)
        return
    table = Table(title=Text(plain(title), "bold"), title_justify="left", box=box.SIMPLE_HEAD, show_edge=False,
                  pad_edge=False, padding=(0, between, 0, 0))  # fmt: skip
    for place, (header, width) in enumerate(zip(headers, least, strict=True)):
        side: Literal["left", "right"] = "right" if place else "left"
        table.add_column(Text(plain(header)), justify=side, no_wrap=place > 0, min_width=width)
    rest = iter(shown)
    for name, rows in blocks.items():
        if name:
            table.add_section()
            table.add_row(Text(plain(name), "italic"))
        for _ in rows:
            table.add_row(*next(rest))
    needed = sum(least) + (1 + between) * len(least)
    Console(file=sys.stdout, width=max(terminal, needed)).print(table)
