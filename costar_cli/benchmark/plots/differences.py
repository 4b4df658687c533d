"""How much larger each contender's error is than COSTAR's, with intervals over test subjects."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from costar_cli.benchmark.plots.layout import in_lines, title_of
from costar_cli.benchmark.report import BenchmarkReport
from costar_cli.benchmark.statistics import Comparison
from costar_cli.benchmark.tables import ResultTable
from costar_cli.figures.style import BLACK, BLUE, GREY, VERMILION, caption, figure, label_text, save, typeset

__all__ = ["plot_differences"]

_LONGEST_LABEL = 28
_FAR_OUT = 4  # times the median reach: such an interval would flatten the others


def plot_differences(report: BenchmarkReport, path: Path) -> Path | None:
    """Draw each contender's average error minus the reference's with its interval; None where nothing is compared.

    Filled markers: the difference is significant after Holm's correction, at one minus the level of the intervals. An
    interval that reaches far beyond the others is cut at the edge, where a number says how far it goes.
    """
    lines = in_lines([table for table in report.tables if table.comparisons])
    if not lines:
        return None
    columns = max(len(line) for line in lines)
    names = [list({c.name: c.label for table in line for c in table.comparisons}.items()) for line in lines]
    heights = [1.1 + 0.24 * len(labels) for labels in names]
    with figure(2.2 + 2.6 * columns, sum(heights) + 0.6) as drawn:
        grid = drawn.subplots(len(lines), columns, squeeze=False, height_ratios=heights)
        for axes, line, labels in zip(grid, lines, names, strict=True):
            for ax, table in zip(axes, line, strict=False):
                _draw(ax, table, [name for name, _ in labels], alpha=1 - report.level)
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


def _draw(ax: Axes, table: ResultTable, names: Sequence[str], *, alpha: float) -> None:
    reach = _reach(table.comparisons)
    ax.axvline(0, color=BLACK, lw=0.8)
    ax.grid(visible=False, axis="y")
    ax.grid(visible=True, axis="x")
    ax.set_title(title_of(table), loc="left")
    ax.set_xlim(-reach, reach)
    ax.set_ylim(len(names) - 0.4, -1.2)
    ax.xaxis.set_major_locator(MaxNLocator(4, symmetric=True))
    for x, text, align in ((-0.04, "← COSTAR worse", "right"), (0.04, "COSTAR better →", "left")):
        ax.text(x * reach, -0.85, text, ha=align, va="center", fontsize=7.5, color=GREY)
    for comparison in table.comparisons:
        _draw_one(ax, comparison, names.index(comparison.name), reach, alpha=alpha)


def _draw_one(ax: Axes, comparison: Comparison, place: int, reach: float, *, alpha: float) -> None:
    average = comparison.difference.average
    if average is None:
        return
    sure = comparison.p_holm is not None and comparison.p_holm <= alpha
    colour = GREY if not sure else BLUE if average > 0 else VERMILION
    lower, upper = (bound.average if bound else None for bound in (comparison.lower, comparison.upper))
    lower, upper = (average if end is None else end for end in (lower, upper))
    ax.plot([max(lower, -reach), min(upper, reach)], [place, place], color=colour, lw=1.4, solid_capstyle="butt")
    if abs(average) <= reach:
        ax.plot(average, place, "o", color=colour, mfc=colour if sure else "white", ms=5)
    for end, edge, marker, align in ((lower, -reach, "<", "left"), (upper, reach, ">", "right")):
        if abs(end) > reach and end * edge > 0:
            ax.plot(edge, place, marker, color=colour, ms=5, clip_on=False)
            beyond = f"{average:.3g}: {lower:.3g} to {upper:.3g}" if abs(average) > reach else f"to {end:.3g}"
            ax.text(0.96 * edge, place - 0.42, beyond, ha=align, va="center", fontsize=6.5, color=colour)


def _reach(comparisons: Sequence[Comparison]) -> float:
    """Return how far the axis goes to either side."""
    ends = []
    for c in comparisons:
        values = [c.difference.average, *(bound.average for bound in (c.lower, c.upper) if bound)]
        known = [abs(value) for value in values if value is not None and np.isfinite(value)]
        ends += [max(known)] if known else []
    if not ends or max(ends) == 0:
        return 1.0
    bound = _FAR_OUT * float(np.median(ends))
    return 1.08 * max(value for value in ends if value <= bound or value == min(ends))
