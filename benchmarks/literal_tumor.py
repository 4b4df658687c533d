"""The yardstick: the tumour simulation as spec TUMOR-1 to 10 read, one patient and one day at a time.

Plain Python floats and `math`, which is several times faster than the same loop on numpy scalars: a hard yardstick.
`tests/simulators/test_tumor_literal.py` holds the vectorised simulator against it.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from simulators.tumor import TumorNoise, TumorPatients

__all__ = [
    "Chance",
    "Query",
    "Story",
    "Tumor",
    "chance_of",
    "draw_chance",
    "one_step_queries",
    "sequence_queries",
    "simulate_story",
    "sliding_options",
    "tumor_of",
]

Treatment = tuple[bool, bool]
Query = tuple[int, list[Treatment], list[float]]  # origin, plan, volumes

V_MAX = 4 / 3 * math.pi * 6.5**3
CAPACITY = 4 / 3 * math.pi * 15.0**3


@dataclass
class Tumor:
    """One patient's parameters."""

    initial_volume: float
    alpha: float
    beta: float
    rho: float
    beta_chemo: float


@dataclass
class Chance:
    """One patient's noise by absolute day."""

    growth: Sequence[float]
    recovery: Sequence[float]
    chemo: Sequence[float]
    radio: Sequence[float]


@dataclass
class Story:
    """One patient's factual days; the last volume has no treatment."""

    volumes: list[float]
    treatments: list[Treatment]
    concentrations: list[float]


def tumor_of(patients: TumorPatients, i: int) -> Tumor:
    names = ("initial_volume_cm3", "alpha", "beta", "rho", "beta_chemo")
    return Tumor(*(float(getattr(patients, name)[i]) for name in names))


def chance_of(noise: TumorNoise, i: int) -> Chance:
    if noise.treatment is None:
        raise ValueError("the loop needs the policy's uniforms")
    chemo, radio = noise.treatment[i].astype(float).T.tolist()
    return Chance(noise.growth[i].astype(float).tolist(), noise.recovery[i].astype(float).tolist(), chemo, radio)


def draw_chance(rng: random.Random, steps: int, horizon: int) -> Chance:
    days = steps + horizon
    return Chance(
        [rng.gauss(0.0, 0.01) for _ in range(days)],
        [rng.random() for _ in range(days)],
        [rng.random() for _ in range(steps)],
        [rng.random() for _ in range(steps)],
    )


def diameter(volume: float) -> float:
    return 2 * float((volume / (4 / 3 * math.pi)) ** (1 / 3))


def raw_volume(tumor: Tumor, volume: float, concentration: float, dose: float, growth: float) -> float:
    shrink = tumor.beta_chemo * concentration + tumor.alpha * dose + tumor.beta * dose**2
    return volume * (1 + tumor.rho * math.log(CAPACITY / volume) - shrink + growth)


def step(tumor: Tumor, chance: Chance, volume: float, concentration: float, dose: float, day: int) -> float:
    """Return the volume of `day`, which follows one of the day before."""
    if volume in (0.0, V_MAX):
        return volume
    volume = raw_volume(tumor, volume, concentration, dose, chance.growth[day])
    if volume >= V_MAX:
        return V_MAX
    if volume <= 0 or chance.recovery[day] < math.exp(-5.8e8 * volume):
        return 0.0
    return volume


def simulate_story(tumor: Tumor, chance: Chance, gamma: float, steps: int = 60) -> Story:
    volumes, treatments, concentrations = [tumor.initial_volume], [], []
    concentration = 0.0
    for t in range(steps - 1):
        if volumes[t] in (0.0, V_MAX):
            break
        window = volumes[max(t - 15, 0) : max(t, 1)]
        seen = sum(diameter(v) for v in window) / len(window)
        probability = 1 / (1 + math.exp(-gamma / 13.0 * (seen - 6.5)))
        chemo, radio = chance.chemo[t] < probability, chance.radio[t] < probability
        concentration = concentration / 2 + 5.0 * chemo
        treatments.append((chemo, radio))
        concentrations.append(concentration)
        volumes.append(step(tumor, chance, volumes[t], concentration, 2.0 * radio, t + 1))
    return Story(volumes, treatments, concentrations)


def one_step_queries(tumor: Tumor, chance: Chance, story: Story) -> list[Query]:
    queries: list[Query] = []
    for t, given in enumerate(story.treatments):
        before = story.concentrations[t - 1] / 2 if t else 0.0
        options = sorted(product((False, True), repeat=2), key=lambda option, given=given: option != given)
        for chemo, radio in options:
            volume = step(tumor, chance, story.volumes[t], before + 5.0 * chemo, 2.0 * radio, t + 1)
            queries.append((t, [(chemo, radio)], [volume]))
    return queries


def sliding_options(planned: int) -> list[list[Treatment]]:
    chemo = [[(j == k, False) for j in range(planned)] for k in range(planned)]
    radio = [[(False, j == k) for j in range(planned)] for k in range(planned)]
    return chemo + radio


def sequence_queries(tumor: Tumor, chance: Chance, story: Story, horizon: int = 6) -> list[Query]:
    queries: list[Query] = []
    options = sliding_options(horizon - 1)
    for t, given in enumerate(story.treatments):
        for option in options:
            volume, concentration = story.volumes[t + 1], story.concentrations[t]
            volumes = [volume]
            for j, (chemo, radio) in enumerate(option):
                concentration = concentration / 2 + 5.0 * chemo
                volume = step(tumor, chance, volume, concentration, 2.0 * radio, t + 2 + j)
                volumes.append(volume)
            queries.append((t, [given, *option], volumes))
    return queries
