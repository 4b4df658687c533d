"""How every figure looks: colours that all readers can tell apart, text shown as it is, few lines; how it is saved."""

import io
import re
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from numpy.typing import NDArray

from costar_cli.data.report import DECADES
from costar_cli.errors import UsageError, storing
from costar_cli.files import write_bytes
from costar_cli.files.digest import SHOWN, TOGETHER

Format = Literal["png", "svg", "pdf"]
FORMATS: Final[tuple[Format, ...]] = ("png", "svg", "pdf")
CUT: Final = "extends beyond the axis"  # what the marks of `mark_cut` mean
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

BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY = (
    OKABE_ITO[name] for name in ("blue", "vermilion", "green", "purple", "orange", "sky")
)
OLIVE = "#7A6F00"  # the palette's yellow is too faint on white for lines
COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, OLIVE)
GREY, LIGHT_GREY, BLACK = "#767676", "#c4c4c4", "#1a1a1a"
AMBER, RED = OLIVE, "#A50026"  # of support ratings: no plan has them
DOMAIN_COLOURS: Final = {"source": BLUE, "target": VERMILION}
PLAN_COLOURS: Final = COLOURS[:-1]
PLAN_MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X")  # one more than colours, so that pairs repeat late
LONGEST: Final = 90  # letters of a label that has no narrower place
FONT: Final = "DejaVu Sans"
CAPTION_POINTS = LEGEND_POINTS = 8.5
STYLE: Any = {  # matplotlib types the keys as a literal union that grows with its versions
    "font.size": 9,
    "font.family": FONT,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
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
    "legend.fontsize": LEGEND_POINTS,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
}


def label_text(text: str, longest: int = LONGEST) -> str:
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


def frame_limits(
    lines: Sequence[NDArray[np.floating]], beside: Sequence[NDArray[np.floating]], *, room_of_flat: float
) -> tuple[float, float]:
    """Return the range of an axis: that of its lines, and of what stands beside them as much as leaves them a third.

    What is wider is cut at the frame, where `mark_cut` marks it: it would flatten the lines.
    """
    low, high = _range(lines) or (0.0, 1.0)
    widest = _range(beside) or (low, high)
    room = (high - low) or room_of_flat
    low, high = max(min(low, widest[0]), low - room), min(max(high, widest[1]), high + room)
    margin = 0.05 * (high - low) or 0.5
    return low - margin, high + margin


def log_limits(lines: Sequence[NDArray[np.floating]], beside: Sequence[NDArray[np.floating]]) -> tuple[float, float]:
    """Return the range of a logarithmic axis, which lines and what stands beside them share as in `frame_limits`."""
    with np.errstate(divide="ignore", invalid="ignore"):  # a limit at 0 lies below any frame
        low, high = frame_limits([np.log10(x) for x in lines], [np.log10(x) for x in beside], room_of_flat=1.0)
    return 10**low, 10**high


def _range(parts: Sequence[NDArray[np.floating]]) -> tuple[float, float] | None:
    values = np.concatenate([np.ravel(part) for part in parts]) if parts else np.zeros(0)
    values = values[np.isfinite(values)]
    return (float(values.min()), float(values.max())) if len(values) else None


def mark_cut(ax: Axes, x: NDArray[Any], values: NDArray[np.floating], colour: str) -> bool:
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


def tint(colour: str, share: float) -> tuple[float, float, float]:
    """Return a colour mixed with white."""
    red, green, blue = (1 - share * (1 - part) for part in to_rgb(colour))
    return red, green, blue


def shade(
    ax: Axes,
    x: NDArray[Any] | Sequence[float],
    limits: tuple[NDArray[np.floating], NDArray[np.floating]],
    colour: str,
    share: float,
    *,
    zorder: tuple[float, float] = (1.0, 2.0),
) -> None:
    """Shade a band in a tint of its colour, with thin edges that say whose it is; `zorder` is of both."""
    ax.fill_between(x, *limits, color=tint(colour, share), lw=0, zorder=zorder[0])
    ax.plot(x, np.stack(limits, axis=1), color=colour, lw=0.5, alpha=0.6, zorder=zorder[1])


def spans_decades(series: Sequence[NDArray[np.floating]]) -> bool:
    """Return whether all values are positive, and the largest is a hundred times the smallest: for a log axis."""
    found = _range(series)
    return found is not None and found[0] > 0 and found[1] >= DECADES * found[0]


