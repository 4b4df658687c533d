"""Example subjects: several plans from one origin, predicted and, where a simulator knows it, true, as curves."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from costar_cli.data import Panel, PanelSchema, Queries
from costar_cli.data.schema import labelled, step_axis, step_word
from costar_cli.errors import DataError
from costar_cli.inference import facts_of, possible
from costar_cli.methods.base import FittedModel
from costar_cli.report.figures.style import (
    BLACK,
    BLUE,
    CUT,
    GREY,
    figure,
    frame_limits,
    label_lines,
    legend_below,
    mark_cut,
    save,
)

HISTORY_STEPS = 10  # that a figure shows before the origin
_FEWEST_STEPS = 4  # the origin of the paper's example figure


@dataclass(frozen=True)
class PlanForecast:
    """One plan: its name, the members' predictions `[R,H]` and the truth `[H]`, in the units of the data."""

    name: str
    predicted_RH: NDArray[np.floating]
    truth_H: NDArray[np.floating] | None = None


@dataclass(frozen=True)
class Example:
    """One subject at one origin: its observed outcomes up to the origin, and forecasts under several plans."""

    subject: str
    outcome: str
    unit: str
    step: str
    origin: int
    history: NDArray[np.floating]
    plans: tuple[PlanForecast, ...]


def choose_examples(
    model: FittedModel,
    panel: Panel,
    queries: Queries,
    *,
    subjects: int = 3,
    plans: int = 4,
    seed: int = 0,
) -> list[Example]:
    """Draw example subjects at random and forecast the first outcome under several plans of each, from one origin.

    Origins where one can see something come first (a tumour that is gone shows nothing): those with some history, in
    the tenth where the answers differ most between plans, and of these in the fifth where they differ most against the
    history shown. How well they are predicted plays no part.

    Raises:
        DataError: no subject has two plans from one origin.
    """
    key = queries.subject.astype(np.int64) * 2**16 + queries.origin
    order = np.argsort(key, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(key[order])) + 1)  # of queries that share subject and origin
    most = max((len(rows) for rows in groups), default=0)
    groups = [rows for rows in groups if len(rows) >= max(2, min(plans, most))]
    if not groups:
        raise DataError("no subject has two plans from one origin to compare")
    spread_G, shown_G = np.zeros((2, len(groups)))  # of the plans' last answers, and of the history in a figure
    for g, rows in enumerate(groups):
        stop = int(queries.origin[rows[0]]) + 1
        shown_G[g] = np.ptp(panel.outcomes[queries.subject[rows[0]], max(0, stop - HISTORY_STEPS) : stop, 0])
        if queries.outcomes is not None:
            spread_G[g] = np.ptp(queries.outcomes[rows, -1, 0])
    long_enough_G = np.array([queries.origin[rows[0]] >= _FEWEST_STEPS for rows in groups])
    telling_G = long_enough_G & _largest(spread_G, long_enough_G, 0.1)
    visible_G = telling_G & _largest(spread_G / (shown_G + 1e-9), telling_G, 0.2)
    random_G = np.random.default_rng(seed).random(len(groups))
    chosen: dict[int, NDArray[np.int64]] = {}
    for g in np.lexsort((random_G, ~long_enough_G, ~telling_G, ~visible_G)):
        chosen.setdefault(int(queries.subject[groups[g][0]]), groups[g])
    examples = []
    for rows in list(chosen.values())[:subjects]:
        spaced = np.linspace(0, len(rows) - 1, min(plans, len(rows))).round().astype(np.int64)
        examples.append(_example(model, panel, queries.take(rows[np.unique(spaced)])))
    return examples


