"""What would have happened to a simulated ICU patient under any plan: the simulator, run again (spec ICU-15)."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from costar_cli.datasets.asked_plans import AskedPlans
from costar_cli.errors import UsageError
from costar_cli.panel.dataset import Dataset, Part
from simulators.semi_synthetic import Baseline, answer_plan, expected_outcomes, replay_factual

NEEDED = {"untreated", "logit"}


def mimic_truth(
    dataset: Dataset, part: Part, row: int | ArrayLike, origin: int | ArrayLike, plan_values: ArrayLike
) -> NDArray[np.float64]:
    """Return the simulator's y1 and y2 after each step of plans, had they been followed from their origins.

    The stay is simulated again from hour 0 with the treatments that were given before the origin, so that stored
    answers are met to the last digit that they were stored with.

    Args:
        dataset: a simulated ICU data set, read with its truth.
        part: the part of the patients.
        row: rows of the part's panel, one or `[Q]`.
        origin: hours at which the plans start, one or `[Q]`.
        plan_values: t1, t2 and t3, 0 or 1, `[H,3]` or `[Q,H,3]`.

    Returns:
        Outcomes `[H,2]` for one plan of one patient, else `[Q,H,2]`.

    Raises:
        UsageError: the data set has no truth of this part, or a patient, origin or plan is outside the stay.
    """
    truth, panel = dataset.truth.get(part, {}), dataset.panels[part]
    if not set(truth) >= NEEDED:
        raise UsageError(
            f"this data set has no simulated truth of {part}",
            where="--truth",
            fix="omit --truth, or use a data set from `costar simulate mimic`",
        )
    asked = AskedPlans.of(row, origin, np.asarray(plan_values, dtype=np.bool_), plan_axes=2)
    asked.check_rows(panel.length, part)
    _check_inside(panel.length, asked)
    rows, subject_Q = np.unique(asked.row_Q, return_inverse=True)
    untreated, logit = (np.asarray(truth[name][rows], dtype=np.float64) for name in ("untreated", "logit"))
    baseline = Baseline(untreated, logit, panel.length[rows])
    factual = replay_factual(baseline, panel.treatments[rows])
    return asked.shaped(answer_plan(baseline, factual, subject_Q, asked.origin_Q, asked.plan_QH))


def mimic_limit(
    dataset: Dataset, part: Part, row: int | ArrayLike, origin: int | ArrayLike, plan_values: ArrayLike
) -> NDArray[np.float64]:
    """Return what the simulator expects of y1 and y2 after each step of plans, as `mimic_truth` (spec LIMIT-7).

    Functions of covariates, covariates of all hours and the trends are known, and the patients' paths up to the origin.
    """
    truth, panel = dataset.truth[part], dataset.panels[part]
    asked = AskedPlans.of(row, origin, np.asarray(plan_values, dtype=np.bool_), plan_axes=2)
    asked.check_rows(panel.length, part)
    _check_inside(panel.length, asked)
    rows, subject_Q = np.unique(asked.row_Q, return_inverse=True)
    untreated, logit, systematic = (
        np.asarray(truth[name][rows], dtype=np.float64) for name in ("untreated", "logit", "systematic")
    )
    baseline = Baseline(untreated, logit, panel.length[rows])
    factual = replay_factual(baseline, panel.treatments[rows])
    return asked.shaped(expected_outcomes(baseline, systematic, factual, subject_Q, asked.origin_Q, asked.plan_QH))


def _check_inside(length: NDArray[np.int64], asked: AskedPlans) -> None:
    """Check that plans end within the stays of their patients."""
    origin_Q, horizon = asked.origin_Q, asked.horizon
    last_Q = length[asked.row_Q] - 1
    beyond = (origin_Q < 0) | (origin_Q + horizon > last_Q)
    if beyond.any():
        origin, latest = int(origin_Q[beyond][0]), int(last_Q[beyond][0]) - horizon
        problem = f"a plan of {horizon} hours from origin {origin} ends after the stay, where covariates are missing"
        shorter = f"give a plan of up to {latest + horizon} hours"
        fix = f"choose an origin from 0 to {latest}" if latest >= 0 else shorter
        raise UsageError(problem, where="--truth", fix=fix)
