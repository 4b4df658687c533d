"""What the ICU simulator expects of a stay, against the formula of a conditional mean and against its answers."""

from dataclasses import replace

import numpy as np
import pytest

from simulators.semi_synthetic import (
    OUTCOMES,
    Baseline,
    PatientSeeds,
    SemiSyntheticFactual,
    draw_functions,
    draw_uniforms,
    expected_outcomes,
    matern_covariance,
    replay_factual,
    sequence_counterfactuals,
    simulate_baseline,
    simulate_factual,
    systematic_outcomes,
)

N, T = 30, 40


@pytest.fixture(scope="module")
def world() -> tuple[Baseline, np.ndarray, SemiSyntheticFactual, PatientSeeds]:
    rng = np.random.default_rng(6)
    seeds, length, covariates = PatientSeeds(6, np.arange(N) * 7), np.full(N, T), rng.standard_normal((N, T, 25))
    functions = draw_functions(6).centred(covariates.reshape(-1, 25))
    baseline = simulate_baseline(functions, seeds, covariates, length)
    systematic = systematic_outcomes(functions, seeds, covariates, length)
    return baseline, systematic, simulate_factual(baseline, draw_uniforms(seeds, length, T)), seeds


def test_without_treatment_the_expected_path_is_the_conditional_mean(world):
    baseline, systematic, _, _ = world
    untreated = replay_factual(baseline, np.zeros((N, T, 3)))
    asked = np.arange(N), np.full(N, 20), np.zeros((N, 5, 3), dtype=np.bool_)
    found = expected_outcomes(baseline, systematic, untreated, *asked)
    for j, outcome in enumerate(OUTCOMES):
        covariance = matern_covariance(T, length_hours=outcome.path_hours, noise=outcome.path_noise)
        path = (baseline.untreated[:, :21, j] - systematic[:, :21, j]) / outcome.path_weight
        ahead = path @ np.linalg.inv(covariance[:21, :21]) @ covariance[:21, 21:26]
        np.testing.assert_allclose(found[..., j], systematic[:, 21:26, j] + outcome.path_weight * ahead, atol=1e-9)


def test_systematic_outcomes_leave_the_paths(world):
    baseline, systematic, _, _ = world
    path = baseline.untreated - systematic
    for j, outcome in enumerate(OUTCOMES):
        assert path[..., j].std() == pytest.approx(outcome.path_weight, rel=0.35)  # 30 paths of a long memory


def test_errors_have_mean_zero_and_grow_with_the_horizon(world):
    baseline, systematic, factual, seeds = world
    asked = sequence_counterfactuals(baseline, factual, seeds, horizon=6, n_plans=3)
    found = expected_outcomes(baseline, systematic, factual, asked.subject, asked.origin, asked.treatments)
    error = asked.outcomes - found
    rmse = np.sqrt((error**2).mean(axis=(0, 2)))
    assert (np.diff(rmse) > 0).all()
    last = np.sqrt(((asked.outcomes - factual.outcomes[asked.subject, asked.origin][:, None]) ** 2).mean(axis=(0, 2)))
    assert (rmse < 0.3 * last).all()
    by_patient = np.array([error[asked.subject == n].mean(axis=(0, 1)) for n in range(N)])
    assert (np.abs(by_patient.mean(axis=0)) < 3 * by_patient.std(axis=0) / np.sqrt(N)).all()


def test_the_paths_beyond_the_origin_are_not_used(world):
    baseline, systematic, factual, _ = world
    later = baseline.untreated.copy()
    later[:, 21:] += 5.0
    asked = np.arange(N), np.full(N, 20), np.ones((N, 4, 3), dtype=np.bool_)
    found = expected_outcomes(baseline, systematic, factual, *asked)
    changed = expected_outcomes(replace(baseline, untreated=later), systematic, factual, *asked)
    np.testing.assert_array_equal(found, changed)
