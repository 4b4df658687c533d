"""Figures of an evaluation: RMSE by horizon, how well bands keep their levels, and the natural course."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from costar_cli.data.schema import labelled, step_axis, steps_axis
from costar_cli.errors import DataError
from costar_cli.evaluation import EvaluationReport
from costar_cli.evaluation.calibrated import Calibrated
from costar_cli.evaluation.metrics import AVERAGED_STEPS
from costar_cli.evaluation.natural import Axis, NaturalCourse
from costar_cli.evaluation.published import paper_truth
from costar_cli.evaluation.rows import ABOUT_BUDGET, BUDGET_SIGN, ReportRow, with_budget_sign
from costar_cli.report.figures.style import (
    BLACK,
    COLOURS,
    CUT,
    GREY,
    LIGHT_GREY,
    caption,
    figure,
    frame_limits,
    label_lines,
    label_text,
    mark_cut,
    save,
    shade,
    typeset,
)

Style = dict[str, Any]

_MARKERS = ("o", "s", "^", "D")
_MOST_SHADED = 4
_NAIVE: Any = {"lw": 1.3, "ls": (0, (6, 1.5, 1, 1.5))}
_ENSEMBLE: Any = {"lw": 1.2, "ls": (0, (1, 1.2))}
_LIMIT: Any = {"color": BLACK, "lw": 0.9, "ls": "-", "zorder": 1}  # without markers, unlike methods
_PUBLISHED: Any = {"lw": 0.8, "ls": (0, (1, 2.5)), "marker": "D", "mfc": "white", "ms": 4}


def plot_rmse(report: EvaluationReport, path: Path) -> Path:
    """Draw errors by horizon, and save the figure."""
    return save(draw_rmse(report), path)


def draw_rmse(report: EvaluationReport) -> Figure:
    """Draw the RMSE of every row by horizon, with its interval and its ensemble mean's own RMSE.

    A published row has the colour of the model of that name, and joins the panel of its set-up and of the truth that it
    rests on. An interval is cut where it would flatten the lines.
    """
    panels: dict[str, list[ReportRow]] = {}  # by title
    for row in report.rows:
        if row.truth:
            title = f"{row.setup.capitalize()}\ntested on {(row.test or '').split('/')[0]}, {row.truth}"
            panels.setdefault(title, []).append(row)
    truth = paper_truth(report.dataset)
    for row in (row for row in report.rows if row.published):
        for panel in panels.values():
            if (panel[0].setup, panel[0].truth) == (row.setup, truth):
                panel.append(row)
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
                _draw_row(ax, row, styles.get(row.label, {"color": BLACK}), crowded=crowded)
            ax.set_title(title)
            ax.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
            ax.set_xlabel(f"Horizon τ ({label_lines(steps_axis(report.step), 24, most=1)})")
        unit = f" ({typeset(report.unit.label)})" if report.unit.label else ""
        axes[0].set_ylabel(f"RMSE{unit}, lower is better")
        drawn.legend(handles=handles, loc="outside right center", labelspacing=0.9)
        if footnotes:
            caption(drawn, *footnotes)
    return drawn


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
    handles += [
        Line2D([], [], color=GREY, label=label_lines(f"dash-dotted: {label}", 26), **_NAIVE) for label in sorted(naive)
    ]
    bounds = dict.fromkeys(row.label for row in rows if row.basis == "limit")
    handles += [Line2D([], [], label=label_lines(f"thin black: {label}", 26), **_LIMIT) for label in bounds]
    published = dict.fromkeys(row.basis for row in rows if row.published)
    handles += [Line2D([], [], color=GREY, label=basis.replace(", ", ",\n"), **_PUBLISHED) for basis in published]
    if any(len(row.members) > 1 for row in rows):
        handles.append(Line2D([], [], color=GREY, label="dotted: RMSE of the\nensemble's mean prediction", **_ENSEMBLE))
    if any(row.lower for row in rows):
        handles.append(
            Patch(color=GREY, alpha=0.25, lw=0, label=f"shaded: {100 * report.level:g} % CI,\nresampled by subject")
        )
    return handles


def _draw_row(ax: Axes, row: ReportRow, style: Style, *, crowded: bool) -> None:
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


PIT_BARS: Final = 20  # of a histogram: two bins of the PIT each
_NOMINAL: Any = {"color": BLACK, "lw": 0.8, "ls": (0, (7, 3))}  # coverage that is the nominal level
NOT_KNOWN: Final = "Unknown: some band is infinite, because there are too few calibration subjects."
Panels = dict[str, dict[str, Calibrated]]  # by title, then by the label of the model


def plot_reliability(report: EvaluationReport, path: Path) -> Path:
    """Draw the coverage of every model's bands against their nominal level, a panel per set-up and kind of question.

    Raises:
        DataError: no model carries a calibration.
    """
    panels, styles = _band_panels(report), model_styles(report.rows)
    drawn_labels = dict.fromkeys(label for models in panels.values() for label in models)
    handles = [Line2D([], [], label=label_lines(label, 26), **styles[label]) for label in drawn_labels]
    handles.append(Line2D([], [], label="nominal", **_NOMINAL))
    columns = len(panels) if len(panels) < 4 else 2
    rows = -(-len(panels) // columns)
    with figure(2.4 + 2.7 * columns, 0.7 + 2.8 * rows) as drawn:
        axes = drawn.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).ravel()
        for ax, (title, models) in zip(axes, panels.items(), strict=False):
            ax.plot([0, 1], [0, 1], zorder=1, **_NOMINAL)
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
    panels = _band_panels(report)
    labels = list(dict.fromkeys(label for models in panels.values() for label in models))
    styles = model_styles(report.rows)
    with figure(1.2 + 2.1 * len(panels), 1.4 + 1.25 * len(labels)) as drawn:
        grid = drawn.subplots(len(labels), len(panels), squeeze=False, sharex=True, sharey=True)
        for ax, title in zip(grid[0], panels, strict=True):
            ax.set_title(title.replace(", ", ",\n"))
        for row, label in zip(grid, labels, strict=True):
            for ax, models in zip(row, panels.values(), strict=True):
                if label not in models:
                    ax.set_axis_off()
                    continue
                pit = models[label].details.pit
                if not pit:
                    ax.text(0.5, 0.5, "unknown", transform=ax.transAxes, ha="center", va="center", color=GREY)
                shares = np.array(pit).reshape(-1, 2).sum(axis=1) if pit else np.zeros(PIT_BARS)
                edges, colour = np.linspace(0, 1, PIT_BARS + 1)[:-1], styles[label]["color"]
                ax.bar(edges, PIT_BARS * shares, width=1 / PIT_BARS, align="edge", color=colour, alpha=0.55, ec="white",
                       lw=0.4)  # fmt: skip
                ax.axhline(1, color=GREY if shares.any() else LIGHT_GREY, lw=0.8)
                ax.set(xlim=(0, 1), xticks=[0, 0.5, 1], xticklabels=["0", "0.5", "1"])
            row[0].set_ylabel(label_lines(label, 18))
        for column, models in zip(grid.T, panels.values(), strict=True):
            lowest = column[max(labels.index(label) for label in models)]
            lowest.set_xlabel("Predicted quantile")
            lowest.tick_params(labelbottom=True)
        caption(
            drawn,
            "Height: share of answers in a bin, relative to that of well-calibrated bands (line).",
            _about_answers(report),
            "Peaks at both ends: bands are too narrow; in the middle: too wide; at one end: predictions are biased.",
            *[NOT_KNOWN] * any(not found.details.pit for models in panels.values() for found in models.values()),
        )
        return save(drawn, path)


def _about_answers(report: EvaluationReport) -> str:
    steps = min(report.horizon, AVERAGED_STEPS)
    over = f"steps 1 to {steps}" if steps > 1 else "step 1"
    return f"Average over subjects and {over}, where the outcome was not already zero at the forecast start."


def _band_panels(report: EvaluationReport) -> Panels:
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


SHADE: Final = 0.12
MOST_MODELS: Final = 12
MOST_MARKS: Final = 12  # of a line
TOO_FEW: Final = "fewer than 10 answers at every step"  # see `FEWEST_ANSWERS` of `costar_cli.evaluation.natural`


def plot_natural(report: EvaluationReport, path: Path) -> Path:
    """Draw the natural course of each set-up and outcome: by step since the origin, and by step of the series.

    Raises:
        StorageError: the file cannot be written.
    """
    setups = dict.fromkeys((course.setup, course.test) for course in report.natural)
    outcomes = dict.fromkeys((step.outcome, step.unit) for course in report.natural for step in course.steps)
    rows = [(setup, test, *outcome) for setup, test in setups for outcome in outcomes]
    labels = list(dict.fromkeys(course.label for course in report.natural))[:MOST_MODELS]
    styles = model_styles(report.rows)
    with figure(11.0, 1.0 + 2.9 * len(rows)) as drawn:
        for (setup, test, outcome, unit), axes in zip(rows, drawn.subplots(len(rows), 2, squeeze=False), strict=True):
            mine = [course for course in report.natural if course.setup == setup and course.label in labels]
            for axis, ax in zip(("origin", "series"), axes, strict=True):
                _draw_course(ax, mine, axis, outcome, styles)  # type: ignore[arg-type]
            axes[0].set_title(f"{setup}, {test}")
            shown = f" ({label_text(unit, 20)})" if unit else ""
            axes[0].set_ylabel(f"mean {label_text(labelled(outcome, ''), 30)}{shown}")
            axes[0].set_xlabel(f"{steps_axis(report.step)} after the forecast start")
            axes[1].set_xlabel(step_axis(report.step))
        handles = [Line2D([], [], color=BLACK, marker="o", label="observed")]
        handles += [Line2D([], [], label=label_lines(name, 26), **styles[name]) for name in labels]
        drawn.legend(handles=handles, loc="outside right center")
        bands = any(step.observed_lower is not None for course in report.natural for step in course.steps)
        about = f"; shaded: {100 * report.level:g} % CI of the observed mean, resampled by subject" if bands else ""
        caption(drawn, f"Mean predictions under the observed treatments{about}")
        return save(drawn, path)


def _draw_course(
    ax: Axes, courses: Sequence[NaturalCourse], axis: Axis, outcome: str, styles: Mapping[str, Style]
) -> None:
    for course in courses:
        steps = [step for step in course.steps if (step.axis, step.outcome) == (axis, outcome)]
        x = np.array([step.step for step in steps])
        if course is courses[0]:
            low, high = (
                np.array([getattr(step, f"observed_{side}") for step in steps], dtype=np.float64)
                for side in ("lower", "upper")
            )
            ax.fill_between(x, low, high, color=BLACK, alpha=SHADE, lw=0)
            ax.plot(x, [step.observed for step in steps], color=BLACK, marker="o", ms=3.5, lw=1.2, zorder=3)
        marks = {"lw": 1.4, "ms": 3.5, "markevery": max(1, len(x) // MOST_MARKS)}
        ax.plot(x, [step.predicted for step in steps], **{**styles[course.label], **marks})
    if not any(len(line.get_xdata()) for line in ax.lines):  # type: ignore[arg-type]
        ax.set(xticks=[], yticks=[])
        ax.text(0.5, 0.5, TOO_FEW, transform=ax.transAxes, ha="center", va="center", color=GREY)
