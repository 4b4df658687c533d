"""Figures of effects: mean outcomes by plan, dose and response, and how far hidden confounding could move them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator
from numpy.typing import NDArray

from costar_cli.data.schema import labelled, step_word, steps_axis, steps_of
from costar_cli.inference import SUPPORT_LEVELS
from costar_cli.plans.doses import Sweep
from costar_cli.questions import AverageEffects, WhatIfReport
from costar_cli.questions.answers import ModelAnswers
from costar_cli.questions.sensitivity import Sensitivity
from costar_cli.report.figures.calendars import draw_forest
from costar_cli.report.figures.style import (
    BLACK,
    GREY,
    caption,
    figure,
    label_lines,
    label_text,
    plan_style,
    tint,
    write_figure,
)

SHADE: Final = 0.18  # of the colour in a band
MOST_GROUPS: Final = 6
MOST_PLANS: Final = 12
BESIDE: Final = 0.07  # steps between plans
DASHES: Any = (0, (4, 2))

Floats = NDArray[np.float64]


def plot_averages(found: Sequence[AverageEffects], path: Path) -> Path:
    """Draw averages and save the figure.

    Raises:
        StorageError: the file cannot be written.
    """
    return write_figure(draw_averages(found), path)


def draw_averages(found: Sequence[AverageEffects]) -> Figure:
    """Draw the mean of each outcome by step, and below it the effect of each plan at the end, with the line of none.

    Two rows per model and outcome, a column per group, a line or a row per plan.
    """
    rows = [(effects, k) for effects in found for k in range(len(effects.schema.outcomes))]
    columns = found[0].groups[:MOST_GROUPS]
    plans = found[0].plans[:MOST_PLANS]
    several, about = len({effects.interval_kind for effects in found}) > 1, dict[str, None]()
    for effects in found:  # what the bars include, by model where they differ, and why some are not there
        who, kind = f"{label_text(effects.label, 30)}: " if several else "", effects.interval_kind
        if kind.startswith("none"):
            about[f"{who}no intervals, {kind[6:-1]}"] = None
        else:
            about[f"{who}bars: {100 * effects.levels[0]:g} % intervals of the mean; they reflect {kind}"] = None
    absent = [np.isnan(effects.outcomes.half_LGPHY).all(axis=(0, 2, 3, 4)) for effects in found]
    few = any(absent_G.any() and not absent_G.all() for absent_G in absent)
    others = [i for i in range(len(plans)) if i != found[0].reference]
    names = [label_lines(plans[i].name, 18) for i in others]
    forest_in = 0.6 + (0.36 if "\n" in "".join(names) else 0.24) * len(others) if others else 0.0
    heights = [height for _ in rows for height in (2.7, forest_in)[: 1 + bool(others)]]
    with figure(3.4 + 2.9 * len(columns), 1.4 + sum(heights)) as drawn:
        axes = drawn.subplots(len(heights), len(columns), squeeze=False, sharey="row", height_ratios=heights)
        for r, (effects, k) in enumerate(rows):
            means, *forests = axes[(1 + bool(others)) * r : (1 + bool(others)) * (r + 1)]
            outcome = effects.schema.outcomes[k]
            for g, ax in enumerate(means):
                _draw_average(ax, effects, g, k)
            words = label_text(labelled(outcome.name, outcome.unit), 50)
            means[0].set_ylabel(f"mean {words}" + f"\n{label_text(effects.label, 30)}" * (len(found) > 1))
            for g, ax in enumerate(forests[0] if forests else ()):
                _draw_end(ax, effects, g, k, others)
                against = label_text(effects.plans[effects.reference].name, 24)
                ax.set_xlabel(f"effect on {words}\nat the end, against {against}")
        handles = [
            Line2D([], [], color=plan_style(i)[0], marker=plan_style(i)[1], label=label_lines(plan.name, 26))
            for i, plan in enumerate(plans)
        ]
        if found[0].outcomes.truth_GPHY is not None:
            handles += [Line2D([], [], color=BLACK, ls=":", label="true mean (simulator)")]
            handles += [Line2D([], [], color=BLACK, ls="", marker="|", ms=9, mew=1.4, label="true effect")] * bool(
                others
            )
        caption(drawn, *about, *["groups of fewer than 20 units have no interval"] * few)
        drawn.legend(handles=handles, loc="outside right center")
    return drawn


def _draw_end(ax: Axes, effects: AverageEffects, g: int, k: int, others: Sequence[int]) -> None:
    """Draw the mean difference from the reference at the last step that a plan shares with it, a row per plan."""
    least = len(effects.plans[effects.reference])
    at = [(g, i, min(len(effects.plans[i]), least) - 1, k) for i in others]
    found = effects.differences
    low, high = (limit[0] for limit in found.limits_LGPHY)
    truths = None if found.truth_GPHY is None else [float(found.truth_GPHY[one]) for one in at]
    draw_forest(
        ax, range(len(others)), [float(found.mean_GPHY[one]) for one in at],
        [(float(low[one]), float(high[one])) for one in at], [plan_style(i) for i in others], truths=truths,
    )  # fmt: skip
    ax.set_yticks(range(len(others)), [label_lines(effects.plans[i].name, 18) for i in others])
    ax.set_ylim(len(others) - 0.4, -0.6)


def _draw_average(ax: Axes, effects: AverageEffects, g: int, k: int) -> None:
    for i, plan in enumerate(effects.plans[:MOST_PLANS]):
        (colour, marker), shift = plan_style(i), BESIDE * (i - (min(len(effects.plans), MOST_PLANS) - 1) / 2)
        steps = np.arange(1, len(plan) + 1) + shift  # side by side: bands of several plans would hide each other
        mean_H = effects.outcomes.mean_GPHY[g, i, : len(plan), k]
        low_H, high_H = (limit[0, g, i, : len(plan), k] for limit in effects.outcomes.limits_LGPHY)
        draw_steps(ax, steps, mean_H, (low_H, high_H), (colour, marker))
        if effects.outcomes.truth_GPHY is not None:
            ax.plot(steps, effects.outcomes.truth_GPHY[g, i, : len(plan), k], color=BLACK, ls=":", lw=1.2)
    ax.set_title(f"{label_text(effects.groups[g], 40)} ({effects.moments_G[g]:,})")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel(f"{steps_axis(effects.schema.step)} after the forecast start")


def draw_steps(
    ax: Axes,
    steps: NDArray[np.floating],
    value_H: NDArray[np.floating],
    limits: tuple[NDArray[np.floating], NDArray[np.floating]],
    style: tuple[str, str],
    few_H: NDArray[np.bool_] | None = None,
) -> None:
    """Draw a plan's numbers by step with a bar at each; hollow and dashed where few stand behind them."""
    colour, marker = style
    if few_H is not None and few_H.any():
        ax.plot(steps, value_H, color=colour, marker=marker, mfc="white", ls=DASHES, lw=1.2)
        value_H = np.where(few_H, np.nan, value_H)
    ax.plot(steps, value_H, color=colour, marker=marker)
    if not np.isnan(limits[0]).all():
        ax.vlines(steps, *limits, color=colour, lw=1.2)


