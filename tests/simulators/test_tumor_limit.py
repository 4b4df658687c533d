"""The best possible prediction of a tumour, against importance sampling, and whether its errors can be foreseen."""

import numpy as np
import pytest

from simulators.tumor import (
    MAX_VOLUME_CM3,
    TumorFactual,
    TumorNoise,
    answer_plan,
    draw_noise,
    expected_volumes,
    one_step_counterfactuals,
    sample_patients,
    simulate_factual,
)

PLANS = np.array([[[0, 0]] * 3, [[1, 0], [0, 1], [0, 0]], [[1, 1]] * 3], dtype=np.bool_)


def history(kind: int, days: int) -> tuple[TumorFactual, int]:
    """Simulate the first days of one patient of a type, under a fair coin."""
    rng = np.random.default_rng(3 + kind)
    patients = sample_patients(60, rng)
    n = int(np.flatnonzero((patients.patient_type == kind) & (patients.initial_volume_cm3 > 100))[0])
    factual = simulate_factual(patients, draw_noise(60, rng), 0.0)
    assert factual.length[n] > days
    return TumorFactual(factual.volume_cm3[n : n + 1], factual.treatments[n : n + 1], factual.length[n : n + 1]), days


def importance_sampled(factual: TumorFactual, origin: int, kind: int, draws: int) -> np.ndarray:
    """Return the means `[3,3]` of plans over patients drawn from the prior, weighed by how likely the history is."""
    rng = np.random.default_rng(0)
    drawn = sample_patients(3 * draws, rng)
    drawn = drawn.take(np.flatnonzero(drawn.patient_type == kind))
    volume, given = factual.volume_cm3[0], factual.treatments[0]
    drug, log_weight = 0.0, np.zeros(len(drawn))
    for t in range(origin):
        drug = drug / 2 + 5 * given[t, 0]
        kill = drawn.beta_chemo * drug + given[t, 1] * (2 * drawn.alpha + 4 * drawn.beta)
        expected = 1 + drawn.rho * np.log(14137.16694115 / volume[t]) - kill
        log_weight -= ((volume[t + 1] / volume[t] - expected) / 0.01) ** 2 / 2
    weight = np.exp(log_weight - log_weight.max())
    assert weight.sum() ** 2 / (weight**2).sum() > 300, "too few draws count"
    n = len(drawn)
    same = TumorFactual(*(np.broadcast_to(a, (n, *a.shape[1:])) for a in (factual.volume_cm3, factual.treatments)),
                        np.full(n, origin + 2))  # fmt: skip
    noise = draw_noise(n, rng)
    means = []
    for plan in PLANS:
        course = answer_plan(drawn, noise, same, np.arange(n), np.full(n, origin), np.broadcast_to(plan, (n, 3, 2)))
        means.append(weight @ course / weight.sum())
    return np.array(means)


@pytest.mark.parametrize(("kind", "days"), [(1, 0), (2, 1), (3, 2), (1, 3)])
def test_predictions_agree_with_importance_sampling_from_the_prior(kind, days):
    factual, origin = history(kind, days)
    found = expected_volumes(factual, np.array([kind]), np.zeros(3, int), np.full(3, origin), PLANS)
    np.testing.assert_allclose(found, importance_sampled(factual, origin, kind, 60_000), rtol=0.01)


def test_after_a_long_history_the_prediction_is_the_course_without_noise():
    rng = np.random.default_rng(1)
    patients, noise = sample_patients(60, rng), draw_noise(60, rng)
    factual = simulate_factual(patients, noise, 0.0)
    rows = np.flatnonzero(factual.length == 60)
    asked = rows, np.full(len(rows), 50), np.zeros((len(rows), 3, 2), dtype=np.bool_)
    quiet = TumorNoise(np.zeros_like(noise.growth), noise.recovery)
    found = expected_volumes(factual, patients.patient_type, *asked)
    np.testing.assert_allclose(found, answer_plan(patients, quiet, factual, *asked), rtol=0.02)


def test_the_errors_are_those_that_no_use_of_the_history_could_predict():
    rng = np.random.default_rng(5)
    patients, noise = sample_patients(400, rng), draw_noise(400, rng)
    factual = simulate_factual(patients, noise, 0.0)
    asked = one_step_counterfactuals(patients, noise, factual)
    early = asked.origin < 6
    subject, origin, plan = asked.subject[early], asked.origin[early], asked.treatments[early]
    now_Q = factual.volume_cm3[subject, origin]
    best_Q = expected_volumes(factual, patients.patient_type, subject, origin, plan)[:, 0] / now_Q
    true_Q = asked.volume_cm3[early, 0] / now_Q
    before_Q = factual.volume_cm3[subject, np.maximum(origin - 1, 0)] / now_Q
    error_Q = true_Q - best_Q
    assert np.sqrt((error_Q**2).mean()) < 0.8 * np.sqrt(((true_Q - 1) ** 2).mean())
    for known_Q in (np.ones_like(now_Q), now_Q, before_Q, best_Q, *plan[:, 0].T, patients.patient_type[subject] == 1):
        sums_N = np.bincount(subject, weights=known_Q * error_Q, minlength=400)
        assert abs(sums_N.mean()) < 3 * sums_N.std() / np.sqrt(400)


def test_the_same_question_has_the_same_answer_in_any_company(cohort):
    asked = one_step_counterfactuals(*cohort)
    kinds = cohort.patients.patient_type

    def answer(rows):
        return expected_volumes(cohort.factual, kinds, asked.subject[rows], asked.origin[rows], asked.treatments[rows])

    every = answer(np.arange(len(asked)))
    some = np.random.default_rng(0).permutation(len(asked))[:300]
    np.testing.assert_allclose(answer(some), every[some], rtol=1e-12)
    np.testing.assert_array_equal(answer(some), answer(some))


def test_later_days_change_no_prediction(cohort):
    rows, origin = np.arange(len(cohort.factual)), np.minimum(cohort.factual.length - 1, 9)
    plan = np.ones((len(rows), 4, 2), dtype=np.bool_)
    kinds = cohort.patients.patient_type
    volume, given = cohort.factual.volume_cm3.copy(), cohort.factual.treatments.copy()
    later = np.arange(cohort.factual.n_steps) > origin[:, None]
    volume[later], given[later | (np.arange(cohort.factual.n_steps) == origin[:, None])] = 7.0, True
    changed = TumorFactual(volume, given, cohort.factual.length)
    np.testing.assert_allclose(
        expected_volumes(changed, kinds, rows, origin, plan),
        expected_volumes(cohort.factual, kinds, rows, origin, plan),
    )


def test_death_and_recovery_last():
    patients = sample_patients(2, np.random.default_rng(0))
    volume = np.array([[900.0, MAX_VOLUME_CM3], [1e-9, 0.0]])
    ended = TumorFactual(volume, np.zeros((2, 2, 2), dtype=np.bool_), np.full(2, 2))
    found = expected_volumes(ended, patients.patient_type, np.arange(2), np.ones(2, int), np.ones((2, 3, 2)))
    np.testing.assert_allclose(found, [[MAX_VOLUME_CM3] * 3, [0.0] * 3])
