"""Questions about plans and rules alike: rules are played, then estimated and drawn as plans are (spec PLAN-6).

`S` counts draws, `K` distinct courses of treatment.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Panel, Queries
from costar_cli.inference.draws import draws
from costar_cli.inference.estimates import Estimates, encoded_predictor, estimate, facts_of, least_sd, possible
from costar_cli.inference.rollout import DRAWS, SEED, Playable, SimulatedRule, ask, simulate_rule
from costar_cli.inference.survival_fit import SurvivalForecast, survival_forecast
from costar_cli.methods.base import FittedModel
from costar_cli.plans.plan import IndexTimes, TreatmentPlan
from costar_cli.plans.rule import Levels

COHORT_DRAWS: Final = 200  # of a rule for each of many moments, over which chance averages out
MOST_QUERIES: Final = 8_192  # estimated at once: their histories and predictions take some hundred MB
MOST_DRAWN: Final = 200_000  # courses that are drawn at once

Floats = NDArray[np.float64]
Kinds = tuple[Levels, NDArray[np.intp]]
"""The courses of a moment, and which one each draw took."""
Number = TypeVar("Number", bound=np.generic)


@dataclass(frozen=True, eq=False, slots=True)
class Resolved:
    """Q questions about moments of a panel under plans, where rules have been played.

    Attributes:
        plans_Q: plans, and of rules the most common course of treatment.
        simulated_Q: how the rule of a question went, and as which of its moments; None where there is no rule.
        horizon: of the longest plan.
        means: outcomes along the courses that each rule gave, in the parts in which they were estimated, by its `id`:
            survival needs them, too.
    """

    model: FittedModel
    moments: IndexTimes
    plans_Q: tuple[TreatmentPlan, ...]
    simulated_Q: tuple[tuple[SimulatedRule, int] | None, ...]
    means: dict[int, list[Floats]] = field(default_factory=dict)

    @property
    def horizon(self) -> int:
        """Return the number of steps of the longest plan."""
        return max(map(len, self.plans_Q))

    def undecided(self) -> Iterator[tuple[NDArray[np.intp], SimulatedRule]]:
        """Yield the questions of each rule whose treatments are not known beforehand."""
        every = {id(went[0]): went[0] for went in self.simulated_Q if went and went[0].how != "fixed"}
        for simulated in every.values():
            yield np.array([q for q, went in enumerate(self.simulated_Q) if went and went[0] is simulated]), simulated

    def estimated(self, found_Q: Estimates) -> Estimates:
        """Return the estimates of all questions, given those under `plans_Q`."""
        for at, simulated in self.undecided():
            means = self.means.setdefault(id(simulated), []) if self.model.schema.terminal else None
            of = estimate_played(self.model, self.moments.take(at), simulated, self.horizon, means)
            found_Q = found_Q.with_rows(at, of)
        return found_Q

    def forecast_survival(self, queries: Queries, found_Q: Estimates) -> SurvivalForecast | None:
        """Return how likely series are to go on, None where the model knows of no end (spec SURV-4).

        `queries` and `found_Q` ask about `plans_Q` and answer that.
        """
        model, panel = self.model, self.moments.panel
        of_Q = survival_forecast(model, panel, queries, found_Q.mean_QHY)
        for at, simulated in self.undecided() if of_Q else ():
            kinds = [simulated.kinds(place) for place in range(len(at))]
            drawn_SQHY, usual_QHY, moved = simulated.outcomes_SQHY, simulated.usual_QHY, []
            if drawn_SQHY is not None and usual_QHY is not None:
                for q, (_, place_S) in enumerate(kinds):
                    order_S, count_K = place_S.argsort(kind="stable"), np.bincount(place_S)
                    total_KHY = np.add.reduceat(drawn_SQHY[order_S, q], count_K.cumsum() - count_K, axis=0)
                    moved.append(total_KHY / count_K[:, None, None] - usual_QHY[q])
            # how far the draws of each course are from those of the most common one
            moved_KHY = np.concatenate(moved) if moved else None
            known = iter(self.means.get(id(simulated)) or ())
            for asked in _asked(model, self.moments.take(at), kinds, self.horizon, MOST_QUERIES):
                if moved_KHY is None:
                    told_KHY = next(known, None)
                    mean_KHY = estimate(model, panel, asked.queries).mean_QHY if told_KHY is None else told_KHY
                else:
                    mean_KHY = found_Q.mean_QHY[at[asked.moment_K]]
                    mean_KHY[:, : len(simulated.rule)] += moved_KHY[asked.own_K]
                of_K, rows = survival_forecast(model, panel, asked.queries, mean_KHY), at[asked.moment_K[asked.first_Q]]
                if of_Q and of_K:
                    of_Q.survival_QH[rows] = asked.mean(of_K.survival_QH)
                    of_Q.ended_QHE[rows] = asked.mean(of_K.ended_QHE)
        return of_Q

    def drawn(self, drawn_SQHY: Floats, *, seed: int = SEED) -> Floats:
        """Return joint draws of all questions, given those under `plans_Q`."""
        for at, simulated in self.undecided():
            own, n = self.moments.take(at), len(drawn_SQHY)
            drawn_SQHY[:, at] = draw_played(self.model, own, simulated, self.horizon, n=n, seed=seed)
        return drawn_SQHY


def resolve(
    label: str,
    model: FittedModel,
    moments: IndexTimes,
    plans_Q: Sequence[TreatmentPlan | Playable],
    *,
    given: Panel | None = None,
    n: int = DRAWS,
    seed: int = SEED,
) -> Resolved:
    """Play the rules among the plans of questions, each for all its moments at once.

    Models see the panel of the `moments` alone; the natural treatment is what was `given` in its rows beyond the
    origins, by default in that panel.

    Raises:
        UsageError: a rule reads outcomes, and the model predicts no course.
    """
    horizon = max(map(len, plans_Q))
    plans = list(plans_Q)
    simulated_Q: list[tuple[SimulatedRule, int] | None] = [None] * len(plans)
    for rule in {id(plan): plan for plan in plans if not isinstance(plan, TreatmentPlan)}.values():
        at = np.array([q for q, plan in enumerate(plans_Q) if plan is rule])
        went = simulate_rule(model, moments.take(at), rule, label=label, given=given, horizon=horizon, n=n, seed=seed)
        for place, q in enumerate(at.tolist()):
            plans[q], simulated_Q[q] = went.most_common(place), (went, place)
    fixed = tuple(plan for plan in plans if isinstance(plan, TreatmentPlan))
    return Resolved(model, moments, fixed, tuple(simulated_Q))


def estimate_played(
    model: FittedModel, moments: IndexTimes, simulated: SimulatedRule, horizon: int, means: list[Floats] | None = None
) -> Estimates:
    """Return the estimates of a rule's outcomes, a query per moment, padded to a horizon (spec PLAN-6).

    `means` takes the mean outcomes of the courses that were asked about, part by part.

    Drawn courses: the estimate of the most common one, moved by how far the mean of the draws is from theirs under that
    one; likewise its variance. Otherwise a mixture of the plans that were given, by their shares: a
    rule that gives one plan is estimated as that plan.
    """
    kinds = [simulated.kinds(q) for q in range(len(moments))]
    if simulated.outcomes_SQHY is not None:  # what is not drawn is that of the most common course
        common = [np.bincount(place_S).argmax() for _, place_S in kinds]
        kinds = [(of[k : k + 1], np.zeros(1, dtype=np.intp)) for (of, _), k in zip(kinds, common, strict=True)]
    parts = []
    for asked in _asked(model, moments, kinds, horizon, MOST_QUERIES):
        found = estimate(model, moments.panel, asked.queries)
        if means is not None:
            means.append(found.mean_QHY)
        if len(asked.first_Q) < len(asked.weight_K):  # how far courses of a mixture are apart is chance, not ignorance
            mean_QHY = asked.mean(found.mean_QHY)
            variance_QHY = asked.mean(found.sd_QHY**2 + found.mean_QHY**2) - mean_QHY**2
            share_QHY = asked.mean(found.share_QHY * found.sd_QHY**2) / variance_QHY
            members_RQHY = np.stack([asked.mean(member_KHY) for member_KHY in found.members_RQHY])
            level_QY, unit_QY, origin_Q = (of[asked.first_Q] for of in (found.level_QY, found.unit_QY, found.origin_Q))
            sd_QHY = np.sqrt(variance_QHY)
            found = Estimates(mean_QHY, sd_QHY, share_QHY, level_QY, unit_QY, members_RQHY, origin_Q)
        parts.append(found)
    mixed = Estimates.joined(parts)
    if simulated.outcomes_SQHY is None or simulated.usual_QHY is None or simulated.usual_variance_QHY is None:
        return mixed
    own, drawn = slice(len(simulated.rule)), simulated.outcomes_SQHY
    mean_QHY, sd_QHY, members_RQHY = mixed.mean_QHY.copy(), mixed.sd_QHY.copy(), mixed.members_RQHY.astype(np.float64)
    mean_QHY[:, own] += drawn.mean(axis=0) - simulated.usual_QHY
    variance_QHY, usual_QHY = sd_QHY[:, own] ** 2, simulated.usual_variance_QHY
    more_QHY = drawn.var(axis=0, ddof=1) - usual_QHY
    share_QHY = np.where(more_QHY < 0, variance_QHY / np.maximum(usual_QHY, variance_QHY), 1)  # the sum stays above 0
    sd_QHY[:, own] = np.sqrt(variance_QHY + share_QHY * more_QHY)
    sd_QHY = np.maximum(sd_QHY, least_sd(model))
    mean_QHY = np.asarray(possible(facts_of(model), mean_QHY), dtype=np.float64)
    members_RQHY[:, :, own] = mean_QHY[:, own]
    return replace(mixed, mean_QHY=mean_QHY, sd_QHY=sd_QHY, members_RQHY=members_RQHY)


@dataclass(frozen=True, eq=False, slots=True)
class _RolloutBatch:
    """Some courses of rules: whose, `moment_K`, with their shares, `own_K` among all, the first of each moment."""

    queries: Queries
    own_K: slice
    moment_K: NDArray[np.integer]
    weight_K: Floats
    first_Q: NDArray[np.integer]

    def mean(self, values_K: NDArray[np.floating]) -> Floats:
        """Return the mean over each moment's courses."""
        weight_K = self.weight_K.reshape(-1, *[1] * (values_K.ndim - 1))
        return np.asarray(np.add.reduceat(weight_K * values_K, self.first_Q, axis=0))


