"""Example trajectories: a subject's history, and what follows under several plans, predicted and true."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from costar_cli.data.schema import labelled, step_axis
from costar_cli.evaluation.examples import HISTORY_STEPS, Example, PlanForecast
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
)

_TITLE_LETTERS, _TITLE_LINES = 31, 5  # above a panel
_SIDE_LETTERS = 20  # along the height of a panel


def plot_trajectories(examples: Sequence[Example], path: Path) -> Path:
    """Draw subjects by row and plans by column: history solid, truth dashed, prediction in colour with its spread.

    A dotted vertical line marks the origin, the last day that the model sees. A row has the scale of what follows: a
    history that would flatten it is cut at the frame, and marked there.
    """
    columns = max(len(example.plans) for example in examples)
    titles = [[label_lines(plan.name, _TITLE_LETTERS, most=_TITLE_LINES) for plan in one.plans] for one in examples]
    heights = [1.75 + 0.15 * max(title.count("\n") + 1 for title in row) for row in titles]
    with figure(0.7 + 2.35 * columns, 0.75 + sum(heights)) as drawn:
        cut = False
        grid = drawn.subplots(len(examples), columns, squeeze=False, sharey="row", sharex="row")
        for axes, example, names in zip(grid, examples, titles, strict=True):
            for ax in axes[len(example.plans) :]:
                ax.set_axis_off()
            axes[0].set_ylim(*_limits(example))
            for ax, plan, name in zip(axes, example.plans, names, strict=False):
                cut |= _draw(ax, example, plan)
                ax.set_title(name, fontsize=8)
            what = label_lines(labelled(example.outcome, example.unit), _SIDE_LETTERS)
            axes[0].set_ylabel(f"{label_lines(example.subject, _SIDE_LETTERS)}\n{what}", fontsize=8)
        for ax in grid[-1]:
            ax.set_xlabel(label_lines(step_axis(examples[-1].step).capitalize(), _TITLE_LETTERS))
        legend_below(drawn, _legend([plan for example in examples for plan in example.plans], cut=cut))
        return save(drawn, path)


def _limits(example: Example) -> tuple[float, float]:
    """Return the range of a row: what follows under all plans, and as much of the history as leaves that its room."""
    ahead = [example.history[-1:], *(plan.predicted_RH for plan in example.plans)]
    ahead += [plan.truth_H for plan in example.plans if plan.truth_H is not None]
    return frame_limits(ahead, [example.history[-HISTORY_STEPS:]], room_of_flat=np.inf)


def _legend(plans: Sequence[PlanForecast], *, cut: bool) -> list[Line2D | Patch]:
    handles: list[Line2D | Patch] = [Line2D([], [], color=BLACK, label="observed history")]
    if any(plan.truth_H is not None for plan in plans):
        handles.append(Line2D([], [], color=BLACK, ls=(0, (3, 1.6)), label="truth under the plan"))
    members = any(len(plan.predicted_RH) > 1 for plan in plans)
    label = "prediction (mean of the members)" if members else "prediction"
    handles.append(Line2D([], [], color=BLUE, marker="o", ms=3, label=label))
    if members:
        handles.append(Patch(color=BLUE, alpha=0.2, lw=0, label="range of the members"))
    handles.append(Line2D([], [], color=GREY, lw=0.9, ls=(0, (1, 2)), label="origin, the last step known"))
    if cut:
        handles.append(Line2D([], [], color=BLACK, marker="^", ms=4.5, ls="", label=f"history {CUT}"))
    return handles


def _draw(ax: Axes, example: Example, plan: PlanForecast) -> bool:
    """Draw one panel within its limits; return whether the history is cut at the frame."""
    origin, last = example.origin, example.history[-1]
    first = max(0, origin + 1 - HISTORY_STEPS)
    ahead = np.arange(origin, origin + plan.predicted_RH.shape[1] + 1)
    ax.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    ax.axvline(origin, color=GREY, lw=0.7, ls=(0, (1, 2)))
    ax.plot(np.arange(first, origin + 1), example.history[first:], color=BLACK, lw=1.4)
    if len(plan.predicted_RH) > 1:
        lower, upper = (np.append(last, bound(plan.predicted_RH, axis=0)) for bound in (np.min, np.max))
        ax.fill_between(ahead, lower, upper, color=BLUE, alpha=0.2, lw=0)
    ax.plot(ahead, np.append(last, plan.predicted_RH.mean(axis=0)), color=BLUE, marker="o", ms=3)
    if plan.truth_H is not None:
        ax.plot(ahead, np.append(last, plan.truth_H), color=BLACK, ls=(0, (3, 1.6)), lw=1.3)
    return mark_cut(ax, np.arange(first, origin + 1), example.history[first:], BLACK)
