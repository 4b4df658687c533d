"""Lights in a what-if plot: a row of signs under the treatments, and segments that the data do not support."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from costar_cli.questions.answers import ModelAnswers
from costar_cli.questions.report import WhatIfReport
from costar_cli.report.figures.style import AMBER, GREY, LEGEND_POINTS, RED, label_text, plan_style

RED_DASHES: Final = (0, (1.2, 1.2))  # shorter than those of the truth
SIGNS: Final = {"amber": ("$?$", AMBER, 6.5), "red": ("$!$", RED, 7.5)}
LONGEST_NAME: Final = 14


@dataclass(frozen=True, slots=True)
class LightStrip:
    """A row of axes with the light of each plan's steps, a line per plan; empty where the model has none."""

    report: WhatIfReport
    model: ModelAnswers

    @property
    def n_rows(self) -> float:
        """Return the height in rows of text."""
        return max(2.0, len(self.report.plans) + 0.6)

    def draw(self, axes: Axes) -> None:
        """Draw a sign for each step of each plan, in the plan's own row."""
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False)
        plans = len(self.report.plans)
        axes.axhspan(-0.6, plans - 0.4, color="0.96", linewidth=0)
        for i, lights in enumerate(self.model.plan_lights or ()):
            for h, light in enumerate(lights.worst):
                marker, colour, size = SIGNS.get(light) or (*reversed(plan_style(i)), 3.5)
                axes.plot(self.report.history.origin + h, i, marker=marker, color=colour, markersize=size,
                          linestyle="none", markeredgewidth=0.4)  # fmt: skip
        names = [label_text(plan.name, LONGEST_NAME) for plan in self.report.plans]
        axes.set_yticks(range(plans), names, fontsize=LEGEND_POINTS)
        axes.set_ylabel("support")
        axes.set_ylim(plans - 0.3, -0.7)


def light_strips(report: WhatIfReport, model: ModelAnswers) -> list[LightStrip]:
    """Return the strip of a model's lights; none where no model of the report has any."""
    return [LightStrip(report, model)] if any(answer.plan_lights for answer in report.models) else []


def red_steps(model: ModelAnswers, plan: int, outcome: int) -> NDArray[np.bool_] | None:
    """Return which steps of a plan are red `[H]`; None where the model has no lights."""
    return None if model.plan_lights is None else model.plan_lights[plan].red_HY[:, outcome]


def draw_estimate(
    axes: Axes,
    times: NDArray[np.integer],
    estimate: NDArray[np.float64],
    red_H: NDArray[np.bool_] | None,
    style: tuple[str, str],
) -> None:
    """Draw a line of estimates from the origin on; what leads to a red step is dashed, its marker hollow."""
    colour, marker = style
    red_H = np.zeros(len(times) - 1, dtype=bool) if red_H is None else red_H
    for wanted, dashes, face in ((False, "solid", colour), (True, RED_DASHES, "none")):
        mine = np.flatnonzero(red_H == wanted)
        if not len(mine):
            continue
        segments = np.full((len(mine), 3, 2), np.nan)  # NaN lifts the pen between segments
        for row, h in enumerate(mine):
            segments[row, :2] = np.stack([times[h : h + 2], estimate[h : h + 2]], axis=1)
        x, y = segments.reshape(-1, 2).T
        axes.plot(x, y, linestyle=dashes, color=colour, zorder=4)
        axes.plot(times[mine + 1], estimate[mine + 1], linestyle="none", markerfacecolor=face, color=colour,
                  marker=marker, markersize=4, zorder=4)  # fmt: skip


def light_handles(report: WhatIfReport) -> list[Line2D]:
    """Return what the legend says of lights: those that occur."""
    lit = {light for answer in report.models for lights in answer.plan_lights or () for light in lights.worst}
    handles = []
    if "amber" in lit:
        marker, colour, size = SIGNS["amber"]
        handles.append(
            Line2D([], [], color=colour, marker=marker, markersize=size, linestyle="none", label="amber: rare")
        )
    if "red" in lit:
        marker, colour, size = SIGNS["red"]
        line = Line2D([], [], color=GREY, linestyle=RED_DASHES, marker="o", markerfacecolor="none", markersize=4,
                      label="not supported by the data")  # fmt: skip
        about = "red: very rare"
        handles += [Line2D([], [], color=colour, marker=marker, markersize=size, linestyle="none", label=about), line]
    return handles
