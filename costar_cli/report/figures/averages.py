"""Average outcomes under each plan, by group, with intervals."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from costar_cli.data.schema import labelled, steps_axis
from costar_cli.questions import AverageEffects
from costar_cli.report.figures.style import BLACK, caption, figure, label_lines, label_text, plan_style, write_figure

MOST_GROUPS: Final = 6
MOST_PLANS: Final = 12
APART: Final = 0.07  # steps between plans


def plot_averages(found: Sequence[AverageEffects], path: Path) -> Path:
    """Draw the mean of each outcome by step: a row per model and outcome, a column per group, a line per plan.

    Raises:
        StorageError: the file cannot be written.
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
            about[f"{who}bars: {100 * effects.levels[0]:g} % intervals of the mean, which include {kind}"] = None
    absent = [np.isnan(effects.outcomes.half_LGPHY).all(axis=(0, 2, 3, 4)) for effects in found]
    few = any(absent_G.any() and not absent_G.all() for absent_G in absent)
    with figure(3.4 + 2.9 * len(columns), 1.4 + 2.7 * len(rows)) as drawn:
        axes = drawn.subplots(len(rows), len(columns), squeeze=False, sharey="row")
        for (effects, k), line in zip(rows, axes, strict=True):
            for g, ax in enumerate(line):
                _draw(ax, effects, g, k)
            outcome = effects.schema.outcomes[k]
            words = label_text(labelled(outcome.name, outcome.unit), 50)
            line[0].set_ylabel(f"mean {words}\n{label_text(effects.label, 30)}")
        handles = [
            Line2D([], [], color=plan_style(i)[0], marker=plan_style(i)[1], label=label_lines(plan.name, 26))
            for i, plan in enumerate(plans)
        ]
        truth = found[0].outcomes.truth_GPHY is not None
        handles += [Line2D([], [], color=BLACK, ls=":", label="the simulator's mean")] * truth
        caption(drawn, *about, *["groups of fewer than 20 units have no interval"] * few)
        drawn.legend(handles=handles, loc="outside right center")
        return write_figure(drawn, path)


def _draw(ax: Axes, effects: AverageEffects, g: int, k: int) -> None:
    for i, plan in enumerate(effects.plans[:MOST_PLANS]):
        (colour, marker), shift = plan_style(i), APART * (i - (min(len(effects.plans), MOST_PLANS) - 1) / 2)
        steps = np.arange(1, len(plan) + 1) + shift  # side by side: bands of several plans would hide each other
        mean_H = effects.outcomes.mean_GPHY[g, i, : len(plan), k]
        low_H, high_H = (limit[0, g, i, : len(plan), k] for limit in effects.outcomes.limits_LGPHY)
        ax.plot(steps, mean_H, color=colour, marker=marker)
        if not np.isnan(low_H).all():
            ax.vlines(steps, low_H, high_H, color=colour, lw=1.2)
        if effects.outcomes.truth_GPHY is not None:
            ax.plot(steps, effects.outcomes.truth_GPHY[g, i, : len(plan), k], color=BLACK, ls=":", lw=1.2)
    ax.set_title(f"{label_text(effects.groups[g], 40)} ({effects.moments_G[g]:,})")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel(f"{steps_axis(effects.schema.step)} after the origin")
