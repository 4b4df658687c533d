"""What would have happened under other treatments: the simulator's answers (spec TUMOR-9 to 11)."""

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from simulators.tumor.branches import Ints, follow_branches
from simulators.tumor.dynamics import Bools, Floats, TumorNoise
from simulators.tumor.factual import TumorFactual
from simulators.tumor.patients import TumorPatients

__all__ = ["PlanKind", "TumorCounterfactuals", "answer_plan", "one_step_counterfactuals", "sequence_counterfactuals"]

PlanKind = Literal["sliding", "random", "fixed"]

OPTIONS: Final = ((False, False), (False, True), (True, False), (True, True))  # (chemotherapy, radiotherapy)
SIBLINGS: Final = np.array(  # [option given, 4 options, 2]: the given one comes first
    [sorted(OPTIONS, key=lambda option: option != given) for given in OPTIONS], dtype=np.bool_
)


@dataclass(frozen=True, slots=True)
class TumorCounterfactuals:
    """Plans and the volumes they lead to, in flat arrays of Q queries.

    `subject [Q]` is the row of the factual panel and `origin [Q]` the day t at which the plan starts. `treatments
    [Q,H,2]` (chemotherapy, radiotherapy) are given on days t to t+H-1, and `volume_cm3 [Q,H]` follows on days t+1 to
    t+H. Queries are sorted by subject, then origin; the branches of one origin are neighbours.
    """

    subject: NDArray[np.int32]
    origin: NDArray[np.int16]
    treatments: Bools
    volume_cm3: Floats

    def __len__(self) -> int:
        return int(self.subject.shape[0])


def one_step_counterfactuals(patients: TumorPatients, noise: TumorNoise, factual: TumorFactual) -> TumorCounterfactuals:
    """Answer all four treatments of every active day: the factual one first, then the others of (00, 01, 10, 11).

    Siblings share the history, the noise and the carried-over drug.
    """
    subject, origin = active_days(factual)
    given_P2 = _given(factual, subject, origin)
    plan_P42 = SIBLINGS.take(2 * given_P2[:, 0] + given_P2[:, 1], axis=0)
    volume_P41 = follow_branches(patients, noise, factual, subject, origin, [plan_P42.transpose(1, 0, 2)])
    return flat(subject, origin, plan_P42[:, :, None], volume_P41)


def sequence_counterfactuals(
    patients: TumorPatients,
    noise: TumorNoise,
    factual: TumorFactual,
    *,
    plans: PlanKind = "sliding",
    horizon: int = 6,
    rng: np.random.Generator | None = None,
) -> TumorCounterfactuals:
    """Answer plans from every active day: 2 (horizon - 1) of its factual treatment, then `horizon - 1` planned days.

    Every day that has a next observed volume is an origin, also the one whose next volume is death or recovery (as in
    the reference's loop): that end is part of the history's future, and each branch stays there.

    Args:
        patients: N patients.
        noise: their noise, over at least T + horizon - 1 days.
        factual: their factual simulation.
        plans: `sliding` gives chemotherapy once, on each planned day in turn, then radiotherapy once; `random` tosses
            a fair coin for each treatment and day, anew for each origin. `fixed` has two plans without a factual day:
            no treatment, and both treatments, on all `horizon` days.
        horizon: days per plan, with the factual one.
        rng: generator of the random plans; not used by sliding ones.

    Raises:
        ValueError: a horizon below 2, random plans without a generator, or noise that ends too early.
    """
    if horizon < 2:
        raise ValueError("a treatment sequence has a factual and at least one planned day: horizon >= 2")
    subject, origin = active_days(factual)
    given_P2 = _given(factual, subject, origin)
    plan_PKH2 = plans_from(given_P2, plans, horizon, rng)
    planned = list(plan_PKH2.transpose(2, 1, 0, 3)[1:])
    first = given_P2[None]
    if plans != "random":  # all origins have them in common
        common = sliding_plans(horizon) if plans == "sliding" else fixed_plans(horizon)
        fixed_first, *planned = common[:, None].transpose(2, 0, 1, 3)
        first = fixed_first if plans == "fixed" else first
    volume_PKH = follow_branches(patients, noise, factual, subject, origin, [first, *planned])
    return flat(subject, origin, plan_PKH2, volume_PKH)


