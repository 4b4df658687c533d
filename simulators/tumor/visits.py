"""Tumours that are seen, and treated, on random days only (spec TUMOR-16)."""

from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from simulators.tumor.branches import Ints, follow_branches
from simulators.tumor.counterfactual import SIBLINGS, PlanKind, TumorCounterfactuals, answer_plan, flat, plans_from
from simulators.tumor.dynamics import Bools, Floats, TumorNoise
from simulators.tumor.factual import TumorFactual
from simulators.tumor.patients import TumorPatients

__all__ = ["TumorVisits", "answer_visits", "days_needed", "draw_visits", "seen_days", "visit_counterfactuals"]

CHUNK: Final = 4_096  # origins whose plans are followed at once


def days_needed(mean_days: int, horizon: int) -> int:
    """Return how many days the noise must reach beyond those observed for `horizon` visits behind the last one."""
    return horizon * (2 * mean_days - 1)


def draw_visits(n: int, rng: np.random.Generator, mean_days: int, *, steps: int, horizon: int) -> Ints:
    """Draw the days `[N,K]` on which n patients are seen: day 0, then after 1 to `2 mean_days - 1` days, all as likely.

    They do not depend on the patient. There are `horizon` of them or more from day `steps` on.
    """
    gap_NK = rng.integers(1, 2 * mean_days, size=(n, steps + horizon))
    day_NK = np.concatenate([np.zeros((n, 1), np.int64), gap_NK.cumsum(axis=1)], axis=1)
    return np.ascontiguousarray(day_NK[:, : int((day_NK < steps).sum(axis=1).max(initial=0)) + horizon])


def seen_days(day_NK: Ints, steps: int) -> Bools:
    """Return on which days `[N,T]` patients are seen."""
    seen_NT = np.zeros((len(day_NK), steps), dtype=np.bool_)
    subject, visit = np.nonzero(day_NK < steps)
    seen_NT[subject, day_NK[subject, visit]] = True
    return seen_NT


@dataclass(frozen=True, slots=True)
class TumorVisits:
    """What was seen of N patients at V visits or fewer.

    `volume_cm3 [N,V]`, then `treatments [N,V,2]` (chemotherapy, radiotherapy) and `gap_days [N,V]` until the next,
    neither at the last of `length [N]` visits; zeros beyond. An end is seen at the first visit after it.
    """

    volume_cm3: Floats
    treatments: Bools
    gap_days: Ints
    length: Ints

    @classmethod
    def of(cls, factual: TumorFactual, day_NK: Ints) -> Self:
        """Return what of a daily simulation is seen on some days."""
        # Treatment is given, and the policy looks, at visits alone. Leaving out days of a daily simulation would leave
        # treatments unrecorded and diameters unseen: hidden confounding.
        ended_N = factual.died | factual.recovered
        until_N = np.where(ended_N, factual.length, factual.n_steps)  # days before the first visit that shows the end
        inside_NK = day_NK < factual.n_steps
        length = np.minimum((day_NK < until_N[:, None] - ended_N[:, None]).sum(axis=1) + ended_N, inside_NK.sum(axis=1))
        visits = int(length.max(initial=0))
        day_NV, row_N1 = np.minimum(day_NK[:, :visits], factual.n_steps - 1), np.arange(len(day_NK))[:, None]
        seen_NV = np.arange(visits) < length[:, None]
        going_NV = np.arange(visits) < length[:, None] - 1
        lasting_NV = day_NV >= factual.length[:, None]
        volume_NV = np.where(lasting_NV, factual.last_volume_cm3[:, None], factual.volume_cm3[row_N1, day_NV])
        gap_NV = np.diff(day_NK[:, : visits + 1], axis=1)[:, :visits]
        return cls(
            np.where(seen_NV, volume_NV, 0.0),
            factual.treatments[row_N1, day_NV] & going_NV[..., None],
            np.where(going_NV, np.pad(gap_NV, ((0, 0), (0, visits - gap_NV.shape[1]))), 0),
            length,
        )


def visit_counterfactuals(
    patients: TumorPatients,
    noise: TumorNoise,
    factual: TumorFactual,
    day_NK: Ints,
    *,
    plans: PlanKind | None,
    horizon: int,
    rng: np.random.Generator | None = None,
) -> TumorCounterfactuals:
    """Answer plans from every visit that has a next one; origins are visits, answers are of the visits that follow.

    Args:
        patients: N patients.
        noise: their noise, as far as the last visit of a plan.
        factual: their daily simulation.
        day_NK: days of their visits, `horizon` of them behind the last that is observed.
        plans: as of `sequence_counterfactuals`; None for each of the four treatments once, with a horizon of 1.
        horizon: visits per plan.
        rng: generator of random plans.
    """
    seen = TumorVisits.of(factual, day_NK)
    subject, visit = np.nonzero(np.arange(seen.treatments.shape[1]) < seen.length[:, None] - 1)
    given_P2 = seen.treatments[subject, visit]
    if plans is None:
        plan_PKH2 = SIBLINGS.take(2 * given_P2[:, 0] + given_P2[:, 1], axis=0)[:, :, None]
    else:
        plan_PKH2 = plans_from(given_P2, plans, horizon, rng)
    ahead_PH = day_NK[subject[:, None], visit[:, None] + np.arange(horizon + 1)] - day_NK[subject, visit][:, None]
    volume_PKH = np.empty(plan_PKH2.shape[:3])
    for lo in range(0, len(subject), CHUNK):
        rows = slice(lo, lo + CHUNK)
        origin_P = day_NK[subject[rows], visit[rows]]
        steps = []  # the treatments `[K,P,2]` of each day, none between visits
        for day in range(int(ahead_PH[rows, -1].max(initial=0))):
            today_PH = ahead_PH[rows, :-1] == day
            steps.append((plan_PKH2[rows] & today_PH[:, None, :, None]).any(axis=2).transpose(1, 0, 2))
        volume_PKD = follow_branches(patients, noise, factual, subject[rows], origin_P, steps)
        volume_PKH[rows] = np.take_along_axis(volume_PKD, ahead_PH[rows, None, 1:] - 1, axis=2)
    return flat(subject, visit, plan_PKH2, volume_PKH)


def answer_visits(
    patients: TumorPatients,
    noise: TumorNoise,
    subject: Ints,
    day_QV: Ints,
    treatments_QV2: Bools,
) -> Floats:
    """Return the true volumes `[Q,V]` after treatments at visits on some days, each on the day of the next one.

    Patients are simulated from day 0 on.

    Args:
        patients: N patients.
        noise: their noise, up to the last of the days.
        subject: rows of the patients `[Q]`.
        day_QV: days of visits `[Q,V+1]`, not before one another; equal ones for visits that are not.
        treatments_QV2: `[Q,V,2]` at all but the last.
    """
    n = len(patients)
    nothing, one_day = np.zeros((n, 1, 2), dtype=np.bool_), np.ones(n, dtype=np.int64)
    first_day = TumorFactual(patients.initial_volume_cm3[:, None], nothing, one_day)
    course_QD2 = np.zeros((len(subject), int(day_QV.max(initial=1)), 2), dtype=np.bool_)
    query, visit = np.nonzero(treatments_QV2.any(axis=-1))
    course_QD2[query, day_QV[query, visit]] = treatments_QV2[query, visit]
    volume_QD = answer_plan(patients, noise, first_day, subject, np.zeros(len(subject), np.int64), course_QD2)
    return np.take_along_axis(volume_QD, np.maximum(day_QV[:, 1:] - 1, 0), axis=1)
