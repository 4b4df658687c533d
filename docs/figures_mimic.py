"""Draw docs/img/mimic-*.png and print the tables of docs/data-mimic.md; `--tables` prints alone.

python docs/figures_mimic.py [--tables]
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from mimic_numbers import CALIBRATION_STAYS, Measured, calibration, lag_correlation, pair_correlations, shifts, tables

from costar_cli.data import Dataset, Part
from costar_cli.data.icu.semi_synthetic import simulate_mimic
from costar_cli.data.icu.settings import MimicConfig
from costar_cli.data.icu.table import IcuTable, embedded_cohort
from costar_cli.report.figures.style import BLACK, BLUE, COLOURS, GREY, LIGHT_GREY, figure, save
from costar_cli.reporting import NullReporter
from simulators.icu import COVARIATES, IcuCohort, simulate_icu
from simulators.icu.targets import CORRELATIONS, LAG_CORRELATIONS, RECORDED

PICTURES = Path(__file__).parent / "img"
SHOWN = ("heart rate", "mean blood pressure", "glucose", "creatinine")
VERMILION = COLOURS[1]


def draw_calibration(cohort: IcuCohort) -> Path:
    """Draw how near the cohort is to its targets."""
    with figure(9.6, 5.6) as drawn:
        axes = drawn.subplots(1, 3, width_ratios=[1.25, 1, 1])
        _draw_moments(axes[0], calibration(cohort))
        _draw_missing(axes[1], calibration(cohort))
        _draw_correlations(axes[2], cohort)
        return save(drawn, PICTURES / "mimic-calibration.png")


def draw_data(dataset: Dataset, table: IcuTable) -> Path:
    """Draw one patient: what was recorded and filled, what treatment changes, and how old patients differ."""
    part = Part("source", "test")
    panel = dataset.panels[part]
    row = int(np.flatnonzero(panel.length >= 70)[0])
    with figure(9.6, 6.4) as drawn:
        left, right = drawn.subfigures(1, 2, width_ratios=[1.45, 1])
        _draw_patient(left, dataset, part, row, table)
        _draw_shift(right.subplots(), shifts(dataset))
        return save(drawn, PICTURES / "mimic-data.png")


def _draw_moments(axes: Axes, found: dict[str, Measured]) -> None:
    rows = np.arange(len(found))[::-1]
    for offset, field, colour, label in ((0.14, "mean", BLUE, "mean"), (-0.14, "sd", VERMILION, "sd")):
        ratio = [getattr(found[name], field) / getattr(RECORDED[name], field) for name in found]
        axes.plot(ratio, rows + offset, "o", color=colour, label=label)
    axes.axvline(1.0, color=GREY, linewidth=0.8)
    for distance, colour in ((0.05, BLUE), (0.10, VERMILION)):  # what tests allow
        for bound in (1 - distance, 1 + distance):
            axes.axvline(bound, color=colour, linewidth=0.8, linestyle=(0, (2, 3)))
    axes.set(yticks=rows, yticklabels=list(found), xlim=(0.88, 1.12), xlabel="measured / target")
    axes.set_title("Level and spread")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.07), ncols=2)


def _draw_missing(axes: Axes, found: dict[str, Measured]) -> None:
    target = np.array([RECORDED[name].missing_percent for name in found])
    measured = np.array([values.missing_percent for values in found.values()])
    axes.plot([0.005, 100], [0.005, 100], color=GREY, linewidth=0.8)
    axes.plot(100.0 - target, 100.0 - measured, "o", color=BLUE)
    axes.set(xscale="log", yscale="log", xlabel="% of stay-hours with a value, target", ylabel="measured")
    axes.set_title("How often something is recorded")


def _draw_correlations(axes: Axes, cohort: IcuCohort) -> None:
    axes.plot([-1, 1], [-1, 1], color=GREY, linewidth=0.8)
    demo = [pair.demo for pair in CORRELATIONS]
    axes.plot(demo, pair_correlations(cohort), "o", color=BLUE, label="two variables")
    lagged = [
        (target, lag_correlation(cohort, name, lag))
        for name, t in LAG_CORRELATIONS.items()
        for lag, target in t.items()
    ]
    axes.plot(*zip(*lagged, strict=True), "s", color=VERMILION, label="one variable, hours apart")
    axes.set(xlabel="open MIMIC-III demo", ylabel="measured", xlim=(-0.7, 1.05), ylim=(-0.7, 1.05))
    axes.set_title("Correlations")
    axes.legend(loc="lower right", fontsize=7.5, handletextpad=0.1)


def _draw_patient(place: Figure, dataset: Dataset, part: Part, row: int, table: IcuTable) -> None:
    panel, length = dataset.panels[part], int(dataset.panels[part].length[row])
    rows = place.subplots(len(SHOWN) + 3, 1, sharex=True, height_ratios=[1] * len(SHOWN) + [1.4, 1.4, 0.7])
    hour = np.arange(length)
    where, _ = table.hours_of(np.flatnonzero(table.subject_id == panel.subject_id[row]), length)
    for axes, name in zip(rows, SHOWN, strict=False):
        column = COVARIATES.index(name)
        axes.plot(hour, panel.covariates[row, :length, column], color=LIGHT_GREY, drawstyle="steps-post")
        axes.plot(hour, table.values[where[0], column], ".", color=BLACK, markersize=3.5)
        axes.set_ylabel(name.replace(" ", "\n", 1), fontsize=7.5)
        axes.tick_params(labelsize=7)
    untreated = dataset.truth[part]["untreated"][row, :length]
    for j, (axes, outcome) in enumerate(zip(rows[len(SHOWN) :], ("y1", "y2"), strict=False)):
        axes.plot(hour, untreated[:, j], color=GREY, linestyle=(0, (4, 2)), label="never treated")
        axes.plot(hour, panel.outcomes[row, :length, j], color=BLUE, label="as treated")
        axes.set_ylabel(outcome)
        axes.tick_params(labelsize=7)
    rows[len(SHOWN)].legend(loc="upper right", ncols=2, fontsize=7.5)
    for k in range(len(dataset.schema.treatments.names)):
        given = np.flatnonzero(panel.treatments[row, :length, k])
        rows[-1].plot(given, np.full(len(given), -k), "|", color=COLOURS[k + 1], markersize=7)
    rows[-1].set(yticks=[0, -1, -2], yticklabels=dataset.schema.treatments.names, ylim=(-2.6, 0.6), xlabel="hour")
    rows[-1].grid(visible=False)
    rows[0].set_title("One patient: recorded (dots), filled (line); outcomes; treatments")


def _draw_shift(axes: Axes, found: dict[str, float]) -> None:
    names = sorted(found, key=lambda name: found[name])
    colours = [VERMILION if name in {"y1", "y2"} else BLUE for name in names]
    axes.barh(np.arange(len(names)), [found[name] for name in names], color=colours, height=0.7)
    axes.axvline(0, color=GREY, linewidth=0.8)
    axes.set(yticks=np.arange(len(names)), yticklabels=names, xlabel="difference of means in sd")
    axes.tick_params(axis="y", labelsize=7)
    axes.grid(visible=False)
    axes.set_title("Older than 85, against 20 to 45", loc="right")


def main() -> None:
    """Print the tables and draw the pictures."""
    sys.stdout.write("\n".join(tables()))
    if "--tables" in sys.argv[1:]:
        return
    cohort = simulate_icu(CALIBRATION_STAYS, seed=0)
    config = MimicConfig(stays=CALIBRATION_STAYS, horizon=2, plans_per_origin=1)
    table = IcuTable.of_cohort(embedded_cohort(config, NullReporter()))
    for path in (draw_calibration(cohort), draw_data(simulate_mimic(config, NullReporter(), table), table)):
        sys.stdout.write(f"wrote {path}\n")


if __name__ == "__main__":
    main()
