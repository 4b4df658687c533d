"""The factual simulation: tumours under a policy that treats large ones more often (spec TUMOR-7, TUMOR-8)."""

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from simulators.tumor.dynamics import (
    CARRY_OVER,
    MAX_DIAMETER_CM,
    MAX_VOLUME_CM3,
    Bools,
    Dynamics,
    Floats,
    TumorNoise,
    drug_concentration,
    next_volume,
)
from simulators.tumor.patients import TumorPatients, diameter_cm

__all__ = ["TumorFactual", "simulate_factual", "treatment_probability"]

POLICY_WINDOW_DAYS: Final = 15  # days that the policy looks back, Lim, Alaa & van der Schaar 2018 (recurrent MSN)
POLICY_OFFSET_CM: Final = MAX_DIAMETER_CM / 2.0  # cm: mean diameter treated with probability 1/2, Lim et al. 2018
FAST_RHO: Final = 0.00536  # per day: median of the growth of `sample_patients`
FAST_CM: Final = 1.0  # cm by which a policy that knows the growth takes fast tumours for larger, slow ones for smaller


@dataclass(frozen=True, slots=True)
class TumorFactual:
    """What was observed of N patients over T days.

    `volume_cm3 [N,T]` is observed on day t, before `treatments [N,T,2]` (chemotherapy, radiotherapy) of day t, whose
    effect first shows on day t+1. `length [N]` counts the observed days, 1..T. There is no treatment on the last
    observed day, and days beyond hold zeros. float32 volumes, as a panel stores them, are fine.
    """

    volume_cm3: Floats | NDArray[np.float32]
    treatments: Bools
    length: NDArray[np.int64]

    def __len__(self) -> int:
        return int(self.volume_cm3.shape[0])

    @property
    def n_steps(self) -> int:
        """Return T."""
        return int(self.volume_cm3.shape[1])

    @property
    def concentration(self) -> Floats:
        """Return the drug concentration `[N,T]` after each day's dose."""
        return drug_concentration(self.treatments[:, :, 0])

    @property
    def last_volume_cm3(self) -> Floats:
        """Return the last observed volume `[N]`."""
        return self.volume_cm3[np.arange(len(self)), self.length - 1].astype(np.float64)

    @property
    def died(self) -> Bools:
        """Return who reached the largest volume `[N]`."""
        # compared in float32, to which a panel has rounded the largest volume
        return np.asarray(self.last_volume_cm3.astype(np.float32) >= np.float32(MAX_VOLUME_CM3))

    @property
    def recovered(self) -> Bools:
        """Return whose tumour is gone `[N]`."""
        return np.asarray(self.last_volume_cm3 <= 0.0)

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_] | slice) -> Self:
        """Return the given patients, in that order."""
        return type(self)(self.volume_cm3[rows], self.treatments[rows], self.length[rows])


def treatment_probability(mean_diameter_cm: Floats, gamma: float) -> Floats:
    """Return the probability that the policy gives a treatment, after the mean diameter of its look-back window."""
    return np.asarray(expit(gamma / MAX_DIAMETER_CM * (mean_diameter_cm - POLICY_OFFSET_CM)))


def known_growth(patients: TumorPatients) -> NDArray[np.int8]:
    """Return what a policy that knows more than volumes sees of each patient's growth: 1 if it is fast, else -1."""
    return np.where(patients.rho > FAST_RHO, 1, -1).astype(np.int8)


def simulate_factual(
    patients: TumorPatients,
    noise: TumorNoise,
    gamma: float,
    *,
    steps: int = 60,
    growth_N: NDArray[np.int8] | None = None,
    seen_NT: Bools | None = None,
) -> TumorFactual:
    """Simulate `steps` days under the policy of strength `gamma`, until death or recovery.

    On day t the policy sees the mean diameter of days max(t-15, 0) to t-1 of the patient's own trajectory (of day 0 on
    day 0), and may treat from day 0 on.

    Args:
        patients: N patients.
        noise: their noise, with the policy's uniforms, over at least `steps` days.
        gamma: confounding of both treatments; 0 treats with probability 1/2.
        steps: days to simulate, T.
        growth_N: what the policy knows of each patient's growth, of `known_growth` (spec TUMOR-14); None for nothing.
        seen_NT: days on which patients are seen and may be treated, day 0 among them (spec TUMOR-16); None for all.

    Raises:
        ValueError: the noise lacks the policy's uniforms, or covers too few patients or days.
    """
    n, uniform = len(patients), noise.treatment
    if uniform is None:
        raise ValueError("the factual simulation needs the policy's uniforms: noise.treatment")
    if len(noise) != n or len(uniform) != n or noise.n_days < steps or uniform.shape[1] < steps:
        raise ValueError(f"the noise must cover {n} patients and {steps} days")
    dynamics = Dynamics.of(patients, noise)
    growth_DN, recovery_cm3_DN = dynamics.growth_ND.T.copy(), dynamics.recovery_cm3_ND.T.copy()
    uniform_T2N = np.ascontiguousarray(uniform.transpose(1, 2, 0))
    volume_TN, diameter_TN = np.zeros((steps, n)), np.zeros((steps, n))
    treatments_T2N = np.zeros((steps, 2, n), dtype=np.bool_)
    volume_TN[0] = patients.initial_volume_cm3
    seen_TN, latest_cm = None if seen_NT is None else np.ascontiguousarray(seen_NT.T), np.zeros(n)
    active = volume_TN[0] < MAX_VOLUME_CM3
    dead, drug_kill, length = ~active, np.zeros(n), np.ones(n, dtype=np.int64)
    for t in range(steps - 1):
        diameter_TN[t] = diameter_cm(volume_TN[t])
        window = slice(max(t - POLICY_WINDOW_DAYS, 0), max(t, 1))
        if seen_TN is None:
            seen_cm = diameter_TN[window].mean(axis=0)
        else:
            days_N = seen_TN[window].sum(axis=0)
            mean_cm = (diameter_TN[window] * seen_TN[window]).sum(axis=0) / np.maximum(days_N, 1)
            seen_cm = np.where(days_N, mean_cm, latest_cm)
            latest_cm = np.where(seen_TN[t], diameter_TN[t], latest_cm)
        seen_cm = seen_cm if growth_N is None else seen_cm + FAST_CM * growth_N
        treatable = active if seen_TN is None else active & seen_TN[t]
        chemo, radio = treatments_T2N[t] = (uniform_T2N[t] < treatment_probability(seen_cm, gamma)) & treatable
        drug_kill = CARRY_OVER * drug_kill + dynamics.chemo_kill_N * chemo
        volume, dead = next_volume(
            volume_TN[t],
            dead,
            growth=growth_DN[t + 1],
            rho=dynamics.rho_N,
            drug_kill=drug_kill,
            radio_kill=dynamics.radio_kill_N,
            radio=radio,
            recovery_cm3=recovery_cm3_DN[t + 1],
        )
        volume_TN[t + 1] = np.where(active, volume, 0.0)
        length += active
        active &= ~dead & (volume > 0.0)
    return TumorFactual(
        volume_cm3=np.ascontiguousarray(volume_TN.T),
        treatments=np.ascontiguousarray(treatments_T2N.transpose(2, 0, 1)),
        length=length,
    )
