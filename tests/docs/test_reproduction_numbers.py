"""The figures of docs/reproduction.md that costar itself computed."""

import numpy as np

from benchmarks.reference_policy import cohort, last_value_rmse, with_policy_of_another_patient
from simulators.tumor import simulate_factual


def test_the_references_test_policy_makes_the_source_more_than_twice_as_hard_and_tau_1_the_hardest() -> None:
    patients, noise = cohort(10, 300)
    ours = last_value_rmse(patients, noise, simulate_factual(patients, noise, 10.0))
    theirs = last_value_rmse(patients, noise, with_policy_of_another_patient(patients, noise, 10.0))
    assert 1.4 < ours.mean() < 2.6
    assert theirs.mean() > 2 * ours.mean()
    assert ours.argmin() == 0
    assert theirs.argmax() == 0


def test_without_confounding_the_test_policy_does_not_matter() -> None:
    patients, noise = cohort(10, 300)
    ours = simulate_factual(patients, noise, 0.0)
    theirs = with_policy_of_another_patient(patients, noise, 0.0)
    assert np.array_equal(ours.treatments, theirs.treatments)
    assert np.array_equal(ours.volume_cm3, theirs.volume_cm3)