def plans_from(given_P2: Bools, plans: PlanKind, horizon: int, rng: np.random.Generator | None) -> Bools:
    """Return the plans `[P,K,H,2]` from P origins, whose first step is what was given there unless they are fixed.

    Raises:
        ValueError: random plans without a generator.
    """
    if plans == "fixed":
        return np.broadcast_to(fixed_plans(horizon), (len(given_P2), 2, horizon, 2)).copy()
    shape = (len(given_P2), 2 * (horizon - 1), horizon, 2)
    if plans == "sliding":
        plan_PKH2 = np.broadcast_to(sliding_plans(horizon), shape).copy()
    elif rng is None:
        raise ValueError("random plans need a generator")
    else:
        plan_PKH2 = rng.integers(2, size=shape, dtype=np.bool_)
    for treatment in range(2):
        plan_PKH2[:, :, 0, treatment] = given_P2[:, treatment, None]
    return plan_PKH2


def sliding_plans(horizon: int) -> Bools:
    """Return the plans `[K,H,2]` with one treatment after day 0: chemotherapy on each day, then radiotherapy."""
    planned = horizon - 1
    plan_KH2 = np.zeros((2 * planned, horizon, 2), dtype=np.bool_)
    k = np.arange(2 * planned)
    plan_KH2[k, 1 + k % planned, k // planned] = True
    return plan_KH2


def fixed_plans(horizon: int) -> Bools:
    """Return the plans `[2,H,2]` that never treat, and that give both treatments every day."""
    return np.broadcast_to(np.array([False, True])[:, None, None], (2, horizon, 2))


def answer_plan(
    patients: TumorPatients,
    noise: TumorNoise,
    factual: TumorFactual,
    subject: NDArray[np.integer],
    origin: NDArray[np.integer],
    plan: NDArray[np.bool_ | np.number],
) -> Floats:
    """Return the true volumes `[Q,H]` in cm³ on days origin+1 to origin+H, had each plan been followed.

    The noise, the recovery uniforms and the drug carried over from the treatments before the origin are the patient's
    own. From a last observed volume that is death or recovery, nothing changes any more.

    Args:
        patients: N patients.
        noise: their noise; the policy's uniforms are not needed.
        factual: their factual simulation, of which volumes may be float32.
        subject: rows of the patients, `[Q]`.
        origin: days at which the plans start, `[Q]`, 0 to length - 1 of the subject.
        plan: treatments `[Q,H,2]` (chemotherapy, radiotherapy), 0 or 1.

    Raises:
        ValueError: arrays that disagree in shape, or origins or plans outside the observed or simulated days.
    """
    subject_, origin_, plan_ = np.asarray(subject, np.int64), np.asarray(origin, np.int64), np.asarray(plan, np.bool_)
    if origin_.shape != subject_.shape or plan_.ndim != 3 or (plan_.shape[:1], plan_.shape[2]) != (subject_.shape, 2):
        raise ValueError("subject [Q], origin [Q] and plan [Q,H,2] disagree in shape")
    if len(subject_) and (subject_.min() < 0 or subject_.max() >= len(patients)):
        raise ValueError(f"subjects must be rows 0 to {len(patients) - 1}")
    if (origin_ < 0).any() or (origin_ >= factual.length[subject_]).any():
        raise ValueError("origins must be observed days: 0 to length - 1 of the subject")
    steps = list(plan_.transpose(1, 0, 2)[:, None])
    return follow_branches(patients, noise, factual, subject_, origin_, steps)[:, 0]


def active_days(factual: TumorFactual) -> tuple[Ints, Ints]:
    """Return subject and day `[P]` of every day that has a next observed volume."""
    subject, day = np.nonzero(np.arange(factual.n_steps) < factual.length[:, None] - 1)
    return subject, day


def _given(factual: TumorFactual, subject: Ints, day: Ints) -> Bools:
    return factual.treatments.reshape(-1, 2).take(subject * factual.n_steps + day, axis=0)


def flat(subject: Ints, origin: Ints, plan_PKH2: Bools, volume_PKH: Floats) -> TumorCounterfactuals:
    """Return plans from P origins, and where they lead to, as Q = P K queries."""
    n_branches, horizon = volume_PKH.shape[1:]
    return TumorCounterfactuals(
        subject=subject.astype(np.int32).repeat(n_branches),
        origin=origin.astype(np.int16).repeat(n_branches),
        treatments=plan_PKH2.reshape(-1, horizon, 2),
        volume_cm3=volume_PKH.reshape(-1, horizon),
    )