def mark_start(axes: Axes, origin: int, first: int, last: int) -> None:
    """Mark where forecasts start, the words on the side with more room of an axis from `first` to `last` step."""
    left = 2 * origin > first + last
    words, side = ("forecast start ", "right") if left else (" forecast start", "left")
    axes.axvline(origin, color=GREY, linewidth=0.8, linestyle=":")
    axes.text(origin, 1.0, words, transform=axes.get_xaxis_transform(), ha=side, va="top",
              fontsize=LEGEND_POINTS - 0.5, color=GREY)  # fmt: skip


_SHOWN: ContextVar[dict[str, str | None]] = ContextVar("shown", default={})  # noqa: B039 - nobody changes it


@contextmanager
def figure(width_in: float, height_in: float) -> Iterator[Figure]:
    """Yield a figure with costar's style; no global state changes, and no window is opened."""
    with mpl.rc_context(STYLE):
        yield Figure(figsize=(width_in, height_in), layout="constrained")


@contextmanager
def showing(digest: str, *, together: Sequence[str] = ()) -> Iterator[None]:
    """Have the PNG files that are saved name the artifact that they show, and the figures that are drawn together."""
    texts: dict[str, str | None] = {SHOWN: digest}
    if together:
        texts[TOGETHER] = " ".join(together)
    before = _SHOWN.set(texts)
    try:
        yield
    finally:
        _SHOWN.reset(before)


def save(drawn: Figure, path: Path) -> Path:
    """Save a figure as PNG at 150 dpi, making its folder.

    Raises:
        StorageError: the file cannot be written.
    """
    with storing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, rendered(drawn, "png"))
    return path


def write_figure(drawn: Figure, path: Path) -> Path:
    """Write a figure in the format that its file's name says.

    Raises:
        UsageError: the file name ends in something other than .png, .svg or .pdf.
        StorageError: the file cannot be written.
    """
    kind = next((kind for kind in FORMATS if path.suffix.lower() == f".{kind}"), None)
    if kind is None:
        raise UsageError(f"cannot draw `{path.name}`", where="--plot", fix="end the name in .png, .svg or .pdf")
    write_bytes(path, rendered(drawn, kind))
    return path


def rendered(drawn: Figure, kind: Format) -> bytes:
    """Return a figure as a file of a kind; the same figure gives the same bytes."""
    dates: dict[str, dict[str, str | None]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    image = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "costar"}), _any_script():
        drawn.savefig(image, format=kind, dpi=150, facecolor="white", metadata=dates.get(kind) or _SHOWN.get())
    return image.getvalue()


def as_svg(drawn: Figure, name: str) -> str:
    """Return a figure as an SVG element for a page; `name` keeps its ids its own."""
    image = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}), _any_script():
        drawn.savefig(image, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    text = image.getvalue()
    text = text[text.index("<svg") :].replace(f"'{FONT}'", f"'{FONT}', Verdana, sans-serif")
    # ids, and references to ids, begin with the name: a page has several figures
    return re.sub(r"<[^>]*>", lambda tag: re.sub(r"""( id="|url\(#|xlink:href="#)""", rf"\g<1>{name}-", tag[0]), text)


@contextmanager
def _any_script() -> Iterator[None]:
    """Let names be in a script for which the font has no letters."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def plan_style(index: int) -> tuple[str, str]:
    """Return colour and marker of a plan; distinct for the first 42."""
    return PLAN_COLOURS[index % len(PLAN_COLOURS)], PLAN_MARKERS[index % len(PLAN_MARKERS)]


def caption(drawn: Figure, *sentences: str) -> None:
    """Write below a figure, each sentence on a line of its own, or on several where the figure is narrow."""
    letters = max(20, int(drawn.get_figwidth() / (CAPTION_POINTS * 0.55 / 72)))
    lines = [line for sentence in sentences for line in textwrap.wrap(sentence, letters, break_long_words=False)]
    drawn.supxlabel("\n".join(lines), fontsize=CAPTION_POINTS)


def legend_below(drawn: Figure, handles: Sequence[Artist]) -> None:
    """Put a legend below a figure, in as many columns as fit."""
    columns = legend_columns([str(handle.get_label()) for handle in handles], drawn.get_figwidth())
    drawn.legend(handles=list(handles), loc="outside lower center", ncols=columns)


def legend_columns(labels: Sequence[str], width_in: float) -> int:
    """Return how many columns of the longest label fit into a width."""
    longest = max(len(line) for label in labels for line in label.split("\n"))
    entry_in = 0.55 + longest * LEGEND_POINTS * 0.56 / 72  # a handle, then letters about 0.56 points wide per point
    return max(1, min(len(labels), int(width_in / entry_in)))


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
