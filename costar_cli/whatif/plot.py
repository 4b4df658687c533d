"""Draw a what-if report: history, estimates with their spread, truth, and which treatment is given when."""

import io
import textwrap
import warnings
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from costar_cli.artifact import write_bytes
from costar_cli.errors import UsageError
from costar_cli.whatif.plot_treatments import TreatmentStrip, treatment_strips
from costar_cli.whatif.report import ModelAnswer, WhatIfReport
from costar_cli.whatif.style import HISTORY_COLOUR, label_text, plan_style

__all__ = ["FORMATS", "plot_whatif"]

FORMATS = ("png", "svg", "pdf")
PANEL_WIDTH_INCH, PANEL_HEIGHT_INCH, ROW_HEIGHT_INCH = 7.2, 2.9, 0.2
LEGEND_FONT_POINTS = 9
LONGEST_NAME = 32
TITLE_CHARACTERS = 72  # in a line above a panel
BAND_ALPHA = 0.13
TRUTH_DASHES = (0, (4, 2))


def plot_whatif(report: WhatIfReport, path: Path) -> None:
    """Draw a panel per outcome and model, with the treatments of every plan below, and save it.

    Raises:
        UsageError: the file name ends in something other than .png, .svg or .pdf.
        StorageError: the file cannot be written.
    """
    kind = path.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise UsageError(f"cannot draw `{path.name}`", where="--plot", fix="end the name in .png, .svg or .pdf")
    image = io.BytesIO()
    with warnings.catch_warnings(), rc_context({"svg.hashsalt": "costar"}):
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # a plan may be named in any script
        stamp = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[kind]  # same report, same bytes
        _figure(report).savefig(image, format=kind, dpi=150, metadata=stamp)
    write_bytes(path, image.getvalue())


def _figure(report: WhatIfReport) -> Figure:
    strips = treatment_strips(report, _first_shown(report))
    outcomes, models = len(report.schema.outcomes), len(report.models)
    heights = [PANEL_HEIGHT_INCH] * outcomes + [ROW_HEIGHT_INCH * strip.n_rows for strip in strips]
    figure = Figure(figsize=(PANEL_WIDTH_INCH * models, sum(heights) + 1.5), layout="constrained")
    grid = figure.subplots(len(heights), models, sharex=True, sharey="row", squeeze=False, height_ratios=heights)
    for column, model in enumerate(report.models):
        for k in range(outcomes):
            _draw_outcome(grid[k, column], report, model, k)
        for strip, axes in zip(strips, grid[outcomes:, column], strict=True):
            strip.draw(axes)
        _label(grid[:, column], report, model, strips, first=column == 0)
    handles = _legend(report)
    longest = max(len(str(handle.get_label())) for handle in handles)
    column_inch = (
        0.6 + longest * LEGEND_FONT_POINTS * 0.6 / 72
    )  # a handle, then letters about 0.6 points wide per point
    columns = max(1, min(len(handles), int(PANEL_WIDTH_INCH * models / column_inch)))
    figure.legend(
        handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize=LEGEND_FONT_POINTS
    )
    return figure


def _first_shown(report: WhatIfReport) -> int:
    """Return the first step to draw: enough history for context, not so much that the plans become a sliver."""
    horizon = max(len(plan) for plan in report.plans)
    return max(0, report.history.origin - max(12, 3 * horizon))


def _draw_outcome(axes: Axes, report: WhatIfReport, model: ModelAnswer, outcome: int) -> None:
    origin, first = report.history.origin, _first_shown(report)
    known = report.history.outcomes[:, outcome]
    axes.plot(range(first, origin + 1), known[first:], color=HISTORY_COLOUR, marker=".", markersize=4, zorder=3)
    axes.axvline(origin, color="0.6", linewidth=0.8, linestyle=":")
    start = float(known[origin])
    for i, plan in enumerate(report.plans):
        colour, marker = plan_style(i)
        times = np.arange(origin, origin + len(plan) + 1)
        band = report.spread_of(model, i)
        if band.lower is not None and band.upper is not None:
            lower, upper = _joined(start, band.lower[:, outcome]), _joined(start, band.upper[:, outcome])
            axes.fill_between(times, lower, upper, color=colour, alpha=BAND_ALPHA, linewidth=0)
            axes.plot(times, np.stack([lower, upper], axis=1), color=colour, alpha=0.5, linewidth=0.6)
        estimate = _joined(start, band.estimate[:, outcome])
        axes.plot(times, estimate, color=colour, marker=marker, markersize=4, markevery=slice(1, None))
        if report.truth is not None:
            truth = _joined(start, report.truth[i][:, outcome])
            axes.plot(times, truth, color=colour, linestyle=TRUTH_DASHES, linewidth=1.2)
        observed = report.observed[i][:, outcome]
        axes.plot(times[1:], observed, color=colour, marker="o", markersize=8, markerfacecolor="none", linestyle="none")
    axes.grid(visible=True, axis="y", color="0.92")
    axes.spines[["top", "right"]].set_visible(False)


def _joined(start: float, values_H: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a curve that begins at the last known outcome."""
    return np.concatenate([[start], values_H])


def _label(
    column: NDArray[np.object_],
    report: WhatIfReport,
    model: ModelAnswer,
    strips: list[TreatmentStrip],
    *,
    first: bool,
) -> None:
    history = report.history
    members = f"{model.members} members" if model.members > 1 else "1 member, no interval"
    trained = ", trained on" if model.trained_on_subject else ""
    title = f"{model.label} ({members}): subject {history.name} ({history.part}{trained}), origin {history.origin}"
    lines = textwrap.wrap(label_text(title, 3 * TITLE_CHARACTERS), TITLE_CHARACTERS, break_on_hyphens=False)
    column[0].set_title("\n".join(lines), fontsize=10, loc="left")
    unit = report.schema.step
    column[-1].set_xlabel("step" if unit == "step" else f"step [{label_text(unit)}]")
    column[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    for outcome, axes in zip(report.schema.outcomes, column, strict=False):
        text = f"{outcome.name} [{outcome.unit}]" if outcome.unit else outcome.name
        axes.set_ylabel(label_text(text) if first else "")
    if not first:
        for _, axes in zip(strips, column[len(report.schema.outcomes) :], strict=True):
            axes.tick_params(labelleft=False)


def _legend(report: WhatIfReport) -> list[Line2D | Patch]:
    handles: list[Line2D | Patch] = [Line2D([], [], color=HISTORY_COLOUR, marker=".", label="observed")]
    if not all(np.isnan(observed).all() for observed in report.observed):
        handles.append(
            Line2D([], [], color=HISTORY_COLOUR, marker="o", markerfacecolor="none", linestyle="none",
                   label="observed, same plan")
        )  # fmt: skip
    for i, plan in enumerate(report.plans):
        colour, marker = plan_style(i)
        handles.append(
            Line2D([], [], color=colour, marker=marker, markersize=4, label=label_text(plan.name, LONGEST_NAME))
        )
    if report.truth is not None:
        handles.append(Line2D([], [], color="0.4", linestyle=TRUTH_DASHES, linewidth=1.2, label="simulator's truth"))
    if any(model.members > 1 for model in report.models):
        text = f"{100 * report.level:g} % ensemble spread"
        handles.append(Patch(color="0.4", alpha=2 * BAND_ALPHA, linewidth=0, label=text))
    return handles
