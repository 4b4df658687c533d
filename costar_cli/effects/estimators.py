"""Mean outcomes under plans: sequentially doubly robust, targeted, by g-computation, by weights (spec EFFECT-7 to 10).

`M` trials, `K` decisions, `H` steps, `Q` quantities, `C` options of a plan, `B` answers of a regression: steps and
quantities.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from costar_cli.effects.learners import DESIGNS, Learner, Linear, Mixture
from costar_cli.effects.trials import Bools, Floats, Ints, Target, Trials
from costar_cli.effects.weights import PlanWeights

EstimatorName = Literal["sdr", "tmle", "gformula", "ipw"]
TRUNCATED: Final = 0.99  # quantile of the weights of those who follow a plan, at which larger ones are cut
EDGE: Final = 1e-4  # of probabilities that are moved on the logit scale
STEPS: Final = 50
LEAST_AT_RISK: Final = 0.05  # share of the weight of followers, from which on those at risk decide what is known


@dataclass(frozen=True, eq=False)
class Follow:
    """Who counts for what a plan would do, and how much, in trials of one target.

    Attributes:
        at_MK: a decision is made in follow-up.
        ratio_MK: of the plan to practice at each decision alone, of those followed after it, cut at a quantile.
        share_MHQ: what it is multiplied with where a quantity is measured after the step.
        raw_MK: cumulative weights through each decision.
        raw_last_MHQ: the same of those in whom a quantity is measured after step h.
        weight_MK: cumulative weights, cut likewise.
        last_MHQ: the same of those measured.
    """

    at_MK: Bools
    ratio_MK: Floats
    share_MHQ: Floats
    raw_MK: Floats
    raw_last_MHQ: Floats
    weight_MK: Floats
    last_MHQ: Floats

    @classmethod
    def of(
        cls, trials: Trials, target: Target, plan: PlanWeights, kept_MK: Floats, measured_MHQ: Floats, *,
        truncated: float = TRUNCATED,
    ) -> "Follow":  # fmt: skip
        """Return the weights of a plan.

        Args:
            trials: the decisions.
            target: who is followed, and what is measured.
            plan: ratios to practice.
            kept_MK: probabilities of being followed further.
            measured_MHQ: of being measured.
            truncated: the quantile of the weights of a step that are not 0, at which larger ones are cut.
        """
        steps = len(plan)
        still_MK = np.ones((len(trials), steps), dtype=bool)
        still_MK[:, 1:] = np.logical_and.accumulate(target.kept_MK[:, : steps - 1], axis=1)
        settled_MK = target.settled_MK[:, :steps]
        at_MK = trials.decided_MK[:, :steps] & still_MK & ~settled_MK
        factor_MK: Floats = np.where(at_MK, plan.ratio_MK * target.kept_MK[:, :steps] / kept_MK[:, :steps], 1.0)
        raw_MK = np.cumprod(np.where(still_MK | settled_MK, factor_MK, 0.0), axis=1, dtype=np.float64)
        share_MHQ = target.measured_MHQ[:, :steps] / measured_MHQ[:, :steps]
        raw_last_MHQ: Floats = raw_MK[..., None] * share_MHQ
        ratio_MK, weight_MK, last_MHQ = np.where(at_MK, factor_MK, 0.0), raw_MK.copy(), raw_last_MHQ.copy()
        for weights in (ratio_MK, weight_MK, last_MHQ):
            for place in np.ndindex(weights.shape[1:]):
                column_M = weights[:, *place]
                # Trials that an event has settled weigh little: if they counted, all who go on would be cut.
                counted_M = column_M[(column_M > 0) & at_MK[:, place[0]]]
                if len(counted_M):
                    weights[:, *place] = np.minimum(column_M, np.quantile(counted_M, truncated))
        return cls(at_MK, ratio_MK, share_MHQ, raw_MK, raw_last_MHQ, weight_MK, last_MHQ)

    def effective(self, weights: Floats, rows: Ints | slice = slice(None)) -> Floats:
        """Return how many trials of equal weight know as much as some with these `[M,H]`, at each step.

        Where events have settled trials, those still at risk decide, unless they stand for next to nobody: many early
        events do not tell how it goes on.
        """
        at_risk = weights * self.at_MK[rows]
        total_H = weights.sum(axis=0)
        few_H = kish(at_risk)
        return np.asarray(np.where(at_risk.sum(axis=0) >= LEAST_AT_RISK * total_H, few_H, kish(weights)))


def kish(weights: Floats) -> Floats:
    """Return how many trials of equal weight know as much as some with these `[M,...]` (Kish 1965)."""
    square = np.asarray((weights**2).sum(axis=0))
    return np.asarray(np.divide(weights.sum(axis=0) ** 2, square, out=np.zeros_like(square), where=square > 0))


@dataclass(frozen=True, eq=False)
class Curve:
    """Mean quantities of groups under a plan, `[G,H,Q]`, and what each trial moves of them, `[G,M,H,Q]`.

    The standard error of a mean is that of a mean over the trials of its group of what these move. It is not a number
    where that is unknown.
    """

    mean_GHQ: Floats
    influence_GMHQ: Floats

    @classmethod
    def of_trials(cls, own_MHQ: Floats, in_GM: Bools) -> "Curve":
        """Return means over trials of numbers that each has on its own."""
        mean_GHQ = np.stack([own_MHQ[in_M].mean(axis=0) for in_M in in_GM])
        return cls(mean_GHQ, np.where(in_GM[..., None, None], own_MHQ - mean_GHQ[:, None], 0.0))


Regress = Callable[[int, Bools, Floats, NDArray[np.bool_]], tuple[Floats, Floats]]
"""From a decision, the trials to learn from `[M,B]`, answers `[M,B]` and which are logistic to predictions for what was
given `[M,B]` and for each option of the plan `[C,M,B]`."""


def weighted(target: Target, follow: Follow, in_GM: Bools) -> Curve:
    """Return weighted means of those who followed a plan (Robins 2000), normalised by the sum of weights."""
    weight_GMHQ = follow.last_MHQ * in_GM[..., None, None]
    total_GHQ = weight_GMHQ.sum(axis=1)
    value_MHQ = target.value_MHQ[:, : weight_GMHQ.shape[2]]
    with np.errstate(invalid="ignore", divide="ignore"):
        mean_GHQ = (weight_GMHQ * value_MHQ).sum(axis=1) / total_GHQ
        scale_GHQ = in_GM.sum(axis=1)[:, None, None] / total_GHQ
        return Curve(mean_GHQ, weight_GMHQ * (value_MHQ - mean_GHQ[:, None]) * scale_GHQ[:, None])


def sequential(
    target: Target, plan: PlanWeights, follow: Follow, regress: Regress, in_GM: Bools, *, targeted: bool
) -> Curve:
    """Return means by regressions from the last step back, corrected by weighted residuals at each.

    Args:
        target: what is measured.
        plan: what would be given.
        follow: weights.
        regress: predicts, for trials from others, what follows.
        in_GM: which trials belong to which group.
        targeted: move each regression until its weighted residuals vanish (TMLE: van der Laan & Gruber 2012), or hand
            corrected answers to the one before (sequential double robustness: Luedtke et al. 2017; Diaz et al. 2023).
    """
    steps = len(plan)
    shape = target.value_MHQ[:, :steps].shape
    pseudo_MHQ = target.value_MHQ[:, :steps].copy()
    residual_MHQ = np.zeros(shape)
    logistic_Q = np.array([kind in ("binary", "event") for kind in target.kinds]) & targeted
    for k in reversed(range(steps)):
        at_M, later = follow.at_MK[:, k], slice(k, steps)
        answer_MB = pseudo_MHQ[:, later].reshape(shape[0], -1)
        learn_MB = _learnt_from(target, follow, k)
        logistic_B = np.tile(logistic_Q, steps - k)
        given_MB, option_CMB = regress(k, learn_MB, answer_MB, logistic_B)
        weight_MHQ = np.repeat(follow.weight_MK[:, k, None, None], steps - k, axis=1) * np.ones(shape[2])
        weight_MHQ[:, 0] = follow.last_MHQ[:, k]
        weight_MB = np.where(learn_MB, weight_MHQ.reshape(shape[0], -1), 0.0)
        if targeted:
            given_MB, option_CMB = _fluctuated(given_MB, option_CMB, answer_MB, weight_MB, logistic_B)
            new_MB = _mixed(option_CMB, plan, k)
            residual_MHQ[:, later] += np.where(learn_MB, weight_MB * (answer_MB - given_MB), 0.0).reshape(
                shape[0], -1, shape[2]
            )
        else:
            ratio_MHQ = np.repeat(follow.ratio_MK[:, k, None, None], steps - k, axis=1) * np.ones(shape[2])
            ratio_MHQ[:, 0] *= follow.share_MHQ[:, k]
            ratio_MB = np.where(learn_MB, ratio_MHQ.reshape(shape[0], -1), 0.0)
            new_MB = _mixed(option_CMB, plan, k) + ratio_MB * (answer_MB - given_MB)
        pseudo_MHQ[:, later] = np.where(at_M[:, None], new_MB, answer_MB).reshape(shape[0], -1, shape[2])
    return Curve.of_trials(pseudo_MHQ + residual_MHQ, in_GM)


def _learnt_from(target: Target, follow: Follow, k: int) -> Bools:
    """Return the trials from which each answer is learnt at decision k, `[M,B]`: those who are followed after it.

    For the outcome right after it, it was measured, too.
    """
    steps, count = follow.at_MK.shape[1] - k, len(target.names)
    kept_M = follow.at_MK[:, k] & target.kept_MK[:, k]
    learn_MHQ = np.tile(kept_M[:, None, None], (1, steps, count))
    learn_MHQ[:, 0] &= target.measured_MHQ[:, k]
    return learn_MHQ.reshape(len(kept_M), -1)


def _fluctuated(
    given_MB: Floats, option_CMB: Floats, answer_MB: Floats, weight_MB: Floats, logistic_B: NDArray[np.bool_]
) -> tuple[Floats, Floats]:
    """Return predictions moved by one number per answer, on the logit scale where it is logistic, so that weighted
    residuals vanish.
    """
    total_B = weight_MB.sum(axis=0)
    safe_B = np.where(total_B > 0, total_B, 1.0)
    move_B = (weight_MB * (answer_MB - given_MB)).sum(axis=0) / safe_B
    moved = [given_MB + move_B, option_CMB + move_B]
    at = logistic_B & (total_B > 0)
    if at.any():
        given, planned = (logit(np.clip(array[..., at], EDGE, 1 - EDGE)) for array in (given_MB, option_CMB))
        weight, answer, shift = weight_MB[:, at], answer_MB[:, at], np.zeros(int(at.sum()))
        for _ in range(STEPS):
            share = expit(given + shift)
            slope = (weight * (answer - share)).sum(axis=0)
            move = np.clip(slope / np.maximum((weight * share * (1 - share)).sum(axis=0), 1e-12), -1.0, 1.0)
            shift = shift + move
            if np.abs(move).max() < 1e-9:
                break
        moved[0][:, at], moved[1][..., at] = expit(given + shift), expit(planned + shift)
    return moved[0], moved[1]


def cross_fitted(trials: Trials, plan: PlanWeights, follow: Follow, fold_M: Ints, learner: Learner) -> Regress:
    """Return regressions in which each trial is predicted by what learnt from the other parts."""

    def regress(k: int, learn_MB: Bools, answer_MB: Floats, logistic_B: Bools) -> tuple[Floats, Floats]:
        given_MB, option_CMB = np.zeros(answer_MB.shape), np.zeros((len(plan.given[k]), *answer_MB.shape))
        at_M = follow.at_MK[:, k]
        history_MP, given_MA = trials.history(k), trials.given(k)
        for same_B in _alike(learn_MB):
            learn_M, designs = learn_MB[:, same_B[0]], DESIGNS  # chosen in the first part, for all
            for fold in np.unique(fold_M):
                train_M, rows_M = learn_M & (fold_M != fold), at_M & (fold_M == fold)
                if not train_M.any() or not rows_M.any():
                    continue
                answers = answer_MB[np.ix_(train_M, same_B)]
                fitted = learner.fit(history_MP[train_M], given_MA[train_M], answers, logistic_B[same_B], designs)
                line = fitted.regression if isinstance(fitted, Mixture) else fitted
                designs = (line.design.name,) if isinstance(line, Linear) else designs
                given_MB[np.ix_(rows_M, same_B)] = fitted.predict(history_MP[rows_M], given_MA[rows_M])
                for option_MB, planned_MA in zip(option_CMB, plan.given[k], strict=True):
                    option_MB[np.ix_(rows_M, same_B)] = fitted.predict(history_MP[rows_M], planned_MA[rows_M])
        return given_MB, option_CMB

    return regress


def _mixed(option_CMB: Floats, plan: PlanWeights, k: int) -> Floats:
    """Return options of a plan weighted by their chances; residuals of practice move those that are estimated."""
    chance_CM = plan.chance[k] if plan.tilt is None else plan.chance[k] + plan.tilt[k]
    return np.asarray(np.einsum("cm,cmb->mb", chance_CM, option_CMB))


def _alike(learn_MB: Bools) -> list[NDArray[np.intp]]:
    """Return the answers that are learnt from the same trials, together."""
    kinds: dict[bytes, list[int]] = {}
    for place, learn_M in enumerate(learn_MB.T):
        kinds.setdefault(np.packbits(learn_M).tobytes(), []).append(place)
    return [np.array(places) for places in kinds.values()]


def by_computation(
    trials: Trials, target: Target, plan: PlanWeights, follow: Follow, learner: Learner, in_GM: Bools
) -> Curve:
    """Return means by regressions from the last step back, uncorrected (iterated g-computation: Robins 1986).

    What each trial moves of them is that of the regressions, where these are linear or logistic: of residuals at each
    decision, with the weights that the regression implies.
    """
    steps = len(plan)
    shape = target.value_MHQ[:, :steps].shape
    pseudo_MHQ = target.value_MHQ[:, :steps].copy()
    logistic_Q = np.array([kind in ("binary", "event") for kind in target.kinds])
    kept: list[list[tuple[NDArray[np.intp], Bools, Linear | None, Floats]]] = []
    for k in reversed(range(steps)):
        at_M, later = follow.at_MK[:, k], slice(k, steps)
        answer_MB = pseudo_MHQ[:, later].reshape(shape[0], -1)
        learn_MB = _learnt_from(target, follow, k)
        logistic_B = np.tile(logistic_Q, steps - k)
        history_MP, given_MA = trials.history(k), trials.given(k)
        new_MB, fits = answer_MB.copy(), []
        for same_B in _alike(learn_MB):
            learn_M = learn_MB[:, same_B[0]]
            if not learn_M.any():
                continue
            answers = answer_MB[np.ix_(learn_M, same_B)]
            fitted = learner.fit(history_MP[learn_M], given_MA[learn_M], answers, logistic_B[same_B])
            residual = answers - fitted.predict(history_MP[learn_M], given_MA[learn_M])
            new_MB[np.ix_(at_M, same_B)] = sum(
                chance_M[at_M, None] * fitted.predict(history_MP[at_M], planned_MA[at_M])
                for chance_M, planned_MA in zip(plan.chance[k], plan.given[k], strict=True)
            )
            fits.append((same_B, learn_M, fitted if isinstance(fitted, Linear) else None, residual))
        kept.insert(0, fits)
        pseudo_MHQ[:, later] = new_MB.reshape(shape[0], -1, shape[2])
    curve = Curve.of_trials(pseudo_MHQ, in_GM)
    linear = [[(same_B, learn_M, law, rest) for same_B, learn_M, law, rest in fits if law] for fits in kept]
    if [len(fits) for fits in linear] != [len(fits) for fits in kept]:
        return replace(curve, influence_GMHQ=np.full_like(curve.influence_GMHQ, np.nan))
    for g, in_M in enumerate(in_GM):
        moved_MHQ = np.ones(shape) * in_M[:, None, None]  # by how much each prediction counts in the group's mean
        for k, laws in enumerate(linear):
            at_M, later = follow.at_MK[:, k], slice(k, steps)
            history_MP, given_MA = trials.history(k), trials.given(k)
            moved_MB = moved_MHQ[:, later].reshape(shape[0], -1)
            next_MB, change_MB = np.where(at_M[:, None], 0.0, moved_MB), np.zeros_like(moved_MB)
            for same_B, learn_M, law, rest in laws:
                slope = np.zeros_like(law.beta_DQ)
                for chance_M, planned_MA in zip(plan.chance[k], plan.given[k], strict=True):
                    weight_MB = moved_MB[np.ix_(at_M, same_B)] * chance_M[at_M, None]
                    slope += law.slopes(history_MP[at_M], planned_MA[at_M], weight_MB)
                implied = law.implied(history_MP[learn_M], given_MA[learn_M], slope)
                next_MB[np.ix_(learn_M, same_B)] = implied
                change_MB[np.ix_(learn_M, same_B)] = implied * rest
            curve.influence_GMHQ[g, :, later] += change_MB.reshape(shape[0], -1, shape[2])
            moved_MHQ[:, later] = next_MB.reshape(shape[0], -1, shape[2])
    return curve