def describe_plan(schema: PanelSchema, plan_HA: NDArray[np.number], origin: int) -> str:
    """Return a plan in words, for example `chemotherapy on day 31, 33-36; radiotherapy on day 32`."""
    steps: dict[str, list[int]] = {}
    encoding = schema.treatments
    alone = len(encoding.all_names) == 1  # then its levels speak for themselves
    for h, values in enumerate(encoding.decode(plan_HA)):
        for dose, value in zip(encoding.doses, values[len(encoding.names) :].tolist(), strict=True):
            if value:
                steps.setdefault(f"{'' if alone else dose.name + '='}{dose.text(value)}", []).append(origin + h)
        for name, levels, value in zip(encoding.names, encoding.levels, values[: len(encoding.names)], strict=True):
            if value:
                level = levels[int(value)]
                given = name if len(levels) == 2 else level if alone else f"{name}={level}"
                steps.setdefault(given, []).append(origin + h)
    texts = []
    for given, at in steps.items():
        runs: list[list[int]] = []
        for step in at:
            if runs and step == runs[-1][-1] + 1:
                runs[-1].append(step)
            else:
                runs.append([step])
        words = [f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
        texts.append(f"{given} on {step_word(schema.step)} {', '.join(words)}")
    return "; ".join(texts) or "no treatment"


def _largest(values: NDArray[np.float64], among: NDArray[np.bool_], share: float) -> NDArray[np.bool_]:
    """Return which values belong to the largest share of those among some."""
    least = np.quantile(values[among], 1 - share) if among.any() else np.inf
    return values >= least


def _example(model: FittedModel, panel: Panel, queries: Queries) -> Example:
    row, origin = int(queries.subject[0]), int(queries.origin[0])
    alone = panel.take(np.array([row]))
    asked = replace(queries, subject=np.zeros_like(queries.subject), outcomes=None, scored=None)
    predicted_RQH = possible(facts_of(model), model.rollout(alone, asked))[..., 0]
    truth = None if queries.outcomes is None else queries.outcomes[..., 0]
    variable = model.schema.outcomes[0]
    return Example(
        subject=f"subject {alone.names[0]}",
        outcome=variable.name,
        unit=variable.unit,
        step=model.schema.step,
        origin=origin,
        history=alone.outcomes[0, : origin + 1, 0],
        plans=tuple(
            PlanForecast(
                describe_plan(model.schema, plan, origin), predicted_RQH[:, q], None if truth is None else truth[q]
            )
            for q, plan in enumerate(queries.plan)
        ),
    )


_TITLE_LETTERS, _TITLE_LINES = 31, 5  # above a panel
_SIDE_LETTERS = 20  # along the height of a panel


def plot_trajectories(examples: Sequence[Example], path: Path) -> Path:
    """Draw subjects by row and plans by column: history solid, truth dashed, prediction in colour with its spread.

    A dotted vertical line marks the origin, the last day that the model sees. A row has the scale of what follows: a
    history that would flatten it is cut at the frame, and marked there.
    """
    columns = max(len(example.plans) for example in examples)
    titles = [[label_lines(plan.name, _TITLE_LETTERS, most=_TITLE_LINES) for plan in one.plans] for one in examples]
    heights = [1.75 + 0.15 * max(title.count("\n") + 1 for title in row) for row in titles]
    with figure(0.7 + 2.35 * columns, 0.75 + sum(heights)) as drawn:
        cut = False
        grid = drawn.subplots(len(examples), columns, squeeze=False, sharey="row", sharex="row")
        for axes, example, names in zip(grid, examples, titles, strict=True):
            for ax in axes[len(example.plans) :]:
                ax.set_axis_off()
            ahead = [example.history[-1:], *(plan.predicted_RH for plan in example.plans)]
            ahead += [plan.truth_H for plan in example.plans if plan.truth_H is not None]
            axes[0].set_ylim(*frame_limits(ahead, [example.history[-HISTORY_STEPS:]], room_of_flat=np.inf))
            for ax, plan, name in zip(axes, example.plans, names, strict=False):
                cut |= _draw(ax, example, plan)
                ax.set_title(name, fontsize=8)
            what = label_lines(labelled(example.outcome, example.unit), _SIDE_LETTERS)
            axes[0].set_ylabel(f"{label_lines(example.subject, _SIDE_LETTERS)}\n{what}", fontsize=8)
        for ax in grid[-1]:
            ax.set_xlabel(label_lines(step_axis(examples[-1].step).capitalize(), _TITLE_LETTERS))
        shown = [plan for example in examples for plan in example.plans]
        members = any(len(plan.predicted_RH) > 1 for plan in shown)
        label = "prediction (mean of the members)" if members else "prediction"
        handles: list[Line2D | Patch] = [Line2D([], [], color=BLACK, label="observed history")]
        if any(plan.truth_H is not None for plan in shown):
            handles.append(Line2D([], [], color=BLACK, ls=(0, (3, 1.6)), label="truth under the plan"))
        handles.append(Line2D([], [], color=BLUE, marker="o", ms=3, label=label))
        if members:
            handles.append(Patch(color=BLUE, alpha=0.2, lw=0, label="range of the members"))
        handles.append(Line2D([], [], color=GREY, lw=0.9, ls=(0, (1, 2)), label="origin, the last step known"))
        if cut:
            handles.append(Line2D([], [], color=BLACK, marker="^", ms=4.5, ls="", label=f"history {CUT}"))
        legend_below(drawn, handles)
        return save(drawn, path)


def _draw(ax: Axes, example: Example, plan: PlanForecast) -> bool:
    """Draw one panel within its limits; return whether the history is cut at the frame."""
    origin, last = example.origin, example.history[-1]
    first = max(0, origin + 1 - HISTORY_STEPS)
    ahead = np.arange(origin, origin + plan.predicted_RH.shape[1] + 1)
    ax.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    ax.axvline(origin, color=GREY, lw=0.7, ls=(0, (1, 2)))
    ax.plot(np.arange(first, origin + 1), example.history[first:], color=BLACK, lw=1.4)
    if len(plan.predicted_RH) > 1:
        lower, upper = (np.append(last, bound(plan.predicted_RH, axis=0)) for bound in (np.min, np.max))
        ax.fill_between(ahead, lower, upper, color=BLUE, alpha=0.2, lw=0)
    ax.plot(ahead, np.append(last, plan.predicted_RH.mean(axis=0)), color=BLUE, marker="o", ms=3)
    if plan.truth_H is not None:
        ax.plot(ahead, np.append(last, plan.truth_H), color=BLACK, ls=(0, (3, 1.6)), lw=1.3)
    return mark_cut(ax, np.arange(first, origin + 1), example.history[first:], BLACK)
