"""The linear-Gaussian data set: what it holds, and that its answers are the simulator's closed form."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from costar_cli.data import Part
from costar_cli.data.check import check_dataset
from costar_cli.data.linear.settings import LinearGaussianConfig
from costar_cli.data.linear.simulate import linear_gaussian_outcomes, linear_gaussian_truth, simulate_linear
from costar_cli.data.store import read_dataset, write_dataset
from costar_cli.errors import DataError, UsageError
from costar_cli.evaluation.limit import known_limit
from costar_cli.reporting import NullReporter
from simulators.linear_gaussian import LinearGaussian

SIZES = {"train": 80, "val": 20, "test": 10, "target_train": 12, "target_val": 15, "target_test": 8, "steps": 14}
TEST = Part("target", "test")


def simulated(**changes):
    return simulate_linear(LinearGaussianConfig(**{**SIZES, **changes}), NullReporter())


def test_parts_have_their_sizes_and_pass_every_check_and_survive_storage(tmp_path: Path):
    data = simulated()
    assert [data.panels[part].n_subjects for part in Part.all()] == [80, 20, 10, 12, 15, 8]
    assert check_dataset(data) == []
    assert data.schema.dims == (2, 1, 1, 0)
    write_dataset(tmp_path / "data.h5", data)
    again = read_dataset(tmp_path / "data.h5")
    assert again.name == "linear-gaussian"
    np.testing.assert_array_equal(again.queries[TEST]["sequence"].outcomes, data.queries[TEST]["sequence"].outcomes)
    row, origin, plan = np.array([0, 3]), np.array([2, 13]), np.ones((2, 4, 1))
    np.testing.assert_array_equal(
        linear_gaussian_truth(again, TEST, row, origin, plan), linear_gaussian_truth(data, TEST, row, origin, plan)
    )


def test_queries_ask_both_treatments_and_fixed_and_random_plans_from_distinct_origins():
    data = simulated(origins=5, random_plans=3, horizon=4)
    one_step, sequence = (data.queries[TEST][name] for name in ("one_step", "sequence"))
    assert one_step.plan.shape == (8 * 5 * 2, 1, 1)
    assert sequence.plan.shape == (8 * 5 * 5, 4, 1)
    assert one_step.plan[:4, 0, 0].tolist() == [0, 1, 0, 1]
    assert sequence.plan[:2, :, 0].tolist() == [[0] * 4, [1] * 4]
    assert 0.3 < sequence.plan[:, :, 0].reshape(-1, 5, 4)[:, 2:].mean() < 0.7
    origins = one_step.origin.reshape(8, 5, 2)[..., 0]
    assert (np.diff(origins, axis=1) > 0).all()
    assert origins.max() < 13
    assert sequence.scored.all()


def test_few_steps_bound_the_number_of_origins():
    assert len(simulated(steps=3, origins=9).queries[TEST]["one_step"]) == 8 * 2 * 2


def test_truth_meets_every_stored_answer():
    data = simulated()
    for part in (Part("source", "test"), TEST):
        for queries in data.queries[part].values():
            answers = linear_gaussian_truth(data, part, queries.subject, queries.origin, queries.plan)
            np.testing.assert_array_equal(answers.astype(np.float32), queries.outcomes[..., 0])
    queries = data.queries[TEST]["sequence"]
    alone = linear_gaussian_truth(data, TEST, int(queries.subject[7]), int(queries.origin[7]), queries.plan[7])
    np.testing.assert_allclose(alone, queries.outcomes[7, :, 0], rtol=1e-6)


def test_answers_differ_between_plans_by_the_closed_form_effect():
    data = simulated(treatment_effect=-2.0)
    queries = data.queries[TEST]["sequence"]
    never, always = queries.outcomes[0::4, :, 0], queries.outcomes[1::4, :, 0]
    effect = LinearGaussian(treatment_effect=-2.0).total_effect(6)
    np.testing.assert_allclose(always - never, np.broadcast_to(effect, never.shape), atol=1e-5)


def test_domains_differ_in_confounding_alone():
    data = simulated(train=4000, target_val=4000, gamma=1.5)
    for part, strength in ((Part("source", "train"), 1.5), (Part("target", "val"), 0.0)):
        panel, law = data.panels[part], LinearGaussian(confounding=strength)
        probability = data.truth[part]["treatment_probability"]
        expected = law.probability(panel.covariates.astype(float), panel.outcomes[..., 0].astype(float))
        np.testing.assert_allclose(probability, expected, atol=1e-6)
        given = panel.treatments[:, :-1, 0]
        assert given.mean() == pytest.approx(probability[:, :-1].mean(), abs=0.01)
        need = panel.outcomes[:, :-1, 0]
        assert abs(np.corrcoef(given.ravel(), need.ravel())[0, 1]) > 0.2 or strength == 0
    assert not data.panels[Part("target", "val")].treatments[:, -1].any()


def test_a_smaller_part_is_a_prefix_of_a_larger_one():
    few, many = simulated(train=5), simulated(train=50)
    part = Part("source", "train")
    np.testing.assert_array_equal(few.panels[part].outcomes, many.panels[part].outcomes[:5])
    np.testing.assert_array_equal(few.queries[TEST]["sequence"].outcomes, many.queries[TEST]["sequence"].outcomes)


def test_questions_outside_the_panel_are_refused():
    data = simulated()
    with pytest.raises(UsageError, match="rows of target/test go from 0 to 7"):
        linear_gaussian_truth(data, TEST, 8, 0, [[1]])
    with pytest.raises(UsageError, match="origin 14 is outside the series"):
        linear_gaussian_truth(data, TEST, 0, 14, [[1]])
    with pytest.raises(UsageError, match="counterfactual answers"):
        simulate_linear(LinearGaussianConfig(test=1_000_000, origins=100, steps=200), NullReporter())


def test_settings_that_costar_does_not_write_are_an_error_of_the_data():
    data = simulated()
    odd = replace(data, config={**data.config, "gamma": "x"})
    with pytest.raises(DataError, match="not as costar wrote them") as caught:
        linear_gaussian_truth(odd, TEST, 0, 0, [[1]])
    assert "gamma" in caught.value.details[0]


def test_a_changed_seed_changes_the_noise():
    one, other = simulated(), simulated(seed=11)
    part = Part("source", "train")
    assert np.abs(one.panels[part].outcomes - other.panels[part].outcomes).min() > 0


def test_a_dropped_confounder_is_kept_as_truth_and_changes_nothing_else():
    whole, dropped = simulated(), simulated(drop_confounder=True)
    assert [variable.name for variable in dropped.schema.covariates] == ["state_2"]
    for part in Part.all():
        np.testing.assert_array_equal(dropped.panels[part].covariates, whole.panels[part].covariates[..., 1:])
        np.testing.assert_array_equal(dropped.truth[part]["hidden_confounder"], whole.panels[part].covariates[..., 0])
        np.testing.assert_array_equal(dropped.panels[part].treatments, whole.panels[part].treatments)
    np.testing.assert_array_equal(dropped.queries[TEST]["sequence"].outcomes, whole.queries[TEST]["sequence"].outcomes)
    row, origin, plan = np.array([0, 3]), np.array([2, 13]), np.ones((2, 4, 1))
    np.testing.assert_array_equal(
        linear_gaussian_truth(dropped, TEST, row, origin, plan), linear_gaussian_truth(whole, TEST, row, origin, plan)
    )
    assert "drop_confounder" not in whole.config
    assert known_limit(whole, TEST) is not None
    assert known_limit(dropped, TEST) is None


def test_with_their_own_noise_subjects_followed_their_plan_and_others_differ_by_the_response_alone():
    data = simulated()
    panel, origin = data.panels[TEST], np.full(8, 3)
    given = panel.treatments[:, 3:7]
    factual = linear_gaussian_outcomes(data, TEST, np.arange(8), origin, given)
    np.testing.assert_allclose(factual, panel.outcomes[:, 4:8, 0], rtol=1e-6)
    other = linear_gaussian_outcomes(data, TEST, np.arange(8), origin, 1 - given)
    expected = [linear_gaussian_truth(data, TEST, np.arange(8), origin, plan) for plan in (1 - given, given)]
    np.testing.assert_allclose(other - factual, expected[0] - expected[1], atol=1e-6)


def test_noise_after_the_last_step_of_a_series_is_not_known():
    data = simulated()
    found = linear_gaussian_outcomes(data, TEST, 0, 11, np.ones((4, 1)))
    assert np.isfinite(found).tolist() == [True, True, False, False]
