"""The priors of virtual patients (spec TUMOR-2, TUMOR-3, TUMOR-13)."""

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import truncnorm

from simulators.tumor import (
    CARRYING_CAPACITY_CM3,
    MAX_VOLUME_CM3,
    STAGES,
    diameter_cm,
    draw_noise,
    sample_patients,
    volume_cm3,
)

N = 100_000


@pytest.fixture(scope="module")
def patients():
    return sample_patients(N, np.random.default_rng(1))


def test_limits_are_spheres_of_13_and_30_cm():
    assert pytest.approx(1150.34651, abs=1e-5) == MAX_VOLUME_CM3
    assert pytest.approx(14137.16694, abs=1e-5) == CARRYING_CAPACITY_CM3


@given(st.floats(0.0, 30.0))
def test_diameter_inverts_volume(diameter):
    assert float(diameter_cm(volume_cm3(diameter))) == pytest.approx(diameter, abs=1e-12)


def test_stages_occur_as_often_as_observed(patients):
    counts = np.array([stage.count for stage in STAGES])
    assert counts.sum() == 22954
    np.testing.assert_allclose(np.bincount(patients.stage, minlength=5) / N, counts / counts.sum(), atol=0.005)


def test_initial_diameters_stay_within_their_stage(patients):
    for code, stage in enumerate(STAGES):
        diameter = diameter_cm(patients.initial_volume_cm3[patients.stage == code])
        assert stage.lo_cm - 1e-12 <= diameter.min()
        assert diameter.max() <= stage.hi_cm + 1e-12


def test_initial_volumes_follow_the_truncated_log_normals(patients):
    """The law's own mean is 101.1 and its median 4.5; 92.9 and 3.6 are one draw of 4,000 patients.

    `test_tumor_acceptance.py` repeats that very draw.
    """
    p = (np.arange(20_000) + 0.5) / 20_000
    volumes = []
    for stage in STAGES:
        lo, hi = ((np.log(bound) - stage.mu) / stage.sigma for bound in (stage.lo_cm, stage.hi_cm))
        volumes.append(volume_cm3(np.exp(stage.mu + stage.sigma * truncnorm.ppf(p, lo, hi))))
    weight = np.repeat([stage.count for stage in STAGES], len(p)).astype(float)
    pooled = np.concatenate(volumes)
    assert patients.initial_volume_cm3.mean() == pytest.approx(np.average(pooled, weights=weight), rel=0.05)
    for volume in (0.05, 0.5, 4.5, 50.0, 500.0):
        expected = np.average(pooled < volume, weights=weight)
        assert (patients.initial_volume_cm3 < volume).mean() == pytest.approx(expected, abs=0.006)


def test_response_parameters_have_the_stated_moments():
    patients = sample_patients(10_000, np.random.default_rng(2))
    assert patients.alpha.mean() == pytest.approx(0.179, rel=0.05)
    assert patients.alpha.std() == pytest.approx(0.111, rel=0.05)
    assert patients.rho.mean() == pytest.approx(0.0063, rel=0.05)
    assert patients.rho.std() == pytest.approx(0.0044, rel=0.05)
    assert patients.beta_chemo.mean() == pytest.approx(0.0289, rel=0.05)
    assert patients.beta_chemo.std() == pytest.approx(0.0015, rel=0.05)
    np.testing.assert_allclose(np.bincount(patients.patient_type)[1:] / 10_000, 1 / 3, rtol=0.05)


def test_response_parameters_are_positive_and_beta_is_a_tenth_of_alpha(patients):
    assert min(patients.alpha.min(), patients.rho.min(), patients.beta_chemo.min()) > 0
    np.testing.assert_allclose(patients.beta, patients.alpha / 10)


def test_types_1_and_3_respond_better_to_their_treatment(patients):
    alpha, beta_chemo = (
        [values[patients.patient_type == kind].mean() for kind in (1, 2, 3)]
        for values in (patients.alpha, patients.beta_chemo)
    )
    assert alpha[0] - (alpha[1] + alpha[2]) / 2 == pytest.approx(0.1 * 0.0398, abs=0.002)
    assert beta_chemo[2] - (beta_chemo[0] + beta_chemo[1]) / 2 == pytest.approx(0.1 * 0.028, abs=2e-5)


def test_growth_goes_with_radiosensitivity(patients):
    assert np.corrcoef(patients.alpha, patients.rho)[0, 1] > 0.6


def test_first_patients_do_not_depend_on_how_many_are_drawn():
    few, many = (sample_patients(n, np.random.default_rng(3)) for n in (7, 500))
    for field in fields(few):
        np.testing.assert_array_equal(getattr(few, field.name), getattr(many, field.name)[:7])
    few_noise, many_noise = (draw_noise(n, np.random.default_rng(3)) for n in (7, 500))
    np.testing.assert_array_equal(few_noise.growth, many_noise.growth[:7])
    np.testing.assert_array_equal(few_noise.recovery, many_noise.recovery[:7])
    np.testing.assert_array_equal(few_noise.treatment, many_noise.treatment[:7])


def test_two_draws_from_one_generator_differ():
    rng = np.random.default_rng(4)
    assert not np.array_equal(sample_patients(5, rng).alpha, sample_patients(5, rng).alpha)


def test_noise_has_a_standard_deviation_of_one_percent_and_covers_the_horizon():
    noise = draw_noise(2_000, np.random.default_rng(5), steps=60, horizon=6)
    assert noise.growth.shape == noise.recovery.shape == (2_000, 66)
    assert noise.treatment is not None
    assert noise.treatment.shape == (2_000, 60, 2)
    assert noise.growth.std() == pytest.approx(0.01, rel=0.01)
    assert noise.recovery.min() > 0
    assert noise.recovery.max() <= 1


def test_rows_can_be_taken(patients):
    rows = np.array([5, 2])
    taken, noise = patients.take(rows), draw_noise(9, np.random.default_rng(6)).take(rows)
    assert len(taken) == len(noise) == 2
    assert taken.alpha[0] == patients.alpha[5]
