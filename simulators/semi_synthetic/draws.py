"""Chance, one child seed per patient and purpose: neither order nor company changes a patient's world."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "PatientSeeds",
    "draw_path_normals",
    "draw_plans",
    "draw_trend_classes",
    "draw_uniforms",
    "function_generator",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

TREND_SHARES: Final = (0.35, 0.35, 0.30)  # classes of trends
N_OUTCOMES, N_TREATMENTS = 2, 3


class Purpose(IntEnum):
    """What a child seed is for; the numbers are part of what a seed means."""

    FUNCTIONS = 0
    TREND = 1
    PATH = 2
    TREATMENT = 3
    PLANS = 4


@dataclass(frozen=True, slots=True)
class PatientSeeds:
    """The seed of a data set and the identifiers of N of its patients `[N]`, not negative."""

    seed: int
    subject_id: Ints

    def __len__(self) -> int:
        return len(self.subject_id)

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_] | slice) -> Self:
        """Return the seeds of the given patients, in that order."""
        return type(self)(self.seed, self.subject_id[rows])

    def generators(self, purpose: Purpose) -> Iterator[np.random.Generator]:
        """Yield one generator per patient."""
        for subject in self.subject_id.tolist():
            yield np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(purpose, subject)))


def function_generator(seed: int) -> np.random.Generator:
    """Return the generator of what all patients of a data set have in common."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(Purpose.FUNCTIONS,)))


def draw_trend_classes(seeds: PatientSeeds) -> Ints:
    """Return the trend class of each patient and outcome `[N,2]`."""
    uniform = np.empty((len(seeds), N_OUTCOMES))
    for i, rng in enumerate(seeds.generators(Purpose.TREND)):
        uniform[i] = rng.random(N_OUTCOMES)
    return np.searchsorted(np.cumsum(TREND_SHARES)[:-1], uniform, side="right")


def draw_path_normals(seeds: PatientSeeds, length: NDArray[np.integer], n_steps: int) -> Floats:
    """Return the standard normal draws `[N,T,2]` of the paths; 0 beyond the length."""
    normal = np.zeros((len(seeds), n_steps, N_OUTCOMES))
    for i, (n, rng) in enumerate(zip(length.tolist(), seeds.generators(Purpose.PATH), strict=True)):
        normal[i, :n] = rng.standard_normal((n, N_OUTCOMES))
    return normal


def draw_uniforms(seeds: PatientSeeds, length: NDArray[np.integer], n_steps: int) -> Floats:
    """Return the uniforms `[N,T,3]` that decide on factual treatments; 1, which treats nobody, beyond the length."""
    uniform = np.ones((len(seeds), n_steps, N_TREATMENTS))
    for i, (n, rng) in enumerate(zip(length.tolist(), seeds.generators(Purpose.TREATMENT), strict=True)):
        uniform[i, :n] = rng.random((n, N_TREATMENTS))
    return uniform


def draw_plans(seeds: PatientSeeds, n_origins: Ints, n_plans: int, n_hours: int) -> NDArray[np.bool_]:
    """Return random plans `[P,K,H,3]`, fair coins: `n_plans` for each of the `n_origins [N]` of each patient."""
    plan = np.empty((int(n_origins.sum()), n_plans, n_hours, N_TREATMENTS), dtype=np.bool_)
    first = 0
    for n, rng in zip(n_origins.tolist(), seeds.generators(Purpose.PLANS), strict=True):
        plan[first : first + n] = rng.integers(2, size=(n, *plan.shape[1:]), dtype=np.bool_)
        first += n
    return plan
