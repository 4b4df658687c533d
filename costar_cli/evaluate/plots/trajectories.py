"""Example trajectories: a subject's history, and what follows under several plans, predicted and true."""

import textwrap
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from costar_cli.evaluate.examples import HISTORY_STEPS, Example, PlanForecast
from costar_cli.evaluate.plots.style import BLACK, BLUE, GREY, figure, save

__all__ = ["plot_trajectories"]


def plot_trajectories(examples: Sequence[Example], path: Path) -> Path:
    """Draw subjects by row and plans by column: history solid, truth dashed, prediction in colour with its spread.

    A dotted vertical line marks the origin, the last day that the model sees.
    """
    columns = max(len(example.plans) for example in examples)
    with figure(0.7 + 2.35 * columns, 0.75 + 2.05 * len(examples)) as drawn:
        grid = drawn.subplots(len(examples), columns, squeeze=False, sharey="row", sharex="row")
        for axes, example in zip(grid, examples, strict=True):
            for ax in axes[len(example.plans) :]:
                ax.set_axis_off()
            for ax, plan in zip(axes, example.plans, strict=False):
                _draw(ax, example, plan)
            axes[0].set_ylabel(f"{example.subject}\n{_with_unit(example.outcome, example.unit)}")
        for ax in grid[-1]:
            ax.set_xlabel(example.step.capitalize())
        handles: list[Line2D | Patch] = [
            Line2D([], [], color=BLACK, label="observed history"),
            Line2D([], [], color=BLACK, ls=(0, (3, 1.6)), label="truth under the plan"),
            Line2D([], [], color=BLUE, marker="o", ms=3, label="prediction (mean of the members)"),
        ]
        if any(len(plan.predicted_RH) > 1 for example in examples for plan in example.plans):
            handles.append(Patch(color=BLUE, alpha=0.2, lw=0, label="range of the members"))
        drawn.legend(handles=handles, loc="outside lower center", ncols=len(handles))
        return save(drawn, path)


def _draw(ax: Axes, example: Example, plan: PlanForecast) -> None:
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
    ax.set_title(textwrap.fill(textwrap.shorten(plan.name, 66, placeholder=" …"), 34), loc="left", fontsize=8.5)


def _with_unit(name: str, unit: str) -> str:
    readable = name.replace("_", " ").capitalize()
    return f"{readable} ({unit})" if unit else readable
