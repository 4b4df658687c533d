"""Plan calendars, a cell per treatment and step of treatment, and effects beside them, with the line of no effect."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from costar_cli.data import Values
from costar_cli.data.schema import TreatmentEncoding
from costar_cli.report.figures.style import BLACK, GREY, label_text

FILLED: Final = 0.84  # of a step and of a row, by a cell
MOST_LETTERED: Final = 16  # steps whose cells have room for letters
LETTERS: Final = 5  # of a level
CELL_POINTS: Final = 6.5
LIGHT: Final = 0.55  # luma of colours that have black letters
MOST_NAMES: Final = 6  # treatments of a calendar


def calendar_rows(encoding: TreatmentEncoding, plans: Sequence[Values]) -> list[int]:
    """Return which treatments calendars of plans `[steps,names]` show: those that any plan gives."""
    elapsed = {len(encoding.names) + j for j, dose in enumerate(encoding.doses) if dose.elapsed}
    given = [j for j in range(len(encoding.all_names)) if any((plan[:, j] != 0).any() for plan in plans)]
    return [j for j in given if j not in elapsed][:MOST_NAMES]


def draw_calendar(
    axes: Axes,
    encoding: TreatmentEncoding,
    plans: Sequence[Values],
    origin: int,
    colours: Sequence[str],
    shown: Sequence[int],
) -> None:
    """Draw a row per plan, in it one for each of the treatments `shown`.

    A cell stands at its step of treatment. It has the letters of a treatment that is on or off, else level or dose.
    """
    codes, many = _codes([encoding.all_names[j] for j in shown]), max(map(len, plans)) > MOST_LETTERED
    height = 1.0 / max(len(shown), 1)
    for p, (plan, colour) in enumerate(zip(plans, colours, strict=True)):
        red, green, blue = to_rgb(colour)
        letters = BLACK if 0.299 * red + 0.587 * green + 0.114 * blue > LIGHT else "white"
        axes.add_patch(Rectangle((origin - 0.5, p - FILLED / 2), len(plan), FILLED, color="0.95", lw=0, zorder=0))
        for k, j in enumerate(shown):
            y = p + FILLED * ((k + 0.5) * height - 0.5)
            for h in np.flatnonzero(plan[:, j] != 0).tolist():
                value, words = plan[h, j], codes[k]
                if j >= len(encoding.names):
                    words = f"{value:.3g}"
                elif len(encoding.levels[j]) != 2:
                    words = encoding.levels[j][int(value)][:LETTERS]
                cell = (origin + h - FILLED / 2, y - FILLED * height * FILLED / 2)
                axes.add_patch(Rectangle(cell, FILLED, FILLED * height * FILLED, color=colour, lw=0))
                if not many:
                    axes.text(origin + h, y, label_text(words, LETTERS), color=letters,
                              fontsize=CELL_POINTS, ha="center", va="center_baseline", clip_on=True)  # fmt: skip
    axes.set_xlim(origin - 0.6, origin + max(map(len, plans)) - 0.4)
    axes.set_ylim(len(plans) - 0.45, -0.55)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
    axes.grid(visible=False)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.tick_params(length=0)


def calendar_key(encoding: TreatmentEncoding, shown: Sequence[int]) -> str:
    """Return what the letters in cells mean, or which treatments have a row, from the top."""
    names = [encoding.all_names[j] for j in shown]
    coded = [j < len(encoding.names) and len(encoding.levels[j]) == 2 for j in shown]
    shown_names = [f"{code} {name}" if of else name for code, name, of in zip(_codes(names), names, coded, strict=True)]
    return ", ".join(shown_names) or "no treatment is given"


def _codes(names: Sequence[str]) -> list[str]:
    """Return as many first letters of each name as tell them apart, at most three."""
    made: list[str] = []
    for name in names:
        options = [name[:n].capitalize() for n in (1, 2, 3)]
        made.append(next((code for code in options if code not in made), options[-1]))
    return made


def draw_forest(
    axes: Axes,
    places: Sequence[float],
    estimates: Sequence[float],
    limits: Sequence[tuple[float, float]],
    styles: Sequence[tuple[str, str]],
    *,
    truths: Sequence[float] | None = None,
    dotted: bool = False,
    null: float = 0.0,
) -> None:
    """Draw an effect per row with its interval, the truth where it is known, and the line of no effect.

    `dotted` intervals have no level: they are grey, and not as what is calibrated.
    """
    axes.axvline(null, color=BLACK, lw=0.9, zorder=1)
    for y, estimate, (low, high), (colour, marker) in zip(places, estimates, limits, styles, strict=True):
        if np.isfinite(low) and np.isfinite(high):
            line: dict[str, Any] = {"color": GREY, "linestyle": ":"} if dotted else {"color": colour}
            axes.hlines(y, low, high, linewidth=1.4, zorder=2, **line)
        axes.plot([estimate], [y], color=colour, marker=marker, ls="", zorder=3)
    if truths is not None:
        axes.plot(truths, places, color=BLACK, marker="|", ms=9, mew=1.4, ls="", zorder=4)
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x")
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_locator(MaxNLocator(6))
