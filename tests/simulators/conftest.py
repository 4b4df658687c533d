"""Cohorts that several simulator tests look at, and a path to `benchmarks/`, where the literal loop lives."""

import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from simulators.tumor import (
    TumorFactual,
    TumorNoise,
    TumorPatients,
    draw_noise,
    sample_patients,
    simulate_factual,
)


class Cohort(NamedTuple):
    patients: TumorPatients
    noise: TumorNoise
    factual: TumorFactual


def make_cohort(n: int, gamma: float, seed: int = 0) -> Cohort:
    patient_rng, noise_rng = (np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(2))
    patients, noise = sample_patients(n, patient_rng), draw_noise(n, noise_rng)
    return Cohort(patients, noise, simulate_factual(patients, noise, gamma))


@pytest.fixture(scope="session", params=[10.0, 0.0], ids=["confounded", "randomised"])
def cohort(request: pytest.FixtureRequest) -> Cohort:
    return make_cohort(120, request.param)
