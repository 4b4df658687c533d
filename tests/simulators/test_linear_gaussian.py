"""The linear-Gaussian panel's closed forms against simulation: they are the truth that methods are held against."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulators.linear_gaussian import LinearGaussian, simulate_linear_gaussian

N = 10_000


def one_step_data(confounding, n=10_000):
    panel = simulate_linear_gaussian(LinearGaussian(confounding=confounding), n, 2, np.random.default_rng(5))
    return panel.covariates[:, 0], panel.outcomes[:, 0], panel.treatments[:, 0], panel.outcomes[:, 1]


def naive_difference(treated, outcome):
    difference = outcome[treated].mean() - outcome[~treated].mean()
    error = (outcome[treated].var() / treated.sum() + outcome[~treated].var() / (~treated).sum()) ** 0.5
    return difference, error


@pytest.mark.parametrize("confounding", [0.0, 1.5])
@pytest.mark.parametrize("plan", [[1] * 6, [0] * 6, [0, 1, 1, 0, 1, 0]], ids=["always", "never", "mixed"])
def test_mean_of_simulated_interventions_equals_the_closed_form(confounding, plan):
    law = LinearGaussian(confounding=confounding)
    panel = simulate_linear_gaussian(law, N, 7, np.random.default_rng(1), plan=[*plan, 0])
    expected = law.expected_outcomes(panel.covariates[:, 0], panel.outcomes[:, 0], plan)
    error = panel.outcomes[:, 1:] - expected
    assert np.all(np.abs(error.mean(axis=0)) < 4.0 * error.std(axis=0) / N**0.5)
    assert error[:, 0].std() == pytest.approx(law.outcome_sd, rel=0.03)


def test_total_effect_is_the_mean_difference_of_always_and_never_treating():
    law = LinearGaussian()
    always, never = (
        simulate_linear_gaussian(law, 50, 9, np.random.default_rng(2), plan=np.full(9, treated)) for treated in (1, 0)
    )
    difference = (always.outcomes - never.outcomes)[:, 1:]
    np.testing.assert_allclose(difference, np.broadcast_to(law.total_effect(8), difference.shape), atol=1e-12)
    independent = simulate_linear_gaussian(law, N, 9, np.random.default_rng(3), plan=np.zeros(9))
    treated = simulate_linear_gaussian(law, N, 9, np.random.default_rng(4), plan=np.ones(9))
    observed = treated.outcomes[:, 8].mean() - independent.outcomes[:, 8].mean()
    sampling_error = (2.0 * independent.outcomes[:, 8].var() / N) ** 0.5
    assert abs(observed - law.total_effect(8)[-1]) < 4.0 * sampling_error


def test_impulse_response_follows_the_powers_of_the_system():
    law = LinearGaussian()
    response, power = [law.treatment_effect], np.eye(2)
    for _ in range(5):
        response.append(law.persistence * response[-1] + law.outcome_weights @ power @ law.state_effect)
        power = law.transition @ power
    np.testing.assert_allclose(law.impulse_response(6), response)
    np.testing.assert_allclose(law.total_effect(6), np.cumsum(response))


def test_naive_difference_of_means_is_unbiased_without_confounding():
    law = LinearGaussian()
    _, _, treated, outcome = one_step_data(0.0)
    difference, error = naive_difference(treated, outcome)
    assert abs(difference - law.treatment_effect) < 4.0 * error


@pytest.mark.parametrize("confounding", [1.0, 3.0])
def test_naive_difference_of_means_is_biased_under_confounding_and_adjustment_is_not(confounding):
    law = LinearGaussian(confounding=confounding)
    covariates, before, treated, outcome = one_step_data(confounding)
    difference, error = naive_difference(treated, outcome)
    assert difference - law.treatment_effect > 20.0 * error
    design = np.column_stack([np.ones(len(before)), treated, covariates, before])
    coefficient, residual, *_ = np.linalg.lstsq(design, outcome)
    spread = (residual[0] / len(before) * np.linalg.inv(design.T @ design)[1, 1]) ** 0.5
    assert abs(coefficient[1] - law.treatment_effect) < 4.0 * spread


def test_more_confounding_means_more_bias():
    bias = [naive_difference(*one_step_data(strength)[2:])[0] for strength in (0.0, 0.5, 1.0, 2.0)]
    assert bias == sorted(bias)


def test_adjusting_the_outcome_regression_for_the_origin_alone_misses_the_effect_of_later_confounded_treatments():
    # what makes it time-varying: covariates after the origin sway the second treatment and carry the first one's effect
    law = LinearGaussian(confounding=2.0)
    panel = simulate_linear_gaussian(law, N, 3, np.random.default_rng(6))
    design = np.column_stack([np.ones(N), panel.treatments[:, :2], panel.covariates[:, 0], panel.outcomes[:, 0]])
    coefficient = np.linalg.lstsq(design, panel.outcomes[:, 2])[0]
    assert abs(coefficient[2] - law.impulse_response(2)[0]) > 0.1


def test_counterfactuals_of_the_factual_plan_are_the_factual_outcomes():
    panel = simulate_linear_gaussian(LinearGaussian(), 30, 12, np.random.default_rng(7))
    subject, origin = np.repeat(np.arange(30), 2), np.tile([0, 5], 30)
    plan = panel.treatments[subject[:, None], origin[:, None] + np.arange(6)]
    outcomes = panel.outcomes[subject[:, None], origin[:, None] + np.arange(1, 7)]
    np.testing.assert_array_equal(panel.counterfactual_outcomes(subject, origin, plan), outcomes)


def test_counterfactuals_share_the_noise_of_a_simulated_intervention():
    law, rng = LinearGaussian(), np.random.default_rng
    panel = simulate_linear_gaussian(law, 40, 8, rng(8))
    plan = rng(9).integers(2, size=(40, 8))
    intervened = simulate_linear_gaussian(law, 40, 8, rng(8), plan=plan)
    subject = np.arange(40)
    answered = panel.counterfactual_outcomes(subject, np.zeros(40, dtype=np.int64), plan[:, :7])
    np.testing.assert_allclose(answered, intervened.outcomes[:, 1:], atol=1e-12)


def test_expected_outcomes_of_a_panel_start_from_its_own_state():
    panel = simulate_linear_gaussian(LinearGaussian(), 5, 4, np.random.default_rng(10))
    subject, origin = np.array([3, 1]), np.array([2, 0])
    expected = panel.law.expected_outcomes(panel.covariates[subject, origin], panel.outcomes[subject, origin], [1, 0])
    np.testing.assert_array_equal(panel.expected_outcomes(subject, origin, [1, 0]), expected)


def test_panel_is_stationary_and_overlapping():
    panel = simulate_linear_gaussian(LinearGaussian(), 5_000, 30, np.random.default_rng(11))
    assert panel.outcomes[:, 0].std() == pytest.approx(panel.outcomes[:, -1].std(), rel=0.05)
    assert panel.outcomes[:, 0].mean() == pytest.approx(panel.outcomes[:, -1].mean(), abs=0.1)
    probability = panel.law.probability(panel.covariates, panel.outcomes)
    assert panel.treatments.mean() == pytest.approx(probability.mean(), abs=0.01)
    assert np.quantile(probability, 0.01) > 0.02
    assert np.quantile(probability, 0.99) < 0.98


def test_first_subjects_do_not_depend_on_how_many_there_are():
    few, many = (simulate_linear_gaussian(LinearGaussian(), n, 5, np.random.default_rng(12)) for n in (3, 9))
    np.testing.assert_array_equal(few.outcomes, many.outcomes[:3])
    np.testing.assert_array_equal(few.treatments, many.treatments[:3])


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.booleans(), min_size=1, max_size=8),
    st.lists(st.booleans(), min_size=1, max_size=8),
    st.floats(-3, 3),
)
def test_effects_of_plans_add_up(first, second, outcome):
    length = min(len(first), len(second))
    law, a, b = LinearGaussian(), np.array(first[:length], float), np.array(second[:length], float)
    state, zero = np.full((1, 2), 0.7), np.zeros(1)
    together = law.expected_outcomes(state, np.array([outcome]), a + b)
    alone = law.expected_outcomes(state, np.array([outcome]), a) + law.expected_outcomes(0.0 * state, zero, b)
    np.testing.assert_allclose(together, alone, atol=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"transition": np.eye(2)}, "explodes"),
        ({"persistence": 1.0}, "explodes"),
        ({"state_effect": np.zeros(3)}, "disagree"),
        ({"outcome_sd": 0.0}, "positive"),
    ],
)
def test_laws_without_a_meaning_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        LinearGaussian(**change)


def test_plans_beyond_the_last_step_are_refused():
    panel = simulate_linear_gaussian(LinearGaussian(), 2, 4, np.random.default_rng(13))
    with pytest.raises(ValueError, match="after the last step, 3"):
        panel.counterfactual_outcomes(np.array([0]), np.array([2]), [[1, 0]])
