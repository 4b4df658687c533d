"""Doubly robust effects of constant plans, with which parts of a combination are compared (spec STACK-10)."""

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Values
from costar_cli.data.panel import join_panels
from costar_cli.data.windows import share_of_changes
from costar_cli.effects import FEW, Trials
from costar_cli.effects.effects import FEWEST_UNITS
from costar_cli.effects.estimators import Curve, Follow, cross_fitted, sequential
from costar_cli.effects.learners import Learner
from costar_cli.effects.weights import PlanWeights, Practice
from costar_cli.methods.base import FitTask
from costar_cli.methods.shared.effect_check import EffectCheck
from costar_cli.methods.shared.grow import spread_rows
from costar_cli.methods.shared.logistic import one_thread
from costar_cli.plans import IndexTimes, TreatmentPlan
from costar_cli.plans.plan import steps_by_name

MOST_TRIALS: Final = 4_096  # moments that the estimate rests on, the same number of each subject as far as it goes
MOST_ASKED: Final = 1_024  # moments that each part is asked about
MOST_PLANS: Final = 4  # the reference and those that most follow
MOST_STEPS: Final = 6
LEAST_STEPS: Final = 2  # before the second, nothing has reacted to a plan
FOLDS: Final = 5
SEED: Final = 0

Ints = NDArray[np.int64]


def effect_check(task: FitTask) -> EffectCheck | None:
    """Return what subjects that parts learn from and are selected on say of effects; None where they say too little.

    Plans hold one treatment from any moment on. Regressions never saw the subject that they are corrected by, and
    parts are asked about held-out subjects.
    """
    encoding, parts = task.schema.treatments, (task.panels[task.train], task.panels[task.validation])
    panel = join_panels(parts)
    if all(part.cluster is not None for part in parts):
        panel = replace(panel, cluster=np.concatenate([part.cluster for part in parts]))
    since_N = np.concatenate([part.first_origin for part in parts])
    steps = min(task.horizon, MOST_STEPS, panel.n_steps - 1 - int(since_N.min()))
    if steps < LEAST_STEPS or encoding.doses or not share_of_changes(parts[0], encoding, task.horizon):
        return None
    open_NT = (np.arange(panel.n_steps) < panel.length[:, None] - 1) & (np.arange(panel.n_steps) >= since_N[:, None])
    open_NT[:, panel.n_steps - steps :] = False
    subject_M, origin_M = (rows.astype(np.int64) for rows in np.nonzero(open_NT))
    some = spread_rows(subject_M, MOST_TRIALS, SEED)
    trials = Trials(task.schema, panel, subject_M[some], origin_M[some], steps)
    kinds = _most_followed(trials)
    held = np.flatnonzero(trials.subject_M >= parts[0].n_subjects)
    held = held[spread_rows(trials.subject_M[held], MOST_ASKED, SEED)]
    if trials.units < FEWEST_UNITS or len(kinds) < 2 or not len(held):
        return None
    target = trials.outcomes()
    same_PMK = np.stack([(trials.values(k) == kinds[:, None]).all(axis=-1) for k in range(steps)], axis=-1)
    followed_PMH = np.logical_and.accumulate(same_PMK, axis=2)
    # No weights make more of followers than there are: where these are too few, nothing is fitted to find that out.
    if _steps_with_enough((followed_PMH[..., None] & target.measured_MHQ).sum(axis=1)) < LEAST_STEPS:
        return None
    fold_M = trials.folds(FOLDS, SEED)
    with one_thread("blas"):
        practice = Practice(trials, fold_M, known={}, boosting=False)
        kept_MK, measured_MHQ = practice.kept(target), practice.measured(target)

        def follow(values_A: Values, steps: int) -> tuple[PlanWeights, Follow]:
            weights = practice.of(TreatmentPlan("", np.tile(values_A, (steps, 1))))
            return weights, Follow.of(trials, target, weights, kept_MK, measured_MHQ)

        follows = [follow(values_A, steps)[1] for values_A in kinds]
        effective_PHY = np.stack(
            [
                np.stack([one.effective(weight_MH) for weight_MH in np.moveaxis(one.raw_last_MHQ, 2, 0)], axis=-1)
                for one in follows
            ]
        )
        effective_CHY = np.minimum(effective_PHY[1:], effective_PHY[0])
        steps = _steps_with_enough(effective_PHY)  # regressions of later ones would be in vain
        if steps < LEAST_STEPS:
            return None
        learner, everybody_GM = Learner("regression", trials.present), np.ones((1, len(trials)), dtype=bool)
        curves = list[Curve]()
        for weights, followed in (follow(values_A, steps) for values_A in kinds):
            regress = cross_fitted(trials, weights, followed, fold_M, learner)
            curves.append(sequential(target, weights, followed, regress, everybody_GM, targeted=True))
    base, *others = curves
    estimate_CHY = np.stack([curve.mean_GHQ[0] - base.mean_GHQ[0] for curve in others])
    moved_UCHY = np.zeros((trials.units, *estimate_CHY.shape))
    for c, curve in enumerate(others):
        np.add.at(moved_UCHY[:, c], trials.unit_M, (curve.influence_GMHQ[0] - base.influence_GMHQ[0]) / len(trials))
    moments = IndexTimes(parts[1], trials.subject_M[held] - parts[0].n_subjects, trials.origin_M[held])
    plan_PHA = [encoding.encode(np.tile(values_A, (steps, 1))) for values_A in kinds]
    return EffectCheck(
        parts[1], moments.queries(np.tile(plan_PHA[0], (len(held), 1, 1))), np.stack(plan_PHA[1:]),
        steps_by_name(encoding, kinds), [one.name for one in task.schema.outcomes], trials.unit_M[held],
        estimate_CHY, moved_UCHY, effective_CHY[:, :steps] >= FEW, effective_CHY[:, :steps],
    )  # fmt: skip


def _most_followed(trials: Trials) -> Values:
    """Return the combinations of levels `[P,names]` that most trials have for two steps, the most followed first."""
    values_KMA = [trials.values(k) for k in range(min(trials.steps, 2))]
    kinds_JA, kind_M = np.unique(values_KMA[0], axis=0, return_inverse=True)
    same_M = (values_KMA[0] == values_KMA[-1]).all(axis=-1) & trials.decided_MK[:, : len(values_KMA)].all(axis=1)
    count_J = np.bincount(kind_M.ravel()[same_M], minlength=len(kinds_JA))
    order = [int(j) for j in np.argsort(-count_J, kind="stable") if count_J[j] >= FEW][:MOST_PLANS]
    return np.asarray(kinds_JA[order])


def _steps_with_enough(followers_PHY: NDArray[np.number]) -> int:
    """Return after how many steps enough follow the first plan and another, for any outcome."""
    both_CHY = np.minimum(followers_PHY[1:], followers_PHY[0])
    return int((both_CHY >= FEW).any(axis=(0, 2)).sum())
