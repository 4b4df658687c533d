"""Draw a what-if report: history, estimates with nested bands, truth, and which treatment is given when."""

import textwrap
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from costar_cli.data.schema import labelled, step_axis
from costar_cli.questions.answers import Band, ModelAnswers
from costar_cli.questions.report import WhatIfReport
from costar_cli.report.figures.style import (
    BLACK,
    CUT,
    GREY,
    LEGEND_POINTS,
    figure,
    frame_limits,
    label_text,
    legend_columns,
    mark_cut,
    plan_style,
    spans_decades,
    tint,
    write_figure,
)
from costar_cli.report.figures.whatif_lights import LightStrip, draw_estimate, light_handles, light_strips, red_steps
from costar_cli.report.figures.whatif_strips import SurvivalStrip, TreatmentStrip, survival_strips, treatment_strips

__all__ = ["draw_whatif", "plot_whatif"]

Strip = TreatmentStrip | LightStrip | SurvivalStrip

PANEL_WIDTH_INCH, PANEL_HEIGHT_INCH, ROW_HEIGHT_INCH = 7.2, 2.9, 0.2
LONGEST_NAME = 32
TITLE_CHARACTERS_PER_INCH = 10
NARROW_PANEL_WIDTH_INCH = 4.2  # where models stand side by side
MODELS_PER_LINE = 4
WARNING_CHARACTERS_PER_INCH = 13
MOST_BANDS = 4  # plans whose limits are drawn at every step
BAND_TINTS = (0.16, 0.42)  # share of the colour in the wider and the narrower band; opaque, as mixtures turn brown
BAR_POINTS = (1.0, 3.4)  # width of their bars at the last step, where many plans would hide each other
TRUTH_DASHES = (0, (4, 2))
MOST_WARNING_LINES = 3
DATED_TICKS = 5  # at most, where each has a date below its number


def plot_whatif(report: WhatIfReport, path: Path) -> None:
    """Draw a panel per outcome and model, with the treatments of every plan below, and save it.

    Raises:
        UsageError: the file name ends in something other than .png, .svg or .pdf.
        StorageError: the file cannot be written.
    """
    write_figure(draw_whatif(report), path)


