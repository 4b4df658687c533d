"""The section of a data report on overlap: how likely treatments were, by who got them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from costar_cli.report.figures.style import BLUE, VERMILION, figure, label_text, shade, spans_decades

if TYPE_CHECKING:
    from costar_cli.inference.overlap import ArmPropensity, Overlap

WIDTH_IN: Final = 8.2
ROW_IN: Final = 1.9
MOST_TREATMENTS: Final = 6
MOST_AXES: Final = 3  # outcomes and time
LONGEST: Final = 32
ARMS: Final = {True: ("given", VERMILION, "-"), False: ("not given", BLUE, "--")}


def draw_overlap(overlap: "Overlap", labels: Mapping[str, str]) -> Figure:
    """Draw the probability of each treatment in both arms, along outcomes and time, a row per treatment and domain.

    `labels` are what axes call the outcomes, with their units.
    """
    along = list(dict.fromkeys(arm.along for arm in overlap.propensities))
    along = [*along[: MOST_AXES - 1], along[-1]] if len(along) > MOST_AXES else along
    names = list(dict.fromkeys(arm.treatment for arm in overlap.propensities))[:MOST_TREATMENTS]
    rows = [(arm.treatment, arm.domain) for arm in overlap.propensities if arm.treatment in names]
    rows = list(dict.fromkeys(rows))
    with figure(WIDTH_IN, 0.5 + ROW_IN * len(rows)) as drawn:
        grid = drawn.subplots(len(rows), len(along), sharex="col", sharey=True, squeeze=False)
        for line, (name, domain) in zip(grid, rows, strict=True):
            for axes, what in zip(line, along, strict=True):
                for arm in overlap.propensities:
                    if (arm.treatment, arm.domain, arm.along) == (name, domain, what):
                        _draw_arm(axes, arm)
            line[0].set_title(f"{label_text(name, LONGEST)}, {domain}")
            line[0].set_ylabel("probability")
        for axes, what in zip(grid[-1], along, strict=True):
            axes.set_xlabel(label_text(labels.get(what, what), LONGEST))
            if what in labels and spans_decades(  # where an arm has enough decisions to be drawn
                [np.array([at for at, median in zip(arm.at, arm.median, strict=True) if median is not None])
                 for arm in overlap.propensities if arm.along == what]
            ):  # fmt: skip
                axes.set_xscale("log")
        grid[0, 0].set_ylim(0, 1)
        grid[0, 0].yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        grid[0, -1].legend(loc="upper left", bbox_to_anchor=(1, 1), handlelength=1.8)
    return drawn


def _draw_arm(axes: Axes, arm: "ArmPropensity") -> None:
    label, colour, dashes = ARMS[arm.given]
    lower, median, upper = (
        np.array([np.nan if value is None else value for value in line]) for line in (arm.lower, arm.median, arm.upper)
    )
    shade(axes, arm.at, (lower, upper), colour, 0.15)
    axes.plot(arm.at, median, color=colour, linestyle=dashes, marker=".", label=label)
