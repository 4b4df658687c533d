"""Counterfactual outcomes: siblings, absorption, and one simulator behind both sets and any plan."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulators.tumor import (
    MAX_VOLUME_CM3,
    TumorFactual,
    TumorNoise,
    TumorPatients,
    answer_plan,
    draw_noise,
    one_step_counterfactuals,
    sample_patients,
    sequence_counterfactuals,
    simulate_factual,
)


@pytest.fixture(scope="module")
def one_step(cohort):
    return one_step_counterfactuals(*cohort)


@pytest.fixture(scope="module", params=["sliding", "random"])
def sequences(cohort, request):
    return sequence_counterfactuals(*cohort, plans=request.param, rng=np.random.default_rng(1))


def test_every_active_day_has_its_four_treatments_the_factual_one_first(cohort, one_step):
    factual = cohort.factual
    assert len(one_step) == 4 * (factual.length - 1).sum()
    assert one_step.treatments.shape == (len(one_step), 1, 2)
    assert one_step.volume_cm3.shape == (len(one_step), 1)
    subject, origin = one_step.subject.reshape(-1, 4), one_step.origin.reshape(-1, 4)
    assert (subject == subject[:, :1]).all()
    assert (origin == origin[:, :1]).all()
    codes = one_step.treatments.reshape(-1, 4, 2) @ np.array([2, 1])
    np.testing.assert_array_equal(np.sort(codes, axis=1), np.tile(np.arange(4), (len(codes), 1)))
    assert (np.diff(codes[:, 1:], axis=1) > 0).all()
    given_code = factual.treatments[subject[:, 0], origin[:, 0]] @ np.array([2, 1])
    np.testing.assert_array_equal(codes[:, 0], given_code)
    pairs = np.unique(np.stack([subject[:, 0], origin[:, 0]]), axis=1)
    assert pairs.shape[1] == len(subject)


def test_the_factual_sibling_repeats_the_panel(cohort, one_step):
    i, t = one_step.subject[::4], one_step.origin[::4]
    np.testing.assert_array_equal(one_step.volume_cm3[::4, 0], cohort.factual.volume_cm3[i, t + 1])


def test_more_treatment_never_grows_the_tumour_one_day_ahead(one_step):
    codes = one_step.treatments.reshape(-1, 4, 2) @ np.array([2, 1])
    by_code = np.take_along_axis(one_step.volume_cm3.reshape(-1, 4), codes.argsort(axis=1), axis=1)
    none, radio, chemo, both = by_code.T
    assert (radio <= none).all()
    assert (chemo <= none).all()
    assert (both <= np.minimum(radio, chemo)).all()
    assert (both < none).mean() > 0.95


def test_volumes_stay_between_nothing_and_death(one_step, sequences):
    for queries in (one_step, sequences):
        assert np.isfinite(queries.volume_cm3).all()
        assert queries.volume_cm3.min() >= 0
        assert queries.volume_cm3.max() <= MAX_VOLUME_CM3


def test_death_and_recovery_are_final(sequences):
    volume = sequences.volume_cm3
    for end in (0.0, MAX_VOLUME_CM3):
        ended = volume[:, :-1] == end
        assert ended.any() or end > 0
        assert (volume[:, 1:][ended] == end).all()


def test_a_branch_that_dies_stays_dead_whatever_follows():
    numbers = [np.array([value]) for value in (1100.0, 0.5, 0.05, 0.05, 0.03)]
    patients = TumorPatients(np.zeros(1, np.int8), *numbers, np.full(1, 2, np.int8))
    noise = TumorNoise(np.zeros((1, 10)), np.ones((1, 10)), np.zeros((1, 4, 2)))
    factual = simulate_factual(patients, noise, 0.0, steps=4)
    plan = np.array([[[False, False], [True, True], [True, True]], [[True, True], [False, False], [True, True]]])
    volume = answer_plan(patients, noise, factual, np.array([0, 0]), np.array([0, 0]), plan)
    np.testing.assert_array_equal(volume[0], MAX_VOLUME_CM3)
    assert (volume[1] < MAX_VOLUME_CM3).all()


def test_sequences_start_with_the_factual_step(cohort, sequences):
    i, t = sequences.subject, sequences.origin
    assert len(sequences) == 10 * (cohort.factual.length - 1).sum()
    assert sequences.volume_cm3.shape == (len(sequences), 6)
    np.testing.assert_array_equal(sequences.treatments[:, 0], cohort.factual.treatments[i, t])
    np.testing.assert_array_equal(sequences.volume_cm3[:, 0], cohort.factual.volume_cm3[i, t + 1])


def test_sliding_plans_give_one_treatment_once(cohort):
    sequences = sequence_counterfactuals(*cohort, horizon=4)
    planned = sequences.treatments.reshape(-1, 6, 4, 2)[:, :, 1:]
    assert (planned == planned[:1]).all()
    expected = np.zeros((6, 3, 2), dtype=bool)
    for j in range(3):
        expected[j, j, 0] = expected[3 + j, j, 1] = True
    np.testing.assert_array_equal(planned[0], expected)


def test_random_plans_are_fair_coins_drawn_anew_per_origin(cohort):
    planned = sequence_counterfactuals(*cohort, plans="random", rng=np.random.default_rng(2)).treatments[:, 1:]
    assert planned.mean() == pytest.approx(0.5, abs=0.005)
    by_origin = planned.reshape(-1, 10, 10).reshape(-1, 100)
    assert len(np.unique(by_origin, axis=0)) == len(by_origin)


def test_random_plans_need_a_generator_and_sequences_a_planned_day(cohort):
    with pytest.raises(ValueError, match="generator"):
        sequence_counterfactuals(*cohort, plans="random")
    with pytest.raises(ValueError, match="horizon"):
        sequence_counterfactuals(*cohort, horizon=1)
    with pytest.raises(ValueError, match="noise ends"):
        sequence_counterfactuals(*cohort, horizon=9)


def test_any_plan_is_answered_by_the_same_simulator(cohort, one_step, sequences):
    for queries in (one_step, sequences):
        answers = answer_plan(*cohort, queries.subject, queries.origin, queries.treatments)
        np.testing.assert_array_equal(answers, queries.volume_cm3)


def test_stored_arrays_give_the_same_answers(cohort, sequences):
    """A panel stores float32 volumes and no policy uniforms; integer plans come from a plan file."""
    patients, noise, factual = cohort
    stored = TumorFactual(factual.volume_cm3.astype(np.float32), factual.treatments, factual.length)
    noise32 = TumorNoise(noise.growth.astype(np.float32), noise.recovery.astype(np.float32))
    plan = sequences.treatments.astype(np.int64)
    answers = answer_plan(patients, noise32, stored, sequences.subject, sequences.origin, plan)
    np.testing.assert_allclose(answers, sequences.volume_cm3, rtol=1e-5, atol=1e-5)


def test_following_the_factual_treatments_repeats_the_panel(cohort):
    patients, noise, factual = cohort
    rows = np.flatnonzero(factual.length >= 20)
    plan = factual.treatments[rows, 5:11]
    answers = answer_plan(patients, noise, factual, rows, np.full(len(rows), 5), plan)
    np.testing.assert_array_equal(answers, factual.volume_cm3[rows, 6:12])


def test_plans_can_start_on_the_last_observed_day(cohort):
    patients, noise, factual = cohort
    rows, last = np.arange(len(patients)), factual.length - 1
    plan = np.ones((len(rows), 6, 2), dtype=bool)
    answers = answer_plan(patients, noise, factual, rows, last, plan)
    ended = factual.died | factual.recovered
    end_volume = factual.last_volume_cm3[ended]
    np.testing.assert_array_equal(answers[ended], np.repeat(end_volume[:, None], 6, axis=1))
    assert (answers[~ended, 0] < factual.last_volume_cm3[~ended]).all()


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_treatment_changes_nothing_before_it_acts(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    patients, noise = sample_patients(3, rng), draw_noise(3, rng, steps=12, horizon=6)
    factual = simulate_factual(patients, noise, 10.0, steps=12)
    subject, day = data.draw(st.integers(0, 2)), data.draw(st.integers(0, 5))
    origin = data.draw(st.integers(0, int(factual.length[subject]) - 1))
    plan = rng.integers(2, size=(2, 6, 2)).astype(bool)
    plan[1, :day] = plan[0, :day]
    volume = answer_plan(patients, noise, factual, np.full(2, subject), np.full(2, origin), plan)
    np.testing.assert_array_equal(volume[0, :day], volume[1, :day])


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_answers_do_not_depend_on_the_future_of_the_series(seed):
    rng = np.random.default_rng(seed)
    patients, noise = sample_patients(4, rng), draw_noise(4, rng, steps=12, horizon=6)
    factual = simulate_factual(patients, noise, 0.0, steps=12)
    rows, origin = np.arange(4), np.minimum(factual.length - 2, 5)
    plan = rng.integers(2, size=(4, 6, 2)).astype(bool)
    volume, treatments = factual.volume_cm3.copy(), factual.treatments.copy()
    later = np.arange(12) > origin[:, None]
    volume[later] = 777.0
    treatments[np.arange(12) >= origin[:, None]] ^= True
    changed = TumorFactual(volume, treatments, factual.length)
    before, after = (answer_plan(patients, noise, f, rows, origin, plan) for f in (factual, changed))
    np.testing.assert_array_equal(before, after)


def test_carried_over_drug_matters(cohort):
    """Chemotherapy on the day before leaves half its dose: without it the tumour is larger."""
    patients, noise, factual = cohort
    i, t = np.nonzero(factual.treatments[:, :-1, 0] & (np.arange(59) < factual.length[:, None] - 2))
    sober = replace(factual, treatments=np.zeros_like(factual.treatments))
    plan = np.zeros((len(i), 1, 2), dtype=bool)
    with_drug, without = (answer_plan(patients, noise, f, i, t + 1, plan) for f in (factual, sober))
    assert len(i) > 100
    assert (with_drug <= without).all()
    assert (with_drug < without).mean() > 0.9


@pytest.mark.parametrize(
    ("subject", "origin", "plan", "message"),
    [
        ([0], [60], np.zeros((1, 6, 2)), "origins"),
        ([0], [-1], np.zeros((1, 6, 2)), "origins"),
        ([999], [0], np.zeros((1, 6, 2)), "subjects"),
        ([-1], [0], np.zeros((1, 6, 2)), "subjects"),
        ([0, 1], [0], np.zeros((2, 6, 2)), "disagree"),
        ([0], [0], np.zeros((1, 6)), "disagree"),
        ([0], [0], np.zeros((1, 6, 3)), "disagree"),
        ([0], [0], np.zeros((1, 66, 2)), "noise ends"),
    ],
)
def test_impossible_questions_are_errors(cohort, subject, origin, plan, message):
    with pytest.raises(ValueError, match=message):
        answer_plan(*cohort, np.array(subject), np.array(origin), plan)


def test_no_question_has_no_answer(cohort):
    none = np.zeros(0, dtype=np.int64)
    assert answer_plan(*cohort, none, none, np.zeros((0, 6, 2))).shape == (0, 6)


def test_fixed_plans_never_treat_and_always_give_both_from_the_first_day(cohort):
    fixed = sequence_counterfactuals(*cohort, plans="fixed", horizon=3)
    plans = fixed.treatments.reshape(-1, 2, 3, 2)
    assert not plans[:, 0].any()
    assert plans[:, 1].all()
    patients, noise, factual = cohort
    expected = answer_plan(patients, noise, factual, fixed.subject, fixed.origin, fixed.treatments)
    np.testing.assert_allclose(fixed.volume_cm3, expected)
