"""Figures of effects in a population: outcomes by plan and step, balance, the natural and the observed course."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from costar_cli.data.schema import labelled, steps_axis
from costar_cli.effects import ESTIMATORS, FEW, EffectReport
from costar_cli.questions.effect_tables import MAIN
from costar_cli.report.figures.effects import BESIDE, MOST_GROUPS, MOST_PLANS, draw_steps
from costar_cli.report.figures.style import (
    BLACK,
    BLUE,
    CUT,
    GREY,
    caption,
    figure,
    frame_limits,
    label_lines,
    label_text,
    legend_below,
    mark_cut,
    plan_style,
    write_figure,
)

MOST_OUTCOMES: Final = 4
MOST_COLUMNS: Final = 25  # of histories, in a figure of balance
MOST_BESIDE: Final = 4  # plans of such a figure
BALANCED: Final = 0.1  # sds: smaller differences are usually thought not to matter
ABOUT_FEW: Final = f"hollow, dashed: fewer than {FEW:g} effective followers, intervals may miss their nominal level"

Row = Mapping[str, Any]


@dataclass(frozen=True)
class _Panel:
    """What one field of the figure shows: an outcome, a quantity, and the column's rows."""

    outcome: str
    quantity: str
    title: str
    rows: Sequence[Row]

    @property
    def compares(self) -> bool:
        return self.quantity.endswith(("difference", "ratio"))

    @property
    def sides(self) -> tuple[str, str]:
        """Return the names of limits: those of all steps at once, of contrasts."""
        ending = "_simultaneous" if self.compares else ""
        return f"lower{ending}", f"upper{ending}"

    def column(self, plan: str, name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
        return np.array([row[name] for row in self.rows if row["plan"] == plan], dtype=np.float64)

    def frame(self) -> list[np.ndarray[Any, np.dtype[np.float64]]]:
        """Return the estimates, then the limits."""
        return [np.array([row[name] for row in self.rows], dtype=np.float64) for name in ("estimate", *self.sides)]


def plot_effects(report: EffectReport, path: Path) -> Path:
    """Draw and write the figure of effects.

    Raises:
        UsageError: the file's name says no kind of figure.
        StorageError: the file cannot be written.
    """
    return write_figure(draw_effects(report), path)


def draw_effects(report: EffectReport) -> Figure:
    """Return a figure of means or risks by step under each plan, and below them of differences from the reference.

    A column per estimator; per group, by the first estimator, where there are groups; else per outcome.
    """
    grid, several = _grid(report), len(report.effects.groups) > 1 or len(report.effects.settings.estimators) > 1
    plans = report.effects.plans[:MOST_PLANS]
    with figure(3.4 + 2.9 * len(grid[0]), 1.6 + 2.5 * len(grid)) as drawn:
        axes = drawn.subplots(len(grid), len(grid[0]), squeeze=False)
        marks: list[bool] = []
        for line, panels in zip(axes, grid, strict=True):
            for ax, panel in zip(line, panels, strict=True):
                if panel is None:
                    ax.set_axis_off()
                    continue
                beside = [other for other in panels if other is not None] if several else [panel]
                marks.append(_draw_panel(ax, panel, beside, report))
        for ax, panel in zip(axes[0], grid[0], strict=True):
            ax.set_title(label_text(panel.title, 40) if panel else "")
        handles = [
            Line2D([], [], color=plan_style(i)[0], marker=plan_style(i)[1], label=label_lines(plan.name, 26))
            for i, plan in enumerate(plans)
        ]
        drawn.legend(handles=handles, loc="outside right center")
        shown = [panel for line in grid for panel in line if panel is not None]
        level = f"{100 * report.request.levels[0]:g} %"
        alone, together = (any(panel.compares is compares for panel in shown) for compares in (False, True))
        bands = f"{level} bands, simultaneous over all steps"
        about = [f"bars: {bands}"]
        if alone:
            about = [f"bars: {level} intervals at each step" + f"; for contrasts, {bands}" * together]
        if all(row["lower"] is None for panel in shown for row in panel.rows):
            about = ["no intervals"]
        if len(report.effects.groups) > 1 or len(report.effects.settings.estimators) == 1:
            about.insert(0, f"estimates: {ESTIMATORS[report.effects.settings.estimators[0]]}")
        about += [ABOUT_FEW] * any(not row["supported"] for panel in shown for row in panel.rows)
        about += [f"triangles: an interval that {CUT}"] * any(marks)
        if {row["outcome"] for row in report.rows} - {panel.outcome for panel in shown}:
            about.append("the table lists further outcomes")
        caption(drawn, *about)
        return drawn


def _grid(report: EffectReport) -> list[list[_Panel | None]]:
    """Return the fields of the figure, line by line; None where a column has fewer."""
    effects, rows = report.effects, report.rows
    estimators, groups = effects.settings.estimators, effects.groups[:MOST_GROUPS]
    chosen = [row for row in rows if report.request.measure or row["quantity"] in MAIN]
    asked = dict.fromkeys((row["outcome"], row["quantity"]) for row in chosen)
    outcomes = list(dict.fromkeys(outcome for outcome, _ in asked))[:MOST_OUTCOMES]

    def panel(outcome: str, quantity: str, title: str, estimator: str, group: str) -> _Panel:
        of = (outcome, quantity, estimator, group)
        mine = [row for row in rows if (row["outcome"], row["quantity"], row["estimator"], row["group"]) == of]
        return _Panel(outcome, quantity, title, mine)

    lines = [(outcome, quantity) for outcome in outcomes for name, quantity in asked if name == outcome]
    first, everybody = estimators[0], groups[0]
    if len(groups) > 1:
        counts = effects.in_GM.sum(axis=1)
        titles = [f"{label_text(group, 40)} ({counts[g]:,})" for g, group in enumerate(groups)]
        return [[panel(*of, title, first, group) for group, title in zip(groups, titles, strict=True)] for of in lines]
    if len(estimators) > 1:
        return [[panel(*of, ESTIMATORS[name], name, everybody) for name in estimators] for of in lines]
    columns = [[quantity for name, quantity in asked if name == outcome] for outcome in outcomes]
    return [
        [panel(outcome, of[i], "", first, everybody) if i < len(of) else None
         for outcome, of in zip(outcomes, columns, strict=True)]
        for i in range(max(map(len, columns)))
    ]  # fmt: skip


def _draw_panel(ax: Axes, panel: _Panel, beside: Sequence[_Panel], report: EffectReport) -> bool:
    """Draw a field on the scale of those beside it, and return whether intervals are cut at its frame."""
    plans = report.effects.plans[:MOST_PLANS]
    frames = [one.frame() for one in beside]
    lines = [frame[0] for frame in frames] + [np.array([_null(panel)])] * panel.compares
    ax.set_ylim(*frame_limits(lines, [limit for frame in frames for limit in frame[1:]], room_of_flat=1.0))
    cut = False
    for i, plan in enumerate(plans):
        value_H, few_H = panel.column(plan.name, "estimate"), panel.column(plan.name, "supported") == 0
        if not len(value_H):
            continue
        steps = panel.column(plan.name, "step") + BESIDE * (i - (len(plans) - 1) / 2)
        limits = panel.column(plan.name, panel.sides[0]), panel.column(plan.name, panel.sides[1])
        draw_steps(ax, steps, value_H, limits, plan_style(i), few_H)
        for limit_H in limits:
            cut |= mark_cut(ax, steps, limit_H, plan_style(i)[0])
    if panel.compares:
        ax.axhline(_null(panel), color=BLACK, lw=0.9)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel(f"{steps_axis(report.effects.trials.schema.step)} after time zero")
    if ax.get_subplotspec() is None or ax.get_subplotspec().is_first_col() or len(beside) == 1:  # type: ignore[union-attr]
        unit = next((row["unit"] for row in panel.rows), "")
        reference = label_text(report.effects.plans[report.effects.reference].name, 24)
        words, against = label_text(labelled(panel.outcome, unit), 40), "to" if _null(panel) else "from"
        ax.set_ylabel(f"{panel.quantity} of {words}" + f"\n{against} {reference}" * panel.compares)
    return cut


def _null(panel: _Panel) -> float:
    """Return what a contrast is where plans do not differ."""
    return 1.0 if panel.quantity.endswith("ratio") else 0.0


def draw_balance(rows: Sequence[Row]) -> Figure | None:
    """Return a love plot of rows of `balance`: by plan and column, the largest difference over steps, and its range.

    Steps that few follow are left out. None where everybody follows every plan.
    """
    rows = [row for row in rows if row["effective"] >= FEW]
    moved = {row["plan"] for row in rows if abs(row["before"]) > 0}
    plans = [plan for plan in dict.fromkeys(row["plan"] for row in rows) if plan in moved][:MOST_BESIDE]
    if not plans:
        return None
    names = list(dict.fromkeys(row["column"] for row in rows))
    size = {name: max(abs(row["before"]) for row in rows if row["column"] == name) for name in names}
    names = sorted(names, key=lambda name: size[name])[-MOST_COLUMNS:]
    with figure(2.6 + 2.7 * len(plans), 1.5 + 0.26 * len(names)) as drawn:
        for ax, plan in zip(drawn.subplots(1, len(plans), squeeze=False, sharey=True, sharex=True)[0], plans,
                            strict=True):  # fmt: skip
            for y, name in enumerate(names):
                mine = [row for row in rows if (row["plan"], row["column"]) == (plan, name)]
                for side, shift, colour, face in (("before", 0.14, GREY, "white"), ("after", -0.14, BLUE, BLUE)):
                    values = np.array([row[side] for row in mine])
                    ax.plot([values.min(), values.max()], [y + shift] * 2, color=colour, lw=1.0)
                    most = values[np.abs(values).argmax()]
                    ax.plot([most], [y + shift], ls="", marker="o", color=colour, mfc=face)
            ax.axvline(0.0, color=BLACK, lw=0.9)
            for edge in (-BALANCED, BALANCED):
                ax.axvline(edge, color=GREY, lw=0.8, ls=":")
            ax.set_ylim(-0.6, len(names) - 0.4)
            ax.set_title(label_text(plan, 34))
            ax.set_xlabel("difference in sd")
            ax.set_yticks(range(len(names)), [label_text(labelled(name, ""), 34) for name in names])
        handles = [Line2D([], [], color=GREY, marker="o", mfc="white", label="before weighting"),
                   Line2D([], [], color=BLUE, marker="o", label="after weighting")]  # fmt: skip
        legend_below(drawn, handles)
        return drawn


def draw_natural(rows: Sequence[Row], step: str) -> Figure:
    """Return a figure of rows of `natural_course`: the observed mean of each quantity by step, and what models say."""
    names = list(dict.fromkeys(row["outcome"] for row in rows))[:MOST_OUTCOMES]
    looks: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("observed", "observed", {"color": BLACK, "ls": "", "marker": "o"}),
        ("weighted", "weighted for loss to follow-up", {"color": GREY, "ls": "--", "marker": "s", "mfc": "white"}),
        ("gformula", "g-computation", {"color": BLUE, "ls": "-"}),
    )
    lost = any(abs(row["weighted"] - row["observed"]) > 1e-9 for row in rows)
    looks = tuple(look for look in looks if lost or look[0] != "weighted")
    with figure(1.0 + 3.0 * len(names), 3.2) as drawn:
        for ax, name in zip(drawn.subplots(1, len(names), squeeze=False)[0], names, strict=True):
            mine = [row for row in rows if row["outcome"] == name]
            for side, _, look in looks:
                ax.plot([row["step"] for row in mine], [row[side] for row in mine], **look)
            ax.set_title(label_text(labelled(name, ""), 34))
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
            ax.set_xlabel(f"{steps_axis(step)} after time zero")
        legend_below(drawn, [Line2D([], [], label=label, **look) for _, label, look in looks])
        return drawn
