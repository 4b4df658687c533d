"""Dose and response: the estimate at the first and the last step under each dose of a sweep."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray

from costar_cli.data.schema import labelled, step_word, steps_of
from costar_cli.inference import LIGHTS
from costar_cli.plans.sweep import Sweep
from costar_cli.questions import AverageEffects
from costar_cli.questions.answers import ModelAnswers
from costar_cli.questions.report import WhatIfReport
from costar_cli.report.figures.style import BLACK, GREY, caption, figure, label_text, plan_style, tint, write_figure

SHADE: Final = 0.18
MOST_TICKS: Final = 500  # of the rug: some of the doses that were given, evenly spread
MOST_GROUPS: Final = 6
SIDES: Final = ("lower", "upper")
HALF: Final = 0.5  # of a group's answers: more than these have a light before the mean is marked

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, slots=True)
class Curve:
    """Estimates `[P]` by dose, at the first and the last step; limits, truth and lights are of the last, if known."""

    first: Floats
    last: Floats
    limits: tuple[Floats, Floats] | None
    truth: Floats | None
    light: NDArray[np.int8] | None

    @classmethod
    def of_answer(cls, report: WhatIfReport, model: ModelAnswers, count: int, outcome: int) -> "Curve":
        """Return the curve of a subject, without answers that are not to be shown."""
        bands = [report.band_of(model, i) for i in range(count)]
        hidden = np.array([report.hidden_of(model, i)[:, outcome] for i in range(count)])
        estimate = np.where(hidden, np.nan, [band.estimate[:, outcome] for band in bands])
        limits, light = None, None
        if bands[0].lower is not None and bands[0].upper is not None:
            lower, upper = (np.array([getattr(band, side)[0, -1, outcome] for band in bands]) for side in SIDES)
            lower, upper = (np.where(hidden[:, -1], np.nan, values) for values in (lower, upper))
            limits = (lower, upper) if np.isfinite(lower).any() else None
        if model.plan_lights is not None:
            light = np.array([LIGHTS.index(own.support[-1][outcome]) for own in model.plan_lights], dtype=np.int8)
        truth = None if report.truth is None else np.array([values[-1, outcome] for values in report.truth])
        return cls(estimate[:, 0], estimate[:, -1], limits, truth, light)

    @classmethod
    def of_average(cls, effects: AverageEffects, group: int, outcome: int) -> "Curve":
        """Return the curve of a group's mean, with the light that most of its answers have or exceed."""
        found = effects.outcomes
        mean_PH = found.mean_GPHY[group, :, :, outcome]
        low_P, high_P = (limit[0, group, :, -1, outcome] for limit in found.limits_LGPHY)
        limits = None if np.isnan(low_P).all() else (low_P, high_P)
        truth = None if found.truth_GPHY is None else found.truth_GPHY[group, :, -1, outcome]
        light = None
        if effects.lights_GPL is not None:
            share_PL = effects.lights_GPL[group] / max(int(effects.moments_G[group]), 1)
            amber_P, red_P = share_PL[:, 1:].sum(axis=1) > HALF, share_PL[:, 2] > HALF
            light = np.where(red_P, 2, amber_P).astype(np.int8)
        return cls(mean_PH[:, 0], mean_PH[:, -1], limits, truth, light)


def plot_sweep(report: WhatIfReport, sweep: Sweep, given: NDArray[np.floating], path: Path) -> Path:
    """Draw a row per outcome and a column per model; the range of the doses `given [M]` is shaded, below it is a rug.

    Raises:
        StorageError: the file cannot be written.
    """
    history, unit, models = report.history, step_word(report.schema.step), report.models
    count, titles = len(sweep.values), [model.heading for model in models]
    curves = [
        [Curve.of_answer(report, model, count, k) for model in models] for k in range(len(report.schema.outcomes))
    ]
    labels = [labelled(outcome.name, outcome.unit) for outcome in report.schema.outcomes]
    first, last = (f"at {unit} {history.origin + h}" for h in (1, len(report.plans[0])))
    legend = _legend(curves, first, last, f"{100 * report.level:g} % band", "")
    who = f"Subject {history.name}, each dose from {unit} {history.origin} on"
    return _plot(curves, labels, titles, sweep, given, legend, who, path)


