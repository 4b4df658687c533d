"""Effects of plans on average, with intervals that rest on influence curves (spec EFFECT-1, 11 to 13).

`M` trials, `U` units of sampling, `P` plans, `H` steps, `Q` quantities, `G` groups.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Final, Literal

import numpy as np
from scipy.special import ndtri, stdtr, stdtrit

from costar_cli.config.choices import LearnerName
from costar_cli.effects.estimators import (
    TRUNCATED,
    Curve,
    EstimatorName,
    Follow,
    by_computation,
    cross_fitted,
    sequential,
    weighted,
)
from costar_cli.effects.learners import Learner, chosen_learner
from costar_cli.effects.trials import ANY_EVENT, Bools, Floats, Ints, Regime, Target, Trials
from costar_cli.effects.weights import PlanWeights, Practice
from costar_cli.errors import UsageError

ESTIMATORS: Final[Mapping[EstimatorName, str]] = {
    "sdr": "sequentially doubly robust",
    "tmle": "targeted maximum likelihood",
    "gformula": "g-computation",
    "ipw": "inverse probability weighting",
}
FEWEST_UNITS: Final = 50  # subjects, or clusters, that are estimated from
FEW: Final = 50.0  # effective followers below which an interval may miss its level
FEWEST_FOLLOWERS: Final = 10.0  # effective ones that an interval rests on, unless it is of g-computation
DRAWS: Final = 2_000  # of the largest deviation over steps
ANY_GROUP: Final = "all"
Quantity = Literal["mean", "difference", "ratio", "risk", "risk difference", "risk ratio", "rmst", "rmst difference"]
Row = dict[str, Any]
Source = Callable[[str, tuple[int, ...], Callable[[], Curve]], Curve | None]
"""Returns the curve of a name, with an influence of such a shape: makes it or has it; None where another part does."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How effects are estimated.

    Attributes:
        estimators: which.
        learner: of outcomes: linear designs, trees, a mixture, or `auto`: the one that predicts the next step better.
        folds: parts of subjects; each is predicted by what learnt from the others.
        truncated: quantile at which weights are cut.
        known: columns with the probabilities of treatments, by name, where these were randomised.
        unsupported: go on where nobody follows a plan.
        seed: of parts and draws.
    """

    estimators: tuple[EstimatorName, ...] = ("sdr",)
    learner: LearnerName = "auto"
    folds: int = 5
    truncated: float = TRUNCATED
    known: Mapping[str, str] = field(default_factory=dict)
    unsupported: bool = False
    seed: int = 0


@dataclass(frozen=True, eq=False)
class TargetEstimates:
    """What estimators say of the quantities of one target: outcomes, or events.

    Attributes:
        target: what was measured.
        curves: by estimator, one per plan; of a part of the work, those that it makes.
        follows: who follows each plan, and with what weight.
        learner: which regressions of outcomes were made.
        kept_MK: probabilities of being followed further.
        measured_MHQ: of being measured.
    """

    target: Target
    curves: Mapping[EstimatorName, tuple[Curve, ...]]
    follows: tuple[Follow, ...]
    learner: Learner
    kept_MK: Floats
    measured_MHQ: Floats


@dataclass(frozen=True, eq=False)
class Effects:
    """Means under plans and their contrasts, by estimator.

    Attributes:
        trials: whom they are of.
        plans: the plans.
        reference: the place of the plan that others are compared with.
        weights: what each plan gives, and its ratio to practice.
        targets: outcomes, then events where series have any.
        groups: names of the groups, everybody first.
        in_GM: which trials belong to each.
        settings: how they were estimated.
        practice: how treatments were decided.
    """

    trials: Trials
    plans: tuple[Regime, ...]
    reference: int
    weights: tuple[PlanWeights, ...]
    targets: tuple[TargetEstimates, ...]
    groups: tuple[str, ...]
    in_GM: Bools
    settings: Settings
    practice: Practice

    def to_rows(self, levels: Sequence[float] = (0.9,)) -> Iterator[Row]:
        """Yield a row per quantity, estimator, group, plan, step and outcome: means, then contrasts."""
        for estimates in self.targets:
            for estimator, curves in estimates.curves.items():
                for g, group in enumerate(self.groups):
                    for row in _Contrasts(self, estimates, estimator, curves, g).rows(levels):
                        yield {"quantity": row.pop("quantity"), "estimator": estimator, "group": group} | row


@dataclass(frozen=True, eq=False)
class _Contrasts:
    """Means and contrasts of one estimator in one group."""

    effects: Effects
    estimates: TargetEstimates
    estimator: EstimatorName
    curves: tuple[Curve, ...]
    group: int

    @cached_property
    def _of_units(self) -> tuple[Ints, Ints]:
        """Return the unit of each trial of the group, numbered within the group, and the trials."""
        in_M = np.flatnonzero(self.effects.in_GM[self.group])
        unit_M = np.unique(self.effects.trials.unit_M[in_M], return_inverse=True)[1]
        return np.asarray(unit_M, dtype=np.int64), in_M

    def rows(self, levels: Sequence[float]) -> Iterator[Row]:
        """Yield rows of means, then of contrasts with the reference plan; of events, the time until the first."""
        target, effects = self.estimates.target, self.effects
        (unit_M, in_M), g = self._of_units, self.group
        units, means, moved = int(unit_M.max(initial=-1)) + 1, [], []
        for curve in self.curves:
            sums_UHQ = np.zeros((units, *curve.mean_GHQ.shape[1:]))
            np.add.at(sums_UHQ, unit_M, curve.influence_GMHQ[g, in_M])
            means.append(curve.mean_GHQ[g])
            moved.append(sums_UHQ / max(len(in_M), 1))  # what each unit moves of the means
        events = target.kinds[0] == "event"
        nouns = ("risk", "risk difference", "risk ratio") if events else ("mean", "difference", "ratio")
        names, kinds = target.names, target.kinds
        if events:
            names = (*names, ANY_EVENT) if len(names) > 1 else names
            kinds = ("event",) * len(names)
            means = [_with_total(mean, len(names)) for mean in means]
            moved = [_with_total(part, len(names)) for part in moved]
        base, base_moved = means[effects.reference], moved[effects.reference]
        for p, plan in enumerate(effects.plans):
            for q, name in enumerate(names):
                of = (plan.name, p, q, name, levels)
                kind = kinds[q]
                if kind == "continuous" and not (target.value_MHQ[..., q] < 0).any():
                    kind = "count"  # what is never negative is so on average, too
                yield from self._row(nouns[0], *of, means[p][:, q], moved[p][..., q], kind)
        for p, plan in enumerate(effects.plans):
            if p == effects.reference:
                continue
            steps = min(len(means[p]), len(base))
            for q, name in enumerate(names):
                of = (plan.name, p, q, name, levels)
                one, other = means[p][:steps, q], base[:steps, q]
                moves, base_moves = moved[p][:, :steps, q], base_moved[:, :steps, q]
                yield from self._row(nouns[1], *of, one - other, moves - base_moves, "")
                if kinds[q] in ("binary", "event", "count"):
                    with np.errstate(divide="ignore", invalid="ignore"):
                        log_H = np.where((one > 0) & (other > 0), np.log(one / other), np.nan)
                        parts = moves / one, base_moves / other
                        # Within a standard error of 0 a number has no interval of its logarithm.
                        clear_H = np.all([(part**2).sum(axis=0) < 1 for part in parts], axis=0)
                        yield from self._row(nouns[2], *of, log_H, np.where(clear_H, parts[0] - parts[1], 0.0), "log")
        if events:
            yield from self._restricted(means, moved, names[-1], levels)

    def _restricted(
        self, means: list[Floats], moved: list[Floats], name: str, levels: Sequence[float]
    ) -> Iterator[Row]:
        """Yield the mean number of steps without an event, of those that a plan has, and its contrasts."""
        effects, times = self.effects, []
        for mean, part in zip(means, moved, strict=True):
            free_H = np.concatenate([[1.0], 1 - mean[:-1, -1]]).cumsum()
            moves = np.concatenate([0 * part[:, :1, -1], -part[:, :-1, -1]], axis=1).cumsum(axis=1)
            times.append((free_H, moves))
        base, base_moved = times[effects.reference]
        for quantity in ("rmst", "rmst difference"):
            for p, plan in enumerate(effects.plans):
                if quantity == "rmst":
                    yield from self._row(quantity, plan.name, p, -1, name, levels, *times[p], "steps")
                elif p != effects.reference:
                    steps = min(len(base), len(times[p][0]))
                    more_H, part = times[p][0][:steps] - base[:steps], times[p][1][:, :steps] - base_moved[:, :steps]
                    yield from self._row(quantity, plan.name, p, -1, name, levels, more_H, part, "")

    def _row(
        self,
        quantity: str,
        plan: str,
        p: int,
        q: int,
        name: str,
        levels: Sequence[float],
        value_H: Floats,
        moved_UH: Floats,
        kind: str,
    ) -> Iterator[Row]:
        """Yield a row per step of numbers and what each unit moves of them; `log` numbers are taken to be logarithms.

        Of other kinds than "" limits stay where the quantity can be.
        """
        effects, unit_M = self.effects, self._of_units[0]
        against = quantity.endswith(("difference", "ratio"))
        plans = [p, effects.reference] if against else [p]
        units = int(unit_M.max(initial=-1)) + 1
        supports = [self._support(i, q) for i in plans]
        effective_H, followers_H = (
            np.min([of[: len(value_H)] for of in each], axis=0) for each in zip(*supports, strict=True)
        )
        se_H = np.sqrt((moved_UH**2).sum(axis=0) * units / max(units - 1, 1))
        low = 0.0 if kind in ("binary", "event", "count", "steps") else -np.inf
        high_H = np.full(len(value_H), 1.0 if kind in ("binary", "event") else np.inf)
        if kind == "steps":
            high_H = np.arange(1.0, len(value_H) + 1)
        widest = _largest(moved_UH, se_H, levels, effects.settings.seed)
        computed = self.estimator == "gformula"  # it uses every trial, not followers alone
        unit = next((o.unit for o in effects.trials.schema.outcomes if o.name == name), "")
        for h, value in enumerate(value_H):
            # A handful says too little of how they differ, and nothing where they are all alike.
            known = bool(np.isfinite(value) and se_H[h] > 0 and (computed or effective_H[h] >= FEWEST_FOLLOWERS))
            back = np.exp if kind == "log" else float
            freedom = max(min(float(units), np.inf if computed else effective_H[h]) - 1, 1.0)
            row: Row = {
                "quantity": quantity,
                "plan": plan,
                "reference": effects.plans[effects.reference].name if against else None,
                "step": h + 1,
                "outcome": name,
                "unit": "steps" if quantity.startswith("rmst") else "" if kind == "log" else unit,
                "estimate": float(np.clip(back(value), low, high_H[h])) if np.isfinite(value) else None,
                "se": float(se_H[h]) if known else None,
            }
            for i, (level, wide) in enumerate(zip(levels, widest, strict=True)):
                further = f"_{level:g}" * (i > 0)
                single, normal = float(stdtrit(freedom, 0.5 + level / 2)), float(ndtri(0.5 + level / 2))
                for end, times in (("", single), ("_simultaneous", wide * single / normal)):
                    for side, sign in (("lower", -1), ("upper", 1)):
                        limit = back(value + sign * times * se_H[h]) if known else None
                        row[f"{side}{end}{further}"] = None if limit is None else float(np.clip(limit, low, high_H[h]))
                if not i:
                    row["level"] = level if known else None
            if against:
                row["p"] = float(2 * stdtr(freedom, -abs(value) / se_H[h])) if known else None
            yield row | {
                "effective": float(effective_H[h]),
                "followers": int(followers_H[h]),
                "trials": len(unit_M),
                "units": units,
                "supported": bool(effective_H[h] >= FEW),
            }

    def _support(self, p: int, q: int) -> tuple[Floats, Ints]:
        """Return how many trials of equal weight know as much as those of the group who follow a plan, and how many
        these are, `[H]`, among those in whom a quantity is measured.
        """
        follow, in_M = self.estimates.follows[p], self._of_units[1]
        last_MHQ = follow.raw_last_MHQ[in_M]
        weight_MH = last_MHQ[..., min(q, last_MHQ.shape[2] - 1)]
        return follow.effective(weight_MH, in_M), np.asarray((weight_MH > 0).sum(axis=0))


def _with_total(values: Floats, count: int) -> Floats:
    """Return quantities `[...,Q]` with their sum behind them, where there are several."""
    return values if values.shape[-1] == count else np.concatenate([values, values.sum(axis=-1, keepdims=True)], -1)


def _largest(moved_UH: Floats, se_H: Floats, levels: Sequence[float], seed: int) -> list[float]:
    """Return, by level, how many standard errors hold the deviations of all steps at once, by draws of the influence
    curves (Belloni et al. 2018).
    """
    if not (se_H > 0).any():
        return [float("nan")] * len(levels)
    scaled_UH = np.divide(moved_UH, se_H, out=np.zeros_like(moved_UH), where=np.nan_to_num(se_H) > 0)
    value_H, vector_HH = np.linalg.eigh(scaled_UH.T @ scaled_UH)
    root_HH = vector_HH * np.sqrt(np.maximum(value_H, 0.0))  # sums over units have the same law as draws of H normals
    most = np.abs(np.random.default_rng(seed).standard_normal((DRAWS, len(value_H))) @ root_HH.T).max(axis=1)
    return [max(float(np.quantile(most, level)), float(ndtri(0.5 + level / 2))) for level in levels]


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected by Holm's step-down method, in the order given (Holm 1979).

    The smallest of m is multiplied by m, the next by m - 1, and so on; none becomes smaller than one before it, or
    larger than 1. Rejecting what is at most alpha then errs in any of the m tests with a probability of at most alpha.
    """
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = largest
    return corrected


