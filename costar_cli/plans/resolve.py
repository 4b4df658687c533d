"""Questions about plans and rules alike: rules are played, then estimated and drawn as plans are (spec PLAN-6).

`S` counts draws, `K` distinct courses of treatment.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from costar_cli.methods.base import DrawsCourses, FittedModel
from costar_cli.panel import Panel
from costar_cli.plans.moments import Moments
from costar_cli.plans.plan import AnyPlan, TreatmentPlan
from costar_cli.plans.rollout import DRAWS, SEED, Played, ask, play
from costar_cli.plans.rule import PlanRule
from costar_cli.uncertainty import Estimates, asks_encoded, draws, estimate, least_sd

COHORT_DRAWS: Final = 200  # of a rule for each of many moments, over which chance averages out
MOST_QUERIES: Final = 8_192  # estimated at once: their histories and predictions take some hundred MB
MOST_DRAWN: Final = 200_000  # courses that are drawn at once

Floats = NDArray[np.float64]
Number = TypeVar("Number", bound=np.generic)


@dataclass(frozen=True, eq=False, slots=True)
class Resolved:
    """Q questions about moments of a panel under plans, where rules have been played.

    Attributes:
        plans_Q: plans, and of rules the most common course of treatment.
        played_Q: how the rule of a question went, and as which of its moments; None where there is no rule.
        horizon: of the longest plan.
    """

    model: FittedModel
    moments: Moments
    plans_Q: tuple[TreatmentPlan, ...]
    played_Q: tuple[tuple[Played, int] | None, ...]

    @property
    def horizon(self) -> int:
        """Return the number of steps of the longest plan."""
        return max(map(len, self.plans_Q))

    def undecided(self) -> Iterator[tuple[NDArray[np.intp], Played]]:
        """Yield the questions of each rule whose treatments are not known beforehand."""
        every = {id(went[0]): went[0] for went in self.played_Q if went and went[0].how != "fixed"}
        for played in every.values():
            yield np.array([q for q, went in enumerate(self.played_Q) if went and went[0] is played]), played

    def estimated(self, found_Q: Estimates) -> Estimates:
        """Return the estimates of all questions, given those under `plans_Q`."""
        for at, played in self.undecided():
            of = estimate_played(self.model, self.moments.take(at), played, self.horizon)
            found_Q = found_Q.with_rows(at, of)
        return found_Q

    def drawn(self, drawn_SQHY: Floats, *, seed: int = SEED) -> Floats:
        """Return joint draws of all questions, given those under `plans_Q`."""
        for at, played in self.undecided():
            own, n = self.moments.take(at), len(drawn_SQHY)
            drawn_SQHY[:, at] = draw_played(self.model, own, played, self.horizon, n=n, seed=seed)
        return drawn_SQHY


def resolve(
    label: str,
    model: FittedModel,
    moments: Moments,
    plans_Q: Sequence[AnyPlan],
    *,
    given: Panel | None = None,
    n: int = DRAWS,
    seed: int = SEED,
) -> Resolved:
    """Play the rules among the plans of questions, each for all its moments at once.

    Models see the panel of the `moments` alone; shifts read what was `given` in its rows beyond the origins, by default
    in that panel.

    Raises:
        UsageError: a rule reads outcomes, and the model predicts no course.
    """
    horizon = max(map(len, plans_Q))
    plans: list[AnyPlan] = list(plans_Q)
    played_Q: list[tuple[Played, int] | None] = [None] * len(plans)
    for rule in {id(plan): plan for plan in plans if not isinstance(plan, TreatmentPlan)}.values():
        at = np.array([q for q, plan in enumerate(plans_Q) if plan is rule])
        own = moments.take(at)
        if given is not None and not isinstance(rule, PlanRule):
            own = replace(own, panel=given)
        went = play(model, own, rule, label=label, horizon=horizon, n=n, seed=seed)
        for place, q in enumerate(at.tolist()):
            plans[q], played_Q[q] = went.most_common(place), (went, place)
    fixed = tuple(plan for plan in plans if isinstance(plan, TreatmentPlan))
    return Resolved(model, moments, fixed, tuple(played_Q))


def estimate_played(model: FittedModel, moments: Moments, played: Played, horizon: int) -> Estimates:
    """Return the estimates of a rule's outcomes, a query per moment, padded to a horizon (spec PLAN-6).

    Drawn courses: the estimate of the most common one, moved by how far the mean of the draws is from theirs under that
    one; likewise its variance. Otherwise a mixture of the plans that were given, by their shares: a
    rule that gives one plan is estimated as that plan.
    """
    kinds = [played.kinds(q) for q in range(len(moments))]
    if played.outcomes_SQHY is not None:  # what is not drawn is that of the most common course
        common = [np.bincount(place_S).argmax() for _, place_S in kinds]
        kinds = [(of[k : k + 1], np.zeros(1, dtype=np.intp)) for (of, _), k in zip(kinds, common, strict=True)]
    moment_K = np.repeat(np.arange(len(kinds)), [len(of) for of, _ in kinds])
    weight_K = np.concatenate([np.bincount(place_S) / len(place_S) for _, place_S in kinds])
    values_KHA = _lasting(np.concatenate([of for of, _ in kinds]), horizon)
    parts = []
    for begin, end in _parts(np.array([len(of) for of, _ in kinds]), MOST_QUERIES):
        own_K = slice(*np.searchsorted(moment_K, [begin, end]))
        at_K = moment_K[own_K]
        found = estimate(model, moments.panel, ask(model, moments.take(at_K), values_KHA[own_K]))
        parts.append(_mixture(found, weight_K[own_K], np.flatnonzero(np.diff(at_K, prepend=-1))))
    mixed = Estimates.joined(parts)
    if played.outcomes_SQHY is None or played.usual_QHY is None or played.usual_variance_QHY is None:
        return mixed
    own, drawn = slice(len(played.rule)), played.outcomes_SQHY
    mean_QHY, sd_QHY, members_RQHY = mixed.mean_QHY.copy(), mixed.sd_QHY.copy(), mixed.members_RQHY.astype(np.float64)
    mean_QHY[:, own] += drawn.mean(axis=0) - played.usual_QHY
    sd_QHY[:, own] = _moved(sd_QHY[:, own], drawn.var(axis=0, ddof=1), played.usual_variance_QHY)
    sd_QHY = np.maximum(sd_QHY, least_sd(model))
    members_RQHY[:, :, own] = mean_QHY[:, own]
    return replace(mixed, mean_QHY=mean_QHY, sd_QHY=sd_QHY, members_RQHY=members_RQHY)


def draw_played(
    model: FittedModel, moments: Moments, played: Played, horizon: int, *, n: int = DRAWS, seed: int = SEED
) -> Floats:
    """Return joint draws `[S,Q,H,Y]` of outcomes under a rule, with the chance of those under plans."""
    panel = moments.panel
    if played.outcomes_SQHY is not None and len(played.outcomes_SQHY) == n:
        return _lasting(played.outcomes_SQHY.reshape(-1, *played.outcomes_SQHY.shape[2:]), horizon).reshape(
            n, len(moments), horizon, -1
        )
    values_SQHA = played.values_SQHA[np.arange(n) % len(played.values_SQHA)]
    if isinstance(model, DrawsCourses):
        plan_MHA = model.schema.treatments.encode(values_SQHA.reshape(-1, *values_SQHA.shape[2:]))
        last = plan_MHA.shape[1] - 1
        return model.draw_courses(
            panel, moments.subject_Q, moments.origin_Q, lambda h, _: plan_MHA[:, min(h, last)],
            steps=horizon, n=n, seed=seed,
        )  # fmt: skip
    drawn_SQHY, encoded = np.empty((n, len(moments), horizon, len(model.schema.outcomes))), asks_encoded(panel)
    kinds = [np.unique(values_SQHA[:, q], axis=0, return_inverse=True) for q in range(len(moments))]
    count_Q = np.array([len(of) for of, _ in kinds])
    for begin, end in _parts(count_Q, MOST_DRAWN // n):
        of_K = np.repeat(np.arange(begin, end), count_Q[begin:end])
        values_KHA = _lasting(np.concatenate([of for of, _ in kinds[begin:end]]), horizon)
        queries = ask(model, moments.take(of_K), values_KHA)
        drawn_SKHY = draws(model, panel, queries, n, seed, ask=encoded, among=moments.subject_Q)
        for q in range(begin, end):
            drawn_SQHY[:, q] = drawn_SKHY[np.arange(n), np.searchsorted(of_K, q) + kinds[q][1].ravel()]
    return drawn_SQHY


def _lasting(values: NDArray[Number], horizon: int) -> NDArray[Number]:
    """Return series `[n,H,...]` padded with their last step, which means nothing."""
    return np.pad(values, ((0, 0), (0, horizon - values.shape[1]), (0, 0)), "edge")


def _parts(count_Q: NDArray[np.integer], most: int) -> Iterator[tuple[int, int]]:
    """Yield spans of moments whose courses are asked about at once: `most` of them, but of one moment at least."""
    begin, total = 0, 0
    for q, count in enumerate(count_Q.tolist()):
        if q > begin and total + count > most:
            yield begin, q
            begin, total = q, 0
        total += count
    yield begin, len(count_Q)


def _moved(sd_QHY: Floats, rule_QHY: Floats, usual_QHY: Floats) -> Floats:
    """Return the sd of an estimate moved by the difference of two variances of draws; what falls keeps it above 0."""
    variance_QHY, more_QHY = sd_QHY**2, rule_QHY - usual_QHY
    share_QHY = np.where(more_QHY < 0, variance_QHY / np.maximum(usual_QHY, variance_QHY), 1)
    return np.asarray(np.sqrt(variance_QHY + share_QHY * more_QHY))


def _mixture(found: Estimates, weight_K: Floats, first_Q: NDArray[np.integer]) -> Estimates:
    """Return the moments of mixtures of neighbouring queries; how far these are apart is chance, not ignorance."""
    if len(first_Q) == len(weight_K):
        return found
    w_K11 = weight_K[:, None, None]

    def mean(values_KHY: NDArray[np.floating]) -> Floats:
        return np.asarray(np.add.reduceat(w_K11 * values_KHY, first_Q, axis=0))

    mean_QHY = mean(found.mean_QHY)
    variance_QHY = mean(found.sd_QHY**2 + found.mean_QHY**2) - mean_QHY**2
    share_QHY = mean(found.share_QHY * found.sd_QHY**2) / variance_QHY
    members_RQHY = np.stack([mean(member_KHY) for member_KHY in found.members_RQHY])
    level_QY, unit_QY = found.level_QY[first_Q], found.unit_QY[first_Q]
    return Estimates(mean_QHY, np.sqrt(variance_QHY), share_QHY, level_QY, unit_QY, members_RQHY)