def plot_average_sweep(found: Sequence[AverageEffects], sweep: Sweep, given: NDArray[np.floating], path: Path) -> Path:
    """Draw the mean response of groups: a row per model and outcome, a column per group.

    Raises:
        StorageError: the file cannot be written.
    """
    schema, groups = found[0].schema, range(min(len(found[0].groups), MOST_GROUPS))
    rows = [(effects, k) for effects in found for k in range(len(schema.outcomes))]
    curves = [[Curve.of_average(effects, g, k) for g in groups] for effects, k in rows]
    labels = [
        f"mean {labelled(schema.outcomes[k].name, schema.outcomes[k].unit)}" + f", {effects.label}" * (len(found) > 1)
        for effects, k in rows
    ]
    titles = [f"{found[0].groups[g]} ({found[0].moments_G[g]:,})" for g in groups]
    steps = found[0].outcomes.mean_GPHY.shape[2]
    first, last = (f"after {steps_of(h, schema.step)}" for h in (1, steps))
    legend = _legend(curves, first, last, f"{100 * found[0].levels[0]:g} % interval of the mean", ", for most")
    return _plot(curves, labels, titles, sweep, given, legend, "Each dose from the origin on", path)


def _plot(
    curves: Sequence[Sequence[Curve]],
    labels: Sequence[str],
    titles: Sequence[str],
    sweep: Sweep,
    given: NDArray[np.floating],
    legend: list[Line2D | Patch],
    who: str,
    path: Path,
) -> Path:
    """Draw a grid of curves."""
    with figure(2.6 + 3.9 * len(titles), 1.3 + 2.9 * len(labels)) as drawn:
        grid = drawn.subplots(len(labels), len(titles), squeeze=False, sharex=True, sharey="row")
        for row, line, label in zip(grid, curves, labels, strict=True):
            for axes, curve in zip(row, line, strict=True):
                _draw(axes, curve, sweep, given)
            row[0].set_ylabel(label_text(label, 40))
        for axes, title in zip(grid[0], titles, strict=True):
            axes.set_title(label_text(title, 40))
        for axes in grid[-1]:
            axes.set_xlabel(label_text(labelled(sweep.dose.name, sweep.dose.unit), 40))
        drawn.legend(handles=legend, loc="outside right center", labelspacing=0.9)
        caption(drawn, who)
        return write_figure(drawn, path)


def _draw(axes: Axes, curve: Curve, sweep: Sweep, given: NDArray[np.floating]) -> None:
    colour, _ = plan_style(0)
    axes.axvspan(sweep.dose.low, sweep.dose.high, color="0.95", lw=0, zorder=0)
    if curve.limits is not None:
        axes.fill_between(sweep.values, *curve.limits, color=tint(colour, SHADE), lw=0, zorder=1)
    if curve.truth is not None:
        axes.plot(sweep.values, curve.truth, color=BLACK, ls=":", zorder=4)
    axes.plot(sweep.values, curve.first, color=GREY, lw=1.2, ls="--", zorder=2)
    axes.plot(sweep.values, curve.last, color=colour, zorder=3)
    for light, face in ((1, tint(colour, 0.4)), (2, "white")) if curve.light is not None else ():
        marked = curve.light == light
        axes.plot(sweep.values[marked], curve.last[marked], ls="", marker="o", mfc=face, mec=colour, zorder=5)
    inside = given[(given >= axes.get_xlim()[0]) & (given <= axes.get_xlim()[1])]
    some = np.sort(inside)[:: max(1, -(-len(inside) // MOST_TICKS))]
    axes.plot(some, np.zeros(len(some)), ls="", marker="|", color=BLACK, alpha=0.25, ms=9, clip_on=False,
              transform=axes.get_xaxis_transform())  # fmt: skip


def _legend(curves: Sequence[Sequence[Curve]], first: str, last: str, band: str, whose: str) -> list[Line2D | Patch]:
    """Return what curves at the `first` and the `last` step, the band and marks, of `whose` answers, are called."""
    (colour, _), every = plan_style(0), [curve for line in curves for curve in line]
    made: list[Line2D | Patch] = [Line2D([], [], color=colour, label=f"estimate {last}")]
    if any(curve.limits is not None for curve in every):
        made.append(Patch(color=tint(colour, SHADE), lw=0, label=band))
    made.append(Line2D([], [], color=GREY, ls="--", label=f"estimate {first}"))
    if any(curve.truth is not None for curve in every):
        made.append(Line2D([], [], color=BLACK, ls=":", label=f"the simulator's {last}"))
    if any(curve.light is not None for curve in every):
        made += [Line2D([], [], ls="", marker="o", mec=colour, mfc=face, label=f"{words}{whose}")
                 for words, face in (("rare in practice", tint(colour, 0.4)), ("not supported", "white"))]  # fmt: skip
    return [*made, Patch(color="0.95", label="range given in training"),
            Line2D([], [], ls="", marker="|", color=BLACK, alpha=0.5, label="doses that were given")]  # fmt: skip
