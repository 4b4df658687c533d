"""Random Fourier functions of covariates: draws from a Gaussian process prior (spec ICU-7)."""

from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from simulators.semi_synthetic.draws import function_generator
from simulators.semi_synthetic.mechanism import OUTCOMES, TREATMENTS, Mechanism, columns

__all__ = ["CovariateFunctions", "FourierFunction", "draw_functions"]

Floats = NDArray[np.float64]

N_FREQUENCIES: Final = 100
SCALE_UNIT: Final = 10.0  # the prior sd of a function is its scale / 10
CHUNK: Final = 8192  # rows evaluated at once: a hundred cosines of them stay in the cache


@dataclass(frozen=True, slots=True)
class FourierFunction:
    """f(x) = sum_k weight_k sqrt(2/K) cos(frequency_k . x + phase_k) - offset, x = the `columns` of the covariates."""

    columns: tuple[int, ...]
    frequency: Floats
    phase: Floats
    weight: Floats
    offset: float = 0.0

    @classmethod
    def draw(cls, mechanism: Mechanism, rng: np.random.Generator) -> Self:
        """Draw a function from the prior with the mechanism's covariates, gamma and scale."""
        at = columns(mechanism)
        return cls(
            columns=tuple(at),
            frequency=np.sqrt(2.0 * mechanism.gamma) * rng.standard_normal((N_FREQUENCIES, len(at))),
            phase=rng.uniform(0.0, 2.0 * np.pi, N_FREQUENCIES),
            weight=mechanism.scale / SCALE_UNIT * rng.standard_normal(N_FREQUENCIES),
        )

    def __call__(self, covariates: NDArray[np.floating]) -> Floats:
        """Return the values `[M]` at covariates `[M,25]`.

        Each row is computed element by element, in one order of additions: its value does not depend on other rows.
        """
        x_DM = np.ascontiguousarray(covariates[:, list(self.columns)].T, dtype=np.float64)
        value_M = np.zeros(x_DM.shape[1])
        amplitude = np.sqrt(2.0 / len(self.weight)) * self.weight
        for lo in range(0, len(value_M), CHUNK):
            x_Dm, value_m = x_DM[:, lo : lo + CHUNK], value_M[lo : lo + CHUNK]
            for frequency_D, phase, a in zip(self.frequency, self.phase, amplitude, strict=True):
                angle = np.full(value_m.shape, phase)
                for frequency, x_m in zip(frequency_D, x_Dm, strict=True):
                    angle += frequency * x_m
                value_m += a * np.cos(angle, out=angle)
        return value_M - self.offset


@dataclass(frozen=True, slots=True)
class CovariateFunctions:
    """The random functions of a data set, one per outcome and one per treatment; all patients share them."""

    outcomes: tuple[FourierFunction, ...]
    treatments: tuple[FourierFunction, ...]

    def centred(self, covariates: NDArray[np.floating]) -> Self:
        """Return the functions less their means over covariates `[M,25]`, which should be those of source-train.

        Their length-scales are long: a function is nearly an offset with sd scale/10 and a small slope, and a large
        offset makes a treatment (almost) certain or impossible. Centring removes that luck of the seed.
        """
        return type(self)(
            outcomes=tuple(_centred(function, covariates) for function in self.outcomes),
            treatments=tuple(_centred(function, covariates) for function in self.treatments),
        )


def draw_functions(seed: int) -> CovariateFunctions:
    """Draw the five functions of a data set."""
    *outcome_rngs, rng_t1, rng_t2, rng_t3 = function_generator(seed).spawn(len(OUTCOMES) + len(TREATMENTS))
    return CovariateFunctions(
        outcomes=tuple(FourierFunction.draw(m, rng) for m, rng in zip(OUTCOMES, outcome_rngs, strict=True)),
        treatments=tuple(
            FourierFunction.draw(m, rng) for m, rng in zip(TREATMENTS, (rng_t1, rng_t2, rng_t3), strict=True)
        ),
    )


def _centred(function: FourierFunction, covariates: NDArray[np.floating]) -> FourierFunction:
    return replace(function, offset=function.offset + float(function(covariates).mean()))
