"""What would have happened to a simulated ICU patient under any plan: the simulator, run again (spec ICU-15)."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from costar_cli.data.asked_plans import AskedPlans, simulated_truth
from costar_cli.data.dataset import Dataset, Part
from costar_cli.errors import UsageError
from simulators.semi_synthetic import Baseline, SemiSyntheticFactual, answer_plan, expected_outcomes, replay_factual

KEPT = ("untreated", "logit")


def mimic_truth(
    dataset: Dataset, part: Part, row: int | ArrayLike, origin: int | ArrayLike, plan_values: ArrayLike
) -> NDArray[np.float64]:
    """Return the simulator's y1 and y2 `[H,2]` had plans been followed from their origins (an `Answer`).

    The stay is simulated again from hour 0 with the treatments that were given before the origin, so that stored
    answers are met to the last digit that they were stored with. A plan holds t1, t2 and t3, 0 or 1.
    """
    asked = _within_stay(dataset, part, row, origin, plan_values)
    rows, subject_Q = np.unique(asked.row_Q, return_inverse=True)
    baseline, factual = _replayed(dataset, part, rows)
    return asked.shaped(answer_plan(baseline, factual, subject_Q, asked.origin_Q, asked.plan_QH))


def mimic_limit(
    dataset: Dataset, part: Part, row: int | ArrayLike, origin: int | ArrayLike, plan_values: ArrayLike
) -> NDArray[np.float64]:
    """Return what the simulator expects of y1 and y2 after each step of plans, as `mimic_truth` (spec LIMIT-7).

    Functions of covariates, covariates of all hours and the trends are known, and the patients' paths up to the origin.
    """
    asked = _within_stay(dataset, part, row, origin, plan_values)
    rows, subject_Q = np.unique(asked.row_Q, return_inverse=True)
    baseline, factual = _replayed(dataset, part, rows)
    systematic = np.asarray(dataset.truth[part]["systematic"][rows], dtype=np.float64)
    return asked.shaped(expected_outcomes(baseline, systematic, factual, subject_Q, asked.origin_Q, asked.plan_QH))


def _replayed(dataset: Dataset, part: Part, rows: NDArray[np.int64]) -> tuple[Baseline, SemiSyntheticFactual]:
    """Simulate the stays of some patients again."""
    truth, panel = dataset.truth[part], dataset.panels[part]
    untreated, logit = (np.asarray(truth[name][rows], dtype=np.float64) for name in KEPT)
    baseline = Baseline(untreated, logit, panel.length[rows])
    return baseline, replay_factual(baseline, panel.treatments[rows])


def _within_stay(
    dataset: Dataset, part: Part, row: int | ArrayLike, origin: int | ArrayLike, plan_values: ArrayLike
) -> AskedPlans:
    """Return what is asked: plans that end within the stays of their patients."""
    simulated_truth(dataset, part, KEPT)
    asked = AskedPlans.of(dataset, part, row, origin, np.asarray(plan_values, dtype=np.bool_))
    origin_Q, horizon = asked.origin_Q, asked.horizon
    last_Q = asked.length_N[asked.row_Q] - 1
    beyond = (origin_Q < 0) | (origin_Q + horizon > last_Q)
    if beyond.any():
        origin, latest = int(origin_Q[beyond][0]), int(last_Q[beyond][0]) - horizon
        problem = f"a plan of {horizon} hours from origin {origin} ends after the stay, where covariates are missing"
        shorter = f"give a plan of up to {latest + horizon} hours"
        fix = f"choose an origin from 0 to {latest}" if latest >= 0 else shorter
        raise UsageError(problem, where="--truth", fix=fix)
    return asked
