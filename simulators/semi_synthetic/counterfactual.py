"""What would have happened under other treatments: the simulator's answers (spec ICU-13 to 15)."""

from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np
from numpy.typing import NDArray

from simulators.semi_synthetic.baseline import Baseline
from simulators.semi_synthetic.branches import follow_branches
from simulators.semi_synthetic.draws import PatientSeeds, draw_plans
from simulators.semi_synthetic.factual import SemiSyntheticFactual
from simulators.semi_synthetic.mechanism import TREATMENTS

__all__ = ["SemiSyntheticCounterfactuals", "answer_plan", "one_step_counterfactuals", "sequence_counterfactuals"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

OPTIONS: Final = np.array(list(product((False, True), repeat=len(TREATMENTS))))  # [8,3], lexicographic


@dataclass(frozen=True, slots=True)
class SemiSyntheticCounterfactuals:
    """Plans and the outcomes they lead to, in flat arrays of Q queries.

    `subject [Q]` is the row of the factual panel and `origin [Q]` the hour t at which the plan starts. `treatments
    [Q,H,3]` are given at hours t to t+H-1, and `outcomes [Q,H,2]` follow at hours t+1 to t+H. Queries are sorted by
    subject, then origin; the branches of one origin are neighbours.
    """

    subject: NDArray[np.int32]
    origin: NDArray[np.int16]
    treatments: Bools
    outcomes: Floats

    def __len__(self) -> int:
        return int(self.subject.shape[0])


def one_step_counterfactuals(baseline: Baseline, factual: SemiSyntheticFactual) -> SemiSyntheticCounterfactuals:
    """Answer all eight treatment vectors, 000 to 111 (t1 t2 t3), of every hour 0..length-2.

    Siblings share the history and the effects of earlier treatments.
    """
    subject, origin = _origins(factual, 1)
    option_KP3 = np.broadcast_to(OPTIONS[:, None], (len(OPTIONS), len(subject), len(TREATMENTS)))
    outcome_PKHJ = follow_branches(baseline, factual, subject, origin, [option_KP3])
    return _flat(subject, origin, option_KP3.transpose(1, 0, 2)[:, :, None], outcome_PKHJ)


def sequence_counterfactuals(
    baseline: Baseline, factual: SemiSyntheticFactual, seeds: PatientSeeds, *, horizon: int = 11, n_plans: int = 10
) -> SemiSyntheticCounterfactuals:
    """Answer `n_plans` random plans from every origin: its factual treatment, then `horizon - 1` drawn ones.

    The released code draws H = horizon - 1 vectors for hours t..t+H-1 at every t = 1..length-1-H and places the
    origin of the forecast at s0 = t-1, whose step to t is factual. So here the origins are s0 = 0..length-1-horizon,
    the treatment of s0 is the patient's own, those of s0+1..s0+H are fair coins, and the outcomes are those of
    s0+1 (factual, not to be scored) to s0+1+H, the patient's last observed hour for the last origin. On a branch, the
    probabilities that scale the effects are those of the branch's own state.

    Args:
        baseline: N patients.
        factual: their factual run.
        seeds: the data set's seed and the patients' identifiers; the plans of each patient have a child seed.
        horizon: hours per plan, with the factual one.
        n_plans: branches per origin.

    Raises:
        ValueError: a horizon below 2.
    """
    if horizon < 2:
        raise ValueError("a treatment sequence has a factual and at least one drawn hour: horizon >= 2")
    subject, origin = _origins(factual, horizon)
    given_P3 = factual.treatments[subject, origin]
    drawn_PKHL = draw_plans(seeds, np.maximum(factual.length - horizon, 0), n_plans, horizon - 1)
    steps = [given_P3[None], *drawn_PKHL.transpose(2, 1, 0, 3)]
    outcome_PKHJ = follow_branches(baseline, factual, subject, origin, steps)
    first_PK13 = np.broadcast_to(given_P3[:, None, None], (len(subject), n_plans, 1, len(TREATMENTS)))
    return _flat(subject, origin, np.concatenate([first_PK13, drawn_PKHL], axis=2), outcome_PKHJ)


def answer_plan(
    baseline: Baseline,
    factual: SemiSyntheticFactual,
    subject: NDArray[np.integer],
    origin: NDArray[np.integer],
    plan: NDArray[np.bool_ | np.number],
) -> Floats:
    """Return the true outcomes `[Q,H,2]` at hours origin+1 to origin+H, had each plan been followed.

    Args:
        baseline: N patients.
        factual: their factual run, as simulated or replayed.
        subject: rows of the patients, `[Q]`.
        origin: hours at which the plans start, `[Q]`.
        plan: treatments `[Q,H,3]`, 0 or 1; it must end before the patient's last observed hour, since outcomes need
            covariates: origin + H <= length - 1.

    Raises:
        ValueError: arrays that disagree in shape, or origins or plans outside the observed hours.
    """
    subject_, origin_, plan_ = np.asarray(subject, np.int64), np.asarray(origin, np.int64), np.asarray(plan, np.bool_)
    expected = (*subject_.shape, len(TREATMENTS))
    if origin_.shape != subject_.shape or plan_.ndim != 3 or (plan_.shape[0], plan_.shape[2]) != expected:
        raise ValueError("subject [Q], origin [Q] and plan [Q,H,3] disagree in shape")
    if len(subject_) and (subject_.min() < 0 or subject_.max() >= len(factual)):
        raise ValueError(f"subjects must be rows 0 to {len(factual) - 1}")
    if (origin_ < 0).any() or (origin_ + plan_.shape[1] >= factual.length[subject_]).any():
        raise ValueError("plans must start at an observed hour and end by the last one: origin + H <= length - 1")
    steps = [plan_[None, :, h] for h in range(plan_.shape[1])]
    return follow_branches(baseline, factual, subject_, origin_, steps)[:, 0]


def _origins(factual: SemiSyntheticFactual, horizon: int) -> tuple[Ints, Ints]:
    """Return subject and hour `[P]` of every hour that is followed by `horizon` observed ones."""
    subject, origin = np.nonzero(np.arange(factual.n_steps) < factual.length[:, None] - horizon)
    return subject, origin


def _flat(subject: Ints, origin: Ints, plan_PKHL: Bools, outcome_PKHJ: Floats) -> SemiSyntheticCounterfactuals:
    n_branches, horizon = outcome_PKHJ.shape[1:3]
    return SemiSyntheticCounterfactuals(
        subject=subject.astype(np.int32).repeat(n_branches),
        origin=origin.astype(np.int16).repeat(n_branches),
        treatments=plan_PKHL.reshape(-1, horizon, len(TREATMENTS)),
        outcomes=outcome_PKHJ.reshape(-1, horizon, outcome_PKHJ.shape[3]),
    )
