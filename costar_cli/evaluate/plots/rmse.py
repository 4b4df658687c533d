"""RMSE by horizon: one panel per set-up, with intervals, the naive anchor and the published row."""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray

from costar_cli.evaluate.plots.style import BLACK, COLOURS, GREY, figure, save
from costar_cli.evaluate.report import EvaluationReport, PerStep, ReportRow

__all__ = ["plot_rmse"]

_NAIVE: Any = {"lw": 1.3, "ls": (0, (4, 2))}
_ENSEMBLE: Any = {"lw": 1.2, "ls": (0, (1, 1.2))}
_PUBLISHED: Any = {"lw": 0.8, "ls": (0, (1, 2.5)), "marker": "D", "mfc": "white", "ms": 4}


def plot_rmse(report: EvaluationReport, path: Path) -> Path:
    """Draw the RMSE of every row by horizon, with its interval and its ensemble mean's own RMSE."""
    panels = _panels(report.rows)
    labels = list(dict.fromkeys(row.label for row in report.rows if row.basis == "ours"))
    colours = {label: COLOURS[i % len(COLOURS)] for i, label in enumerate(labels)}
    with figure(2.6 + 2.9 * len(panels), 3.5) as drawn:
        axes = drawn.subplots(1, len(panels), squeeze=False)[0]
        for ax, (title, rows) in zip(axes, panels.items(), strict=True):
            for row in rows:
                _draw(ax, row, colours.get(row.label, GREY))
            ax.set_title(title, loc="left")
            ax.set_xticks(range(1, report.horizon + 1))
            ax.set_xlabel(f"Horizon τ ({report.step}s)")
            ax.set_ylim(bottom=0)
        axes[0].set_ylabel(f"RMSE ({_typeset(report.unit.label)})" if report.unit.label else "RMSE")
        drawn.legend(handles=_legend(report, colours), loc="outside right center", labelspacing=0.9)
        return save(drawn, path)


def _legend(report: EvaluationReport, colours: Mapping[str, str]) -> list[Line2D | Patch]:
    """Return one entry per model, then what the line styles mean."""
    handles: list[Line2D | Patch] = [
        Line2D([], [], color=colour, marker="o", label=label) for label, colour in colours.items()
    ]
    others = {row.label: row.basis for row in report.rows if row.basis == "naive"}
    handles += [Line2D([], [], color=GREY, label=textwrap.fill(label, 26), **_NAIVE) for label in others]
    published = {row.label: row.basis for row in report.rows if row.published}
    handles += [
        Line2D([], [], color=BLACK, label=textwrap.fill(f"{label}, {basis}", 22), **_PUBLISHED)
        for label, basis in published.items()
    ]
    if any(len(row.members) > 1 for row in report.rows):
        handles.append(Line2D([], [], color=GREY, label="dotted: RMSE of the\nensemble's mean prediction", **_ENSEMBLE))
    if any(row.lower for row in report.rows):
        handles.append(
            Patch(color=GREY, alpha=0.25, lw=0, label=f"shaded: {100 * report.level:g} % interval\nover subjects")
        )
    return handles


def _panels(rows: Sequence[ReportRow]) -> dict[str, list[ReportRow]]:
    """Return the rows by panel title; published rows join every panel of their set-up."""
    panels: dict[str, list[ReportRow]] = {}
    for row in rows:
        if row.truth:
            test = (row.test or "").split("/")[0]
            title = f"{row.setup.capitalize()}\ntested on {test}, {row.truth}"
            panels.setdefault(title, []).append(row)
    for row in rows:
        for title, panel in panels.items():
            if row.truth is None and panel[0].setup == row.setup:
                panels[title] = [*panel, row]
    return panels


def _draw(ax: Axes, row: ReportRow, colour: str) -> None:
    taus = np.arange(1, len(row.mean.steps) + 1)
    mean = _array(row.mean)
    if row.basis == "naive":
        ax.plot(taus, mean, color=GREY, **_NAIVE)
    elif row.basis == "ours":
        ax.plot(taus, mean, color=colour, marker="o")
        if row.ensemble and len(row.members) > 1:
            ax.plot(taus, _array(row.ensemble), color=colour, **_ENSEMBLE)
    else:
        ax.plot(taus, mean, color=BLACK, **_PUBLISHED)
    if row.lower and row.upper:
        ax.fill_between(taus, _array(row.lower), _array(row.upper), color=colour, alpha=0.16, lw=0)


def _array(values: PerStep) -> NDArray[np.float64]:
    return np.array([np.nan if value is None else value for value in values.steps])


def _typeset(unit: str) -> str:
    return unit.replace("V_max", "$V_{\\mathrm{max}}$")
