"""Doses of the linear system: their law, their answers, and the system without them as it was."""

import numpy as np
import pytest
from scipy.stats import skew

from costar_cli.data import Part
from costar_cli.data.linear.settings import LinearGaussianConfig
from costar_cli.data.linear.simulate import linear_gaussian_outcomes, linear_gaussian_truth, simulate_linear
from costar_cli.reporting import NullReporter
from simulators.linear_gaussian import LinearGaussian, simulate_linear_gaussian

SMALL = {"train": 40, "val": 5, "test": 5, "target_train": 2, "target_val": 2, "target_test": 2, "steps": 10}
TEST = Part("source", "test")


def test_doses_grow_with_the_need_and_nothing_is_given_otherwise() -> None:
    law = LinearGaussian(doses=True, confounding=2.0)
    panel = simulate_linear_gaussian(law, 500, 20, np.random.default_rng(0))
    given = panel.treatments > 0
    need = panel.covariates @ law.policy_weights + law.policy_outcome_weight * panel.outcomes
    assert np.isclose(given.mean(), law.probability(panel.covariates, panel.outcomes).mean(), atol=0.02)
    assert np.corrcoef(need[given], np.log(panel.treatments[given]))[0, 1] > 0.5


def test_who_is_treated_first_does_not_depend_on_doses() -> None:
    plain, dosed = (simulate_linear_gaussian(LinearGaussian(doses=d), 50, 3, np.random.default_rng(1)) for d in (0, 1))
    assert plain.treatments.dtype == np.bool_
    assert dosed.treatments.dtype == np.float64


def test_answers_are_those_of_the_law_under_the_doses_of_the_plan() -> None:
    data = simulate_linear(LinearGaussianConfig(doses=True, **SMALL), NullReporter())
    queries = data.queries[TEST]["sequence"]
    values = data.schema.treatments.decode(queries.plan)
    assert np.unique(values).size > 20
    assert queries.outcomes is not None
    told = linear_gaussian_truth(data, TEST, queries.subject, queries.origin, values)
    assert np.allclose(told, queries.outcomes[..., 0], atol=1e-4)


def test_what_happened_is_the_outcome_under_the_doses_that_were_given() -> None:
    data = simulate_linear(LinearGaussianConfig(doses=True, **SMALL), NullReporter())
    panel = data.panels[TEST]
    given = data.schema.treatments.decode(panel.treatments[0, 2:5])
    assert np.allclose(linear_gaussian_outcomes(data, TEST, 0, 2, given), panel.outcomes[0, 3:6, 0], atol=1e-4)


def test_effects_are_proportional_to_the_dose() -> None:
    law = LinearGaussian(doses=True)
    zero = np.zeros((1, 2)), np.zeros(1)
    one, three = (law.expected_outcomes(*zero, np.full((1, 4), dose))[0] for dose in (1.0, 3.0))
    assert np.allclose(3 * one, three)
    assert np.allclose(one, law.total_effect(4))


def test_doses_are_lognormal_about_a_size_that_grows_with_the_need() -> None:
    """Of subjects in the same need the logarithms of doses vary by .4, whatever the need (LINEAR-4)."""
    panel = simulate_linear_gaussian(LinearGaussian(doses=True), 8_000, 6, np.random.default_rng(3))
    need = panel.covariates @ np.array([1.0, 0.5]) + 0.3 * panel.outcomes
    given = panel.treatments > 0
    log = np.log(panel.treatments[given])
    for low, high in ((-2.0, -0.8), (-0.2, 0.2), (0.8, 2.0)):
        inside = (low < need[given]) & (need[given] < high)
        left = log[inside] - 0.4 * np.tanh(need[given][inside])
        assert inside.sum() > 1_000
        assert left.std() == pytest.approx(0.4, rel=0.06)
        assert left.mean() == pytest.approx(0, abs=0.04)
        assert skew(left) == pytest.approx(0, abs=0.25)
