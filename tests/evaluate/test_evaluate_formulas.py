"""Formulas of evaluation against values that are worked out another way: pairs, closed forms, likelihoods."""

import numpy as np
import pytest
from scipy.stats import t

from costar_cli.evaluation.calibration import share_over_subjects
from costar_cli.evaluation.probabilities import ProbabilityStep, event_columns, event_score


def test_the_interval_of_a_share_of_subjects_is_wilsons_with_the_variance_of_a_sample() -> None:
    """Of n subjects with one answer each the variance of the share is p (1 - p) / (n - 1): n - 1 answers."""
    n, came = 25, 9
    covered_NH = np.repeat([1.0, 0.0], [came, n - came])[:, None]
    found, lower, upper = share_over_subjects(covered_NH, np.ones((n, 1)), np.arange(n))
    p, z2, answers = came / n, t.ppf(0.975, n - 1) ** 2, n - 1
    # the roots of (p - q)^2 = z2 q (1 - q) / answers
    roots = np.sort(np.roots([1 + z2 / answers, -2 * p - z2 / answers, p**2]).real)
    assert found.steps[0] == pytest.approx(p)
    np.testing.assert_allclose(np.array([lower.steps[0], upper.steps[0]], float), roots)
    np.testing.assert_allclose(np.array([lower.average, upper.average], float), roots)


def scored(predicted_M: np.ndarray, came_M: np.ndarray, weight_M: np.ndarray, time_M: np.ndarray | None = None):
    """The scores of one step."""
    of = {name: values[:, None] for name, values in (("predicted_QH", predicted_M), ("came_QH", came_M))}
    time_QH = None if time_M is None else time_M[:, None]
    counts = np.ones((len(came_M), 1), dtype=bool)
    answers = event_columns(counts, **of, weight_QH=weight_M[:, None], time_QH=time_QH)
    (step,) = event_score(("end", "death"), answers, setup="supervised", label="m", test="source/test").steps
    assert isinstance(step, ProbabilityStep)
    return step


def test_the_auroc_is_the_weight_of_pairs_in_the_right_order_and_half_of_those_that_tie() -> None:
    rng = np.random.default_rng(0)
    p_M, came_M, weight_M = rng.integers(0, 5, 60) / 5, rng.random(60) < 0.4, rng.uniform(0.2, 3, 60)
    right = whole = 0.0
    for i in np.flatnonzero(came_M):
        for j in np.flatnonzero(~came_M):
            pair = weight_M[i] * weight_M[j]
            whole += pair
            right += pair * (1.0 if p_M[i] > p_M[j] else 0.5 if p_M[i] == p_M[j] else 0.0)
    step = scored(p_M, came_M, weight_M)
    assert step.auroc == pytest.approx(right / whole)
    assert step.brier == pytest.approx(np.average((p_M - came_M) ** 2, weights=weight_M))


def test_ends_by_time_are_compared_with_the_rate_that_is_likeliest_for_all_alike() -> None:
    rng = np.random.default_rng(1)
    came_M, weight_M, time_M = rng.random(80) < 0.3, rng.uniform(0.2, 3, 80), rng.gamma(2, 3, 80)
    expected_M = rng.gamma(1, 0.3, 80)

    def loss(rate_M: np.ndarray | float) -> float:
        return float(np.average(rate_M * time_M - came_M * np.log(rate_M), weights=weight_M))

    step = scored(expected_M, came_M, weight_M, time_M)
    assert step.log_loss == pytest.approx(loss(expected_M / time_M))
    assert step.constant_log_loss == pytest.approx(min(loss(rate) for rate in np.geomspace(0.01, 1, 20_001)), abs=1e-6)
