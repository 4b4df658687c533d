"""How well calibrated bands keep their levels: nominal against empirical coverage, and PIT histograms."""

from pathlib import Path
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from costar_cli.errors import DataError
from costar_cli.evaluation.calibrated import Calibrated
from costar_cli.evaluation.metrics import AVERAGED_STEPS
from costar_cli.evaluation.report import EvaluationReport
from costar_cli.report.figures.rmse import model_styles
from costar_cli.report.figures.style import BLACK, GREY, LIGHT_GREY, caption, figure, label_lines, save

BARS: Final = 20  # of a histogram: two bins of the PIT each
NOT_KNOWN: Final = "Not known: some band is infinite, for too few calibration subjects."
Panels = dict[str, dict[str, Calibrated]]  # by title, then by the label of the model


def plot_reliability(report: EvaluationReport, path: Path) -> Path:
    """Draw the coverage of every model's bands against their nominal level, a panel per set-up and kind of question.

    Raises:
        DataError: no model carries a calibration.
    """
    panels, styles = _panels(report), model_styles(report.rows)
    drawn_labels = dict.fromkeys(label for models in panels.values() for label in models)
    handles = [Line2D([], [], label=label_lines(label, 26), **styles[label]) for label in drawn_labels]
    handles.append(Line2D([], [], color=BLACK, lw=0.8, ls=(0, (7, 3)), label="as stated"))
    columns = len(panels) if len(panels) < 4 else 2
    rows = -(-len(panels) // columns)
    with figure(2.4 + 2.7 * columns, 0.7 + 2.8 * rows) as drawn:
        axes = drawn.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).ravel()
        for ax, (title, models) in zip(axes, panels.items(), strict=False):
            ax.plot([0, 1], [0, 1], color=BLACK, lw=0.8, ls=(0, (7, 3)), zorder=1)
            for label, found in models.items():
                known = [
                    (float(level), share) for level, share in found.details.reliability.items() if share is not None
                ]
                ax.plot([level for level, _ in known], [share for _, share in known], **{**styles[label], "ms": 3})
            ax.set(title=title, xlim=(0, 1), ylim=(0, 1), aspect="equal")
        for ax in axes[len(panels) :]:
            ax.set_visible(False)
        for ax in axes[len(panels) - columns : len(panels)]:
            ax.set_xlabel("Nominal level of the band")
            ax.tick_params(labelbottom=True)
        for ax in axes[::columns]:
            ax.set_ylabel("Share of answers covered")
        drawn.legend(handles=handles, loc="outside right center", labelspacing=0.9)
        caption(drawn, _about_answers(report), "Below the dashed line bands are too narrow, above it too wide.")
        return save(drawn, path)


def plot_pit(report: EvaluationReport, path: Path) -> Path:
    """Draw the histogram of the probability integral transform, a row per model, a column per kind of question.

    Raises:
        DataError: no model carries a calibration.
    """
    panels = _panels(report)
    labels = list(dict.fromkeys(label for models in panels.values() for label in models))
    styles = model_styles(report.rows)
    with figure(1.2 + 2.1 * len(panels), 1.4 + 1.25 * len(labels)) as drawn:
        grid = drawn.subplots(len(labels), len(panels), squeeze=False, sharex=True, sharey=True)
        for ax, title in zip(grid[0], panels, strict=True):
            ax.set_title(title.replace(", ", ",\n"))
        for row, label in zip(grid, labels, strict=True):
            for ax, models in zip(row, panels.values(), strict=True):
                if label in models:
                    _histogram(ax, models[label], styles[label]["color"])
                else:
                    ax.set_axis_off()
            row[0].set_ylabel(label_lines(label, 18))
        for column, models in zip(grid.T, panels.values(), strict=True):
            lowest = column[max(labels.index(label) for label in models)]
            lowest.set_xlabel("Predicted probability")
            lowest.tick_params(labelbottom=True)
        caption(
            drawn,
            "Height: share of answers in a bin over that of bands that keep their levels (line).",
            _about_answers(report),
            "Heaps at both ends: bands are too narrow; in the middle: too wide; at one end: predictions are off.",
            *[NOT_KNOWN] * any(not found.details.pit for models in panels.values() for found in models.values()),
        )
        return save(drawn, path)


def _about_answers(report: EvaluationReport) -> str:
    steps = min(report.horizon, AVERAGED_STEPS)
    over = f"steps 1 to {steps}" if steps > 1 else "step 1"
    return f"Average over subjects and {over}, without answers where the outcome had died out."


def _panels(report: EvaluationReport) -> Panels:
    """Return what is drawn by title of the panel, then by model.

    Raises:
        DataError: no model carries a calibration.
    """
    panels: Panels = {}
    for row in report.rows:
        for kind, found in row.band_tests:
            test = (row.test or "").split("/")[0]
            panels.setdefault(f"{row.setup.capitalize()}\ntested on {test}, {kind}", {})[row.label] = found
    if not panels:
        raise DataError("no model carries a calibration")
    return panels


def _histogram(ax: Axes, found: Calibrated, colour: str) -> None:
    if not found.details.pit:
        ax.text(0.5, 0.5, "not known", transform=ax.transAxes, ha="center", va="center", color=GREY)
    shares = np.array(found.details.pit).reshape(-1, 2).sum(axis=1) if found.details.pit else np.zeros(BARS)
    edges = np.linspace(0, 1, BARS + 1)
    ax.bar(edges[:-1], BARS * shares, width=1 / BARS, align="edge", color=colour, alpha=0.55, ec="white", lw=0.4)
    ax.axhline(1, color=GREY if shares.any() else LIGHT_GREY, lw=0.8)
    ax.set(xlim=(0, 1), xticks=[0, 0.5, 1], xticklabels=["0", "0.5", "1"])
