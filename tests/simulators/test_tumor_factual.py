"""The factual simulation and its policy (spec TUMOR-7, TUMOR-8)."""

from dataclasses import replace

import numpy as np
import pytest

from simulators.tumor import (
    MAX_VOLUME_CM3,
    TumorFactual,
    TumorNoise,
    TumorPatients,
    diameter_cm,
    draw_noise,
    drug_concentration,
    known_growth,
    sample_patients,
    simulate_factual,
    treatment_probability,
    volume_cm3,
)


def one_patient(volume: float, *, rho: float = 1e-9, alpha: float = 1e-9, beta_chemo: float = 1e-9) -> TumorPatients:
    numbers = [np.array([value]) for value in (volume, alpha, alpha / 10, rho, beta_chemo)]
    return TumorPatients(np.zeros(1, np.int8), *numbers, np.full(1, 2, np.int8))


def quiet(steps: int, *, treated: bool = False) -> TumorNoise:
    return TumorNoise(np.zeros((1, steps)), np.ones((1, steps)), np.full((1, steps, 2), 0.0 if treated else 1.0))


def test_observed_days_are_a_prefix_and_nothing_follows(cohort):
    factual = cohort.factual
    beyond = np.arange(factual.n_steps) >= factual.length[:, None]
    assert (factual.volume_cm3[beyond] == 0).all()
    assert not factual.treatments[np.arange(factual.n_steps) >= factual.length[:, None] - 1].any()
    before_the_end = np.arange(factual.n_steps) < factual.length[:, None] - 1
    assert (factual.volume_cm3[before_the_end] > 0).all()
    assert (factual.volume_cm3[before_the_end] < MAX_VOLUME_CM3).all()


def test_series_end_early_only_by_death_or_recovery(cohort):
    factual = cohort.factual
    assert not (factual.died & factual.recovered).any()
    assert (factual.died | factual.recovered)[factual.length < factual.n_steps].all()
    np.testing.assert_array_equal(factual.volume_cm3[:, 0], cohort.patients.initial_volume_cm3)


def test_untreated_tumours_die_at_the_largest_volume_and_stay_there():
    factual = simulate_factual(one_patient(1100.0, rho=0.05), quiet(20), 0.0, steps=20)
    assert factual.died.all()
    assert factual.length[0] == 2
    assert factual.volume_cm3[0, 1] == MAX_VOLUME_CM3
    assert (factual.volume_cm3[0, 2:] == 0).all()


def test_one_overwhelming_fraction_ends_in_recovery_not_in_a_negative_volume():
    factual = simulate_factual(one_patient(10.0, alpha=2.0), quiet(20, treated=True), 0.0, steps=20)
    assert factual.recovered.all()
    assert factual.length[0] == 2
    assert factual.volume_cm3.min() == 0


def test_a_small_tumour_recovers_when_the_uniform_says_so():
    """One cell's volume is gone with probability exp(-1)."""
    one_cell = 1 / 5.8e8
    for uniform, length in ((0.36, 2), (0.38, 10)):
        noise = replace(quiet(10), recovery=np.full((1, 10), uniform))
        assert simulate_factual(one_patient(one_cell), noise, 0.0, steps=10).length[0] == length


def test_a_day_follows_the_state_equation():
    """V' = 100 (1 + 0.001 ln(14137.17 / 100) - 0.03 * 5 - (0.02 * 2 + 0.002 * 4) + 0.01), by hand."""
    patients = one_patient(100.0, rho=0.001, alpha=0.02, beta_chemo=0.03)
    noise = replace(quiet(3, treated=True), growth=np.array([[9.0, 0.01, -0.02]]))
    factual = simulate_factual(patients, noise, 0.0, steps=3)
    assert factual.treatments[0, :2].all()
    assert factual.volume_cm3[0, 1] == pytest.approx(81.69514, abs=1e-4)
    second = 81.695139 * (1 + 0.001 * np.log(14137.16694 / 81.695139) - 0.03 * 7.5 - 0.048 - 0.02)
    assert factual.volume_cm3[0, 2] == pytest.approx(second, abs=1e-4)


def test_policy_treats_half_at_half_the_largest_diameter_and_always_half_without_confounding():
    assert treatment_probability(np.array([6.5]), 10.0)[0] == 0.5
    np.testing.assert_array_equal(treatment_probability(np.array([0.3, 6.5, 13.0]), 0.0), 0.5)
    assert treatment_probability(np.array([13.0]), 10.0)[0] == pytest.approx(1 / (1 + np.exp(-5)))


def test_policy_sees_fifteen_days_before_today_of_the_own_trajectory(cohort):
    """Recompute every probability from the observed volumes: it explains every treatment."""
    noise, factual = cohort.noise, cohort.factual
    gamma = 10.0 if factual.treatments.mean() < 0.2 else 0.0
    diameter = diameter_cm(factual.volume_cm3)
    for t in range(factual.n_steps - 1):
        active = factual.length - 1 > t
        window = diameter[:, max(t - 15, 0) : max(t, 1)]
        probability = 1 / (1 + np.exp(-gamma / 13.0 * (window.mean(axis=1) - 6.5)))
        expected = (noise.treatment[:, t] < probability[:, None]) & active[:, None]
        np.testing.assert_array_equal(factual.treatments[:, t], expected)


