"""The figures of docs/reproduction.md that costar itself computed."""

import numpy as np

from simulators.tumor import (
    MAX_VOLUME_CM3,
    TumorFactual,
    TumorNoise,
    TumorPatients,
    diameter_cm,
    draw_noise,
    one_step_counterfactuals,
    sample_patients,
    sequence_counterfactuals,
    simulate_factual,
    treatment_probability,
)

N_PATIENTS, N_DAYS, N_OPTIONS = 300, 60, 4


def cohort(seed: int) -> tuple[TumorPatients, TumorNoise]:
    rng = np.random.default_rng(seed)
    return sample_patients(N_PATIENTS, rng), draw_noise(N_PATIENTS, rng)


def with_policy_of_another_patient(patients: TumorPatients, noise: TumorNoise, gamma: float) -> TumorFactual:
    """The reference's test policy: patient i is treated after row i of the table of all answers so far.

    That row is the series of an early patient, cut after some day, and zeros beyond. Our policy and dynamics do the
    simulating: the patient's uniforms are moved to where our policy decides as the reference's would.
    """
    rows: list[np.ndarray] = []
    single = []
    for i in range(len(patients)):
        seen = rows[i] if i < len(rows) else np.zeros(N_DAYS)
        mean_cm = np.array([diameter_cm(seen[max(t - 15, 0) : t + 1]).mean() for t in range(N_DAYS)])
        assert noise.treatment is not None
        given = noise.treatment[i] < treatment_probability(mean_cm, gamma)[:, None]
        forced = TumorNoise(noise.growth[[i]], noise.recovery[[i]], np.where(given, -1.0, 2.0)[None])
        single.append(simulate_factual(patients.take(np.array([i])), forced, gamma))
        volume = single[-1].volume_cm3[0]
        for t in range(int(single[-1].length[0]) - 1 if len(rows) < len(patients) else 0):
            rows += [np.where(np.arange(N_DAYS) <= t + 1, volume, 0.0)] * N_OPTIONS
    volumes, treatments, lengths = zip(*((f.volume_cm3, f.treatments, f.length) for f in single), strict=True)
    return TumorFactual(np.concatenate(volumes), np.concatenate(treatments), np.concatenate(lengths))


def last_value_rmse(patients: TumorPatients, noise: TumorNoise, factual: TumorFactual) -> np.ndarray:
    """RMSE of the last value carried forward at tau = 1..6, in percent of the largest volume."""
    one, many = (
        one_step_counterfactuals(patients, noise, factual),
        sequence_counterfactuals(patients, noise, factual),
    )
    errors = [q.volume_cm3 - factual.volume_cm3[q.subject, q.origin][:, None] for q in (one, many)]
    per_step = [np.square(error).mean(axis=0) for error in errors]
    return 100 / MAX_VOLUME_CM3 * np.sqrt(np.concatenate([per_step[0], per_step[1][1:]]))


def test_the_references_test_policy_makes_the_source_more_than_twice_as_hard_and_tau_1_the_hardest() -> None:
    patients, noise = cohort(10)
    ours = last_value_rmse(patients, noise, simulate_factual(patients, noise, 10.0))
    theirs = last_value_rmse(patients, noise, with_policy_of_another_patient(patients, noise, 10.0))
    assert 1.4 < ours.mean() < 2.6
    assert theirs.mean() > 2 * ours.mean()
    assert ours.argmin() == 0
    assert theirs.argmax() == 0


def test_without_confounding_the_test_policy_does_not_matter() -> None:
    patients, noise = cohort(10)
    ours = simulate_factual(patients, noise, 0.0)
    theirs = with_policy_of_another_patient(patients, noise, 0.0)
    assert np.array_equal(ours.treatments, theirs.treatments)
    assert np.array_equal(ours.volume_cm3, theirs.volume_cm3)
