"""Example subjects for figures: several plans from one origin, predicted and, where a simulator knows it, true."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Panel, PanelSchema, Queries
from costar_cli.data.schema import step_word
from costar_cli.errors import DataError
from costar_cli.inference import facts_of, possible
from costar_cli.methods.base import FittedModel

__all__ = ["HISTORY_STEPS", "Example", "PlanForecast", "choose_examples", "describe_plan"]

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
    groups = _groups(queries, plans)
    if not groups:
        raise DataError("no subject has two plans from one origin to compare")
    long_enough = np.array([queries.origin[rows[0]] >= _FEWEST_STEPS for rows in groups])
    telling = long_enough & _largest(np.array([_spread(queries, rows) for rows in groups]), long_enough, 0.1)
    visible = telling & _largest(np.array([_visible(panel, queries, rows) for rows in groups]), telling, 0.2)
    random = np.random.default_rng(seed).random(len(groups))
    chosen: dict[int, NDArray[np.int64]] = {}
    for g in np.lexsort((random, ~long_enough, ~telling, ~visible)):
        chosen.setdefault(int(queries.subject[groups[g][0]]), groups[g])
    picked = list(chosen.values())[:subjects]
    return [_example(model, panel, queries.take(_some(rows, plans))) for rows in picked]


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
    return (
        "; ".join(f"{given} on {step_word(schema.step)} {_in_words(at)}" for given, at in steps.items())
        or "no treatment"
    )


def _in_words(steps: Sequence[int]) -> str:
    """Return rising numbers as text; three or more in a row as `33-36`."""
    runs: list[list[int]] = []
    for step in steps:
        if runs and step == runs[-1][-1] + 1:
            runs[-1].append(step)
        else:
            runs.append([step])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


def _groups(queries: Queries, plans: int) -> list[NDArray[np.int64]]:
    """Return the rows of queries that share subject and origin, where there are at least two (up to `plans`)."""
    key = queries.subject.astype(np.int64) * 2**16 + queries.origin
    order = np.argsort(key, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(key[order])) + 1)
    most = max((len(rows) for rows in groups), default=0)
    return [rows for rows in groups if len(rows) >= max(2, min(plans, most))]


def _largest(values: NDArray[np.float64], among: NDArray[np.bool_], share: float) -> NDArray[np.bool_]:
    """Return which values belong to the largest share of those among some."""
    least = np.quantile(values[among], 1 - share) if among.any() else np.inf
    return values >= least


def _spread(queries: Queries, rows: NDArray[np.int64]) -> float:
    """Return how far the last answers of the plans lie apart."""
    return 0.0 if queries.outcomes is None else float(np.ptp(queries.outcomes[rows, -1, 0]))


def _visible(panel: Panel, queries: Queries, rows: NDArray[np.int64]) -> float:
    """Return the spread as a share of the range of the history that a figure shows."""
    stop = int(queries.origin[rows[0]]) + 1
    history = panel.outcomes[queries.subject[rows[0]], max(0, stop - HISTORY_STEPS) : stop, 0]
    return _spread(queries, rows) / (float(np.ptp(history)) + 1e-9)


def _some(rows: NDArray[np.int64], plans: int) -> NDArray[np.int64]:
    """Return `plans` rows spread evenly over the group, in its order."""
    return rows[np.unique(np.linspace(0, len(rows) - 1, min(plans, len(rows))).round().astype(np.int64))]


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
