"""Glucose under meals and boluses of insulin: Bergman's minimal model (spec GLUCOSE-1 to 4)."""

from typing import Final

import numpy as np
from scipy.special import expit

from simulators.mechanistic.mechanism import Floats, Mechanism, Patients

__all__ = ["Glucose"]

# p1, p2 (per min), p3 (per min² and mU/L) and basal glucose (mg/dL) of the subject of Pacini & Bergman (1986)
TYPICAL: Final = (0.03082, 0.02093, 1.062e-5, 92.0)
PARAMETERS_SD: Final = (0.2, 0.2, 0.2, 0.1)  # of logarithms between patients: ours
INSULIN_DECAY: Final = 0.3  # per min, the same subject
INSULIN_VOLUME: Final = 12.0  # L, Fisher (1991)
MEAL_DECAY: Final = 0.05  # per min, Fisher (1991)
MEAL_RATE: Final = 9.0 / 60.0  # mg/dL/min per g: Fisher's meal of 0.5 mmol/L/min has 60 g here
MEAL_SHARE: Final = 0.1  # of steps with a meal: ours
MEAL_G: Final = (20.0, 80.0)  # least and most: ours
NOISE_SD: Final = 0.05  # of the logarithm of glucose, per step: ours
BOLUS_U: Final = 4.0  # median bolus without need: ours


class Glucose(Mechanism):
    """Glucose (mg/dL), remote insulin (per min), plasma insulin above basal (mU/L), glucose from meals (mg/dL/min).

    A treatment is a bolus in units, an event a meal in grams of carbohydrate.
    """

    step = 30.0  # minutes
    substeps = 30
    mean_event = MEAL_SHARE * sum(MEAL_G) / 2
    mean_noise = NOISE_SD / 2  # at which the factor of `disturb` is 1, its mean

    def draw(self, n: int, rng: np.random.Generator) -> Patients:
        """Draw n patients, lognormal about the typical one, at their own basal glucose."""
        parameters_NP = np.array(TYPICAL) * np.exp(np.array(PARAMETERS_SD) * rng.standard_normal((n, 4)))
        state_NS = np.zeros((n, 4))
        state_NS[:, 0] = parameters_NP[:, 3]
        return Patients(parameters_NP, state_NS, np.zeros((n, 0)))

    def events(self, n: int, steps: int, rng: np.random.Generator) -> Floats:
        """Draw meals in g `[N,T]`, at any time of the day."""
        often, size = (stream.random((n, steps)) for stream in rng.spawn(2))
        return np.where(often < MEAL_SHARE, MEAL_G[0] + (MEAL_G[1] - MEAL_G[0]) * size, 0.0)

    def give(self, state: Floats, treatment: Floats, event: Floats) -> Floats:
        """Return the state with the bolus in plasma and the meal on its way."""
        glucose, remote, insulin, meal = state
        return np.stack([glucose, remote, insulin + 1000 * treatment[0] / INSULIN_VOLUME, meal + MEAL_RATE * event])

    def rate(self, parameters: Floats, state: Floats, treatment: Floats) -> Floats:
        """Return the derivative by minutes."""
        p1, p2, p3, basal = parameters
        glucose, remote, insulin, meal = state
        return np.stack(
            [
                p1 * (basal - glucose) - remote * glucose + meal,
                p3 * insulin - p2 * remote,
                -INSULIN_DECAY * insulin,
                -MEAL_DECAY * meal,
            ]
        )

    def disturb(self, state: Floats, noise: Floats) -> Floats:
        """Return the state with glucose moved by a factor of mean 1."""
        return np.concatenate([state[:1] * np.exp(NOISE_SD * noise - NOISE_SD**2 / 2), state[1:]])

    def measure(self, state: Floats, event: Floats, noise: Floats) -> tuple[Floats, Floats]:
        """Return the carbohydrate of the meal that begins, and glucose."""
        return event[None], state[0]

    def treat(self, covariates: Floats, outcome: Floats, gamma: float, uniform: Floats, normal: Floats) -> Floats:
        """Return boluses in tenths of a unit: more often, and larger, where glucose is high and before meals."""
        need = (outcome - 120.0) / 40.0 + covariates[0] / 30.0
        size = BOLUS_U * np.exp(0.5 * np.tanh(gamma * need) + 0.3 * normal[0])
        return np.where(uniform[:1] < expit(gamma * need - 1.0), np.maximum(size.round(1), 0.1), 0.0)
