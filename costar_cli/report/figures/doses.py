"""Figures of an evaluation of data with doses: the predictive check and residuals, by time since the last dose."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from costar_cli.errors import DataError
from costar_cli.evaluation import EvaluationReport
from costar_cli.evaluation.doses import BAND, DoseCheck
from costar_cli.report.figures.evaluation import model_styles
from costar_cli.report.figures.style import BLACK, GREY, caption, figure, label_lines, label_text, save, shade

MOST_ROWS: Final = 6  # of panels: a model and an outcome each
MOST_COLUMNS: Final = 4  # of models
LINES: Final = ((0, (4, 2)), "-", (0, (4, 2)))  # of the 10, 50 and 90 % quantiles


def plot_predictive_check(report: EvaluationReport, path: Path) -> Path:
    """Draw observed quantiles and those that models expect: a row per set-up and outcome, a column per model.

    Raises:
        DataError: no model with bands has enough answers after a dose.
    """
    grid = _by_row(report.doses)
    styles, columns = model_styles(report.rows), max(map(len, grid))
    level = report.doses[0].level
    with figure(1.2 + 3.1 * columns, 1.3 + 2.6 * len(grid)) as drawn:
        axes_RC = drawn.subplots(len(grid), columns, squeeze=False, sharey="row")
        for checks, axes in zip(grid, axes_RC, strict=True):
            for check, ax in zip(checks, axes, strict=False):
                at, colour = np.array([found.at for found in check.bins]), styles[check.label]["color"]
                for i, style in enumerate(LINES):
                    own = [found.quantiles[i] for found in check.bins]
                    limits = np.array([one.lower for one in own]), np.array([one.upper for one in own])
                    shade(ax, at, limits, colour, 0.35 if i == 1 else 0.2)
                    observed = [one.observed for one in own]
                    ax.plot(at, observed, color=BLACK, ls=style, lw=1.2, marker="o", ms=3.5, zorder=3)
                inside, every = check.inside
                words = f"{inside} of {every} inside"
                ax.set_title(_title(check))
                ax.set_xlabel(label_lines(check.axis_label, 34))
                ax.text(0.98, 0.98, words, transform=ax.transAxes, ha="right", va="top", fontsize=8)
            for ax in axes[len(checks) :]:
                ax.set_axis_off()
            axes[0].set_ylabel(_outcome(checks[0]))
        handles = [
            Line2D(
                [], [], color=BLACK, marker="o", ms=3.5, lw=1.2, label="observed: median, and\n10 and 90 % (dashed)"
            ),
            Patch(color=GREY, alpha=0.4, lw=0, label=f"what the model expects:\n{100 * level:g} % of its draws"),
        ]
        drawn.legend(handles=handles, loc="outside right center", labelspacing=0.9)
        caption(drawn, "A model that describes the data has the lines inside their bands.")
        return save(drawn, path)


def plot_residuals(report: EvaluationReport, path: Path) -> Path:
    """Draw standardised residuals over the prediction, the time since the last dose, and the dose.

    Raises:
        DataError: as of `plot_predictive_check`.
    """
    checks = [check for row in _by_row(report.doses) for check in row][:MOST_ROWS]
    styles = model_styles(report.rows)
    with figure(10.5, 1.2 + 2.3 * len(checks)) as drawn:
        for check, axes in zip(checks, drawn.subplots(len(checks), 3, squeeze=False, sharey="row"), strict=True):
            drug = label_text(check.drug, 30)
            labels = (f"predicted {_outcome(check)}", f"{check.time} since the last dose", f"last dose, {drug}")
            points = np.array(check.points, dtype=np.float64).reshape(-1, 4)
            for i, (beside, label, ax) in enumerate(
                zip(("prediction", "since_dose", "dose"), labels, axes, strict=True)
            ):
                colour = styles[check.label]["color"]
                ax.axhspan(-1, 1, color=GREY, alpha=0.12, lw=0)
                ax.axhline(0, color=GREY, lw=0.8)
                ax.plot(points[:, i], points[:, 3], ls="", marker="o", ms=2.2, mew=0, alpha=0.45, color=colour)
                own = [one for one in check.residuals if one.beside == beside]
                for quantile, style in enumerate(LINES):
                    values = [one.quantiles[quantile] for one in own]
                    ax.plot([one.at for one in own], values, color=BLACK, ls=style, lw=1.2, marker="o", ms=3)
                ax.set_xlabel(label_lines(label, 34))
            axes[0].set_ylabel("residual")
            axes[0].set_title(_title(check))
        caption(
            drawn,
            f"Residual: observed minus predicted, over the half width of the {100 * BAND:g} % band on that side; "
            "shaded: inside the band. Lines: median, 10 and 90 % of residuals. A trend is what the model misses.",
        )
        return save(drawn, path)


def _by_row(checks: Sequence[DoseCheck]) -> list[list[DoseCheck]]:
    """Return the checks by set-up and outcome, as many models and rows as a figure has room for."""
    rows: dict[tuple[str, str, str], list[DoseCheck]] = {}
    for check in checks:
        rows.setdefault((check.setup, check.test, check.outcome), []).append(check)
    if not rows:
        raise DataError("no model with bands has enough answers after a dose")
    return [row[:MOST_COLUMNS] for row in rows.values()][:MOST_ROWS]


def _outcome(check: DoseCheck) -> str:
    return label_text(check.outcome, 30) + (f" ({label_text(check.unit, 20)})" if check.unit else "")


def _title(check: DoseCheck) -> str:
    return f"{label_lines(check.label, 30)}\n{check.setup}, {check.test}"
