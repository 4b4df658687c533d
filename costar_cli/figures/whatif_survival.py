"""Survival in a what-if plot: a row of axes with how likely the series is to go on under each plan."""

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from costar_cli.figures.style import plan_style
from costar_cli.whatif.report import ModelAnswer, WhatIfReport


@dataclass(frozen=True, slots=True)
class SurvivalStrip:
    """A line per plan, from 100 % at the origin; empty where the model knows of no end."""

    report: WhatIfReport
    model: ModelAnswer

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


def survival_strips(report: WhatIfReport, model: ModelAnswer) -> list[SurvivalStrip]:
    """Return the strip of a model's survival; none where no model of the report knows of an end."""
    return [SurvivalStrip(report, model)] if report.ends else []
