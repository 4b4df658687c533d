"""How the pictures of a data report look, and how they become text in a page."""

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import matplotlib as mpl
from matplotlib.figure import Figure

from costar_cli.figures.style import OKABE_ITO
from costar_cli.figures.style import label_text as shown_text

__all__ = ["DOMAIN_COLOURS", "GREY", "LEVEL_COLOURS", "as_svg", "drawing", "label_text"]

LEVEL_COLOURS: Final = (*(OKABE_ITO[name] for name in ("green", "purple", "orange", "sky")),
                        "#1a1a1a", "#7A6F00", "#767676")  # fmt: skip
DOMAIN_COLOURS: Final = {"source": OKABE_ITO["blue"], "target": OKABE_ITO["vermilion"]}
GREY: Final = "#767676"
FONT: Final = "DejaVu Sans"
LONGEST: Final = 44

STYLE: Any = {  # matplotlib types the keys as a literal union that grows with its versions
    "font.family": FONT,
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.edgecolor": "#555555",
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e8e8e8",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.6,
    "svg.fonttype": "none",
}


@contextmanager
def drawing(width_in: float, height_in: float) -> Iterator[Figure]:
    """Give a figure in the report's style; nothing global changes, and no window is ever opened."""
    with mpl.rc_context(STYLE):
        yield Figure(figsize=(width_in, height_in), layout="constrained")


def as_svg(figure: Figure, name: str) -> str:
    """Return a figure as an SVG element; the same figure gives the same text, and `name` keeps its ids its own."""
    image = io.StringIO()
    with mpl.rc_context({**STYLE, "svg.hashsalt": name}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # a variable may be named in any script
        figure.savefig(image, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    text = image.getvalue()
    text = text[text.index("<svg") :].replace(f"'{FONT}'", f"'{FONT}', Verdana, sans-serif")
    text = text.replace('id="', f'id="{name}-')
    return text.replace("url(#", f"url(#{name}-").replace('xlink:href="#', f'xlink:href="#{name}-')


def label_text(text: str) -> str:
    """Return user text that matplotlib shows as it is."""
    return shown_text(text, LONGEST)