MOST_TICKS: Final = 500  # of the rug: some of the doses that were given, evenly spread
SIDES: Final = ("lower", "upper")
HALF: Final = 0.5  # of a group's answers: more than these have a light before the mean is marked


@dataclass(frozen=True, eq=False, slots=True)
class Curve:
    """Estimates `[P]` by dose, at the first and the last step; limits, truth and lights are of the last, if known."""

    first: Floats
    last: Floats
    limits: tuple[Floats, Floats] | None
    truth: Floats | None
    rating: NDArray[np.int8] | None

    @classmethod
    def of_answer(cls, report: WhatIfReport, model: ModelAnswers, count: int, outcome: int) -> "Curve":
        """Return the curve of a subject, without answers that are not to be shown."""
        bands = [report.band_of(model, i) for i in range(count)]
        hidden = np.array([report.hidden_of(model, i)[:, outcome] for i in range(count)])
        estimate = np.where(hidden, np.nan, [band.estimate[:, outcome] for band in bands])
        limits, rating = None, None
        if bands[0].lower is not None and bands[0].upper is not None:
            lower, upper = (np.array([getattr(band, side)[0, -1, outcome] for band in bands]) for side in SIDES)
            lower, upper = (np.where(hidden[:, -1], np.nan, values) for values in (lower, upper))
            limits = (lower, upper) if np.isfinite(lower).any() else None
        if model.plan_ratings is not None:
            rating = np.array(
                [SUPPORT_LEVELS.index(own.support[-1][outcome]) for own in model.plan_ratings], dtype=np.int8
            )
        truth = None if report.truth is None else np.array([values[-1, outcome] for values in report.truth])
        return cls(estimate[:, 0], estimate[:, -1], limits, truth, rating)

    @classmethod
    def of_average(cls, effects: AverageEffects, group: int, outcome: int) -> "Curve":
        """Return the curve of a group's mean, with the light that most of its answers have or exceed."""
        found = effects.outcomes
        mean_PH = found.mean_GPHY[group, :, :, outcome]
        low_P, high_P = (limit[0, group, :, -1, outcome] for limit in found.limits_LGPHY)
        limits = None if np.isnan(low_P).all() else (low_P, high_P)
        truth = None if found.truth_GPHY is None else found.truth_GPHY[group, :, -1, outcome]
        rating = None
        if effects.ratings_GPL is not None:
            share_PL = effects.ratings_GPL[group] / max(int(effects.moments_G[group]), 1)
            amber_P, red_P = share_PL[:, 1:].sum(axis=1) > HALF, share_PL[:, 2] > HALF
            rating = np.where(red_P, 2, amber_P).astype(np.int8)
        return cls(mean_PH[:, 0], mean_PH[:, -1], limits, truth, rating)


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
    legend = _legend(curves, first, last, f"{100 * found[0].levels[0]:g} % interval of the mean", ", most answers")
    return _plot(curves, labels, titles, sweep, given, legend, "Each dose from the forecast start on", path)


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
    colour, _ = plan_style(0)
    with figure(2.6 + 3.9 * len(titles), 1.3 + 2.9 * len(labels)) as drawn:
        grid = drawn.subplots(len(labels), len(titles), squeeze=False, sharex=True, sharey="row")
        for row, line, label in zip(grid, curves, labels, strict=True):
            for axes, curve in zip(row, line, strict=True):
                axes.axvspan(sweep.dose.low, sweep.dose.high, color="0.95", lw=0, zorder=0)
                if curve.limits is not None:
                    axes.fill_between(sweep.values, *curve.limits, color=tint(colour, SHADE), lw=0, zorder=1)
                if curve.truth is not None:
                    axes.plot(sweep.values, curve.truth, color=BLACK, ls=":", zorder=4)
                axes.plot(sweep.values, curve.first, color=GREY, lw=1.2, ls="--", zorder=2)
                axes.plot(sweep.values, curve.last, color=colour, zorder=3)
                for rating, face in ((1, tint(colour, 0.4)), (2, "white")) if curve.rating is not None else ():
                    at = curve.rating == rating
                    axes.plot(sweep.values[at], curve.last[at], ls="", marker="o", mfc=face, mec=colour, zorder=5)
                inside = given[(given >= axes.get_xlim()[0]) & (given <= axes.get_xlim()[1])]
                some = np.sort(inside)[:: max(1, -(-len(inside) // MOST_TICKS))]
                axes.plot(some, np.zeros(len(some)), ls="", marker="|", color=BLACK, alpha=0.25, ms=9, clip_on=False,
                          transform=axes.get_xaxis_transform())  # fmt: skip
            row[0].set_ylabel(label_text(label, 40))
        for axes, title in zip(grid[0], titles, strict=True):
            axes.set_title(label_text(title, 40))
        for axes in grid[-1]:
            axes.set_xlabel(label_text(labelled(sweep.dose.name, sweep.dose.unit), 40))
        drawn.legend(handles=legend, loc="outside right center", labelspacing=0.9)
        caption(drawn, who)
        return write_figure(drawn, path)


def _legend(curves: Sequence[Sequence[Curve]], first: str, last: str, band: str, whose: str) -> list[Line2D | Patch]:
    """Return what curves at the `first` and the `last` step, the band and marks, of `whose` answers, are called."""
    (colour, _), every = plan_style(0), [curve for line in curves for curve in line]
    made: list[Line2D | Patch] = [Line2D([], [], color=colour, label=f"estimate {last}")]
    if any(curve.limits is not None for curve in every):
        made.append(Patch(color=tint(colour, SHADE), lw=0, label=band))
    made.append(Line2D([], [], color=GREY, ls="--", label=f"estimate {first}"))
    if any(curve.truth is not None for curve in every):
        made.append(Line2D([], [], color=BLACK, ls=":", label=f"truth {last} (simulator)"))
    if any(curve.rating is not None for curve in every):
        made += [Line2D([], [], ls="", marker="o", mec=colour, mfc=face, label=f"{words}{whose}")
                 for words, face in (("rare in the data", tint(colour, 0.4)), ("not supported", "white"))]  # fmt: skip
    return [*made, Patch(color="0.95", label="range in the training data"),
            Line2D([], [], ls="", marker="|", color=BLACK, alpha=0.5, label="doses in the data")]  # fmt: skip


ABOUT_GAMMA: Final = "Gamma: the factor by which an unrecorded variable may change the odds of treatment at every step"
ALLOWED: Final = "range under hidden\nconfounding; the marker\nshows where it reaches 0"
BAR: Final = 4.0  # width of bars, in points
APART: Final = 1.015  # factor between the Gammas at which bars of two plans stand
DRAWN: Final = 41  # Gammas between the smallest and the largest


def plot_sensitivity(report: WhatIfReport, found: Sensitivity, path: Path) -> Path:
    """Draw the bounds of each plan's difference from the reference at their last common step, and where they hold zero.

    Raises:
        StorageError: the file cannot be written.
    """
    outcomes, when = report.schema.outcomes, step_word(report.schema.step)
    others = [i for i in range(len(found.plans)) if i != found.reference]
    gammas = np.geomspace(found.gammas[0], found.gammas[-1], DRAWN)
    fine = [*replace(found, gammas=tuple(gammas.tolist())).differences()]
    flips = {(row["plan"], row["outcome"]): row for row in found.flips()}
    with figure(3.4 + 3.8 * len(outcomes), 3.6) as drawn:
        for ax, outcome in zip(drawn.subplots(1, len(outcomes), squeeze=False)[0], outcomes, strict=True):
            for place, i in enumerate(others):
                plan, (colour, marker) = found.plans[i], plan_style(i)
                last = flips[plan, outcome.name]
                if last["difference"] is None:  # left out
                    continue
                of = (outcome.name, plan, last["step"])
                mine = [row for row in fine if (row["outcome"], row["plan"], row["step"]) == of]
                lower, upper = (np.array([row[side] for row in mine]) for side in SIDES)
                if len(others) == 1:
                    ax.fill_between(gammas, lower, upper, color=tint(colour, SHADE), lw=0, zorder=1)
                else:  # bands would hide one another
                    at = np.array(found.gammas) * APART ** (place - (len(others) - 1) / 2)
                    bars = (np.interp(at, gammas, side) for side in (lower, upper))
                    ax.vlines(at[1:], *(side[1:] for side in bars), color=tint(colour, 2 * SHADE), lw=BAR, zorder=1.5)
                ax.plot(gammas, np.stack([lower, upper], axis=1), color=colour, lw=1.0)
                ax.axhline(last["difference"], color=colour, lw=1.0, ls=DASHES)
                if last["gamma"] is not None and last["gamma"] <= gammas[-1]:
                    ax.plot([last["gamma"]], [0.0], color=colour, marker=marker, ms=7, mec="white", zorder=5, ls="")
            ax.axhline(0.0, color=BLACK, lw=0.9)
            ax.set_xscale("log")
            ax.set_xlim(found.gammas[0], found.gammas[-1] * APART ** len(others))
            ax.set_xticks(list(found.gammas))
            ax.xaxis.set_minor_locator(NullLocator())
            ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            ax.set_xlabel("Gamma, the strength of hidden confounding")
            reference = label_text(found.plans[found.reference], 24)
            ax.set_ylabel(f"{label_text(labelled(outcome.name, outcome.unit), 50)}:\ndifference from {reference}")
            ax.set_title(f"{label_text(found.model, 30)}, at the last common {when}")
        handles = [
            Line2D([], [], color=plan_style(i)[0], marker=plan_style(i)[1], label=label_lines(found.plans[i], 26))
            for i in others
        ]
        dashed = Line2D([], [], color=GREY, lw=1.0, ls=DASHES, label="estimate")
        allowed: dict[str, Any] = {"color": tint(GREY, 2 * SHADE), "label": ALLOWED}
        room = Line2D([], [], lw=BAR, **allowed) if len(handles) > 1 else Patch(lw=0, **allowed)
        drawn.legend(handles=[*handles, dashed, room], loc="outside right center", labelspacing=0.9)
        caption(drawn, ABOUT_GAMMA)
        return write_figure(drawn, path)
