"""What stands under a what-if plot and marks its lines: treatments, survival, and where the data support a plan."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter
from numpy.typing import NDArray

from costar_cli.data import Values
from costar_cli.data.levels import in_order
from costar_cli.data.schema import labelled
from costar_cli.questions.answers import ModelAnswers
from costar_cli.questions.report import WhatIfReport
from costar_cli.report.figures.style import AMBER, BLACK, GREY, LEGEND_POINTS, RED, label_text, plan_style

LONGEST_LABEL: Final = 24
LONGEST_NAME: Final = 14
GAP: Final = 0.6  # between treatments, in rows
RED_DASHES: Final = (0, (1.2, 1.2))  # shorter than those of the truth
SIGNS: Final = {"amber": ("$?$", AMBER, 6.5), "red": ("$!$", RED, 7.5)}


@dataclass(frozen=True, slots=True)
class _Series:
    """One line of treatment levels `values [steps,names]`, starting at step `start`."""

    values: Values
    start: int
    colour: str
    marker: str


@dataclass(frozen=True, slots=True)
class TreatmentStrip:
    """A row of axes that shows the treatments `columns`: binary ones together, others and doses alone."""

    series: tuple[_Series, ...]
    columns: tuple[int, ...]
    names: tuple[str, ...]
    levels: tuple[str, ...]
    is_dose: bool = False

    @property
    def n_rows(self) -> float:
        """Return the height in rows of text."""
        if self.is_dose:
            return 5.0
        if self.levels:
            return max(4.0, 1.1 * len(self._used) + 1)
        return len(self.names) * (len(self.series) - 1 + GAP) + GAP

    @property
    def _used(self) -> list[int]:
        used = {0}.union(*(set(line.values[:, self.columns[0]].tolist()) for line in self.series))
        return [level for level in in_order(self.levels) if level in used]

    def draw(self, axes: Axes) -> None:
        """Draw markers where a treatment is given (binary), or a line of doses or levels over time."""
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0)
        if self.is_dose or self.levels:
            # a row per level, in which plans stand side by side, and the history in the middle
            row = {} if self.is_dose else {level: i for i, level in enumerate(self._used)}
            for i, line in enumerate(self.series):
                heights = line.values[:, self.columns[0]]
                if not self.is_dose:
                    offset = 0.0 if i == 0 else (i - len(self.series) / 2) * 0.5 / len(self.series)
                    heights = np.array([row[level] for level in heights.tolist()], dtype=float) + offset
                axes.plot(line.start + np.arange(len(heights)), heights, linestyle=":", linewidth=0.8,
                          marker=line.marker, color=line.colour, markersize=4)  # fmt: skip
            if self.is_dose:
                axes.margins(y=0.15)
            else:
                axes.set_yticks(range(len(row)), [label_text(self.levels[level], LONGEST_LABEL) for level in row])
                axes.set_ylim(-0.6, len(row) - 0.4)
            axes.set_ylabel(label_text(self.names[0], LONGEST_LABEL))
            return
        axes.grid(visible=False)
        plans = max(len(self.series) - 1, 1)
        centres = []
        for j, column in enumerate(self.columns):
            top = j * (plans + GAP)
            centre = top + (plans - 1) / 2
            centres.append(centre)
            axes.axhspan(top - 0.6, top + plans - 0.4, color="0.96", linewidth=0)
            for i, line in enumerate(self.series):
                given = line.start + np.flatnonzero(line.values[:, column])
                height = centre if i == 0 else top + i - 1
                axes.plot(given, np.full(len(given), height), linestyle="none", marker=line.marker,
                          color=line.colour, markersize=8 if i == 0 else 5, markeredgewidth=1.2)  # fmt: skip
        axes.set_yticks(centres, [label_text(name, LONGEST_LABEL) for name in self.names])
        axes.set_ylim(centres[-1] + plans / 2 + GAP / 2, -0.5 - GAP / 2)


def treatment_strips(report: WhatIfReport, first: int) -> list[TreatmentStrip]:
    """Return the strips of a report from step `first` on."""
    encoding, history = report.schema.treatments, report.history
    styles = [plan_style(i) for i in range(len(report.plans))]
    series = (
        _Series(history.treatments[first:], first, BLACK, "|"),
        *(_Series(plan.values, history.origin, *style) for plan, style in zip(report.plans, styles, strict=True)),
    )
    binary = tuple(j for j, levels in enumerate(encoding.levels) if len(levels) == 2)
    strips = [TreatmentStrip(series, binary, tuple(encoding.names[j] for j in binary), ())] if binary else []
    others = [j for j, levels in enumerate(encoding.levels) if len(levels) != 2]
    strips += [TreatmentStrip(series, (j,), (encoding.names[j],), encoding.levels[j]) for j in others]
    return strips + [
        TreatmentStrip(series, (j,), (labelled(dose.name, dose.unit),), (), is_dose=True)
        for j, dose in enumerate(encoding.doses, start=len(encoding.names))
    ]


@dataclass(frozen=True, slots=True)
class SurvivalStrip:
    """A line per plan, from 100 % at the origin; empty where the model knows of no end."""

    report: WhatIfReport
    model: ModelAnswers

    @property
    def n_rows(self) -> float:
        """Return the height in rows of text."""
        return 5.0

    def draw(self, axes: Axes) -> None:
        """Draw the lines, from the least value of any model or a little below 100 %."""
        found = [answer.survival_forecast.survival_QH for answer in self.report.models if answer.survival_forecast]
        if self.model.survival_forecast:
            for i, plan in enumerate(self.report.plans):
                colour, marker = plan_style(i)
                times = self.report.history.origin + np.arange(len(plan) + 1)
                survival = self.model.survival_forecast.survival_QH[i, : len(plan)]
                axes.plot(times, [1.0, *survival], color=colour, marker=marker, markersize=3)
        least = min(0.98, *(float(survival_QH.min()) for survival_QH in found))
        axes.set_ylim(least - 0.08 * (1 - least), 1 + 0.08 * (1 - least))
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0 if least < 0.96 else 1))
        axes.set_ylabel("survival")


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
        for i, ratings in enumerate(self.model.plan_ratings or ()):
            for h, rating in enumerate(ratings.worst):
                marker, colour, size = SIGNS.get(rating) or (*reversed(plan_style(i)), 3.5)
                axes.plot(self.report.history.origin + h, i, marker=marker, color=colour, markersize=size,
                          linestyle="none", markeredgewidth=0.4)  # fmt: skip
        names = [label_text(plan.name, LONGEST_NAME) for plan in self.report.plans]
        axes.set_yticks(range(plans), names, fontsize=LEGEND_POINTS)
        axes.set_ylabel("support")
        axes.set_ylim(plans - 0.3, -0.7)


Strip = TreatmentStrip | SurvivalStrip | LightStrip


def strips_of(report: WhatIfReport, model: ModelAnswers, treatments: Sequence[TreatmentStrip]) -> list[Strip]:
    """Return a model's rows of axes below the outcomes: survival, treatments, lights, where any model has them."""
    survival: list[Strip] = [SurvivalStrip(report, model)] if report.ends else []
    rated: list[Strip] = [LightStrip(report, model)] * any(answer.plan_ratings is not None for answer in report.models)
    return [*survival, *treatments, *rated]


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
    lit = {rating for answer in report.models for ratings in answer.plan_ratings or () for rating in ratings.worst}
    handles = []
    if "amber" in lit:
        marker, colour, size = SIGNS["amber"]
        handles.append(
            Line2D([], [], color=colour, marker=marker, markersize=size, linestyle="none", label="rare in the data")
        )
    if "red" in lit:
        marker, colour, size = SIGNS["red"]
        line = Line2D([], [], color=GREY, linestyle=RED_DASHES, marker="o", markerfacecolor="none", markersize=4,
                      label="estimate that the data do not support")  # fmt: skip
        about = "very rare in the data"
        handles += [Line2D([], [], color=colour, marker=marker, markersize=size, linestyle="none", label=about), line]
    return handles