def test_large_tumours_can_be_treated_on_day_0():
    patients = one_patient(float(volume_cm3(12.9)))
    noise = replace(quiet(5), treatment=np.full((1, 5, 2), 0.9))
    assert simulate_factual(patients, noise, 10.0, steps=5).treatments[0, 0].all()


def test_same_seed_gives_the_same_bytes(cohort):
    again = simulate_factual(cohort.patients, cohort.noise, 10.0)
    once_more = simulate_factual(cohort.patients, cohort.noise, 10.0)
    assert again.volume_cm3.tobytes() == once_more.volume_cm3.tobytes()
    first, second = (sample_patients(50, np.random.default_rng(3)) for _ in range(2))
    assert first.initial_volume_cm3.tobytes() == second.initial_volume_cm3.tobytes()


def test_fewer_days_are_the_first_days_of_more(cohort):
    longer, shorter = (simulate_factual(cohort.patients, cohort.noise, 10.0, steps=steps) for steps in (60, 20))
    seen = np.arange(20) < shorter.length[:, None]
    np.testing.assert_array_equal(shorter.volume_cm3[seen], longer.volume_cm3[:, :20][seen])
    np.testing.assert_array_equal(shorter.length, np.minimum(longer.length, 20))


def test_patients_do_not_influence_each_other(cohort):
    rows = np.array([7, 3, 50])
    alone = simulate_factual(cohort.patients.take(rows), cohort.noise.take(rows), 10.0)
    together = simulate_factual(cohort.patients, cohort.noise, 10.0).take(rows)
    np.testing.assert_array_equal(alone.volume_cm3, together.volume_cm3)
    np.testing.assert_array_equal(alone.treatments, together.treatments)


def test_drug_halves_each_day():
    chemo = np.array([[True, False, True, False]])
    np.testing.assert_allclose(drug_concentration(chemo), [[5.0, 2.5, 6.25, 3.125]])
    factual = TumorFactual(np.ones((1, 4)), np.stack([chemo, chemo], axis=-1), np.array([4]))
    np.testing.assert_allclose(factual.concentration, [[5.0, 2.5, 6.25, 3.125]])


def test_a_stored_float32_series_still_shows_its_end(cohort):
    factual = cohort.factual
    stored = TumorFactual(factual.volume_cm3.astype(np.float32), factual.treatments, factual.length)
    np.testing.assert_array_equal(stored.died, factual.died)
    np.testing.assert_array_equal(stored.recovered, factual.recovered)


@pytest.mark.parametrize(
    "noise",
    [
        draw_noise(9, np.random.default_rng(0)),
        draw_noise(10, np.random.default_rng(0), steps=20),
        replace(draw_noise(10, np.random.default_rng(0)), treatment=None),
    ],
    ids=["patients", "days", "policy"],
)
def test_noise_that_is_too_small_is_an_error(noise):
    with pytest.raises(ValueError, match="noise"):
        simulate_factual(sample_patients(10, np.random.default_rng(0)), noise, 10.0)


def test_a_policy_that_knows_the_growth_multiplies_the_odds_of_treatment(cohort):
    """By exp(2 gamma / 13) between fast and slow tumours, at the same mean diameter of the last days (TUMOR-14)."""
    growth_N, noise, gamma = known_growth(cohort.patients), cohort.noise, 10.0
    assert abs(growth_N.mean()) < 0.1
    factual = simulate_factual(cohort.patients, noise, gamma, growth_N=growth_N)
    row, day = np.nonzero((np.arange(factual.n_steps) < factual.length[:, None] - 1) & (np.arange(factual.n_steps) > 0))
    diameter = np.pad(diameter_cm(factual.volume_cm3).cumsum(axis=1), ((0, 0), (1, 0)))
    first = np.maximum(day - 15, 0)
    seen = (diameter[row, day] - diameter[row, first]) / (day - first)
    expected = treatment_probability(seen + growth_N[row], gamma)
    assert np.mean(factual.treatments[row, day], axis=1).mean() == pytest.approx(expected.mean(), rel=0.05)
    odds = [treatment_probability(np.array([5.0 + z]), gamma)[0] for z in (1, -1)]
    assert (odds[0] / (1 - odds[0])) / (odds[1] / (1 - odds[1])) == pytest.approx(np.exp(2 * gamma / 13))
    for z in (-1, 1):
        mine = growth_N[row] == z
        assert factual.treatments[row[mine], day[mine]].mean() == pytest.approx(expected[mine].mean(), rel=0.1)


def test_without_confounding_a_policy_that_knows_the_growth_makes_no_use_of_it(cohort):
    knowing, blind = (
        simulate_factual(cohort.patients, cohort.noise, 0.0, growth_N=growth_N)
        for growth_N in (known_growth(cohort.patients), None)
    )
    np.testing.assert_array_equal(knowing.treatments, blind.treatments)