def made_here(_name: str, _shape: tuple[int, ...], make: Callable[[], Curve]) -> Curve:
    """Return a curve that is made in this process; see `Source`."""
    return make()


def estimate(
    trials: Trials,
    plans: Sequence[Regime],
    settings: Settings = Settings(),
    *,
    reference: int = 0,
    groups: tuple[str, ...] = (ANY_GROUP,),
    in_GM: Bools | None = None,
    outcomes: Collection[str] = (),
    tick: Callable[[], None] = lambda: None,
    source: Source = made_here,
) -> Effects:
    """Estimate mean quantities under plans.

    Args:
        trials: whom, from when, and for how long.
        plans: the plans, none longer than the trials.
        settings: how.
        reference: the place of the plan that others are compared with.
        groups: names of the groups, everybody first.
        in_GM: which trials belong to each.
        outcomes: names of outcomes and of terminal events; all by default.
        tick: is called after each estimator of a plan.
        source: where curves are from.

    Raises:
        UsageError: too few units; nothing is measured; a plan that nobody follows up to some step, unless
            `unsupported`.
    """
    if (units := trials.units) < FEWEST_UNITS:
        what = "subjects" if trials.panel.cluster is None else "clusters"
        fix = "ask about more of them (`--subjects all`); a model's answers for each are those of `costar whatif`"
        raise UsageError(f"{units} {what}: effects are estimated from {FEWEST_UNITS} or more", fix=fix)
    in_GM = np.ones((1, len(trials)), dtype=bool) if in_GM is None else in_GM
    fold_M = trials.folds(settings.folds, settings.seed)
    practice = Practice(trials, fold_M, known=settings.known, boosting=settings.learner != "regression")
    weights = tuple(practice.of(plan) for plan in plans)
    encoding, targets = trials.schema.treatments, list[TargetEstimates]()
    for whole in (trials.outcomes(), trials.events()):
        target = None if whole is None else whole.only(outcomes)
        if target is None or not target.measured_MHQ.any():
            continue
        kept_MK, measured_MHQ = practice.kept(target), practice.measured(target)
        follows = tuple(
            Follow.of(trials, target, plan, kept_MK, measured_MHQ, truncated=settings.truncated) for plan in weights
        )
        if not settings.unsupported:
            _refuse_unfollowed(plans, follows, elapsed=any(dose.elapsed for dose in encoding.doses))
        logistic_Q = np.array([kind in ("binary", "event") for kind in target.kinds])
        learner = chosen_learner(settings.learner, _next_steps(trials, target), trials.present, logistic_Q)
        curves: dict[EstimatorName, tuple[Curve, ...]] = {}
        for estimator in settings.estimators:
            made: list[Curve] = []
            for p, (plan, follow) in enumerate(zip(weights, follows, strict=True)):
                make = partial(_curve, estimator, trials, target, plan, follow, fold_M, learner, in_GM)
                shape = (len(in_GM), len(trials), len(plan), len(target.names))
                curve = source(f"{len(targets)}/{estimator}/{p}", shape, make)
                if curve:  # there is no number at a step at which nobody has the quantity
                    seen_HQ = target.measured_MHQ[:, : curve.mean_GHQ.shape[1]].any(axis=0)
                    made.append(replace(curve, mean_GHQ=np.where(seen_HQ, curve.mean_GHQ, np.nan)))
                tick()
            curves[estimator] = tuple(made)
        targets.append(TargetEstimates(target, curves, follows, learner, kept_MK, measured_MHQ))
    if not targets:
        what = " and ".join(outcomes) or "no outcome or event"
        problem = f"nothing is measured within {trials.steps} steps of the {len(trials):,} trials: {what}"
        raise UsageError(problem, where="--outcome", fix="ask about more steps, another origin or another outcome")
    return Effects(trials, tuple(plans), reference, weights, tuple(targets), groups, in_GM, settings, practice)


