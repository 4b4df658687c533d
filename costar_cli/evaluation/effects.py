"""Scores of effects: how outcomes differ between the plans of one origin, and which plan is best (spec SCORE-23 to 26).

`G` are groups of queries, those about one subject and origin: its plans.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Queries
from costar_cli.evaluation.bootstrap import Interval
from costar_cli.evaluation.calibration import shares
from costar_cli.evaluation.metrics import Floats, PerStep, SquaredErrors, average_over_steps
from costar_cli.evaluation.sums import Sums, blank, columns_of

EFFECTS: Final = "effects/counterfactual"
ORDERS: Final = "orders/counterfactual"

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class EffectSums:
    """Sums per subject and step of squared errors of effects, and of how the plans of an origin are ordered."""

    effects: SquaredErrors
    orders: dict[str, NDArray[Any]]

    @classmethod
    def zeros(cls, *, members: int, subjects: int, horizon: int, outcomes: int) -> Self:
        """Return sums to which nothing was added yet."""
        effects = SquaredErrors.zeros(members=members, subjects=subjects, horizon=horizon, outcomes=outcomes)
        return cls(effects, columns_of(blank(ORDERS, N=subjects, H=horizon), ORDERS))

    def columns(self, cluster: NDArray[np.int64] | None) -> dict[str, NDArray[Any]]:
        """Return all columns by their full names."""
        columns = {
            f"{EFFECTS}/{name}": column for name, column in replace(self.effects, cluster=cluster).columns.items()
        }
        return columns | {f"{ORDERS}/{name}": column for name, column in self.orders.items()}

    def add(
        self,
        prediction_RQHY: NDArray[np.float32],
        queries: Queries,
        *,
        steps_H: Bools,
        denominator_Y: Floats,
        batch_size: int,
    ) -> None:
        """Add the effects and orders of all plans of some subjects, in place; an origin with one plan has neither.

        Arguments are those of `SquaredErrors.add`, to which the effect of a plan is a query whose answer is the
        difference.
        """
        order_Q = np.lexsort((queries.origin, queries.subject))  # stable: plans stay in the order of the set
        for rows in _groups(queries, order_Q, batch_size):
            some, prediction = queries.take(rows), prediction_RQHY[:, rows]
            assert some.outcomes is not None and some.scored is not None  # noqa: S101, PT018 - as when errors are summed
            at_Q = np.arange(len(rows))
            begins_Q = np.r_[True, (np.diff(some.subject) != 0) | (np.diff(some.origin) != 0)]
            first_Q = np.maximum.accumulate(np.where(begins_Q, at_Q, 0))
            asked_QH = some.scored & steps_H
            # Numbers that are the same for plans that are the same up to a step, and differ for others
            plan = np.ascontiguousarray(some.plan + some.plan.dtype.type(0))  # a negative zero is zero
            step_M, code_M = np.unique(plan.view(f"S{plan.nbytes // plan[..., 0].size}"), return_inverse=True)
            plan_QH = code_M.reshape(len(some), some.horizon).astype(np.int64)
            for h in range(1, some.horizon):
                plan_QH[:, h] = np.unique(plan_QH[:, h - 1] * len(step_M) + plan_QH[:, h], return_inverse=True)[1]
            moved_QH = asked_QH & asked_QH[first_Q] & (plan_QH != plan_QH[first_Q])
            effect = replace(some, outcomes=some.outcomes - some.outcomes[first_Q], scored=moved_QH)
            difference_RQHY = prediction - prediction[:, first_Q]
            self.effects.add(difference_RQHY, effect, steps_H=steps_H, denominator_Y=denominator_Y)
            truth_QHY, mean_QHY = (
                np.where(asked_QH[..., None], values, 0.0) / denominator_Y
                for values in (some.outcomes, prediction.mean(axis=0, dtype=np.float64))
            )
            self._add_orders(truth_QHY, mean_QHY, some.subject, plan_QH, first_Q, asked_QH)

    def _add_orders(
        self,
        truth_QHY: Floats,
        mean_QHY: Floats,
        subject_Q: NDArray[np.integer],
        plan_QH: NDArray[np.int64],
        first_Q: NDArray[np.int64],
        asked_QH: Bools,
    ) -> None:
        """Add how the plans of whole groups are ordered, in place.

        Args:
            truth_QHY: the answers, divided by each outcome's denominator; anything where they are not scored.
            mean_QHY: the predictions alike.
            subject_Q: whose queries they are, in order; those of a group stand behind one another.
            plan_QH: numbers that tell plans apart.
            first_Q: the place of the first query of each one's group.
            asked_QH: which answers are scored.
        """
        start_G, n = np.unique(first_Q), len(first_Q)
        pairs = {name: np.zeros(asked_QH.shape) for name in ("pairs", "ordered", "signed", "signs")}
        for shift in range(1, int(np.diff([*start_G, n]).max(initial=1))):
            i = np.flatnonzero(first_Q[shift:] == first_Q[:-shift])
            j = i + shift
            true, said = truth_QHY[j] - truth_QHY[i], mean_QHY[j] - mean_QHY[i]
            differs_QH = asked_QH[i] & asked_QH[j] & (plan_QH[i] != plan_QH[j])
            decided = differs_QH[..., None] & (true != 0)
            right = np.where(said == 0, 0.5, (said > 0) == (true > 0)) * decided
            is_effect = first_Q[j] == i
            for names, values in ((("pairs", "signed"), decided), (("ordered", "signs"), right)):
                values_QH = values.sum(axis=-1, dtype=np.float64)
                pairs[names[0]][i] += values_QH
                pairs[names[1]][i[is_effect]] += values_QH[is_effect]
        for name, sums_QH in pairs.items():
            self._add(name, subject_Q, sums_QH)
        # A group counts at a step of which all its answers are scored, once two of its plans differ
        whole_GH = np.logical_and.reduceat(asked_QH, start_G)
        whole_GH &= np.logical_or.reduceat(plan_QH != plan_QH[first_Q], start_G)
        group_Q = np.searchsorted(start_G, first_Q)
        truth_QH, said_QH = truth_QHY[..., 0], mean_QHY[..., 0]
        chosen_QH = said_QH <= np.minimum.reduceat(said_QH, start_G)[group_Q]  # several that are alike: one of them
        least_GH = np.minimum.reduceat(truth_QH, start_G)
        for name, of_QH in (("regret", chosen_QH), ("random", np.ones_like(chosen_QH))):
            mean_GH = np.add.reduceat(truth_QH * of_QH, start_G) / np.add.reduceat(of_QH, start_G, dtype=np.float64)
            regret_GH = np.maximum(mean_GH - least_GH, 0)  # below zero by rounding
            self._add(name, subject_Q[start_G], regret_GH * whole_GH)
        self._add("origins", subject_Q[start_G], whole_GH)

    def _add(self, name: str, subject_M: NDArray[np.integer], values_MH: NDArray[Any]) -> None:
        """Add the values of subjects, in order, to a column."""
        subjects, start = np.unique(subject_M, return_index=True)
        column = self.orders[name]
        added_SH = np.add.reduceat(values_MH, start, axis=0, dtype=np.float64)
        column[subjects, : added_SH.shape[1]] += added_SH.astype(column.dtype)  # sums of halves and ones are exact


def _groups(queries: Queries, order_Q: NDArray[np.int64], batch_size: int) -> Iterator[NDArray[np.int64]]:
    """Yield rows of whole groups that have several plans, about `batch_size` rows at a time."""
    subject_Q, origin_Q = queries.subject[order_Q], queries.origin[order_Q]
    start_G = np.flatnonzero(np.r_[True, (np.diff(subject_Q) != 0) | (np.diff(origin_Q) != 0)])
    size_G = np.diff([*start_G, len(order_Q)])
    several_Q = order_Q[np.repeat(size_G > 1, size_G)]
    ends_G = size_G[size_G > 1].cumsum()
    first = 0
    while first < len(several_Q):
        last = int(ends_G[min(int(np.searchsorted(ends_G, first + batch_size)), len(ends_G) - 1)])
        yield several_Q[first:last]
        first = last


@dataclass(frozen=True, slots=True)
class EffectScores:
    """How a row's predictions differ between the plans of an origin; None where it is unknown.

    `pehe` is the RMSE of effects, mean over members, with `lower` and `upper` over test subjects and that of the mean
    prediction, `ensemble`; `effects` counts them. `sign` is the share of effects whose sign is right, `ranking` that
    of pairs of plans in the right order. `regret` is how much larger the first outcome is under the plan of which the
    smallest is predicted than under the best plan asked about, `relative_regret` divided by that of a plan at random.
    `w1` is the Wasserstein-1 distance of the predictive distribution to the simulator's; None where either is unknown.
    """

    pehe: PerStep
    ensemble: PerStep
    sign: PerStep
    ranking: PerStep
    regret: PerStep
    relative_regret: PerStep
    effects: tuple[int, ...]
    lower: PerStep | None = None
    upper: PerStep | None = None
    w1: PerStep | None = None

    @classmethod
    def of(cls, sums: Sums, errors: SquaredErrors, interval: Interval | None, factor: float) -> Self:
        """Return the scores of a row's sums, `errors` and the interval those of its effects."""
        orders = {name: column.sum(axis=0) for name, column in columns_of(sums, ORDERS).items()}
        bands = columns_of(sums, "bands/scores/counterfactual")
        with np.errstate(invalid="ignore", divide="ignore"):
            regret_H, random_H = (factor * orders[name] / orders["origins"] for name in ("regret", "random"))
            relative = regret_H / random_H, average_over_steps(regret_H) / average_over_steps(random_H)
            w1_H = factor * bands["w1"].sum(axis=0) / bands["mass"].sum(axis=0) if "w1" in bands else None
        ensemble_H = factor * errors.ensemble_rmse()
        return cls(
            pehe=errors.mean_rmse(factor),
            ensemble=_per_step(ensemble_H),
            sign=_per_step(shares(orders["signs"], orders["signed"])),
            ranking=_per_step(shares(orders["ordered"], orders["pairs"])),
            regret=_per_step(regret_H),
            relative_regret=PerStep.of(relative[0], float(relative[1])),
            effects=tuple(int(n) for n in errors.count.sum(axis=0)),
            lower=PerStep.of(factor * interval.lower, factor * interval.average[0]) if interval else None,
            upper=PerStep.of(factor * interval.upper, factor * interval.average[1]) if interval else None,
            w1=None if w1_H is None else _per_step(w1_H),
        )


def _per_step(values_H: Floats) -> PerStep:
    return PerStep.of(values_H, float(average_over_steps(values_H)))


EFFECT_SCORES: Final = ("pehe", "sign", "ranking", "regret", "relative_regret", "w1")
"""The scores that tables have, in order."""
ABOUT_EFFECTS: Final = (
    "PEHE: RMSE of effects, outcomes under a plan minus those under the first plan of the same origin; sign: effects "
    "whose sign is right; ranking: pairs of plans in the right order; regret: how much larger the first outcome is "
    "under the plan predicted to make it smallest than under the best one, also as a share of a random plan's; CRPS "
    "and W1: of the bands' distribution, to the outcome and to the simulator's distribution"
)
