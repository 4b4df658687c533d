"""Example subjects: several plans from one origin, predicted and, where a simulator knows it, true, as curves."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from costar_cli.data import Panel, PanelSchema, Queries, Values
from costar_cli.data.schema import labelled, step_axis
from costar_cli.errors import DataError
from costar_cli.inference import calibration_of, estimate
from costar_cli.methods.base import FittedModel
from costar_cli.report.figures.calendars import calendar_key, calendar_rows, draw_calendar
from costar_cli.report.figures.style import (
    BLACK,
    BLUE,
    CUT,
    GREY,
    figure,
    frame_limits,
    label_lines,
    legend_below,
    mark_cut,
    save,
    shade,
    tint,
)

HISTORY_STEPS = 10  # that a figure shows before the origin
LEVEL = 0.9  # of bands
SHADE = 0.2  # of the colour in a band
_FEWEST_STEPS = 4  # the origin of the paper's example figure


@dataclass(frozen=True)
class PlanForecast:
    """One plan `values [H,names]`: estimates, truth and the limits of its band `[H]`, in the units of the data."""

    values: Values
    estimate_H: NDArray[np.floating]
    truth_H: NDArray[np.floating] | None = None
    limits: tuple[NDArray[np.floating], NDArray[np.floating]] | None = None


@dataclass(frozen=True)
class Example:
    """One subject at one origin: its observed outcomes up to the origin, and forecasts under several plans.

    `level` is that of the bands; None where the model has none.
    """

    subject: str
    schema: PanelSchema
    origin: int
    history: NDArray[np.floating]
    plans: tuple[PlanForecast, ...]
    level: float | None = None


def choose_examples(
    model: FittedModel,
    panel: Panel,
    queries: Queries,
    *,
    subjects: int = 3,
    plans: int = 4,
    seed: int = 0,
) -> list[Example]:
    """Draw example subjects at random and forecast the first outcome under several plans of each, from one origin.

    Origins where one can see something come first (a tumour that is gone shows nothing): those with some history, in
    the tenth where the answers differ most between plans, and of these in the fifth where they differ most against the
    history shown. How well they are predicted plays no part.

    Raises:
        DataError: no subject has two plans from one origin.
    """
    key = queries.subject.astype(np.int64) * 2**16 + queries.origin
    order = np.argsort(key, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(key[order])) + 1)  # of queries that share subject and origin
    most = max((len(rows) for rows in groups), default=0)
    groups = [rows for rows in groups if len(rows) >= max(2, min(plans, most))]
    if not groups:
        raise DataError("no subject has two plans from one origin to compare")
    spread_G, shown_G = np.zeros((2, len(groups)))  # of the plans' last answers, and of the history in a figure
    for g, rows in enumerate(groups):
        stop = int(queries.origin[rows[0]]) + 1
        shown_G[g] = np.ptp(panel.outcomes[queries.subject[rows[0]], max(0, stop - HISTORY_STEPS) : stop, 0])
        if queries.outcomes is not None:
            spread_G[g] = np.ptp(queries.outcomes[rows, -1, 0])
    long_enough_G = np.array([queries.origin[rows[0]] >= _FEWEST_STEPS for rows in groups])
    telling_G = long_enough_G & _largest(spread_G, long_enough_G, 0.1)
    visible_G = telling_G & _largest(spread_G / (shown_G + 1e-9), telling_G, 0.2)
    random_G = np.random.default_rng(seed).random(len(groups))
    chosen: dict[int, NDArray[np.int64]] = {}
    for g in np.lexsort((random_G, ~long_enough_G, ~telling_G, ~visible_G)):
        chosen.setdefault(int(queries.subject[groups[g][0]]), groups[g])
    examples = []
    for rows in list(chosen.values())[:subjects]:
        spaced = np.linspace(0, len(rows) - 1, min(plans, len(rows))).round().astype(np.int64)
        examples.append(_example(model, panel, queries.take(rows[np.unique(spaced)])))
    return examples


def _largest(values: NDArray[np.float64], among: NDArray[np.bool_], share: float) -> NDArray[np.bool_]:
    """Return which values belong to the largest share of those among some."""
    least = np.quantile(values[among], 1 - share) if among.any() else np.inf
    return values >= least


def _example(model: FittedModel, panel: Panel, queries: Queries) -> Example:
    row, origin = int(queries.subject[0]), int(queries.origin[0])
    alone = panel.take(np.array([row]))
    asked = replace(queries, subject=np.zeros_like(queries.subject), outcomes=None, scored=None)
    estimates, calibration = estimate(model, alone, asked), calibration_of(model)
    limits_Q: list[tuple[NDArray[np.floating], NDArray[np.floating]] | None] = [None] * len(queries)
    if calibration is not None:
        bands = calibration.bands(estimates, (LEVEL,))
        lower_QH, upper_QH = (
            np.where(np.isfinite(y_QH), y_QH, np.nan)
            for y_QH in (bands.lower_LQHY[0, ..., 0], bands.upper_LQHY[0, ..., 0])
        )
        limits_Q = list(zip(lower_QH, upper_QH, strict=True))
    known = any(limits is not None and np.isfinite(limits[0]).any() for limits in limits_Q)
    truth_Q = [None] * len(queries) if queries.outcomes is None else list(queries.outcomes[..., 0])
    values_QHA = [model.schema.treatments.decode(plan) for plan in queries.plan]
    return Example(
        subject=f"subject {alone.names[0]}",
        schema=model.schema,
        origin=origin,
        history=alone.outcomes[0, : origin + 1, 0],
        plans=tuple(map(PlanForecast, values_QHA, estimates.mean_QHY[..., 0], truth_Q, limits_Q)),
        level=LEVEL if known else None,
    )


_SIDE_LETTERS = 20  # along the height of a panel
TITLE_LETTERS = 32  # above a panel
_COURSE_INCH = 1.8


def plot_trajectories(examples: Sequence[Example], path: Path) -> Path:
    """Draw subjects by row and plans by column: history and truth in black, estimates in colour with calibrated bands.

    Below each panel is the calendar of its plan; a dotted vertical line marks the origin, the last step that the model
    sees. A row has the scale of what follows: a history that would flatten it is cut at the frame, and marked there.
    """
    columns, schema = max(len(example.plans) for example in examples), examples[0].schema
    step, cut = label_lines(step_axis(schema.step), 22, most=1), False
    given = calendar_rows(schema.treatments, [plan.values for example in examples for plan in example.plans])
    heights = [height for _ in examples for height in (_COURSE_INCH, 0.2 + 0.15 * max(len(given), 1))]
    with figure(0.9 + 2.35 * columns, 1.0 + 0.3 * len(examples) + sum(heights)) as drawn:
        grid = drawn.subplots(len(heights), columns, squeeze=False, sharey="row", height_ratios=heights)
        for e, example in enumerate(examples):
            courses, calendars, outcome = grid[2 * e], grid[2 * e + 1], example.schema.outcomes[0]
            for ax in (*courses[len(example.plans) :], *calendars[len(example.plans) :]):
                ax.set_axis_off()
            ahead = [example.history[-1:], *(plan.estimate_H for plan in example.plans)]
            ahead += [plan.truth_H for plan in example.plans if plan.truth_H is not None]
            beside = [example.history[-HISTORY_STEPS:]]
            beside += [limit for plan in example.plans for limit in plan.limits or ()]
            courses[0].set_ylim(*frame_limits(ahead, beside, room_of_flat=1.0))
            for ax, below, plan in zip(courses, calendars, example.plans, strict=False):
                cut |= _draw(ax, example, plan)
                draw_calendar(below, schema.treatments, [plan.values], example.origin, [BLUE], given)
                below.set_xlim(ax.get_xlim())
                below.set(yticks=[], xticks=sorted({example.origin, example.origin + len(plan.values) - 1}))
                ax.set_xlabel(f"{step} of outcome" if e == 0 else "", fontsize=8)
                below.set_xlabel(f"{step} of treatment" if e + 1 == len(examples) else "", fontsize=8)
            what = label_lines(labelled(outcome.name, outcome.unit), _SIDE_LETTERS)
            courses[0].set_ylabel(f"{label_lines(example.subject, _SIDE_LETTERS)}\n{what}", fontsize=8)
        shown = [plan for example in examples for plan in example.plans]
        handles: list[Line2D | Patch] = [Line2D([], [], color=BLACK, label="observed history")]
        if any(plan.truth_H is not None for plan in shown):
            handles.append(Line2D([], [], color=BLACK, ls=(0, (3, 1.6)), label="truth under the plan"))
        handles.append(Line2D([], [], color=BLUE, marker="o", ms=3, label="prediction"))
        levels = [example.level for example in examples if example.level is not None]
        if levels:
            handles.append(Patch(color=tint(BLUE, SHADE), lw=0, label=f"{100 * levels[0]:g} % band"))
        handles.append(Line2D([], [], color=GREY, lw=0.9, ls=(0, (1, 2)), label="forecast start"))
        if cut:
            handles.append(Line2D([], [], color=BLACK, marker="^", ms=4.5, ls="", label=CUT))
        legend_below(drawn, handles)
        words = f"below each panel, its plan: {calendar_key(schema.treatments, given)}"
        drawn.suptitle(label_lines(words, TITLE_LETTERS * columns, most=3), x=0.01, ha="left", fontsize=9)
        return save(drawn, path)


def _draw(ax: Axes, example: Example, plan: PlanForecast) -> bool:
    """Draw one panel within its limits; return whether anything is cut at the frame."""
    origin, last = example.origin, example.history[-1]
    first = max(0, origin + 1 - HISTORY_STEPS)
    ahead = np.arange(origin, origin + len(plan.estimate_H) + 1)
    ax.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    ax.axvline(origin, color=GREY, lw=0.7, ls=(0, (1, 2)))
    ax.plot(np.arange(first, origin + 1), example.history[first:], color=BLACK, lw=1.4)
    cut = mark_cut(ax, np.arange(first, origin + 1), example.history[first:], BLACK)
    for_band = [np.append(last, limit) for limit in plan.limits or ()]
    if for_band:
        shade(ax, ahead, (for_band[0], for_band[1]), BLUE, SHADE)
        for limit in for_band:
            cut |= mark_cut(ax, ahead, limit, BLUE)
    ax.plot(ahead, np.append(last, plan.estimate_H), color=BLUE, marker="o", ms=3)
    if plan.truth_H is not None:
        ax.plot(ahead, np.append(last, plan.truth_H), color=BLACK, ls=(0, (3, 1.6)), lw=1.3)
    return cut
