"""How a tumour grows, shrinks under treatment, and ends (spec TUMOR-4 to 6); shared by all simulations."""

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from simulators.tumor.patients import TumorPatients, volume_cm3

__all__ = ["CARRYING_CAPACITY_CM3", "MAX_VOLUME_CM3", "TumorNoise", "draw_noise", "drug_concentration"]

Floats = NDArray[np.float64]
Noise = NDArray[np.float32] | NDArray[np.float64]
Bools = NDArray[np.bool_]

MAX_DIAMETER_CM: Final = 13.0  # cm: death, Geng, Paganetti & Grassberger 2017, Sci. Rep. 7:13542
MAX_VOLUME_CM3: Final = float(volume_cm3(MAX_DIAMETER_CM))  # cm³: death and normaliser of the RMSE, Geng et al. 2017
CARRYING_CAPACITY_CM3: Final = float(volume_cm3(30.0))  # cm³: Gompertz limit, Geng et al. 2017
CELLS_PER_CM3: Final = 5.8e8  # cells/cm³: recovery has probability exp(-cells), Geng et al. 2017
CHEMO_DOSE: Final = 5.0  # units of concentration per application, Geng et al. 2017
CHEMO_HALF_LIFE_DAYS: Final = 1.0  # days, Geng et al. 2017
RADIO_DOSE_GY: Final = 2.0  # Gy per fraction, Geng et al. 2017
GROWTH_NOISE_SD: Final = 0.01  # per day: sd of e_t, Lim, Alaa & van der Schaar 2018 (recurrent MSN)
CARRY_OVER: Final = 0.5 ** (1.0 / CHEMO_HALF_LIFE_DAYS)  # share of the drug left after one day
LOG_FLOOR_CM3: Final = 1e-300  # keeps the logarithm of an extinct tumour finite; 0 times it stays 0


@dataclass(frozen=True, slots=True)
class TumorNoise:
    """What chance holds for N patients on each absolute day: the same under every treatment.

    `growth [N, days]` is e_t, the noise of the step that leads to day t, and `recovery [N, days]` the uniform u_t in
    (0, 1] that decides on recovery on day t. Day 0 is unused. `treatment [N, steps, 2]` holds the policy's uniforms
    for chemotherapy and radiotherapy; only the factual simulation needs it. `draw_noise` gives float32, so that a file
    of float32 holds exactly what was simulated; the arithmetic is float64.
    """

    growth: Noise
    recovery: Noise
    treatment: Noise | None = None

    def __len__(self) -> int:
        return int(self.growth.shape[0])

    @property
    def n_days(self) -> int:
        """Return the number of days, from day 0, that have noise."""
        return int(self.growth.shape[1])

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_] | slice) -> Self:
        """Return the noise of the given patients, in that order."""
        treatment = None if self.treatment is None else self.treatment[rows]
        return type(self)(self.growth[rows], self.recovery[rows], treatment)


def draw_noise(n: int, rng: np.random.Generator, *, steps: int = 60, horizon: int = 6) -> TumorNoise:
    """Draw the noise of n patients: `steps` observed days and `horizon` days beyond.

    Growth, recovery and treatment have child streams of `rng`, so the noise of the first m of n patients does not
    depend on n.
    """
    growth_rng, recovery_rng, treatment_rng = rng.spawn(3)
    days = (n, steps + horizon)
    return TumorNoise(
        growth=growth_rng.standard_normal(days, dtype=np.float32) * np.float32(GROWTH_NOISE_SD),
        recovery=np.float32(1.0) - recovery_rng.random(days, dtype=np.float32),
        treatment=treatment_rng.random((n, steps, 2), dtype=np.float32),
    )


def drug_concentration(chemo_NT: Bools) -> Floats:
    """Return the concentration `[N,T]` after each day's dose: C_t = C_{t-1}/2 + 5 chemo_t."""
    return accumulate_drug(CHEMO_DOSE * chemo_NT.astype(np.float64))


def accumulate_drug(dose_NT: Floats) -> Floats:
    """Return what is in the body after each day's dose `[N,T]`, in the unit of the dose."""
    total_NT = dose_NT.copy()
    for t in range(1, dose_NT.shape[1]):
        total_NT[:, t] += CARRY_OVER * total_NT[:, t - 1]
    return total_NT


@dataclass(frozen=True, slots=True)
class Dynamics:
    """The state update V' = V (growth - rho ln V - drug kill - radio kill), its constants per patient and day.

    `growth_ND` is 1 + rho ln K + e, `recovery_cm3_ND` the volume at or below which the tumour is gone on that day,
    `chemo_kill_N` the kill of one dose on its first day and `radio_kill_N` that of one fraction.
    """

    growth_ND: Floats
    recovery_cm3_ND: Floats
    rho_N: Floats
    chemo_kill_N: Floats
    radio_kill_N: Floats

    @classmethod
    def of(cls, patients: TumorPatients, noise: TumorNoise) -> Self:
        """Return the dynamics of these patients under this noise."""
        return cls(
            growth_ND=(1.0 + patients.rho * np.log(CARRYING_CAPACITY_CM3))[:, None] + noise.growth,
            # u < exp(-cells V) <=> V < -ln(u) / cells: one logarithm per day instead of one per simulated volume
            recovery_cm3_ND=-np.log(noise.recovery.astype(np.float64)) / CELLS_PER_CM3,
            rho_N=patients.rho,
            chemo_kill_N=patients.beta_chemo * CHEMO_DOSE,
            radio_kill_N=patients.alpha * RADIO_DOSE_GY + patients.beta * RADIO_DOSE_GY**2,
        )


def next_volume(
    volume: Floats,
    dead: Bools,
    *,
    growth: Floats,
    rho: Floats,
    drug_kill: Floats,
    radio_kill: Floats,
    radio: Bools,
    recovery_cm3: Floats,
) -> tuple[Floats, Bools]:
    """Return the next day's volume in cm³, clipped to [0, V_max] and absorbed there, and who is dead by then.

    The arguments broadcast to the shape of `drug_kill`; `volume` and `dead` may have fewer rows: treatments then branch
    from a common state. An extinct tumour (volume 0) stays extinct, because 0 <= `recovery_cm3`.
    """
    rate = np.maximum(volume, LOG_FLOOR_CM3)
    np.log(rate, out=rate)
    rate *= rho
    np.subtract(growth, rate, out=rate)
    raw = np.subtract(rate, drug_kill, out=rate if rate.shape == drug_kill.shape else None)
    np.subtract(raw, radio_kill, out=raw, where=radio)
    raw *= volume
    died = raw >= MAX_VOLUME_CM3
    np.copyto(raw, 0.0, where=raw <= recovery_cm3)
    if dead.any() or died.any():  # rare
        dead = died | dead
        np.copyto(raw, MAX_VOLUME_CM3, where=dead)
    return raw, dead
