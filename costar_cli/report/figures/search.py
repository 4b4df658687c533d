"""Draw a search: the best plans' courses with their bands, and what more treatment buys."""

from pathlib import Path
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from costar_cli.data.schema import labelled, step_axis, step_word
from costar_cli.inference import RANGE
from costar_cli.plans.plan import in_words
from costar_cli.questions.search import SHOWN, SearchReport
from costar_cli.questions.search.run import Best
from costar_cli.report.figures.style import (
    BLACK,
    GREY,
    LEGEND_POINTS,
    LIGHT_GREY,
    figure,
    label_text,
    log_limits,
    plan_style,
    spans_decades,
    tint,
    write_figure,
)

WIDTH_INCH: Final = 7.2
HEIGHT_INCH: Final = 2.8
LINE_INCH: Final = 0.19  # of the legend
SHADE: Final = 0.25  # of the colour in a band; opaque, as mixtures turn brown
HISTORY: Final = 12  # steps before the origin
HEADROOM: Final = 0.12  # of the height, for the word `origin`
BESIDE: Final = 0.06  # of a treatment, between plans of as many treatments
MOST_POINTS: Final = 20_000  # of plans that are drawn
LONGEST: Final = 100  # letters of a plan in words
FREE: Final = 0.98  # of the width, for the legend


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
        lines = [handles[i] for i in order], [labels[i] for i in order]
        legend = drawn.legend(*lines, loc="outside lower left", ncols=1)
        wide = legend.get_window_extent().width / (drawn.bbox.width * FREE)
        if wide > 1:  # plans with several doses
            legend.remove()
            drawn.legend(*lines, loc="outside lower left", ncols=1, fontsize=LEGEND_POINTS / wide)
    return drawn


def _draw_courses(axes: Axes, report: SearchReport, outcome: int, shown: list[int]) -> None:
    """Draw an outcome's history and its courses under the plans; the band is that of the best."""
    answer, best, variable = report.answers[0], report.answers[0].best, report.schema.outcomes[outcome]
    first, drawn = max(0, answer.origin - HISTORY), list[Line2D]()
    axes.margins(y=HEADROOM)
    if report.panel is not None:
        y_T = report.panel.outcomes[0, : answer.origin + 1, outcome].astype(np.float64)
        known_T = np.where(report.panel.observed_outcomes[0, : answer.origin + 1, outcome], y_T, np.nan)
        drawn += axes.plot(range(first, answer.origin + 1), known_T[first:], color=BLACK, marker=".", label="observed")
    axes.axvline(answer.origin, color=GREY, linewidth=0.8, linestyle=":")
    start_M = best.estimates.level_QY[:, outcome]
    times = np.arange(answer.origin, answer.origin + report.question.candidates.steps + 1)
    limits: list[NDArray[np.float64]] = []
    if report.calibration is not None and best.found:
        bands = report.calibration.bands(best.estimates.take(np.array([0])), (report.question.level,))
        low_H, high_H = (y[0, 0, :, outcome] for y in (bands.lower_LQHY, bands.upper_LQHY))
        known_H = np.isfinite(low_H) & np.isfinite(high_H)
        if known_H.any():
            lower, upper = (np.append(start_M[0], np.where(known_H, y_H, np.nan)) for y_H in (low_H, high_H))
            limits = [lower, upper]
            shade = f"{100 * report.question.level:g} % band of the best"
            axes.fill_between(times, lower, upper, color=tint(plan_style(0)[0], SHADE), linewidth=0, label=shade)
    for i, row in reversed(list(enumerate(shown))):
        colour, marker = _style(best, i, row)
        words = in_words(report.schema, best.values_MHA[row], answer.origin)
        name = f"{i + 1}: {words}" if row < best.found else f"{report.reference}: {words}"
        course = np.append(start_M[row], best.estimates.mean_QHY[row, :, outcome])
        name = label_text(name, LONGEST)
        drawn += axes.plot(times, course, color=colour, marker=marker, label=name, zorder=4 - i / 10)
    lines = [np.asarray(line.get_ydata(), dtype=np.float64) for line in drawn]
    if spans_decades(lines):
        axes.set_yscale("log")
        axes.set_ylim(*log_limits(lines, limits))
    place = axes.get_xaxis_transform()
    axes.text(
        answer.origin, 1.0, "origin ", transform=place, ha="right", va="top", fontsize=LEGEND_POINTS - 0.5, color=GREY
    )
    axes.set_ylabel(label_text(labelled(variable.name, variable.unit)))
    axes.set_xlabel(label_text(step_axis(report.schema.step)))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    name = f"subject {answer.name} ({answer.part})" if answer.part else f"subject {answer.name}"
    axes.set_title(label_text(f"{report.label}: {name}, from {step_word(report.schema.step)} {answer.origin} on"))


def _draw_plans(axes: Axes, report: SearchReport, shown: list[int]) -> None:
    """Draw the objective of all plans that were scored against the treatments given, the best ones with intervals."""
    best, objective = report.answers[0].best, report.question.objective
    some = np.linspace(0, len(best.all_P) - 1, min(len(best.all_P), MOST_POINTS)).round().astype(np.int64)
    axes.plot(best.treated_P[some], best.all_P[some], ".", color=LIGHT_GREY, markersize=2.5)
    given_M = ((best.values_MHA != 0) & (report.schema.treatments.idle == 0)).sum(axis=(1, 2))
    counts = given_M[shown].tolist()
    places = [  # of each plan: its number of treatments, around which those of the same number stand
        count + BESIDE * (counts[:i].count(count) - (counts.count(count) - 1) / 2) for i, count in enumerate(counts)
    ]
    for i, row in reversed(list(enumerate(shown))):
        (colour, marker), place = _style(best, i, row), places[i]
        low, high = best.limits_M2[row]
        if np.isfinite(low) and np.isfinite(high):
            style = ":" if report.objective_kind == RANGE else "-"  # not as what has a level
            axes.vlines(place, low, high, color=colour, linewidth=1.2, linestyle=style)
        axes.plot([place], [best.estimate_M[row]], color=colour, marker=marker, zorder=5)
    axes.set_xlabel("treatments given (grey: all plans that were scored)")
    axes.set_xlim(min(best.treated_P.min(), *places) - 0.5, max(best.treated_P.max(), *places) + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel(label_text(labelled("objective", objective.unit)))
    dotted = f" (dotted: {RANGE})" if report.objective_kind == RANGE else ""
    axes.set_title(label_text(f"{objective.text}{dotted}", LONGEST))


def _style(best: Best, i: int, row: int) -> tuple[str, str]:
    """Return colour and marker of a plan; the reference is grey."""
    return plan_style(i) if row < best.found else (GREY, "X")
