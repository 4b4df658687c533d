"""What every figure of costar shares: colours that all readers can tell apart, and text that is shown as it is."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["CUT", "OKABE_ITO", "label_text", "mark_cut", "shortened", "spread_apart"]

CUT: Final = "goes on beyond the frame"  # what the marks of `mark_cut` mean

# Okabe & Ito 2008, told apart with every common colour vision deficiency.
OKABE_ITO: Final = {
    "blue": "#0072B2",
    "vermilion": "#D55E00",
    "green": "#009E73",
    "purple": "#CC79A7",
    "orange": "#E69F00",
    "sky": "#56B4E9",
    "yellow": "#F0E442",
}


def label_text(text: str, longest: int) -> str:
    """Return user text that matplotlib shows as it is: short, no mathematics, no hidden legend entry."""
    printable = "".join(letter if letter.isprintable() else " " for letter in shortened(text, longest))
    plain = printable.replace("$", r"\$")
    return f" {plain}" if plain.startswith("_") else plain


def shortened(text: str, longest: int) -> str:
    """Return text that has lost its middle where it is too long: names that begin alike often differ at the end."""
    if len(text) <= longest:
        return text
    tail = max(0, longest - 3) // 3
    return f"{text[: longest - 3 - tail]}...{text[len(text) - tail :]}"


def mark_cut(ax: "Axes", x: NDArray[Any], values: NDArray[np.floating], colour: str) -> bool:
    """Mark with a triangle on the frame where a series lies above or below it; return whether it does anywhere.

    The limits of the axes must be final.
    """
    low, high = sorted(ax.get_ylim())
    found = False
    for beyond, edge, marker in ((values > high, high, "^"), (values < low, low, "v")):
        if beyond.any():
            ax.plot(x[beyond], np.full(int(beyond.sum()), edge), ls="", marker=marker, ms=4.5, color=colour,
                    mec="white", mew=0.4, clip_on=False, zorder=6)  # fmt: skip
            found = True
    return found


def spread_apart(wanted: Sequence[float], gap: float, *, low: float, high: float) -> list[float]:
    """Return places for labels near those wanted, in their order, at least a gap apart and within bounds.

    The places have the least squared distance from those wanted (pooling neighbours that are too close). Where more
    labels are given than fit, the gap becomes smaller.
    """
    if not wanted:
        return []
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    gap = min(gap, (high - low) / max(len(wanted) - 1, 1))
    pools: list[tuple[float, int]] = []  # mean of (wanted place - rank x gap), and how many labels share it
    for rank, i in enumerate(order):
        mean, size = wanted[i] - rank * gap, 1
        while pools and pools[-1][0] > mean:
            other, count = pools.pop()
            mean, size = (other * count + mean * size) / (count + size), count + size
        pools.append((mean, size))
    shifted = [mean for mean, size in pools for _ in range(size)]
    top = high - (len(wanted) - 1) * gap
    places = [0.0] * len(wanted)
    for rank, (i, place) in enumerate(zip(order, shifted, strict=True)):
        places[i] = min(max(place, low), top) + rank * gap
    return places
