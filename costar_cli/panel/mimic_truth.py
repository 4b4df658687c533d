"""What would have happened to a simulated ICU patient under any plan: the simulator, run again."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from costar_cli.errors import UsageError
from costar_cli.panel.dataset import Dataset, Part
from simulators.semi_synthetic import Baseline, answer_plan, replay_factual

__all__ = ["mimic_truth"]

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
        plan_values: t1, t2 and t3, 0 or 1, `[tau,3]` or `[Q,tau,3]`.

    Returns:
        Outcomes `[tau,2]` for one plan of one patient, else `[Q,tau,2]`.

    Raises:
        UsageError: the data set has no truth of this part, or a patient, origin or plan is outside the stay.
    """
    truth, panel = dataset.truth.get(part, {}), dataset.panels[part]
    if set(truth) != NEEDED:
        raise UsageError(
            f"there is no simulated truth of {part} in this data set",
            where="--truth",
            fix="ask without it, or use a data set from `costar simulate mimic`",
        )
    plan = np.asarray(plan_values, dtype=np.bool_)
    single = plan.ndim == 2 and np.ndim(row) == 0 and np.ndim(origin) == 0
    plan_QHL = plan if plan.ndim == 3 else plan[None]
    n_queries = max(len(plan_QHL), np.size(row), np.size(origin))
    plan_QHL = np.broadcast_to(plan_QHL, (n_queries, *plan_QHL.shape[1:]))
    row_Q = np.broadcast_to(np.asarray(row, dtype=np.int64), (n_queries,))
    origin_Q = np.broadcast_to(np.asarray(origin, dtype=np.int64), (n_queries,))
    _check_inside(panel.length, part, row_Q, origin_Q, plan_QHL.shape[1])
    rows, subject_Q = np.unique(row_Q, return_inverse=True)
    untreated, logit = (np.asarray(truth[name][rows], dtype=np.float64) for name in ("untreated", "logit"))
    baseline = Baseline(untreated, logit, panel.length[rows])
    factual = replay_factual(baseline, panel.treatments[rows])
    outcome_QHJ = answer_plan(baseline, factual, subject_Q, origin_Q, plan_QHL)
    return outcome_QHJ[0] if single else outcome_QHJ


def _check_inside(
    length: NDArray[np.int64], part: Part, row_Q: NDArray[np.int64], origin_Q: NDArray[np.int64], horizon: int
) -> None:
    """Check that plans are about patients of the part and end within their stays."""
    if ((row_Q < 0) | (row_Q >= len(length))).any():
        raise UsageError(f"rows of {part} go from 0 to {len(length) - 1}")
    last_Q = length[row_Q] - 1
    beyond = (origin_Q < 0) | (origin_Q + horizon > last_Q)
    if beyond.any():
        origin, latest = int(origin_Q[beyond][0]), int(last_Q[beyond][0]) - horizon
        problem = f"a plan of {horizon} hours from origin {origin} ends after the stay, where there are no covariates"
        shorter = f"give a plan of up to {latest + horizon} hours"
        fix = f"choose an origin from 0 to {latest}" if latest >= 0 else shorter
        raise UsageError(problem, where="--truth", fix=fix)
