"""How far hidden confounding could move the differences between plans: a panel per outcome, bounds over Gamma."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, NullLocator

from costar_cli.data.schema import labelled, step_word
from costar_cli.questions import WhatIfReport
from costar_cli.questions.sensitivity import Sensitivity
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

ABOUT = "Gamma: an unrecorded variable multiplies or divides the odds of treatment by it, at every step"
ALLOWED = "what hidden confounding\nallows; marked where\nit reaches 0"
SHADE = 0.18
BAR = 4.0  # width of bars, in points
APART = 1.015  # factor between the Gammas at which bars of two plans stand
DASHES: Any = (0, (4, 2))
DRAWN = 41  # Gammas between the smallest and the largest


def plot_sensitivity(report: WhatIfReport, found: Sensitivity, path: Path) -> Path:
    """Draw the bounds of each plan's difference from the reference at their last common step, and where they hold zero.

    Raises:
        StorageError: the file cannot be written.
    """
    outcomes = report.schema.outcomes
    with figure(3.4 + 3.8 * len(outcomes), 3.6) as drawn:
        for ax, outcome in zip(drawn.subplots(1, len(outcomes), squeeze=False)[0], outcomes, strict=True):
            _draw(ax, found, outcome.name)
            when = step_word(report.schema.step)
            reference = label_text(found.plans[found.reference], 24)
            ax.set_ylabel(f"{label_text(labelled(outcome.name, outcome.unit), 50)}:\ndifference from {reference}")
            ax.set_title(f"{label_text(found.model, 30)}, at the last common {when}")
        handles = [
            Line2D([], [], color=plan_style(i)[0], marker=plan_style(i)[1], label=label_lines(plan, 26))
            for i, plan in enumerate(found.plans)
            if i != found.reference
        ]
        dashed = Line2D([], [], color=GREY, lw=1.0, ls=DASHES, label="estimate")
        allowed: dict[str, Any] = {"color": tint(GREY, 2 * SHADE), "label": ALLOWED}
        room = Line2D([], [], lw=BAR, **allowed) if len(handles) > 1 else Patch(lw=0, **allowed)
        drawn.legend(handles=[*handles, dashed, room], loc="outside right center", labelspacing=0.9)
        caption(drawn, ABOUT)
        return write_figure(drawn, path)


def _draw(ax: Axes, found: Sensitivity, outcome: str) -> None:
    gammas = np.geomspace(found.gammas[0], found.gammas[-1], DRAWN)
    fine = replace(found, gammas=tuple(gammas.tolist())).differences()
    rows = [row for row in fine if row["outcome"] == outcome]
    flips = {row["plan"]: row for row in found.flips() if row["outcome"] == outcome}
    others = [i for i in range(len(found.plans)) if i != found.reference]
    for place, i in enumerate(others):
        plan, (colour, marker) = found.plans[i], plan_style(i)
        last = flips[plan]
        if last["difference"] is None:  # left out
            continue
        mine = [row for row in rows if (row["plan"], row["step"]) == (plan, last["step"])]
        lower, upper = (np.array([row[side] for row in mine]) for side in ("lower", "upper"))
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
