"""Tables whose best cells stand out: bold and underlined where a person watches, marked by signs in a pipe."""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from costar_cli.ui.output import Output
from costar_cli.ui.tables import split_columns
from costar_cli.ui.text import is_interactive, plain

if TYPE_CHECKING:
    from rich.text import Text

__all__ = ["Cell", "legend", "show_styled"]

Mark = Literal["best", "second", ""]

_SIGNS: Mapping[Mark, str] = {"best": "*", "second": "+", "": ""}
_STYLES: Mapping[Mark, str] = {"best": "bold", "second": "underline", "": ""}


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
    out: Output, title: str, headers: Sequence[str], blocks: Mapping[str, Sequence[Sequence[Cell | str | None]]]
) -> None:
    """Print blocks of rows as one table of the result for people; nothing under `--json`.

    In a terminal a cell has its spread on a second line, and where it is narrow, long names take several; no number is
    ever cut short: a table that is still too wide is printed in blocks of columns. In a pipe each row is one line,
    with the name of its block behind its first cell, so that `grep` and `awk` work.

    Args:
        out: the sink.
        title: above the table.
        headers: one title per column.
        blocks: rows by the name of their block; the name is shown where it is not empty.
    """
    if out.json:
        return
    if _is_styled():
        _show_rich(title, headers, blocks)
        return
    rows = [[_line(row[0], name), *(_line(cell) for cell in row[1:])] for name, rows in blocks.items() for row in rows]
    out.table(headers, rows, title=title, keys=1)


def _line(cell: Cell | str | None, block: str = "") -> str | None:
    if not isinstance(cell, Cell):
        return f"{cell} ({block})" if block else cell
    spread = f" ± {cell.spread}" if cell.spread else ""
    return f"{cell.text}{spread}{_SIGNS[cell.mark]}"


def _show_rich(title: str, headers: Sequence[str], blocks: Mapping[str, Sequence[Sequence[Cell | str | None]]]) -> None:
    from rich import box  # noqa: PLC0415 - only where a person watches
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    shown = [[_text(cell) for cell in row] for rows in blocks.values() for row in rows]
    least = _least_widths(headers, blocks, [[cell.plain for cell in row] for row in shown])
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


def _least_widths(headers: Sequence[str], blocks: Iterable[str], rows: Sequence[Sequence[str]]) -> list[int]:
    """Return how narrow each column may become: the first down to its longest word, the others not at all."""
    from rich.cells import cell_len  # noqa: PLC0415

    words = [word for text in (headers[0], *blocks, *(row[0] for row in rows)) for word in plain(text).split()]
    columns = [[header, *(row[place] for row in rows)] for place, header in enumerate(headers)][1:]
    numbers = [[line for text in column for line in plain(text).split("\n")] for column in columns]
    return [max(map(cell_len, texts)) for texts in (words, *numbers)]


def _text(cell: Cell | str | None) -> "Text":
    from rich.text import Text  # noqa: PLC0415

    if not isinstance(cell, Cell):
        return Text(plain(cell or ""))
    shown = Text(plain(cell.text), _STYLES[cell.mark])
    if cell.spread:
        shown.append(f"\n±{plain(cell.spread)}", "dim not bold not underline")
    return shown
