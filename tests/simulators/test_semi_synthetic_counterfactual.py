"""Counterfactual queries on semi-synthetic patients: siblings, branch-own probabilities, one simulator for any plan."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulators.semi_synthetic import (
    PatientSeeds,
    SemiSyntheticFactual,
    answer_plan,
    draw_functions,
    draw_uniforms,
    one_step_counterfactuals,
    replay_factual,
    sequence_counterfactuals,
    simulate_baseline,
    simulate_factual,
)

N, T = 40, 60


def make_world(n, t, seed):
    rng = np.random.default_rng(seed)
    seeds, length = PatientSeeds(seed, np.arange(n) * 7), rng.integers(2, t + 1, size=n)
    covariates = rng.standard_normal((n, t, 25))
    functions = draw_functions(seed).centred(covariates.reshape(-1, 25))
    baseline = simulate_baseline(functions, seeds, covariates, length)
    return baseline, simulate_factual(baseline, draw_uniforms(seeds, length, t)), seeds


@pytest.fixture(scope="module")
def world():
    return make_world(N, T, 6)


@pytest.fixture(scope="module")
def one_step(world):
    return one_step_counterfactuals(*world[:2])


@pytest.fixture(scope="module")
def sequences(world):
    return sequence_counterfactuals(*world)


def test_every_hour_but_the_last_has_its_eight_vectors_in_order(world, one_step):
    length = world[1].length
    assert len(one_step) == 8 * (length - 1).sum()
    codes = one_step.treatments.reshape(-1, 8, 3) @ np.array([4, 2, 1])
    np.testing.assert_array_equal(codes, np.tile(np.arange(8), (len(codes), 1)))
    i, t = one_step.subject.reshape(-1, 8), one_step.origin.reshape(-1, 8)
    assert (i == i[:, :1]).all()
    assert (t == t[:, :1]).all()
    expected = [(subject, hour) for subject in range(N) for hour in range(length[subject] - 1)]
    np.testing.assert_array_equal(np.stack([i[:, 0], t[:, 0]], axis=1), expected)


def test_the_factual_sibling_repeats_the_panel(world, one_step):
    factual = world[1]
    given_now = factual.treatments[one_step.subject, one_step.origin]
    same = (one_step.treatments[:, 0] == given_now).all(axis=1)
    assert same.sum() == len(one_step) / 8
    i, t = one_step.subject[same], one_step.origin[same]
    np.testing.assert_array_equal(one_step.outcomes[same, 0], factual.outcomes[i, t + 1])


def test_more_treatment_never_raises_an_outcome_one_hour_ahead(one_step):
    outcome = one_step.outcomes.reshape(-1, 2, 2, 2, 2)  # [hour, t1, t2, t3, outcome]
    for axis in (1, 2, 3):
        off, on = np.split(outcome, 2, axis=axis)
        assert (on <= off).all()
    np.testing.assert_array_equal(outcome[:, :, :, 0, 0], outcome[:, :, :, 1, 0])  # t3 leaves y1 alone
    np.testing.assert_array_equal(outcome[:, 0, :, :, 1], outcome[:, 1, :, :, 1])  # t1 leaves y2 alone
    assert (outcome[:, 1, 1, 1] < outcome[:, 0, 0, 0]).all()


def test_sequences_have_ten_plans_per_origin_until_the_last_observed_hour(world, sequences):
    length = world[1].length
    assert len(sequences) == 10 * np.maximum(length - 11, 0).sum()
    assert sequences.treatments.shape == (len(sequences), 11, 3)
    assert sequences.outcomes.shape == (len(sequences), 11, 2)
    last = sequences.origin + 11
    assert (last <= length[sequences.subject] - 1).all()
    for subject in np.unique(sequences.subject):
        assert last[sequences.subject == subject].max() == length[subject] - 1
        assert sequences.origin[sequences.subject == subject].min() == 0


def test_siblings_share_history_and_the_factual_first_step(world, sequences):
    i, t = sequences.subject, sequences.origin
    np.testing.assert_array_equal(sequences.treatments[:, 0], world[1].treatments[i, t])
    np.testing.assert_array_equal(sequences.outcomes[:, 0], world[1].outcomes[i, t + 1])
    groups = sequences.outcomes.reshape(-1, 10, 11, 2)
    assert (groups[:, :, 0] == groups[:, :1, 0]).all()
    assert (groups[:, :, 1] != groups[:, :1, 1]).any()


def test_drawn_treatments_are_fair_coins_of_each_patient_and_origin(sequences):
    drawn = sequences.treatments[:, 1:]
    assert drawn.mean() == pytest.approx(0.5, abs=0.005)
    assert len(np.unique(drawn.reshape(len(drawn), -1), axis=0)) == len(drawn)


def test_horizon_and_number_of_plans_can_be_chosen(world):
    queries = sequence_counterfactuals(*world, horizon=6, n_plans=3)
    assert len(queries) == 3 * np.maximum(world[1].length - 6, 0).sum()
    assert queries.outcomes.shape[1:] == (6, 2)
    with pytest.raises(ValueError, match="horizon"):
        sequence_counterfactuals(*world, horizon=1)


def test_any_plan_is_answered_by_the_same_simulator(world, one_step, sequences):
    for queries in (one_step, sequences):
        answers = answer_plan(*world[:2], queries.subject, queries.origin, queries.treatments.astype(np.int64))
        np.testing.assert_array_equal(answers, queries.outcomes)


def test_a_plan_is_a_replay_of_the_whole_stay(world):
    """Branch-own probabilities: a plan equals a simulation from hour 0 with the plan in place of the factual hours."""
    baseline, factual, _ = world
    rows = np.flatnonzero(factual.length >= 40)
    origin, horizon = 5, 30
    plan = np.random.default_rng(0).integers(2, size=(len(rows), horizon, 3)).astype(bool)
    treatments = factual.treatments[rows].copy()
    treatments[:, origin : origin + horizon] = plan
    replayed = replay_factual(baseline.take(rows), treatments)
    answers = answer_plan(baseline, factual, rows, np.full(len(rows), origin), plan)
    np.testing.assert_array_equal(answers, replayed.outcomes[:, origin + 1 : origin + horizon + 1])


def test_following_the_factual_treatments_repeats_the_panel(world):
    baseline, factual, _ = world
    rows = np.flatnonzero(factual.length >= 30)
    plan = factual.treatments[rows, 12:29]
    answers = answer_plan(baseline, factual, rows, np.full(len(rows), 12), plan)
    np.testing.assert_array_equal(answers, factual.outcomes[rows, 13:30])


def test_no_treatment_from_hour_0_on_gives_the_untreated_outcomes(world):
    baseline, factual, _ = world
    rows = np.flatnonzero(factual.length >= 25)
    plan = np.zeros((len(rows), 24, 3), dtype=bool)
    answers = answer_plan(baseline, factual, rows, np.zeros(len(rows), dtype=int), plan)
    np.testing.assert_array_equal(answers, baseline.untreated[rows, 1:25])


def test_earlier_treatments_act_on_after_the_origin(world):
    baseline, factual, _ = world
    sober = replay_factual(baseline, np.zeros_like(factual.treatments))
    rows = np.flatnonzero(factual.length >= 30)
    origin, plan = np.full(len(rows), 20), np.zeros((len(rows), 5, 3), dtype=bool)
    after, without = (answer_plan(baseline, f, rows, origin, plan) for f in (factual, sober))
    assert (after <= without).all()
    assert (after < without).mean() > 0.5


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_a_treatment_changes_nothing_before_it_acts(data):
    baseline, factual, _ = make_world(3, 20, data.draw(st.integers(0, 2**31)))
    subject = data.draw(st.integers(0, 2))
    length = int(factual.length[subject])
    origin = data.draw(st.integers(0, length - 2))
    horizon = data.draw(st.integers(1, length - 1 - origin))
    hour = data.draw(st.integers(0, horizon - 1))
    plan = np.random.default_rng(0).integers(2, size=(2, horizon, 3)).astype(bool)
    plan[1, :hour] = plan[0, :hour]
    outcomes = answer_plan(baseline, factual, np.full(2, subject), np.full(2, origin), plan)
    np.testing.assert_array_equal(outcomes[0, :hour], outcomes[1, :hour])


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**31))
def test_answers_do_not_depend_on_the_future_of_the_series(seed):
    baseline, factual, _ = make_world(4, 24, seed)
    rows = np.flatnonzero(factual.length >= 3)
    origin = (factual.length[rows] - 2) // 2
    plan = np.random.default_rng(seed).integers(2, size=(len(rows), 1, 3)).astype(bool)
    later = np.arange(24) > np.maximum((factual.length - 2) // 2, 0)[:, None]
    now_or_later = np.arange(24) >= np.maximum((factual.length - 2) // 2, 0)[:, None]
    outcomes, treatments, probability = (
        values.copy() for values in (factual.outcomes, factual.treatments, factual.probability)
    )
    outcomes[later], treatments[now_or_later] = 777.0, True
    probability[now_or_later] = 0.5
    changed = SemiSyntheticFactual(outcomes, treatments, probability, factual.length)
    before, after = (answer_plan(baseline, f, rows, origin, plan) for f in (factual, changed))
    np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize(
    ("subject", "origin", "plan", "message"),
    [
        ([0], [-1], np.zeros((1, 1, 3)), "plans must"),
        ([0], [T], np.zeros((1, 1, 3)), "plans must"),
        ([0], [0], np.zeros((1, T, 3)), "plans must"),
        ([N], [0], np.zeros((1, 1, 3)), "subjects"),
        ([-1], [0], np.zeros((1, 1, 3)), "subjects"),
        ([0, 1], [0], np.zeros((2, 1, 3)), "disagree"),
        ([0], [0], np.zeros((1, 3)), "disagree"),
        ([0], [0], np.zeros((1, 1, 2)), "disagree"),
    ],
)
def test_impossible_questions_are_errors(world, subject, origin, plan, message):
    with pytest.raises(ValueError, match=message):
        answer_plan(*world[:2], np.array(subject), np.array(origin), plan)


def test_no_question_has_no_answer(world):
    none = np.zeros(0, dtype=np.int64)
    assert answer_plan(*world[:2], none, none, np.zeros((0, 6, 3))).shape == (0, 6, 2)


def test_short_stays_have_no_sequences():
    baseline, factual, seeds = make_world(5, 8, 0)
    assert len(sequence_counterfactuals(baseline, factual, seeds)) == 0
