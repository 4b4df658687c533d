"""How every figure looks: colour-blind-safe colours, few lines, labelled axes; and how it is saved."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from costar_cli.errors import StorageError

__all__ = ["BLACK", "BLUE", "COLOURS", "GREY", "LIGHT_GREY", "figure", "save"]

# Okabe & Ito's palette, told apart with every common colour vision deficiency.
BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, YELLOW = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#F0E442",
)
COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, YELLOW)
GREY, LIGHT_GREY, BLACK = "#767676", "#c4c4c4", "#1a1a1a"

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
    "legend.fontsize": 8.5,
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
        drawn.savefig(path, dpi=150, format="png", facecolor="white")
    except OSError as error:
        raise StorageError(f"cannot write the figure: {error.strerror or error}", where=str(path)) from error
    return path