def _curve(
    estimator: EstimatorName, trials: Trials, target: Target, plan: PlanWeights, follow: Follow, fold_M: Ints,
    learner: Learner, in_GM: Bools,
) -> Curve:  # fmt: skip
    if estimator == "ipw":
        return weighted(target, follow, in_GM)
    if estimator == "gformula":
        return by_computation(trials, target, plan, follow, learner, in_GM)
    regress = cross_fitted(trials, plan, follow, fold_M, learner)
    return sequential(target, plan, follow, regress, in_GM, targeted=estimator == "tmle")


def _next_steps(trials: Trials, target: Target) -> list[tuple[Floats, Floats, Floats, Ints]]:
    """Return the history and treatment of each decision, what was measured after it, and the unit of sampling.

    A decision of several trials counts once: trees would otherwise be tested on decisions that they learnt.
    """
    at_MK = trials.decided_MK & target.measured_MHQ.all(axis=2)
    place_MK = trials.subject_M[:, None] * trials.panel.n_steps + trials.row_MK
    first = np.unique(place_MK[at_MK], return_index=True)[1]
    once_MK = np.zeros_like(at_MK)
    once_MK.flat[np.flatnonzero(at_MK)[first]] = True
    return [
        (trials.history(k, at_M), trials.given(k, at_M), target.value_MHQ[at_M, k], trials.unit_M[at_M])
        for k, at_M in enumerate(once_MK.T)
    ]


def _refuse_unfollowed(plans: Sequence[Regime], follows: Sequence[Follow], *, elapsed: bool) -> None:
    """Check that each plan has followers to its end.

    Raises:
        UsageError: nobody does, of whom anything is measured; the step is named, and how many were left before it.
    """
    problems = []
    for plan, follow in zip(plans, follows, strict=True):
        left_K = (follow.raw_MK > 0).sum(axis=0)
        if (gone_K := np.flatnonzero(left_K == 0)).size:
            k = int(gone_K[0])
            before = int(left_K[k - 1]) if k else len(follow.raw_MK)
            problems.append(f"nobody follows plan {plan.name!r} through step {k + 1} ({before:,} did until then)")
    if problems:
        fix = "ask about fewer steps or another plan; --unsupported answers anyway, by regressions alone"
        if elapsed:
            fix = (
                'leave the time until the next visit to usual care, as in {"rule": "drug = 1 if natural drug = 0"}; or '
                + fix
            )
        raise UsageError(problems[0], details=problems[1:], where="--plan", fix=fix)
