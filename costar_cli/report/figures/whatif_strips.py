"""The strips under a what-if plot: which treatment is given when, in the history and in each plan, and survival."""

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from costar_cli.data import Values
from costar_cli.data.levels import in_order
from costar_cli.data.schema import labelled
from costar_cli.questions.answers import ModelAnswers
from costar_cli.questions.report import WhatIfReport
from costar_cli.report.figures.style import BLACK, label_text, plan_style

LONGEST_LABEL = 24
GAP = 0.6  # between treatments, in rows


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
        """Draw markers where a treatment is given (binary), or a line of levels over time."""
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0)
        if self.is_dose:
            self._draw_doses(axes)
        elif self.levels:
            self._draw_levels(axes)
        else:
            self._draw_given(axes)

    def _draw_given(self, axes: Axes) -> None:
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

    def _draw_doses(self, axes: Axes) -> None:
        for line in self.series:
            dose = line.values[:, self.columns[0]]
            axes.plot(line.start + np.arange(len(dose)), dose, linestyle=":", linewidth=0.8,
                      marker=line.marker, color=line.colour, markersize=4)  # fmt: skip
        axes.margins(y=0.15)
        axes.set_ylabel(label_text(self.names[0], LONGEST_LABEL))

    def _draw_levels(self, axes: Axes) -> None:
        row = {level: i for i, level in enumerate(self._used)}
        shift = 0.5 / max(len(self.series), 1)
        for i, line in enumerate(self.series):
            heights = np.array([row[level] for level in line.values[:, self.columns[0]].tolist()], dtype=float)
            offset = 0.0 if i == 0 else (i - len(self.series) / 2) * shift  # plans side by side, history in the middle
            axes.plot(line.start + np.arange(len(heights)), heights + offset, linestyle=":", linewidth=0.8,
                      marker=line.marker, color=line.colour, markersize=4)  # fmt: skip
        axes.set_yticks(range(len(row)), [label_text(self.levels[level], LONGEST_LABEL) for level in row])
        axes.set_ylim(-0.6, len(row) - 0.4)
        axes.set_ylabel(label_text(self.names[0], LONGEST_LABEL))


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
        found = [answer.goes_on.survival_QH for answer in self.report.models if answer.goes_on]
        if self.model.goes_on:
            for i, plan in enumerate(self.report.plans):
                colour, marker = plan_style(i)
                times = self.report.history.origin + np.arange(len(plan) + 1)
                survival = self.model.goes_on.survival_QH[i, : len(plan)]
                axes.plot(times, [1.0, *survival], color=colour, marker=marker, markersize=3)
        least = min(0.98, *(float(survival_QH.min()) for survival_QH in found))
        axes.set_ylim(least - 0.08 * (1 - least), 1 + 0.08 * (1 - least))
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0 if least < 0.96 else 1))
        axes.set_ylabel("survival")


def survival_strips(report: WhatIfReport, model: ModelAnswers) -> list[SurvivalStrip]:
    """Return the strip of a model's survival; none where no model of the report knows of an end."""
    return [SurvivalStrip(report, model)] if report.ends else []
