"""Draw a search: the best plans' courses, calendars and effects, and what more treatment buys."""

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
from costar_cli.questions.search import SHOWN, SearchReport
from costar_cli.questions.search.run import Best
from costar_cli.report.figures.calendars import calendar_key, calendar_rows, draw_calendar, draw_forest
from costar_cli.report.figures.style import (
    BLACK,
    GREY,
    LIGHT_GREY,
    figure,
    label_text,
    legend_below,
    log_limits,
    mark_start,
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
HEADROOM: Final = 0.12  # of the height, for the words `forecast start`
BESIDE: Final = 0.06  # of a treatment, between plans of as many treatments
MOST_POINTS: Final = 20_000  # of plans that are drawn
LONGEST: Final = 100  # letters of an objective
TITLE_LETTERS: Final = 52  # above a calendar
NAME_LETTERS: Final = 20  # of the reference plan


def plot_search(report: SearchReport, path: Path) -> Path:
    """Draw a search and save it.

    Raises:
        UsageError: the file name ends in something other than .png, .svg or .pdf.
        StorageError: the file cannot be written.
    """
    return write_figure(draw_search(report), path)


def draw_search(report: SearchReport) -> Figure:
    """Draw a panel per outcome that the objective reads, calendars and effects of plans, the objective of all plans."""
    best, schema, objective = report.answers[0].best, report.schema, report.question.objective
    shown = [*range(min(best.found, SHOWN)), len(best.estimate_M) - 1]
    outcomes = sorted({outcome for _, outcome in objective.concerns})
    plans, styles = [best.values_MHA[row] for row in shown], [_style(best, i, row) for i, row in enumerate(shown)]
    others = [i for i, row in enumerate(shown) if row < best.found]
    limits = [(float(low), float(high)) for low, high in best.apart_M2[[shown[i] for i in others]]]
    dotted = report.difference_kind == RANGE  # not as what has a level
    given = calendar_rows(schema.treatments, plans)
    rows_in = 0.9 + len(shown) * max(0.3, 0.17 * len(given))
    heights = [HEIGHT_INCH] * len(outcomes) + [rows_in, HEIGHT_INCH]
    with figure(WIDTH_INCH, sum(heights) + LINE_INCH) as drawn:
        grid = drawn.add_gridspec(len(heights), 2, height_ratios=heights, width_ratios=(1.25, 1))
        courses = [drawn.add_subplot(grid[k, :]) for k in range(len(outcomes))]
        for outcome, axes in zip(outcomes, courses, strict=True):
            _draw_courses(axes, report, outcome, shown)
        calendar = drawn.add_subplot(grid[-2, 0])
        forest = drawn.add_subplot(grid[-2, 1], sharey=calendar)
        colours = [colour for colour, _ in styles]
        draw_calendar(calendar, schema.treatments, plans, report.answers[0].origin, colours, given)
        calendar.set_title(label_text(calendar_key(schema.treatments, given), TITLE_LETTERS))
        calendar.set_xlabel(f"{label_text(step_axis(schema.step))} of treatment")
        reference = label_text(report.reference, NAME_LETTERS)
        names = [str(i + 1) if row < best.found else reference for i, row in enumerate(shown)]
        calendar.set_yticks(range(len(shown)), names)
        draw_forest(forest, others, [float(best.difference_M[shown[i]]) for i in others], limits,
                    [styles[i] for i in others], dotted=dotted)  # fmt: skip
        forest.tick_params(labelleft=False)
        forest.set_title(label_text(f"difference from {report.reference}", NAME_LETTERS + 16))
        about = f"{RANGE}, no level" if dotted else f"{100 * report.question.level:g} % interval"
        known = any(np.isfinite(low) for low, _ in limits)
        forest.set_xlabel(label_text(labelled("objective", objective.unit)) + f"\n({about})" * known)
        _draw_plans(drawn.add_subplot(grid[-1, :]), report, shown)
        if handles := courses[0].get_legend_handles_labels()[0]:
            legend_below(drawn, handles)
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
        course = np.append(start_M[row], best.estimates.mean_QHY[row, :, outcome])
        name = label_text(report.reference, NAME_LETTERS) if row >= best.found else ""  # others have their calendar
        drawn += axes.plot(times, course, color=colour, marker=marker, zorder=4 - i / 10, label=name)
    lines = [np.asarray(line.get_ydata(), dtype=np.float64) for line in drawn]
    if spans_decades(lines):
        axes.set_yscale("log")
        axes.set_ylim(*log_limits(lines, limits))
    mark_start(axes, answer.origin, first, int(times[-1]))
    axes.set_ylabel(label_text(labelled(variable.name, variable.unit)))
    axes.set_xlabel(f"{label_text(step_axis(report.schema.step))} of outcome")
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
            ranged = report.objective_kind == RANGE  # which is not drawn as what has a level
            axes.vlines(
                place, low, high, color=GREY if ranged else colour, linewidth=1.2, linestyle=":" if ranged else "-"
            )
        axes.plot([place], [best.estimate_M[row]], color=colour, marker=marker, zorder=5)
    axes.set_xlabel("number of treatments in the plan (grey: all plans that were scored)")
    axes.set_xlim(min(best.treated_P.min(), *places) - 0.5, max(best.treated_P.max(), *places) + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel(label_text(labelled("objective", objective.unit)))
    dotted = f" (dotted: {RANGE})" if report.objective_kind == RANGE else ""
    axes.set_title(label_text(f"{objective.text}{dotted}", LONGEST))


def _style(best: Best, i: int, row: int) -> tuple[str, str]:
    """Return colour and marker of a plan; the reference is grey."""
    return plan_style(i) if row < best.found else (GREY, "X")
