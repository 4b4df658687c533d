"""What a figure must not do: write over its own text, or beyond its edge."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox, BboxBase

TOUCH = 1.5  # pixels by which boxes of text may overlap: their corners are empty


class Drawn:
    """Catches the figures that a module saves, instead of writing them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *modules: object) -> None:
        self.figures: list[Figure] = []
        for module in modules:
            monkeypatch.setattr(module, "save", self._keep)

    def _keep(self, figure: Figure, path: Path) -> Path:
        self.figures.append(figure)
        FigureCanvasAgg(figure).draw()
        return path

    @property
    def last(self) -> Figure:
        return self.figures[-1]


def texts(figure: Figure) -> Iterator[tuple[str, Bbox]]:
    """Every text that is seen, with the box that it takes."""
    renderer = FigureCanvasAgg(figure).get_renderer()
    unseen = {id(text) for ax in figure.findobj(Axes) for axis in (ax.xaxis, ax.yaxis) for text in out_of_view(axis)}
    for text in figure.findobj(Text):
        hidden = id(text) in unseen or (text.axes is not None and not text.axes.get_visible())
        if text.get_visible() and text.get_text().strip() and not hidden:
            box = text.get_window_extent(renderer)
            if box.width > 0 and box.height > 0:
                yield text.get_text(), box


def out_of_view(axis: Axis) -> Iterator[Text]:
    """Labels of ticks that are beyond the range of the axis, which are never drawn."""
    low, high = sorted(axis.get_view_interval())
    margin = 1e-6 * (high - low)
    for tick in axis.get_major_ticks():
        if not low - margin <= tick.get_loc() <= high + margin:
            yield from (tick.label1, tick.label2)


def overlapping(boxes: Sequence[tuple[str, Bbox]]) -> list[tuple[str, str]]:
    """Pairs of texts that are written over each other."""
    low_K2, high_K2 = (np.array([getattr(box, side) for _, box in boxes]).reshape(-1, 2) for side in ("min", "max"))
    shared_KK2 = np.minimum(high_K2[:, None], high_K2) - np.maximum(low_K2[:, None], low_K2)
    pairs = np.argwhere(np.triu((shared_KK2 > TOUCH).all(axis=2), 1))
    return [(boxes[i][0], boxes[j][0]) for i, j in pairs]


def clipped(boxes: Sequence[tuple[str, Bbox]], edge: BboxBase) -> list[str]:
    """Texts that reach beyond the edge of the figure."""
    return [
        text
        for text, box in boxes
        if box.x0 < edge.x0 - TOUCH or box.x1 > edge.x1 + TOUCH or box.y0 < edge.y0 - TOUCH or box.y1 > edge.y1 + TOUCH
    ]


def assert_readable(figure: Figure) -> None:
    """Fail where a text is written over another, or beyond the edge."""
    boxes = list(texts(figure))
    found = {"overlapping": overlapping(boxes), "clipped": clipped(boxes, figure.bbox)}
    assert found == {"overlapping": [], "clipped": []}, found


def widths_in(figure: Figure) -> list[float]:
    """Widths of the visible axes in inches."""
    return [ax.get_position().width * figure.get_figwidth() for ax in figure.axes if ax.get_visible()]
