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

from costar_cli.data.schema import labelled, step_axis, step_word
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
    log_limits,
    mark_cut,
    mark_start,
    plan_style,
    shade,
    spans_decades,
    tint,
    write_figure,
)
from costar_cli.report.figures.whatif_strips import (
    Strip,
    draw_estimate,
    light_handles,
    strips_of,
    treatment_strips,
)

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


def drawn_bands(report: WhatIfReport, model: ModelAnswers) -> list[Band]:
    """Return the bands of a model's plans at the two levels that are drawn, without answers that are hidden."""
    return [
        report.band_of(model, i, report.drawn_levels).without(report.hidden_of(model, i))
        for i in range(len(report.plans))
    ]


class _Shared:
    """What all panels of a report share: the first step, the bands by model and plan, axes by outcome.

    There is enough history for context, not so much that the plans become a sliver. `everywhere` says that limits are
    drawn at every step: those of many plans hide each other, and are drawn at the last one.
    """

    def __init__(self, report: WhatIfReport, width_in: float = PANEL_WIDTH_INCH) -> None:
        self.report, self.width_in = report, width_in
        least, per_step = (12, 3) if len(report.models) == 1 else (8, 2)
        horizon = max(len(plan) for plan in report.plans)
        self.first = max(0, report.history.origin - max(least, per_step * horizon))
        self.everywhere = len(report.plans) <= MOST_BANDS
        self.bands = [drawn_bands(report, model) for model in report.models]
        every = [band for bands in self.bands for band in bands]
        lines = [report.history.outcomes[self.first :], *report.observed, *(report.truth or ())]
        lines += [band.estimate for band in every]
        limits = [x for band in every for side in (band.lower, band.upper) if side is not None for x in side]
        self.is_log, self.range = list[bool](), list[tuple[float, float]]()
        for k in range(len(report.schema.outcomes)):  # lines, not bands, say whether an axis is logarithmic
            drawn, beside = [x[:, k] for x in lines], [x[:, k] for x in limits]
            self.is_log.append(spans_decades(drawn))
            in_frame = log_limits(drawn, beside) if self.is_log[k] else frame_limits(drawn, beside, room_of_flat=1.0)
            self.range.append(in_frame)
        low, high = np.array(self.range).T
        shown = limits if self.everywhere else [x[-1:] for x in limits]
        self.is_cut = any(bool(((x < low) | (x > high)).any()) for x in shown)

    def levels_of(self, bands: Sequence[Band]) -> list[bool]:
        """Return which of the two levels have limits that are drawn."""
        steps = slice(None) if self.everywhere else slice(-1, None)
        lower = [band.lower[:, steps] for band in bands if band.lower is not None]
        return [any(np.isfinite(lower_LHY[n]).any() for lower_LHY in lower) for n in range(len(BAND_TINTS))]


