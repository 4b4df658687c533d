"""The figures of a benchmark (matplotlib): RMSE by horizon, and differences from COSTAR with intervals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from costar_cli.cli.benchmarking.report import BenchmarkReport
from costar_cli.cli.benchmarking.tables import ResultRow, ResultTable
from costar_cli.data.schema import steps_axis
from costar_cli.evaluation.metrics import PerStep
from costar_cli.evaluation.rows import ABOUT_LIMIT, BUDGET_SIGN, with_budget_sign
from costar_cli.evaluation.setups import SETUPS
from costar_cli.methods.registry import REFERENCE
from costar_cli.report.figures.style import (
    BLACK,
    BLUE,
    COLOURS,
    CUT,
    GREY,
    VERMILION,
    caption,
    figure,
    label_text,
    mark_cut,
    save,
    spread_apart,
    typeset,
)

Style = dict[str, Any]

_MARKERS = ("s", "^", "v", "D", "P", "X")
_BOUND: Style = {"color": BLACK, "lw": 0.8, "ls": (0, (7, 3)), "zorder": 1}
_PANEL_WIDTH_IN, _PANEL_HEIGHT_IN = 2.9, 3.1
_LABEL_POINTS = 7.5
_LABEL_GAP_IN, _BESIDE_LABELS_IN = 1.35 * _LABEL_POINTS / 72, 0.9  # the latter for title and ticks
_LONGEST_LABEL = 28
_LONGEST_BOUND = 60
_ASIDE = 0.025  # steps between the error bars of two rows
_FAR_ABOVE = 4  # times the median row: such a row would flatten the others
_LONGEST_BAR = 0.5  # times its mean: a longer error bar is cut at the frame, and marked there
_FAR_OUT = 4  # times the median reach: such an interval would flatten the others
_FAR_APART = 2.5  # times: with one scale for ours and the published rows, one of them would be flat


@dataclass(frozen=True)
class _Panel:
    """One set of axes: the rows of one block of a table."""

    table: ResultTable
    rows: tuple[ResultRow, ...]
    title: str
    top: float  # where the axis ends


def _in_lines(tables: Sequence[ResultTable]) -> list[list[ResultTable]]:
    """Return the tables by line; each line holds one kind of row and one kind of truth, in the order of set-ups."""
    keys = dict.fromkeys((table.kind, table.truth) for table in tables)
    order = list(SETUPS)
    return [
        sorted((t for t in tables if (t.kind, t.truth) == key), key=lambda table: order.index(table.setup))
        for key in keys
    ]


def _title_of(table: ResultTable) -> str:
    """Return the title of a panel of our rows."""
    what = "Ablations, " if table.kind == "ablations" else ""
    return f"{what}{table.setup}".capitalize() + f"\n{table.truth}, {table.test}"


def plot_horizons(
    report: BenchmarkReport, path: Path, *, at: Sequence[float] | None = None, axis: str | None = None
) -> Path:
    """Draw mean ± sd of every row by horizon, one panel per table, and the published rows in a line of their own.

    Where rows are by something else than steps, `at` says where they lie, and `axis` what that is. Every line of a
    panel is labelled at its end. A row far above the others leaves the panel; its label says where to.
    """
    styles = _styles(list(dict.fromkeys(row.name for table in report.tables for row in table.rows)))
    lines: list[Sequence[_Panel | None]] = []
    for pairs in ([_pair(table) for table in line] for line in _in_lines(report.tables)):
        ours, published = zip(*pairs, strict=True)
        lines += [ours, published] if any(published) else [ours]
    columns = max(len(line) for line in lines)
    labels_in = _LABEL_GAP_IN * max(len(table.rows) for table in report.tables)
    height_in = max(_PANEL_HEIGHT_IN, labels_in + _BESIDE_LABELS_IN)
    aside_in = 0.3 + 0.06 * max(len(row.marked_label) for table in report.tables for row in table.rows)
    with figure(0.5 + (_PANEL_WIDTH_IN + min(aside_in, 2.0)) * columns, 0.3 + height_in * len(lines)) as drawn:
        grid = drawn.subplots(len(lines), columns, squeeze=False)
        cut = False
        for axes, line in zip(grid, lines, strict=True):
            for ax, panel in zip_longest(axes, line):
                if panel is None:
                    ax.set_visible(False)
                    continue
                x_H = np.array(at or range(1, panel.table.steps + 1), dtype=np.float64)
                cut |= _draw_horizons(ax, panel, x_H, styles, _LABEL_GAP_IN / (height_in - _BESIDE_LABELS_IN))
                ax.set_xlabel(axis or f"Horizon τ ({label_text(steps_axis(report.step), _LONGEST_LABEL)})")
            unit = f" ({typeset(report.unit)})" if report.unit else ""
            next(ax for ax in axes if ax.get_visible()).set_ylabel(f"RMSE{unit}\nlower is better")
        notes = []
        if any(row.sd is not None for table in report.tables for row in table.rows):
            theirs = "; published: over the paper's runs" if any(table.published for table in report.tables) else ""
            notes += [f"bars: ± {report.spread}{theirs}", *[f"triangles at its edge: a bar that {CUT}"] * cut]
        bounds = dict.fromkeys(table.limit.label for table in report.tables if table.limit)
        notes += [f"thin dashed line: {label_text(label, _LONGEST_BOUND)}, {ABOUT_LIMIT}" for label in bounds]
        notes += [*[f"{BUDGET_SIGN} {report.about_budget}"] * report.has_stopped_rows, *report.cautions]
        if notes:
            caption(drawn, *notes)
        return save(drawn, path)


def _pair(table: ResultTable) -> tuple[_Panel, _Panel | None]:
    """Return the panels of our and of the published rows; they share a scale, if neither would be a sliver."""
    own = _top(table.rows, table.steps)
    if not table.published:
        return _Panel(table, table.rows, _title_of(table), own), None
    theirs = _top(table.published, table.steps)
    larger, shared = max(own, theirs), max(own, theirs) <= _FAR_APART * min(own, theirs)
    title = f"{table.setup.capitalize()}\n{table.published[0].basis}" + ("" if shared else ", other scale")
    return (
        _Panel(table, table.rows, _title_of(table), larger if shared else own),
        _Panel(table, table.published, title, larger if shared else theirs),
    )


def _draw_horizons(ax: Axes, panel: _Panel, x_H: NDArray[np.float64], styles: Mapping[str, Style], gap: float) -> bool:
    """Draw the rows, and the bound below ours; return whether an error bar is cut at the frame.

    Each name is at the end of its line, with the line's marker; names are at least `gap` of the panel's height apart.
    """
    table, top, ends = panel.table, panel.top, list[tuple[ResultRow, float]]()
    apart = float(np.min(np.diff(x_H), initial=np.inf))
    apart = apart if np.isfinite(apart) else 1.0
    ax.set_title(panel.title, loc="left")
    ax.set_xticks(x_H, [f"{x:g}" for x in x_H])
    ax.set_xlim(x_H[0] - 0.25 * apart, x_H[-1] + 0.25 * apart)
    ax.set_ylim(0, top)
    cut = False
    if table.limit and panel.rows is table.rows:
        ax.plot(x_H, _array(table.limit.mean, table.steps), **_BOUND)
    for place, row in enumerate(panel.rows):
        beside = x_H + _ASIDE * apart * (place - (len(panel.rows) - 1) / 2)  # or the bars would hide each other
        mean_H = _array(row.mean, table.steps)
        sd_H = None if row.sd is None else _array(row.sd, table.steps)
        ax.errorbar(beside, mean_H, sd_H, elinewidth=0.7, capsize=0, **styles[row.name])
        if sd_H is not None:  # where the mean itself leaves the panel, its label says where to
            inside_H = np.where(mean_H <= top, sd_H, np.nan)
            for end_H in (mean_H + inside_H, mean_H - inside_H):
                cut |= mark_cut(ax, beside, end_H, str(styles[row.name]["color"]))
        if np.isfinite(mean_H).any():
            ends.append((row, float(mean_H[np.isfinite(mean_H)][-1])))
    heights = spread_apart([min(end / top, 1.0) for _, end in ends], gap, low=0.0, high=1.0)
    for (row, end), height in zip(ends, heights, strict=True):
        style = styles[row.name]
        ax.plot([1.0, 1.04], [min(end / top, 1.0), height], color=style["color"], lw=0.6, transform=ax.transAxes,
                clip_on=False)  # fmt: skip
        ax.plot(1.06, height, marker=style["marker"], color=style["color"], ms=4, ls="", transform=ax.transAxes,
                clip_on=False)  # fmt: skip
        above = f" ↑ {end:.3g}" if end > top else ""
        label = with_budget_sign(label_text(row.label, _LONGEST_LABEL), row.stopped_by_budget)
        ax.text(1.09, height, label + above, transform=ax.transAxes, va="center",
                fontsize=_LABEL_POINTS, color=BLACK, weight="bold" if row.name == REFERENCE else "normal")  # fmt: skip
    return cut


def _top(rows: Sequence[ResultRow], steps: int) -> float:
    """Return where the axis ends: a row far above the median row is cut off rather than flattening the others."""
    known = [(row, mean_H) for row in rows if np.isfinite(mean_H := _array(row.mean, steps)).any()]
    peaks = [float(np.nanmax(mean_H)) for _, mean_H in known]
    if not peaks or max(peaks) == 0:
        return 1.0
    highest = max(value for value in peaks if value <= _FAR_ABOVE * float(np.median(peaks)) or value == min(peaks))
    ends = [highest]
    for (row, mean_H), peak in zip(known, peaks, strict=True):
        if peak <= highest:
            sd_H = np.zeros(steps) if row.sd is None else np.nan_to_num(_array(row.sd, steps))
            ends.append(float(np.nanmax(mean_H + np.minimum(sd_H, _LONGEST_BAR * mean_H))))
    return 1.06 * max(ends)


def _styles(names: Sequence[str]) -> dict[str, Style]:
    """Return how each method is drawn; the reference is the most visible."""
    others, colours = [name for name in names if name != REFERENCE], [c for c in COLOURS if c != BLUE] + [GREY]
    styles: dict[str, Style] = {
        name: {
            "color": colours[i % len(colours)],
            "marker": _MARKERS[(i + i // len(_MARKERS) * 3) % len(_MARKERS)],  # no pair of colour and marker twice
            "ls": "-" if i < len(colours) else (0, (1, 1)),
            "lw": 1.2,
            "ms": 4,
        }
        for i, name in enumerate(others)
    }
    return styles | {REFERENCE: {"color": BLUE, "marker": "o", "lw": 2.4, "zorder": 5}}


def _array(values: PerStep, steps: int) -> NDArray[np.float64]:
    known = values.steps[:steps]
    return np.array([*known, *[None] * (steps - len(known))], dtype=np.float64)


def plot_differences(report: BenchmarkReport, path: Path) -> Path | None:
    """Draw each method's average error minus the reference's with its interval; None where nothing is compared.

    Filled markers: the difference is significant after Holm's correction, at one minus the level of the intervals. An
    interval that reaches far beyond the others is cut at the edge, where a number says how far it goes.
    """
    lines = _in_lines([table for table in report.tables if table.comparisons])
    if not lines:
        return None
    columns = max(len(line) for line in lines)
    names = [list({c.name: c.label for table in line for c in table.comparisons}.items()) for line in lines]
    heights = [1.1 + 0.24 * len(labels) for labels in names]
    with figure(2.2 + 2.6 * columns, sum(heights) + 0.6) as drawn:
        grid = drawn.subplots(len(lines), columns, squeeze=False, height_ratios=heights)
        for axes, line, labels in zip(grid, lines, names, strict=True):
            for ax, table in zip(axes, line, strict=False):
                _draw_differences(ax, table, [name for name, _ in labels], alpha=1 - report.level)
                ax.set_yticks(range(len(labels)), [""] * len(labels))
            axes[0].set_yticklabels([label_text(label, _LONGEST_LABEL) for _, label in labels])
            for ax in axes[len(line) :]:
                ax.set_visible(False)
        unit = f" ({typeset(report.unit)})" if report.unit else ""
        caption(
            drawn,
            f"RMSE minus COSTAR's, average over {report.averaged}{unit}; {report.level:.0%} intervals over subjects",
            f"filled: p ≤ {1 - report.level:.2g} after Holm's correction",
            *report.cautions,
        )
        return save(drawn, path)


def _draw_differences(ax: Axes, table: ResultTable, names: Sequence[str], *, alpha: float) -> None:
    ends = []  # how far each interval goes to either side
    for c in table.comparisons:
        values = [c.difference.average, *(bound.average for bound in (c.lower, c.upper) if bound)]
        known = [abs(value) for value in values if value is not None and np.isfinite(value)]
        ends += [max(known)] if known else []
    reach = 1.0
    if any(ends):
        reach = 1.08 * max(end for end in ends if end <= _FAR_OUT * float(np.median(ends)) or end == min(ends))
    ax.axvline(0, color=BLACK, lw=0.8)
    ax.grid(visible=False, axis="y")
    ax.grid(visible=True, axis="x")
    ax.set_title(_title_of(table), loc="left")
    ax.set_xlim(-reach, reach)
    ax.set_ylim(len(names) - 0.4, -1.2)
    ax.xaxis.set_major_locator(MaxNLocator(4, symmetric=True))
    for x, text, align in ((-0.04, "← COSTAR worse", "right"), (0.04, "COSTAR better →", "left")):
        ax.text(x * reach, -0.85, text, ha=align, va="center", fontsize=7.5, color=GREY)
    for c in table.comparisons:
        average, place = c.difference.average, names.index(c.name)
        if average is None:
            continue
        sure = c.p_holm is not None and c.p_holm <= alpha
        colour = GREY if not sure else BLUE if average > 0 else VERMILION
        lower, upper = (bound.average if bound else None for bound in (c.lower, c.upper))
        lower, upper = (average if end is None else end for end in (lower, upper))
        ax.plot([max(lower, -reach), min(upper, reach)], [place, place], color=colour, lw=1.4, solid_capstyle="butt")
        if abs(average) <= reach:
            ax.plot(average, place, "o", color=colour, mfc=colour if sure else "white", ms=5)
        for end, edge, marker, align in ((lower, -reach, "<", "left"), (upper, reach, ">", "right")):
            if abs(end) > reach and end * edge > 0:
                ax.plot(edge, place, marker, color=colour, ms=5, clip_on=False)
                beyond = f"{average:.3g}: {lower:.3g} to {upper:.3g}" if abs(average) > reach else f"to {end:.3g}"
                ax.text(0.96 * edge, place - 0.42, beyond, ha=align, va="center", fontsize=6.5, color=colour)
