"""Dose and response: the estimate at the first and the last step under each dose of a sweep."""

from pathlib import Path
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray

from costar_cli.figures.style import BLACK, GREY, caption, figure, label_text, plan_style, tint, write_figure
from costar_cli.panel.schema import labelled, step_word
from costar_cli.plans.sweep import Sweep
from costar_cli.whatif.report import ModelAnswer, WhatIfReport

SHADE: Final = 0.18
MOST_TICKS: Final = 500  # of the rug: some of the doses that were given, evenly spread


def plot_sweep(report: WhatIfReport, sweep: Sweep, given: NDArray[np.floating], path: Path) -> Path:
    """Draw a row per outcome and a column per model; the range of the doses `given [M]` is shaded, below it is a rug.

    Raises:
        StorageError: the file cannot be written.
    """
    outcomes, models = report.schema.outcomes, report.models
    with figure(2.6 + 3.9 * len(models), 1.3 + 2.9 * len(outcomes)) as drawn:
        grid = drawn.subplots(len(outcomes), len(models), squeeze=False, sharex=True, sharey="row")
        for k, row in enumerate(grid):
            for axes, model in zip(row, models, strict=True):
                _draw(axes, report, model, sweep, given, k)
            row[0].set_ylabel(label_text(labelled(outcomes[k].name, outcomes[k].unit), 40))
        for axes, model in zip(grid[0], models, strict=True):
            axes.set_title(label_text(model.heading, 40))
        for axes in grid[-1]:
            axes.set_xlabel(label_text(labelled(sweep.dose.name, sweep.dose.unit), 40))
        drawn.legend(handles=_legend(report), loc="outside right center", labelspacing=0.9)
        who = (
            f"Subject {report.history.name}, each dose from {step_word(report.schema.step)} {report.history.origin} on"
        )
        caption(drawn, who)
        return write_figure(drawn, path)


def _draw(
    axes: Axes, report: WhatIfReport, model: ModelAnswer, sweep: Sweep, given: NDArray[np.floating], outcome: int
) -> None:
    colour, _ = plan_style(0)
    bands = [report.band_of(model, i) for i in range(len(sweep.values))]
    hidden = np.array([report.hidden_of(model, i)[:, outcome] for i in range(len(sweep.values))])
    estimate = np.where(hidden, np.nan, [band.estimate[:, outcome] for band in bands])
    axes.axvspan(sweep.dose.low, sweep.dose.high, color="0.95", lw=0, zorder=0)
    if bands[0].lower is not None and bands[0].upper is not None:
        lower, upper = (
            np.array([getattr(band, side)[0, -1, outcome] for band in bands]) for side in ("lower", "upper")
        )
        lower, upper = (np.where(hidden[:, -1], np.nan, limit) for limit in (lower, upper))
        axes.fill_between(sweep.values, lower, upper, color=tint(colour, SHADE), lw=0, zorder=1)
    if report.truth is not None:
        axes.plot(sweep.values, [truth[-1, outcome] for truth in report.truth], color=BLACK, ls=":", zorder=4)
    axes.plot(sweep.values, estimate[:, 0], color=GREY, lw=1.2, ls="--", zorder=2)
    axes.plot(sweep.values, estimate[:, -1], color=colour, zorder=3)
    if model.lights is not None:
        for light, face in (("amber", tint(colour, 0.4)), ("red", "white")):
            marked = np.array([own.support[-1][outcome] == light for own in model.lights])
            axes.plot(sweep.values[marked], estimate[marked, -1], ls="", marker="o", mfc=face, mec=colour, zorder=5)
    inside = given[(given >= axes.get_xlim()[0]) & (given <= axes.get_xlim()[1])]
    some = np.sort(inside)[:: max(1, -(-len(inside) // MOST_TICKS))]
    axes.plot(some, np.zeros(len(some)), ls="", marker="|", color=BLACK, alpha=0.25, ms=9, clip_on=False,
              transform=axes.get_xaxis_transform())  # fmt: skip


def _legend(report: WhatIfReport) -> list[Line2D | Patch]:
    colour, _ = plan_style(0)
    unit = step_word(report.schema.step)
    last = report.history.origin + len(report.plans[0])
    made: list[Line2D | Patch] = [Line2D([], [], color=colour, label=f"estimate at {unit} {last}")]
    if any(model.calibration for model in report.models):
        made.append(Patch(color=tint(colour, SHADE), lw=0, label=f"{100 * report.level:g} % band"))
    made.append(Line2D([], [], color=GREY, ls="--", label=f"estimate at {unit} {report.history.origin + 1}"))
    if report.truth is not None:
        made.append(Line2D([], [], color=BLACK, ls=":", label=f"the simulator's at {unit} {last}"))
    if any(model.lights for model in report.models):
        made += [Line2D([], [], ls="", marker="o", mec=colour, mfc=face, label=words)
                 for words, face in (("rare in practice", tint(colour, 0.4)), ("not supported", "white"))]  # fmt: skip
    return [*made, Patch(color="0.95", label="range that was given"),
            Line2D([], [], ls="", marker="|", color=BLACK, alpha=0.5, label="doses that were given")]  # fmt: skip
