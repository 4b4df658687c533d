"""The vectorised simulator against the equations written as a plain loop over patients and days."""

import numpy as np
import pytest

from benchmarks.literal_tumor import chance_of, one_step_queries, sequence_queries, simulate_story, tumor_of
from simulators.tumor import (
    MAX_VOLUME_CM3,
    TumorNoise,
    draw_noise,
    one_step_counterfactuals,
    sample_patients,
    sequence_counterfactuals,
    simulate_factual,
)


@pytest.fixture(scope="module", params=[10.0, 0.0], ids=["confounded", "randomised"])
def world(request):
    """Return ordinary patients, patients who recover, and large tumours in wild growth, of whom some die."""
    rng, gamma = np.random.default_rng(21), request.param
    patients, noise = sample_patients(2_000, rng), draw_noise(2_000, rng)
    recovered = np.flatnonzero(simulate_factual(patients, noise, gamma).recovered)[:15]
    large = patients.initial_volume_cm3.argsort()[-15:]
    rows = np.concatenate([np.arange(15), recovered, large])
    growth = noise.growth.copy()
    growth[large] *= 20
    patients, noise = patients.take(rows), TumorNoise(growth, noise.recovery, noise.treatment).take(rows)
    subjects = [(tumor_of(patients, i), chance_of(noise, i)) for i in range(len(rows))]
    stories = [(tumor, chance, simulate_story(tumor, chance, gamma)) for tumor, chance in subjects]
    return patients, noise, simulate_factual(patients, noise, gamma), stories


def test_factual_series_are_those_of_the_loop(world):
    _, _, factual, stories = world
    for i, (_, _, story) in enumerate(stories):
        length = factual.length[i]
        assert length == len(story.volumes)
        np.testing.assert_allclose(factual.volume_cm3[i, :length], story.volumes, rtol=1e-9, atol=1e-9)
        np.testing.assert_array_equal(factual.treatments[i, : length - 1], np.array(story.treatments))
        np.testing.assert_allclose(factual.concentration[i, : length - 1], story.concentrations, rtol=1e-12)
    assert factual.recovered.sum() >= 15


@pytest.mark.parametrize(
    ("vectorised", "loop"),
    [(one_step_counterfactuals, one_step_queries), (sequence_counterfactuals, sequence_queries)],
    ids=["one_step", "sequence"],
)
def test_counterfactuals_are_those_of_the_loop(world, vectorised, loop):
    *parts, stories = world
    fast = vectorised(*parts)
    slow = [(i, *query) for i, story in enumerate(stories) for query in loop(*story)]
    subject, origin, plan, volume = zip(*slow, strict=True)
    np.testing.assert_array_equal(fast.subject, subject)
    np.testing.assert_array_equal(fast.origin, origin)
    np.testing.assert_array_equal(fast.treatments, np.array(plan))
    np.testing.assert_allclose(fast.volume_cm3, np.array(volume), rtol=1e-9, atol=1e-9)
    assert (fast.volume_cm3 == 0).any()
    assert (fast.volume_cm3 == MAX_VOLUME_CM3).any()
