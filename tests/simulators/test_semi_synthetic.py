"""Semi-synthetic outcomes and treatments: components, effects, and one world per patient."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.interpolate import BSpline

from simulators.icu import COVARIATES, simulate_icu
from simulators.semi_synthetic import (
    OUTCOMES,
    TREATMENTS,
    Baseline,
    PatientSeeds,
    branches,
    draw_functions,
    draw_uniforms,
    gaussian_paths,
    matern_covariance,
    one_step_counterfactuals,
    replay_factual,
    sequence_counterfactuals,
    simulate_baseline,
    simulate_factual,
    trend_basis,
)
from simulators.semi_synthetic.draws import draw_path_normals, draw_trend_classes
from simulators.semi_synthetic.fourier import FourierFunction
from simulators.semi_synthetic.trend import trend_classes

N, T, SEED = 60, 48, 17


def simulate(subject_id, covariates, length, *, seed=SEED):
    seeds = PatientSeeds(seed, subject_id)
    baseline = simulate_baseline(draw_functions(seed), seeds, covariates, length)
    return seeds, baseline, simulate_factual(baseline, draw_uniforms(seeds, length, baseline.n_steps))


@pytest.fixture(scope="module")
def inputs():
    rng = np.random.default_rng(1)
    return rng.permutation(1000)[:N], rng.standard_normal((N, T, 25), dtype=np.float32), rng.integers(2, T + 1, size=N)


@pytest.fixture(scope="module")
def world(inputs):
    return simulate(*inputs)


def observed(values, length):
    return values[np.arange(values.shape[1]) < length[:, None]]


def test_trend_bases_are_scipys_quartic_b_splines():
    knots = np.arange(-4.0, 6.0)
    u = np.arange(100) / 100
    expected = np.stack([BSpline(knots, np.eye(5)[m], 4)(u) for m in range(5)], axis=1)
    np.testing.assert_allclose(trend_basis(100), expected, atol=1e-12)
    np.testing.assert_allclose(trend_basis(100).sum(axis=1), 1.0)


def test_trend_classes_have_their_shares_and_shapes():
    classes = draw_trend_classes(PatientSeeds(0, np.arange(4000)))
    for j in range(2):
        np.testing.assert_allclose(np.bincount(classes[:, j]) / 4000, [0.35, 0.35, 0.30], atol=0.025)
    assert abs(np.corrcoef(classes.T)[0, 1]) < 0.05
    falling, high, low = trend_classes(100)
    assert (np.diff(falling) < 0).all()
    assert high.min() > 0.2
    assert low.max() < 0


def test_random_functions_have_their_prior_spread_and_kernel():
    rng = np.random.default_rng(0)
    x = np.random.default_rng(1).standard_normal((2, 25))
    for mechanism, sd in [(OUTCOMES[0], 4.0), (TREATMENTS[2], 3.0)]:
        values = np.array([FourierFunction.draw(mechanism, rng)(x) for _ in range(800)])
        at = [COVARIATES.index(name) for name in mechanism.covariates]
        kernel = sd**2 * np.exp(-mechanism.gamma * ((x[0] - x[1])[at] ** 2).sum())
        np.testing.assert_allclose(values.std(axis=0), sd, rtol=0.08)
        np.testing.assert_allclose(np.cov(values.T)[0, 1], kernel, rtol=0.15)
        np.testing.assert_allclose(values.mean(axis=0), 0.0, atol=0.6)


def test_random_functions_are_nearly_an_offset_that_centring_removes(inputs):
    x = inputs[1].reshape(-1, 25)
    functions = draw_functions(SEED)
    raw = functions.outcomes + functions.treatments
    centred = functions.centred(x)
    for before, after in zip(raw, centred.outcomes + centred.treatments, strict=True):
        assert before(x).std() < 2.0
        np.testing.assert_allclose(before(x) - before(x).mean(), after(x), atol=1e-9)


def test_paths_have_the_matern_covariance():
    covariance = matern_covariance(30, length_hours=25, noise=0.005)
    d = np.sqrt(5) * np.abs(np.subtract.outer(np.arange(30), np.arange(30))) / 25
    np.testing.assert_allclose(covariance, (1 + d + d**2 / 3) * np.exp(-d) + 0.005 * np.eye(30), atol=1e-12)
    paths = gaussian_paths(np.random.default_rng(0).standard_normal((40_000, 30)), covariance)
    np.testing.assert_allclose(np.cov(paths.T), covariance, atol=0.035)


def test_paths_of_outcomes_and_patients_are_independent():
    """The released code repeats one path (spec ICU-8)."""
    normals = draw_path_normals(PatientSeeds(3, np.arange(2000)), np.full(2000, 20), 20)
    assert abs(np.corrcoef(normals[:, :, 0].ravel(), normals[:, :, 1].ravel())[0, 1]) < 0.02
    assert abs(np.corrcoef(normals[:-1, :, 0].ravel(), normals[1:, :, 0].ravel())[0, 1]) < 0.02


def test_without_treatment_outcomes_are_the_untreated_ones(world):
    _, baseline, factual = world
    nothing = replay_factual(baseline, np.zeros_like(factual.treatments))
    np.testing.assert_array_equal(nothing.outcomes, baseline.untreated)


def test_treatment_lowers_outcomes_everywhere(world):
    _, baseline, factual = world
    assert (factual.outcomes <= baseline.untreated).all()
    always = replay_factual(baseline, np.ones_like(factual.treatments))
    assert (always.outcomes[:, 1:] <= baseline.untreated[:, 1:]).all()
    assert (observed(factual.outcomes, factual.length) < observed(baseline.untreated, factual.length)).mean() > 0.5


def test_replay_repeats_the_factual_run_bit_by_bit(world):
    _, baseline, factual = world
    replayed = replay_factual(baseline, factual.treatments)
    for name in ("outcomes", "treatments", "probability", "length"):
        np.testing.assert_array_equal(getattr(replayed, name), getattr(factual, name))


def test_padding_and_the_last_hour_have_no_treatment(world):
    _, baseline, factual = world
    hour = np.arange(T)
    assert not factual.treatments[hour >= factual.length[:, None] - 1].any()
    beyond = hour >= factual.length[:, None]
    for values in (baseline.untreated, baseline.logit, factual.outcomes, factual.probability):
        assert (values[beyond] == 0).all()
        assert not np.signbit(values[beyond]).any()


def test_probabilities_come_from_current_treated_outcomes_and_covariates(world, inputs):
    _, _, factual = world
    _, covariates, length = inputs
    functions = draw_functions(SEED)
    for k, mechanism in enumerate(TREATMENTS):
        f = functions.treatments[k](covariates.reshape(-1, 25)).reshape(N, T)
        for i, t in [(int(length.argmax()), 30), (int(length.argmax()), 2), (0, 0)]:
            window = factual.outcomes[i, max(0, t - mechanism.look_back) : t + 1][:, list(mechanism.confounders)]
            logit = mechanism.bias + mechanism.outcome_weight * window.mean() + mechanism.covariate_weight * f[i, t]
            assert factual.probability[i, t, k] == pytest.approx(1 / (1 + np.exp(-logit)), rel=1e-9)


def test_treatments_are_given_with_their_probabilities():
    length = np.full(2000, 30)
    baseline = Baseline(np.zeros((2000, 30, 2)), np.zeros((2000, 30, 3)), length)
    uniform = draw_uniforms(PatientSeeds(5, np.arange(2000)), length, 30)
    factual = simulate_factual(baseline, uniform)
    expected = factual.probability[:, :-1].mean(axis=(0, 1))
    np.testing.assert_allclose(factual.treatments[:, :-1].mean(axis=(0, 1)), expected, atol=0.01)
    assert uniform.min() >= 0
    assert uniform.max() < 1


@pytest.mark.parametrize("vector", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (0, 1, 1), (1, 1, 1)])
def test_a_single_treatment_fades_with_the_root_of_time_and_ends(vector):
    """y + beta p / sqrt(lag) for 20, 20 or 7 hours; of simultaneous effects the lowest outcome counts."""
    logit = np.random.default_rng(3).standard_normal((1, 40, 3))
    baseline = Baseline(np.zeros((1, 40, 2)), logit, np.array([40]))
    treatments = np.zeros((1, 40, 3), dtype=bool)
    treatments[0, 10] = vector
    factual = replay_factual(baseline, treatments)
    p = 1 / (1 + np.exp(-logit[0, 10]))
    np.testing.assert_allclose(factual.probability[0, 10], p)
    for j, acting in enumerate([((0, -1.0, 20), (1, -1.0, 20)), ((1, -1.0, 20), (2, -0.75, 7))]):
        for lag in range(-10, 30):
            effects = [b * p[k] / np.sqrt(lag) for k, b, hours in acting if vector[k] and 1 <= lag <= hours]
            assert factual.outcomes[0, 10 + lag, j] == pytest.approx(min(effects, default=0.0), abs=1e-12)


def test_treatments_must_lower_outcomes():
    with pytest.raises(ValueError, match="must lower"):
        replace(TREATMENTS[0], full_effect=0.5)


def test_a_patients_world_depends_on_neither_company_nor_order_nor_padding(inputs, world, monkeypatch):
    subject_id, covariates, length = inputs
    _, baseline, factual = world
    rows = np.random.default_rng(2).permutation(N)[:17]
    t_max = int(length[rows].max())
    again = simulate(subject_id[rows], covariates[rows, :t_max], length[rows])
    np.testing.assert_array_equal(again[1].untreated, baseline.untreated[rows, :t_max])
    np.testing.assert_array_equal(again[1].logit, baseline.logit[rows, :t_max])
    np.testing.assert_array_equal(again[2].outcomes, factual.outcomes[rows, :t_max])
    np.testing.assert_array_equal(again[2].treatments, factual.treatments[rows, :t_max])
    together, alone = sequence_counterfactuals(*world[1:], world[0]), sequence_counterfactuals(*again[1:], again[0])
    for new, old in enumerate(rows):
        for name in ("origin", "treatments", "outcomes"):
            np.testing.assert_array_equal(
                getattr(alone, name)[alone.subject == new], getattr(together, name)[together.subject == old]
            )
    monkeypatch.setattr(branches, "CHUNK", 30)
    np.testing.assert_array_equal(sequence_counterfactuals(*again[1:], again[0]).outcomes, alone.outcomes)


def test_longer_series_begin_like_shorter_ones(inputs):
    subject_id, covariates, _ = inputs
    short, long = (simulate(subject_id, covariates, np.full(N, n)) for n in (20, 40))
    np.testing.assert_array_equal(short[1].untreated[:, :20], long[1].untreated[:, :20])
    np.testing.assert_array_equal(short[2].outcomes[:, :20], long[2].outcomes[:, :20])


def test_seeds_change_the_world_and_the_same_seed_repeats_it(inputs, world):
    same, other = simulate(*inputs), simulate(*inputs, seed=SEED + 1)
    np.testing.assert_array_equal(same[2].outcomes, world[2].outcomes)
    assert not np.allclose(other[2].outcomes, world[2].outcomes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"covariates": np.zeros((N, T, 24))}, "covariates have shape"),
        ({"covariates": np.full((N, T, 25), np.nan)}, "finite"),
        ({"length": np.zeros(N, dtype=int)}, "lengths must be"),
        ({"length": np.full(N, T + 1)}, "lengths must be"),
        ({"trend_hours": 10}, "longer than the trends"),
    ],
)
def test_impossible_inputs_are_errors(inputs, change, message):
    subject_id, covariates, length = inputs
    arguments = {"covariates": covariates, "length": length} | change
    with pytest.raises(ValueError, match=message):
        simulate_baseline(draw_functions(0), PatientSeeds(0, subject_id), **arguments)


def test_uniforms_and_treatments_must_fit_the_baseline(world):
    _, baseline, factual = world
    with pytest.raises(ValueError, match="uniforms"):
        simulate_factual(baseline, np.zeros((N, T, 2)))
    with pytest.raises(ValueError, match="treatments"):
        replay_factual(baseline, factual.treatments[:, :-1])


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), n=st.integers(1, 5))
def test_treated_outcomes_never_exceed_untreated_ones(seed, n):
    rng = np.random.default_rng(seed)
    length = rng.integers(2, 30, size=n)
    seeds = PatientSeeds(seed, rng.integers(0, 10**6, size=n))
    baseline = simulate_baseline(draw_functions(seed), seeds, rng.standard_normal((n, 30, 25)), length)
    factual = simulate_factual(baseline, draw_uniforms(seeds, length, 30))
    assert np.isfinite(factual.outcomes).all()
    assert (factual.outcomes <= baseline.untreated).all()
    queries = one_step_counterfactuals(baseline, factual)
    untreated = baseline.untreated[queries.subject, queries.origin + 1]
    assert (queries.outcomes[:, 0] <= untreated).all()


def test_an_icu_cohort_can_carry_the_benchmark():
    """Source-like statistics of the embedded cohort: outcomes vary, and no treatment is certain for all."""
    cohort = simulate_icu(400, seed=2)
    standardised = (cohort.complete - cohort.complete.mean(axis=0)) / cohort.complete.std(axis=0)
    length = np.minimum(cohort.stays.length, 100)
    covariates = np.zeros((400, 100, 25), dtype=np.float32)
    kept = cohort.hours_in < 100
    covariates[cohort.stay[kept], cohort.hours_in[kept]] = standardised[kept]
    _, _, factual = simulate(cohort.stays.subject_id, covariates, length)
    assert (observed(factual.outcomes, length).std(axis=0) > 0.5).all()
    rates = observed(factual.treatments, length).mean(axis=0)
    assert ((rates > 0.01) & (rates < 0.99)).all()
