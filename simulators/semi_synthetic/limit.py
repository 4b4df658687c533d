"""What the simulator expects of a stay whose covariates, trends and functions it knows (spec LIMIT-7)."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from simulators.semi_synthetic.baseline import Baseline
from simulators.semi_synthetic.counterfactual import answer_plan
from simulators.semi_synthetic.factual import SemiSyntheticFactual
from simulators.semi_synthetic.mechanism import OUTCOMES
from simulators.semi_synthetic.trend import matern_covariance

__all__ = ["expected_outcomes"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CHUNK: Final = 2048  # origins followed at once: each is a stay of its own here


def expected_outcomes(
    baseline: Baseline,
    systematic: Floats,
    factual: SemiSyntheticFactual,
    subject: NDArray[np.integer],
    origin: NDArray[np.integer],
    plan: NDArray[np.bool_ | np.number],
) -> Floats:
    """Return the outcomes `[Q,H,2]` at hours origin+1 to origin+H under plans, on the expected paths of the patients.

    Up to the origin a patient's own path is known, as the untreated outcomes without their systematic part; what comes
    is its mean given that. Covariates and trends are known for all hours.

    Args:
        baseline: N patients over T hours; untreated outcomes beyond an origin do not change what is expected from it.
        systematic: the part of the untreated outcomes that covariates and trends make `[N,T,2]`.
        factual: their factual run.
        subject: rows of the patients, `[Q]`.
        origin: hours at which the plans start, `[Q]`.
        plan: treatments `[Q,H,3]`, 0 or 1, that end before the patient's last observed hour.

    Raises:
        ValueError: as `answer_plan`.
    """
    plan_QH3, n_steps = np.asarray(plan, dtype=np.bool_), baseline.n_steps
    pairs, pair_Q = np.unique(np.asarray(subject, np.int64) * n_steps + origin, return_inverse=True)
    order_Q = np.argsort(pair_Q, kind="stable")
    first_P = np.searchsorted(pair_Q[order_Q], np.arange(len(pairs) + 1))
    horizon = plan_QH3.shape[1]
    expected = np.empty((len(plan_QH3), horizon, len(OUTCOMES)))
    for lo in range(0, len(pairs), CHUNK):
        hi = min(lo + CHUNK, len(pairs))
        row_P, origin_P = np.divmod(pairs[lo:hi], n_steps)
        rows = order_Q[first_P[lo] : first_P[hi]]
        # Untreated outcomes whose paths are, after each origin, the mean given their past
        untreated_PTJ, systematic_PTJ = baseline.untreated[row_P], systematic[row_P]
        expected_PTJ = untreated_PTJ.copy()
        for j, outcome in enumerate(OUTCOMES):
            covariance_TT = matern_covariance(n_steps, length_hours=outcome.path_hours, noise=outcome.path_noise)
            path_PT = untreated_PTJ[:, :, j] - systematic_PTJ[:, :, j]  # times its weight, which cancels
            for t in np.unique(origin_P):
                now_P, past, ahead = origin_P == t, slice(t + 1), slice(t + 1, min(t + 1 + horizon, n_steps))
                weights = np.linalg.solve(covariance_TT[past, past], covariance_TT[past, ahead])
                expected_PTJ[now_P, ahead, j] = systematic_PTJ[now_P, ahead, j] + path_PT[now_P, past] @ weights
        own = Baseline(expected_PTJ, baseline.logit[row_P], baseline.length[row_P])
        local_Q = pair_Q[rows] - lo
        expected[rows] = answer_plan(own, factual.take(row_P), local_Q, origin_P[local_Q], plan_QH3[rows])
    return expected
