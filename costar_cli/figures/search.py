"""Draw a search: the best plans' courses with their bands, and what more treatment buys."""

from pathlib import Path
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from costar_cli.figures.style import BLACK, GREY, LIGHT_GREY, figure, label_text, plan_style, tint, write_figure
from costar_cli.panel.schema import step_axis
from costar_cli.plans.words import in_words
from costar_cli.search import SHOWN, SearchReport
from costar_cli.search.run import Best

__all__ = ["draw_search", "plot_search"]

WIDTH_INCH: Final = 7.2
HEIGHT_INCH: Final = 2.8
LINE_INCH: Final = 0.19  # of the legend
SHADE: Final = 0.25  # of the colour in a band; opaque, as mixtures turn brown
HISTORY: Final = 12  # steps before the origin
MOST_POINTS: Final = 20_000  # of plans that are drawn
LONGEST: Final = 100  # letters of a plan in words


def plot_search(report: SearchReport, path: Path) -> Path:
    """Draw a search and save it.

    Raises:
        UsageError: the file name ends in something other than .png, .svg or .pdf.
        StorageError: the file cannot be written.
    """
    return write_figure(draw_search(report), path)


def draw_search(report: SearchReport) -> Figure:
    """Draw a panel per outcome that the objective reads, and the objective against the treatments given."""
    best = report.answers[0].best
    shown = [*range(min(best.found, SHOWN)), len(best.estimate_M) - 1]
    outcomes = sorted({outcome for _, outcome in report.question.objective.concerns})
    height = HEIGHT_INCH * (len(outcomes) + 1) + LINE_INCH * (len(shown) + 2)
    with figure(WIDTH_INCH, height) as drawn:
        grid = drawn.subplots(len(outcomes) + 1, 1, squeeze=False)[:, 0]
        for outcome, axes in zip(outcomes, grid, strict=False):
            _draw_courses(axes, report, outcome, shown)
        _draw_plans(grid[-1], report, shown)
        handles, labels = grid[0].get_legend_handles_labels()
        few = len(handles) - len(shown)  # what is no plan stands first, then plans from the best on
        order = [*range(few), *reversed(range(few, len(handles)))]
        drawn.legend([handles[i] for i in order], [labels[i] for i in order], loc="outside lower left", ncols=1)
    return drawn


def _draw_courses(axes: Axes, report: SearchReport, outcome: int, shown: list[int]) -> None:
    """Draw an outcome's history and its courses under the plans; the band is that of the best."""
    answer, best, variable = report.answers[0], report.answers[0].best, report.schema.outcomes[outcome]
    first = max(0, answer.origin - HISTORY)
    if report.panel is not None:
        y_T = report.panel.outcomes[0, : answer.origin + 1, outcome].astype(np.float64)
        known_T = np.where(report.panel.observed_outcomes[0, : answer.origin + 1, outcome], y_T, np.nan)
        axes.plot(range(first, answer.origin + 1), known_T[first:], color=BLACK, marker=".", label="observed")
    axes.axvline(answer.origin, color=GREY, linewidth=0.8, linestyle=":")
    start_M = best.estimates.level_QY[:, outcome]
    times = np.arange(answer.origin, answer.origin + report.question.candidates.steps + 1)
    if report.calibration is not None and best.found:
        bands = report.calibration.bands(best.estimates.take(np.array([0])), (report.question.level,))
        lower, upper = (_joined(start_M[0], y[0, 0, :, outcome]) for y in (bands.lower_LQHY, bands.upper_LQHY))
        shade = f"{100 * report.question.level:g} % band of the best"
        axes.fill_between(times, lower, upper, color=tint(plan_style(0)[0], SHADE), linewidth=0, label=shade)
    for i, row in reversed(list(enumerate(shown))):
        colour, marker = _style(best, i, row)
        words = in_words(report.schema, best.values_MHA[row], answer.origin)
        name = f"{i + 1}: {words}" if row < best.found else f"{report.reference}: {words}"
        course = _joined(start_M[row], best.estimates.mean_QHY[row, :, outcome])
        axes.plot(times, course, color=colour, marker=marker, label=label_text(name, LONGEST), zorder=4 - i / 10)
    axes.set_ylabel(label_text(f"{variable.name} [{variable.unit}]" if variable.unit else variable.name))
    axes.set_xlabel(label_text(step_axis(report.schema.step)))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    name = f"subject {answer.name} ({answer.part})" if answer.part else f"subject {answer.name}"
    axes.set_title(label_text(f"{report.label}: {name}, from {answer.origin} on"))


def _draw_plans(axes: Axes, report: SearchReport, shown: list[int]) -> None:
    """Draw the objective of all plans that were scored against the treatments given, the best ones with intervals."""
    best, objective = report.answers[0].best, report.question.objective
    some = np.linspace(0, len(best.all_P) - 1, min(len(best.all_P), MOST_POINTS)).round().astype(np.int64)
    axes.plot(best.treated_P[some], best.all_P[some], ".", color=LIGHT_GREY, markersize=2.5)
    for i, row in reversed(list(enumerate(shown))):
        colour, marker = _style(best, i, row)
        place = float((best.values_MHA[row] != 0).sum()) + 0.08 * (i - (len(shown) - 1) / 2)
        low, high = best.limits_M2[row]
        if np.isfinite(low) and np.isfinite(high):
            axes.vlines(place, low, high, color=colour, linewidth=1.2)
        axes.plot([place], [best.estimate_M[row]], color=colour, marker=marker, zorder=5)
    axes.set_xlabel("treatments given (grey: all plans that were scored)")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel(label_text(f"objective [{objective.unit}]" if objective.unit else "objective"))
    axes.set_title(label_text(objective.text, LONGEST))


def _style(best: Best, i: int, row: int) -> tuple[str, str]:
    """Return colour and marker of a plan; the reference is grey."""
    return plan_style(i) if row < best.found else (GREY, "X")


def _joined(start: float, values_H: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a curve that begins at the last known outcome."""
    return np.concatenate([[start], values_H])
