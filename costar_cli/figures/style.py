"""How every figure looks: colour-blind-safe colours, few lines, labelled axes; and how it is saved."""

import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.figure import Figure

from costar_cli.errors import StorageError
from costar_cli.figures.palette import OKABE_ITO, label_text, shortened

__all__ = [
    "BLACK", "BLUE", "COLOURS", "GREY", "LIGHT_GREY", "ORANGE", "VERMILION", "caption", "figure", "label_lines",
    "legend_below", "save", "typeset",
]  # fmt: skip

BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY = (
    OKABE_ITO[name] for name in ("blue", "vermilion", "green", "purple", "orange", "sky")
)
OLIVE = "#7A6F00"  # the palette's yellow is too faint on white for lines
COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, OLIVE)
GREY, LIGHT_GREY, BLACK = "#767676", "#c4c4c4", "#1a1a1a"

_CAPTION_POINTS = _LEGEND_POINTS = 8.5

STYLE: Any = {  # matplotlib types the keys as a literal union that grows with its versions
    "font.size": 9,
    "font.family": "DejaVu Sans",
    "axes.titlesize": 9.5,
    "axes.labelsize": 9,
    "axes.edgecolor": "#555555",
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "xtick.color": "#555555",
    "ytick.color": "#555555",
    "xtick.labelcolor": BLACK,
    "ytick.labelcolor": BLACK,
    "legend.frameon": False,
    "legend.fontsize": _LEGEND_POINTS,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
}


@contextmanager
def figure(width_in: float, height_in: float) -> Iterator[Figure]:
    """Give a figure in the house style; nothing global changes, and no window is ever opened."""
    with mpl.rc_context(STYLE):
        yield Figure(figsize=(width_in, height_in), layout="constrained")


def save(drawn: Figure, path: Path) -> Path:
    """Save a figure as PNG at 150 dpi, making its folder.

    Raises:
        StorageError: the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing from")  # names may be in any script
            drawn.savefig(path, dpi=150, format="png", facecolor="white")
    except OSError as error:
        raise StorageError(f"cannot write the figure: {error.strerror or error}", where=str(path)) from error
    return path


def caption(drawn: Figure, *sentences: str) -> None:
    """Write below a figure, each sentence on a line of its own, or on several where the figure is narrow."""
    letters = max(20, int(drawn.get_figwidth() / (_CAPTION_POINTS * 0.6 / 72)))
    lines = [line for sentence in sentences for line in textwrap.wrap(sentence, letters, break_long_words=False)]
    drawn.supxlabel("\n".join(lines), fontsize=_CAPTION_POINTS)


def legend_below(drawn: Figure, handles: Sequence[Artist]) -> None:
    """Put a legend below a figure, in as many columns as fit."""
    longest = max(max(map(len, str(handle.get_label()).split("\n"))) for handle in handles)
    entry_in = 0.55 + longest * _LEGEND_POINTS * 0.56 / 72  # a handle, then letters about 0.56 points wide per point
    columns = max(1, min(len(handles), int(drawn.get_figwidth() / entry_in)))
    drawn.legend(handles=list(handles), loc="outside lower center", ncols=columns)


def label_lines(text: str, width: int, *, most: int = 2) -> str:
    """Return user text on so many lines of so many letters, shown as it is; what is too long loses its middle."""
    longest = width * most
    lines = textwrap.wrap(text, width) or [""]
    while len(lines) > most:
        longest -= 2
        lines = textwrap.wrap(shortened(text, longest), width)
    return "\n".join(label_text(line, width) for line in lines)


def typeset(unit: str) -> str:
    """Return a unit as figures show it."""
    return "$V_{\\mathrm{max}}$".join(label_text(part, 80) for part in unit.split("V_max"))
