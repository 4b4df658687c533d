"""Figures of a benchmark: RMSE by horizon beside the published rows, and differences with their intervals."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from costar_cli.evaluate.benchmark.contenders import REFERENCE
from costar_cli.evaluate.benchmark.report import BenchmarkReport
from costar_cli.evaluate.benchmark.statistics import Comparison
from costar_cli.evaluate.benchmark.tables import ResultTable
from costar_cli.evaluate.plots.style import BLACK, COLOURS, GREY, figure, save
from costar_cli.evaluate.report import PerStep

__all__ = ["plot_differences", "plot_horizons"]

Style = dict[str, Any]

_MARKERS = ("s", "^", "v", "D", "P", "X")
_PUBLISHED: Style = {"ls": (0, (3, 2)), "lw": 0.9, "alpha": 0.75}
_PANELS_PER_ROW = 3
_ASIDE = 0.025  # steps between the error bars of two rows


def plot_horizons(report: BenchmarkReport, path: Path) -> Path:
    """Draw mean ± sd of every row by horizon, one panel per table; published rows are dashed."""
    names = {row.name: row.label for table in report.tables for row in table.rows}
    styles = _styles(list(names))
    columns = min(len(report.tables), _PANELS_PER_ROW)
    lines = -(-len(report.tables) // columns)
    with figure(2.9 + 3.0 * columns, 0.9 + 2.9 * lines) as drawn:
        axes = drawn.subplots(lines, columns, squeeze=False).ravel()
        for ax, table in zip(axes, report.tables, strict=False):
            _draw_table(ax, table, styles)
            ax.set_xlabel(f"Horizon τ ({report.step}s)")
        for ax in axes[len(report.tables) :]:
            ax.set_visible(False)
        axes[0].set_ylabel(f"RMSE ({_typeset(report.unit)})" if report.unit else "RMSE")
        drawn.legend(handles=_legend(names, styles, report.tables), loc="outside right center", labelspacing=0.8)
        return save(drawn, path)


def _draw_table(ax: Axes, table: ResultTable, styles: Mapping[str, Style]) -> None:
    taus = np.arange(1, table.steps + 1)
    for row in table.published:
        own = {name: styles[row.name][name] for name in ("color", "marker")}
        ax.plot(taus, _array(row.mean, table.steps), mfc="white", ms=2.5, **own, **_PUBLISHED)
    for place, row in enumerate(table.rows):
        beside = taus + _ASIDE * (place - (len(table.rows) - 1) / 2)  # or the bars would hide each other
        sd_H = None if row.sd is None else _array(row.sd, table.steps)
        ax.errorbar(beside, _array(row.mean, table.steps), sd_H, elinewidth=0.7, capsize=0, **styles[row.name])
    what = "ablations, " if table.kind == "ablations" else ""
    ax.set_title(f"{what}{table.setup}\n{table.truth}, {table.test}", loc="left")
    ax.set_xticks(taus)
    ax.set_ylim(bottom=0, top=_top(table))


def _top(table: ResultTable) -> float | None:
    """Return where the axis ends: a row far above the median row is cut off rather than flattening the others."""
    highest = [float(np.nanmax(_array(row.mean, table.steps))) for row in table.rows]
    highest = [value for value in highest if np.isfinite(value)]
    if not highest:
        return None
    published = [float(np.nanmax(_array(row.mean, table.steps))) for row in table.published]
    bound = 4 * float(np.median(highest))
    return 1.06 * max(value for value in [*highest, *published] if value <= bound or value == min(highest))


def _styles(names: Sequence[str]) -> dict[str, Style]:
    """Return how each contender is drawn; the reference stands out."""
    others = [name for name in names if name != REFERENCE]
    styles: dict[str, Style] = {
        name: {
            "color": COLOURS[1:][i % (len(COLOURS) - 1)],
            "marker": _MARKERS[(i + i // len(_MARKERS) * 3) % len(_MARKERS)],  # no pair of colour and marker twice
            "ls": "-" if i < len(COLOURS) - 1 else (0, (1, 1)),
            "lw": 1.2,
            "ms": 4,
        }
        for i, name in enumerate(others)
    }
    return styles | {REFERENCE: {"color": COLOURS[0], "marker": "o", "lw": 2.4, "zorder": 5}}


def _legend(names: Mapping[str, str], styles: Mapping[str, Style], tables: Sequence[ResultTable]) -> list[Line2D]:
    handles = [Line2D([], [], label=label, **styles[name]) for name, label in names.items()]
    if any(row.sd is not None for table in tables for row in table.rows):
        handles.append(Line2D([], [], color=GREY, lw=0.7, label="bars: ± sd over\nmembers and data sets"))
    bases = list(dict.fromkeys(row.basis for table in tables for row in table.published))
    return handles + [Line2D([], [], color=BLACK, label=basis.replace(", ", ",\n"), **_PUBLISHED) for basis in bases]


def plot_differences(report: BenchmarkReport, path: Path) -> Path | None:
    """Draw each contender's average error minus the reference's with its interval; None where nothing is compared.

    Filled markers: the difference is significant after Holm's correction at one minus the level of the intervals.
    """
    tables = [table for table in report.tables if table.comparisons]
    if not tables:
        return None
    columns = min(len(tables), _PANELS_PER_ROW)
    lines = -(-len(tables) // columns)
    tallest = max(len(table.comparisons) for table in tables)
    with figure(1.0 + 3.4 * columns, (1.5 + 0.26 * tallest) * lines + 0.4) as drawn:
        axes = drawn.subplots(lines, columns, squeeze=False).ravel()
        for ax, table in zip(axes, tables, strict=False):
            _draw_differences(ax, table.comparisons, alpha=1 - report.level)
            what = "ablations, " if table.kind == "ablations" else ""
            ax.set_title(f"{what}{table.setup}\n{table.truth}, {table.test}", loc="left")
        for ax in axes[len(tables) :]:
            ax.set_visible(False)
        unit = f" ({_typeset(report.unit)})" if report.unit else ""
        drawn.supxlabel(
            f"RMSE minus COSTAR's, average over τ{unit}; {report.level:.0%} intervals over test subjects\n"
            f"filled: p < {1 - report.level:.2g} after Holm's correction; right of 0: COSTAR's error is smaller",
            fontsize=8.5,
        )
        return save(drawn, path)


def _draw_differences(ax: Axes, comparisons: Sequence[Comparison], *, alpha: float) -> None:
    ax.axvline(0, color=BLACK, lw=0.8)
    ax.grid(visible=False, axis="y")
    for place, comparison in enumerate(reversed(comparisons)):
        average = comparison.difference.average
        if average is None:
            continue
        sure = comparison.p_holm is not None and comparison.p_holm < alpha
        lower, upper = (bound.average if bound else None for bound in (comparison.lower, comparison.upper))
        if lower is not None and upper is not None:
            ax.plot([lower, upper], [place, place], color=COLOURS[0], lw=1.4, solid_capstyle="butt")
        ax.plot(average, place, "o", color=COLOURS[0], mfc=COLOURS[0] if sure else "white", ms=5)
    ax.set_yticks(range(len(comparisons)), [comparison.label for comparison in reversed(comparisons)])
    ax.set_ylim(-0.7, len(comparisons) - 0.3)
    ax.xaxis.set_major_locator(MaxNLocator(5))


def _array(values: PerStep, steps: int) -> NDArray[np.float64]:
    known = [np.nan if value is None else value for value in values.steps[:steps]]
    return np.array([*known, *[np.nan] * (steps - len(known))])


def _typeset(unit: str) -> str:
    return unit.replace("V_max", "$V_{\\mathrm{max}}$")
