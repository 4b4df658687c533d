"""RMSE by horizon: one panel per set-up, with intervals, the naive anchor, the best possible and the published row."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from costar_cli.data.schema import steps_axis
from costar_cli.evaluation.published import paper_truth
from costar_cli.evaluation.report import EvaluationReport
from costar_cli.evaluation.rows import ABOUT_BUDGET, BUDGET_SIGN, ReportRow, with_budget_sign
from costar_cli.report.figures.style import (
    BLACK,
    COLOURS,
    CUT,
    GREY,
    caption,
    figure,
    frame_limits,
    label_lines,
    mark_cut,
    save,
    shade,
    typeset,
)

Style = dict[str, Any]

_MARKERS = ("o", "s", "^", "D")
_MOST_SHADED = 4
_NAIVE: Any = {"lw": 1.3, "ls": (0, (4, 2))}
_ENSEMBLE: Any = {"lw": 1.2, "ls": (0, (1, 1.2))}
_LIMIT: Any = {"color": BLACK, "lw": 0.8, "ls": (0, (7, 3)), "zorder": 1}
_PUBLISHED: Any = {"lw": 0.8, "ls": (0, (1, 2.5)), "marker": "D", "mfc": "white", "ms": 4}


def plot_rmse(report: EvaluationReport, path: Path) -> Path:
    """Draw the RMSE of every row by horizon, with its interval and its ensemble mean's own RMSE.

    A published row has the colour of the model of that name. An interval is cut where it would flatten the lines.
    """
    panels = _panels(report)
    styles = model_styles(report.rows)
    handles = _legend(report, [row for rows in panels.values() for row in rows], styles)
    lines = sum(str(handle.get_label()).count("\n") + 1 for handle in handles)
    tops, cut = [], False
    for rows in panels.values():  # intervals take at most as much of an axis as the lines
        means = [_array(errors.steps) for row in rows for errors in (row.mean, row.ensemble) if errors]
        uppers = [_array(row.upper.steps) for row in rows if row.upper and row.basis != "limit"]
        tops.append(frame_limits([np.zeros(1), *means], uppers, room_of_flat=1.0)[1])
        cut |= any((upper > tops[-1]).any() for upper in uppers)
    footnotes = [*[f"triangles: an interval that {CUT}"] * cut, *map(str, report.few_units)]
    footnotes += [f"{BUDGET_SIGN} {ABOUT_BUDGET}"] * any(row.stopped_by_budget for row in report.rows)
    height_in = max(3.5, 0.3 + 0.16 * lines + 0.12 * len(handles))
    with figure(2.6 + 2.9 * len(panels), height_in + 0.3 * len(footnotes)) as drawn:
        axes = drawn.subplots(1, len(panels), squeeze=False)[0]
        for ax, top, (title, rows) in zip(axes, tops, panels.items(), strict=True):
            ax.set_ylim(0, top)
            crowded = sum(row.lower is not None for row in rows) > _MOST_SHADED
            for row in rows:
                _draw(ax, row, styles.get(row.label, {"color": BLACK}), crowded=crowded)
            ax.set_title(title)
            ax.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
            ax.set_xlabel(f"Horizon τ ({label_lines(steps_axis(report.step), 24, most=1)})")
        unit = f" ({typeset(report.unit.label)})" if report.unit.label else ""
        axes[0].set_ylabel(f"RMSE{unit}, lower is better")
        drawn.legend(handles=handles, loc="outside right center", labelspacing=0.9)
        if footnotes:
            caption(drawn, *footnotes)
        return save(drawn, path)


def _array(steps: Sequence[float | None]) -> NDArray[np.float64]:
    return np.array(steps, dtype=np.float64)


def model_styles(rows: Sequence[ReportRow]) -> dict[str, Style]:
    """Return colour and marker by model."""
    labels = list(dict.fromkeys(row.label for row in rows if row.basis == "ours"))
    return {
        label: {"color": COLOURS[i % len(COLOURS)], "marker": _MARKERS[i // len(COLOURS) % len(_MARKERS)]}
        for i, label in enumerate(labels)
    }


def _legend(report: EvaluationReport, rows: Sequence[ReportRow], styles: Mapping[str, Style]) -> list[Line2D | Patch]:
    """Return one entry per model, then what the line styles of the rows that are drawn mean."""
    stopped = {row.label for row in rows if row.stopped_by_budget}
    handles: list[Line2D | Patch] = [
        Line2D([], [], label=label_lines(with_budget_sign(label, label in stopped), 26), **style)
        for label, style in styles.items()
    ]
    naive = {row.label for row in rows if row.basis == "naive"}
    handles += [Line2D([], [], color=GREY, label=label_lines(label, 26), **_NAIVE) for label in sorted(naive)]
    bounds = dict.fromkeys(row.label for row in rows if row.basis == "limit")
    handles += [Line2D([], [], label=label_lines(label, 26), **_LIMIT) for label in bounds]
    published = dict.fromkeys(row.basis for row in rows if row.published)
    handles += [Line2D([], [], color=GREY, label=basis.replace(", ", ",\n"), **_PUBLISHED) for basis in published]
    if any(len(row.members) > 1 for row in rows):
        handles.append(Line2D([], [], color=GREY, label="dotted: RMSE of the\nensemble's mean prediction", **_ENSEMBLE))
    if any(row.lower for row in rows):
        handles.append(
            Patch(color=GREY, alpha=0.25, lw=0, label=f"shaded: {100 * report.level:g} % interval\nover subjects")
        )
    return handles


def _panels(report: EvaluationReport) -> dict[str, list[ReportRow]]:
    """Return the rows by panel title; published rows join the panel of their set-up and of the truth they rest on."""
    panels: dict[str, list[ReportRow]] = {}
    for row in report.rows:
        if row.truth:
            test = (row.test or "").split("/")[0]
            title = f"{row.setup.capitalize()}\ntested on {test}, {row.truth}"
            panels.setdefault(title, []).append(row)
    truth = paper_truth(report.dataset)
    for row in (row for row in report.rows if row.published):
        for title, panel in panels.items():
            if (panel[0].setup, panel[0].truth) == (row.setup, truth):
                panels[title] = [*panel, row]
    return panels


def _draw(ax: Axes, row: ReportRow, style: Style, *, crowded: bool) -> None:
    taus = np.arange(1, len(row.mean.steps) + 1)
    if row.basis == "limit":  # without an interval: others are compared with the line
        ax.plot(taus, _array(row.mean.steps), **_LIMIT)
        return
    mean, colour = _array(row.mean.steps), GREY if row.basis == "naive" else style["color"]
    if row.basis == "naive":
        ax.plot(taus, mean, color=colour, **_NAIVE)
    elif row.basis == "ours":
        ax.plot(taus, mean, **style)
        if row.ensemble and len(row.members) > 1:
            ax.plot(taus, _array(row.ensemble.steps), color=colour, **_ENSEMBLE)
    else:
        ax.plot(taus, mean, color=colour, **_PUBLISHED)
    if row.lower and row.upper:
        lower, upper = _array(row.lower.steps), _array(row.upper.steps)
        shade(ax, taus, (lower, upper), colour, 0.05 if crowded else 0.16)
        mark_cut(ax, taus, upper, colour)