def _asked(
    model: FittedModel, moments: IndexTimes, kinds: Sequence[Kinds], horizon: int, most: int
) -> Iterator[_RolloutBatch]:
    """Yield questions about the courses of moments, whole moments at a time: `most` courses, but a moment at least."""
    count_Q = np.array([len(of) for of, _ in kinds])
    moment_K = np.repeat(np.arange(len(kinds)), count_Q)
    weight_K = np.concatenate([np.bincount(place_S) / len(place_S) for _, place_S in kinds])
    begins, total = [0], 0
    for q, count in enumerate(count_Q.tolist()):
        if q > begins[-1] and total + count > most:
            begins.append(q)
            total = 0
        total += count
    for begin, end in pairwise([*begins, len(kinds)]):
        own_K = slice(*np.searchsorted(moment_K, [begin, end]))
        at_K = moment_K[own_K]
        values_KHA = _lasting(np.concatenate([of for of, _ in kinds[begin:end]]), horizon)
        queries = ask(model, moments.take(at_K), values_KHA)
        yield _RolloutBatch(queries, own_K, at_K, weight_K[own_K], np.flatnonzero(np.diff(at_K, prepend=-1)))


def draw_played(
    model: FittedModel, moments: IndexTimes, simulated: SimulatedRule, horizon: int, *, n: int = DRAWS, seed: int = SEED
) -> Floats:
    """Return joint draws `[S,Q,H,Y]` of outcomes under a rule, with the chance of those under plans."""
    panel = moments.panel
    if simulated.outcomes_SQHY is not None and len(simulated.outcomes_SQHY) == n:
        return _lasting(simulated.outcomes_SQHY.reshape(-1, *simulated.outcomes_SQHY.shape[2:]), horizon).reshape(
            n, len(moments), horizon, -1
        )
    values_SQHA = simulated.values_SQHA[np.arange(n) % len(simulated.values_SQHA)]
    if model.draws_courses:
        plan_MHA = model.schema.treatments.encode(values_SQHA.reshape(-1, *values_SQHA.shape[2:]))
        last = plan_MHA.shape[1] - 1
        return model.draw_courses(
            panel, moments.subject_Q, moments.origin_Q, lambda h, _: plan_MHA[:, min(h, last)],
            steps=horizon, n=n, seed=seed,
        )  # fmt: skip
    drawn_SQHY, encoded = np.empty((n, len(moments), horizon, len(model.schema.outcomes))), encoded_predictor(panel)
    repeated = replace(simulated, values_SQHA=values_SQHA)
    kinds = [repeated.kinds(q) for q in range(len(moments))]
    for asked in _asked(model, moments, kinds, horizon, MOST_DRAWN // n):
        drawn_SKHY = draws(model, panel, asked.queries, n, seed, ask=encoded, among=moments.subject_Q)
        for first in asked.first_Q:
            q = asked.moment_K[first]
            drawn_SQHY[:, q] = drawn_SKHY[np.arange(n), first + kinds[q][1]]
    return drawn_SQHY


def _lasting(values: NDArray[Number], horizon: int) -> NDArray[Number]:
    """Return series `[n,H,...]` padded with their last step, which means nothing."""
    return np.pad(values, ((0, 0), (0, horizon - values.shape[1]), (0, 0)), "edge")