def draw_whatif(report: WhatIfReport) -> Figure:
    """Draw the models side by side on the same scale, at most four to a line."""
    first = _first_shown(report)
    strips = treatment_strips(report, first)
    below_plots = [*strips, *_strips_of(report, report.models[0])]
    heights = [PANEL_HEIGHT_INCH] * len(report.schema.outcomes)
    heights += [ROW_HEIGHT_INCH * strip.n_rows for strip in below_plots]
    columns = min(len(report.models), MODELS_PER_LINE)
    lines = [report.models[i : i + columns] for i in range(0, len(report.models), columns)]
    width = PANEL_WIDTH_INCH if columns == 1 else columns * NARROW_PANEL_WIDTH_INCH + 0.6
    limits = [_limits(report, first, k) for k in range(len(report.schema.outcomes))]
    handles = _legend(report, limits)
    in_legend = legend_columns([str(handle.get_label()) for handle in handles], width)
    doubts = _warning_lines(report, width)
    below = 0.4 + 0.19 * (-(-len(handles) // in_legend) + len(doubts))
    with figure(width, (sum(heights) + 0.9) * len(lines) + below) as drawn:
        for place, models in zip(drawn.subfigures(len(lines), 1, squeeze=False)[:, 0], lines, strict=True):
            grid = place.subplots(
                len(heights), columns, sharex=True, sharey="row", squeeze=False, height_ratios=heights
            )
            for column, model in enumerate(models):
                mine = [*strips, *_strips_of(report, model)]
                _draw_model(grid[:, column], report, model, mine, limits, first=column == 0)
            for axes in grid[:, len(models) :].ravel():
                axes.set_visible(False)
        if columns > 1:
            drawn.suptitle("\n".join(_wrapped(_about_subject(report), width)), x=0.01, ha="left", fontsize=10)
        drawn.legend(
            handles=handles, loc="outside lower center", ncols=in_legend,
            title="\n".join(doubts) or None, title_fontsize=LEGEND_POINTS,
        )  # fmt: skip
    return drawn


def _strips_of(report: WhatIfReport, model: ModelAnswers) -> list[Strip]:
    """Return the rows of axes below the treatments: survival, then lights."""
    return [*survival_strips(report, model), *light_strips(report, model)]


def _warning_lines(report: WhatIfReport, width_inch: float) -> list[str]:
    """Return the report's warnings, each shortened so that all take few lines; of many, how many are left out."""
    warned = (
        report.warnings if len(report.warnings) <= MOST_WARNING_LINES else report.warnings[: MOST_WARNING_LINES - 1]
    )
    letters = int(WARNING_CHARACTERS_PER_INCH * width_inch)
    lines = [
        line
        for warning in warned
        for line in textwrap.wrap(
            label_text(f"Warning: {warning}", MOST_WARNING_LINES * letters),
            letters,
            max_lines=MOST_WARNING_LINES // len(warned),
            placeholder=" \N{HORIZONTAL ELLIPSIS}",
        )
    ]
    left = len(report.warnings) - len(warned)
    return [*lines, *([f"and {left} more warnings"] if left else [])]


def _first_shown(report: WhatIfReport) -> int:
    """Return the first step to draw: enough history for context, not so much that the plans become a sliver."""
    horizon = max(len(plan) for plan in report.plans)
    least, per_step = (12, 3) if len(report.models) == 1 else (8, 2)
    return max(0, report.history.origin - max(least, per_step * horizon))


def _limits(report: WhatIfReport, first: int, outcome: int) -> tuple[float, float]:
    """Return the range of an outcome's lines, for the same scale in every panel, with room for the bands."""
    bands = _bands(report)
    lines = [report.history.outcomes[first:], *report.observed, *(report.truth or ())]
    lines += [band.estimate for band in bands]
    limits = [
        limit_HY for band in bands for limit in (band.lower, band.upper) if limit is not None for limit_HY in limit
    ]
    drawn, beside = [x[:, outcome] for x in lines], [x[:, outcome] for x in limits]
    if not is_log(report, outcome):
        return frame_limits(drawn, beside, room_of_flat=1.0)
    with np.errstate(divide="ignore", invalid="ignore"):  # a limit at 0 lies below any frame
        low, high = frame_limits([np.log10(x) for x in drawn], [np.log10(x) for x in beside], room_of_flat=1.0)
    return 10**low, 10**high


def is_log(report: WhatIfReport, outcome: int) -> bool:
    """Return whether an outcome has a log axis: its lines, not its bands, are positive and span decades."""
    lines = [report.history.outcomes[_first_shown(report) :], *report.observed, *(report.truth or ())]
    return spans_decades([x[:, outcome] for x in (*lines, *(band.estimate for band in _bands(report)))])


def _bands(report: WhatIfReport) -> list[Band]:
    """Return the bands of all models and plans, each at the two levels that are drawn."""
    return [_band(report, model, i) for model in report.models for i in range(len(report.plans))]


def _band(report: WhatIfReport, model: ModelAnswers, plan: int) -> Band:
    return report.band_of(model, plan, report.drawn_levels).without(report.hidden_of(model, plan))


def _draw_model(
    column: NDArray[np.object_],
    report: WhatIfReport,
    model: ModelAnswers,
    strips: Sequence[Strip],
    limits: Sequence[tuple[float, float]],
    *,
    first: bool,
) -> None:
    outcomes = len(limits)
    for k, axes in enumerate(column[:outcomes]):
        if is_log(report, k):
            axes.set_yscale("log")
        axes.set_ylim(*limits[k])
        _draw_outcome(axes, report, model, k)
    for strip, axes in zip(strips, column[outcomes:], strict=True):
        strip.draw(axes)
        if not first:
            axes.set_ylabel("")
    _label(column, report, model, strips, first=first)


def _draw_outcome(axes: Axes, report: WhatIfReport, model: ModelAnswers, outcome: int) -> None:
    origin, first = report.history.origin, _first_shown(report)
    known = report.history.outcomes[:, outcome]
    axes.plot(range(first, origin + 1), known[first:], color=BLACK, marker=".", markersize=4, zorder=3)
    axes.axvline(origin, color=GREY, linewidth=0.8, linestyle=":")
    start = float(known[origin])
    for i, plan in enumerate(report.plans):
        colour, marker = plan_style(i)
        times = np.arange(origin, origin + len(plan) + 1)
        band = _band(report, model, i)
        if band.lower is not None and band.upper is not None:
            _draw_band(axes, report, i, times[1:], (band.lower[..., outcome], band.upper[..., outcome]), start)
        estimate = _joined(start, band.estimate[:, outcome])
        draw_estimate(axes, times, estimate, red_steps(model, i, outcome), (colour, marker))
        if report.truth is not None:
            truth = _joined(start, report.truth[i][:, outcome])
            axes.plot(times, truth, color=colour, linestyle=TRUTH_DASHES, linewidth=1.4, zorder=5)
        observed = report.observed[i][:, outcome]
        axes.plot(times[1:], observed, color=colour, marker="o", markersize=8, markerfacecolor="none", linestyle="none")


def _draw_band(
    axes: Axes,
    report: WhatIfReport,
    plan: int,
    times_H: NDArray[np.integer],
    limits: tuple[NDArray[np.float64], NDArray[np.float64]],
    start: float,
) -> None:
    """Draw two nested bands, of many plans those of the last step."""
    colour, _ = plan_style(plan)
    for n, (lower_H, upper_H) in enumerate(zip(*limits, strict=True)):
        if _has_bands(report):
            times, lower, upper = np.append(times_H[0] - 1, times_H), _joined(start, lower_H), _joined(start, upper_H)
            axes.fill_between(times, lower, upper, color=tint(colour, BAND_TINTS[n]), linewidth=0, zorder=1 + n / 10)
            axes.plot(times, np.stack([lower, upper], axis=1), color=colour, alpha=0.6, linewidth=0.5, zorder=1.5)
        else:
            times, lower, upper = times_H[-1:] + 0.4 + 0.15 * plan, lower_H[-1:], upper_H[-1:]
            axes.vlines(times, lower, upper, color=tint(colour, BAND_TINTS[n] + 0.4), linewidth=BAR_POINTS[n])
        for bound in (lower, upper):
            mark_cut(axes, times, bound, colour)


def _drawn_levels(report: WhatIfReport, bands: Sequence[Band]) -> list[bool]:
    """Return which of the two levels have limits that are drawn."""
    steps = slice(None) if _has_bands(report) else slice(-1, None)
    lower = [band.lower[:, steps] for band in bands if band.lower is not None]
    return [any(np.isfinite(lower_LHY[n]).any() for lower_LHY in lower) for n in range(len(BAND_TINTS))]


def _joined(start: float, values_H: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a curve that begins at the last known outcome."""
    return np.concatenate([[start], values_H])


def _has_bands(report: WhatIfReport) -> bool:
    """Return whether limits are drawn at every step: those of many plans hide each other."""
    return len(report.plans) <= MOST_BANDS


def _about_subject(report: WhatIfReport) -> str:
    history = report.history
    return f"subject {history.name} ({history.part}), origin {history.origin}"


def _wrapped(text: str, width_inch: float) -> list[str]:
    """Return the lines of a title over so many inches."""
    letters = int(TITLE_CHARACTERS_PER_INCH * width_inch)
    return textwrap.wrap(label_text(text, 3 * letters), letters, break_on_hyphens=False)


def _label(
    column: NDArray[np.object_],
    report: WhatIfReport,
    model: ModelAnswers,
    strips: Sequence[Strip],
    *,
    first: bool,
) -> None:
    """Write titles and names of axes; `first` is the leftmost column, which has those of the vertical axes."""
    bare = not any(_drawn_levels(report, [_band(report, model, i) for i in range(len(report.plans))]))
    members = f"{model.members} member{'s' * (model.members > 1)}{', no band' if bare else ''}"
    trained = ", trained on the subject" if model.trained_on_subject else ""
    trained += ", trained on other data" if model.same_data is False else ""
    title = f"{model.label} ({members}{trained})"
    width = NARROW_PANEL_WIDTH_INCH
    if len(report.models) == 1:
        title, width = f"{title}: {_about_subject(report)}", PANEL_WIDTH_INCH
    column[0].set_title("\n".join(_wrapped(title, width)), fontsize=10)
    column[-1].set_xlabel(label_text(step_axis(report.schema.step)))
    place = {"transform": column[0].get_xaxis_transform(), "ha": "right", "va": "top"}
    column[0].text(report.history.origin, 1.0, "origin ", **place, fontsize=LEGEND_POINTS - 0.5, color=GREY)
    dates, axis = report.history.dates, column[-1].xaxis
    axis.set_major_locator(MaxNLocator(DATED_TICKS if dates else "auto", integer=True))
    if dates:
        at = dict(enumerate(dates))
        axis.set_major_formatter(lambda step, _: f"{step:.0f}\n{at.get(round(step)) or ''}")
    for outcome, axes in zip(report.schema.outcomes, column, strict=False):
        axes.set_ylabel(label_text(labelled(outcome.name, outcome.unit)) if first else "")
    if not first:
        for _, axes in zip(strips, column[len(report.schema.outcomes) :], strict=True):
            axes.tick_params(labelleft=False)


def _is_cut(report: WhatIfReport, limits: Sequence[tuple[float, float]]) -> bool:
    """Return whether a band extends beyond the axis."""
    bounds = [
        limit_HY
        for band in _bands(report)
        for limit in (band.lower, band.upper)
        if limit is not None
        for limit_HY in limit
    ]
    shown = bounds if _has_bands(report) else [bound[-1:] for bound in bounds]
    return any(bool(((bound < np.array(limits)[:, 0]) | (bound > np.array(limits)[:, 1])).any()) for bound in shown)


def _legend(report: WhatIfReport, limits: Sequence[tuple[float, float]]) -> list[Line2D | Patch]:
    handles: list[Line2D | Patch] = [Line2D([], [], color=BLACK, marker=".", label="observed")]
    if not all(np.isnan(observed).all() for observed in report.observed):
        handles.append(
            Line2D([], [], color=BLACK, marker="o", markerfacecolor="none", linestyle="none",
                   label="observed, same plan")
        )  # fmt: skip
    for i, plan in enumerate(report.plans):
        colour, marker = plan_style(i)
        handles.append(
            Line2D([], [], color=colour, marker=marker, markersize=4, label=label_text(plan.name, LONGEST_NAME))
        )
    if report.truth is not None:
        handles.append(Line2D([], [], color=GREY, linestyle=TRUTH_DASHES, linewidth=1.2, label="simulator's truth"))
    handles += light_handles(report)
    where = "" if _has_bands(report) else " at the last step"
    for level, share, drawn in zip(report.drawn_levels, BAND_TINTS, _drawn_levels(report, _bands(report)), strict=True):
        if drawn:
            handles.append(Patch(color=tint(GREY, 1.6 * share), label=f"{100 * level:g} % band{where}"))
    if _is_cut(report, limits):
        handles.append(Line2D([], [], color=GREY, marker="^", markersize=4.5, linestyle="none", label=f"band {CUT}"))
    return handles