def draw_whatif(report: WhatIfReport, *, width_in: float = PANEL_WIDTH_INCH) -> Figure:
    """Draw the models side by side on the same scale, at most four to a line; `width_in` is of one alone."""
    shared = _Shared(report, width_in)
    treatments = treatment_strips(report, shared.first)
    below_plots = strips_of(report, report.models[0], treatments)
    heights = [PANEL_HEIGHT_INCH] * len(report.schema.outcomes)
    heights += [ROW_HEIGHT_INCH * strip.n_rows for strip in below_plots]
    columns = min(len(report.models), MODELS_PER_LINE)
    lines = -(-len(report.models) // columns)
    width = width_in if columns == 1 else columns * NARROW_PANEL_WIDTH_INCH + 0.6
    handles = _legend(shared)
    in_legend = legend_columns([str(handle.get_label()) for handle in handles], width)
    letters, many = int(WARNING_CHARACTERS_PER_INCH * width), len(report.warnings) > MOST_WARNING_LINES
    shown = report.warnings[: MOST_WARNING_LINES - 1] if many else report.warnings
    warned = [
        line
        for warning in shown
        for line in textwrap.wrap(
            label_text(f"Warning: {warning}", MOST_WARNING_LINES * letters), letters,
            max_lines=MOST_WARNING_LINES // len(shown), placeholder=" \N{HORIZONTAL ELLIPSIS}",
        )
    ]  # fmt: skip
    warned += [f"and {len(report.warnings) - len(shown)} more warnings"] * many
    below = 0.4 + 0.19 * (-(-len(handles) // in_legend) + len(warned))
    with figure(width, (sum(heights) + 1.3) * lines + below) as drawn:
        for line, place in enumerate(drawn.subfigures(lines, 1, squeeze=False)[:, 0]):
            grid = place.subplots(
                len(heights), columns, sharex=True, sharey="row", squeeze=False, height_ratios=heights
            )
            for column in range(columns):
                m = line * columns + column
                if m >= len(report.models):
                    for axes in grid[:, column]:
                        axes.set_visible(False)
                    continue
                mine = strips_of(report, report.models[m], treatments)
                _draw_model(grid[:, column], shared, m, mine, first=column == 0)
        if columns > 1:
            drawn.suptitle("\n".join(_wrapped(_about_subject(report), width)), x=0.01, ha="left", fontsize=10)
        drawn.legend(
            handles=handles, loc="outside lower center", ncols=in_legend,
            title="\n".join(warned) or None, title_fontsize=LEGEND_POINTS,
        )  # fmt: skip
    return drawn


def _draw_model(column: NDArray[np.object_], shared: _Shared, m: int, strips: Sequence[Strip], *, first: bool) -> None:
    """Draw a model's panels with their titles; `first` is the leftmost column, which names the vertical axes."""
    report, model, outcomes = shared.report, shared.report.models[m], shared.report.schema.outcomes
    for k, (outcome, axes) in enumerate(zip(outcomes, column, strict=False)):
        if shared.is_log[k]:
            axes.set_yscale("log")
        axes.set_ylim(*shared.range[k])
        _draw_outcome(axes, shared, m, k)
        axes.set_ylabel(label_text(labelled(outcome.name, outcome.unit)) if first else "")
    for strip, axes in zip(strips, column[len(outcomes) :], strict=True):
        strip.draw(axes)
        if not first:
            axes.set_ylabel("")
            axes.tick_params(labelleft=False)
    bare = ", no band" * (not any(shared.levels_of(shared.bands[m])))
    trained = ", trained on the subject" if model.trained_on_subject else ""
    trained += ", trained on other data" if model.same_data is False else ""
    title = f"{model.label} ({model.members} member{'s' * (model.members > 1)}{bare}{trained})"
    width = NARROW_PANEL_WIDTH_INCH
    if len(report.models) == 1:
        title, width = f"{title}: {_about_subject(report)}", shared.width_in
    column[0].set_title("\n".join(_wrapped(title, width)), fontsize=10)
    # Outcomes are of their day, treatments are given on it and show from the next one on: each has an axis of its own
    last = len(outcomes) + bool(report.ends) - 1
    for axes, of in ((column[last], "outcome"), (column[-1], "treatment")):
        axes.set_xlabel(f"{label_text(step_axis(report.schema.step))} of {of}")
        axes.tick_params(axis="x", labelbottom=True)
    origin = report.history.origin
    mark_start(column[0], origin, shared.first, origin + max(map(len, report.plans)))
    dates, axis = report.history.dates, column[-1].xaxis
    axis.set_major_locator(MaxNLocator(DATED_TICKS if dates else "auto", integer=True))
    if dates:
        at = dict(enumerate(dates))
        axis.set_major_formatter(lambda step, _: f"{step:.0f}\n{at.get(round(step)) or ''}")


def _draw_outcome(axes: Axes, shared: _Shared, m: int, outcome: int) -> None:
    """Draw an outcome's history, and under each plan its estimate with two nested bands, and the truth."""
    report, model, first = shared.report, shared.report.models[m], shared.first
    origin, known = report.history.origin, report.history.outcomes[:, outcome]
    axes.plot(range(first, origin + 1), known[first:], color=BLACK, marker=".", markersize=4, zorder=3)
    if outcome > 0:  # the first has it with words
        axes.axvline(origin, color=GREY, linewidth=0.8, linestyle=":")
    start = float(known[origin])
    for i, (plan, band) in enumerate(zip(report.plans, shared.bands[m], strict=True)):
        colour, marker = plan_style(i)
        times = np.arange(origin, origin + len(plan) + 1)
        limits = [] if band.lower is None or band.upper is None else zip(band.lower, band.upper, strict=True)
        for n, (lower_HY, upper_HY) in enumerate(limits):
            lower, upper = lower_HY[:, outcome], upper_HY[:, outcome]
            if shared.everywhere:
                lower, upper = np.append(start, lower), np.append(start, upper)
                shade(axes, times, (lower, upper), colour, BAND_TINTS[n], zorder=(1 + n / 10, 1.5))
            else:
                beside, lower, upper = times[-1:] + 0.4 + 0.15 * i, lower[-1:], upper[-1:]
                axes.vlines(beside, lower, upper, color=tint(colour, BAND_TINTS[n] + 0.4), linewidth=BAR_POINTS[n])
            for bound in (lower, upper):
                mark_cut(axes, times if shared.everywhere else beside, bound, colour)
        estimate = np.append(start, band.estimate[:, outcome])
        red_H = None if model.plan_ratings is None else model.plan_ratings[i].red_HY[:, outcome]
        draw_estimate(axes, times, estimate, red_H, (colour, marker))
        if report.truth is not None:
            truth = np.append(start, report.truth[i][:, outcome])
            axes.plot(times, truth, color=colour, linestyle=TRUTH_DASHES, linewidth=1.4, zorder=5)
        observed = report.observed[i][:, outcome]
        axes.plot(times[1:], observed, color=colour, marker="o", markersize=8, markerfacecolor="none", linestyle="none")


def _about_subject(report: WhatIfReport) -> str:
    history = report.history
    return f"subject {history.name} ({history.part}), from {step_word(report.schema.step)} {history.origin}"


def _wrapped(text: str, width_inch: float) -> list[str]:
    """Return the lines of a title over so many inches."""
    letters = int(TITLE_CHARACTERS_PER_INCH * width_inch)
    return textwrap.wrap(label_text(text, 3 * letters), letters, break_on_hyphens=False)


def _legend(shared: _Shared) -> list[Line2D | Patch]:
    report = shared.report
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
    where = "" if shared.everywhere else " at the last step"
    drawn_levels = shared.levels_of([band for bands in shared.bands for band in bands])
    for level, share, drawn in zip(report.drawn_levels, BAND_TINTS, drawn_levels, strict=True):
        if drawn:
            handles.append(Patch(color=tint(GREY, 1.6 * share), label=f"{100 * level:g} % band{where}"))
    if shared.is_cut:
        handles.append(Line2D([], [], color=GREY, marker="^", markersize=4.5, linestyle="none", label=f"band {CUT}"))
    return handles
