"""Following many treatment plans at once from the states of a factual simulation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from simulators.tumor.dynamics import (
    CARRY_OVER,
    MAX_VOLUME_CM3,
    Bools,
    Dynamics,
    Floats,
    TumorNoise,
    accumulate_drug,
    next_volume,
)
from simulators.tumor.factual import TumorFactual
from simulators.tumor.patients import TumorPatients

__all__ = ["Ints", "follow_branches"]

Ints = NDArray[np.int64]

CHUNK: Final = 65536  # branches simulated at once: bounds memory, and their state stays near a core


def follow_branches(
    patients: TumorPatients,
    noise: TumorNoise,
    factual: TumorFactual,
    subject: Ints,
    origin: Ints,
    steps: Sequence[Bools],
) -> Floats:
    """Return the volumes `[P,K,H]` in cm³ of K branches from each of P origins.

    Args:
        patients: N patients.
        noise: their noise, by absolute day.
        factual: their factual simulation.
        subject: rows of the patients `[P]`.
        origin: days at which the branches start `[P]`.
        steps: treatments of each day, `[1 or K, 1 or P, 2]`; 1 where branches or origins have them in common.

    Raises:
        ValueError: the noise ends before a branch does.
    """
    n_origins = len(origin)
    if n_origins and origin.max() + len(steps) >= noise.n_days:
        raise ValueError(f"the noise ends on day {noise.n_days - 1}, a plan on day {origin.max() + len(steps)}")
    dynamics = Dynamics.of(patients, noise)
    start = _Start.of(dynamics, factual)
    n_branches = max((step.shape[0] for step in steps), default=1)
    chunk_size = max(CHUNK // n_branches, 1)
    volume_PKH = np.empty((n_origins, n_branches, len(steps)))
    for lo in range(0, n_origins, chunk_size):
        rows = slice(lo, lo + chunk_size)
        own, own_origin = subject[rows], origin[rows]
        # `take` on flat positions: a third of the time of indexing with a pair of arrays
        at_origin = own * start.volume_NT.shape[1] + own_origin
        day = own * dynamics.growth_ND.shape[1] + own_origin
        volume, dead = start.volume_NT.take(at_origin)[None], start.dead_NT.take(at_origin)[None]
        drug_kill: Floats = start.drug_kill_NT.take(at_origin)[None]
        rho, chemo_kill = dynamics.rho_N.take(own), dynamics.chemo_kill_N.take(own)
        radio_kill = dynamics.radio_kill_N.take(own)
        for j, given in enumerate(steps):
            step = given if given.shape[1] < n_origins else given[:, rows]
            day = day + 1
            if len(drug_kill) < len(step):
                drug_kill = drug_kill.repeat(len(step), axis=0)
            drug_kill *= CARRY_OVER
            np.add(drug_kill, chemo_kill, out=drug_kill, where=step[..., 0])
            volume, dead = next_volume(
                volume,
                dead,
                growth=dynamics.growth_ND.take(day),
                rho=rho,
                drug_kill=drug_kill,
                radio_kill=radio_kill,
                radio=step[..., 1],
                recovery_cm3=dynamics.recovery_cm3_ND.take(day),
            )
            volume_PKH[rows, :, j] = volume.T
    return volume_PKH


@dataclass(frozen=True, slots=True)
class _Start:
    """The state at each day `[N,T]`, before its treatment: volume, death, and the drug's kill on the day before."""

    volume_NT: Floats
    dead_NT: Bools
    drug_kill_NT: Floats

    @classmethod
    def of(cls, dynamics: Dynamics, factual: TumorFactual) -> Self:
        """Return the states of a factual simulation."""
        dose_kill_NT = dynamics.chemo_kill_N[:, None] * factual.treatments[:, :, 0]
        drug_kill_NT = np.zeros(dose_kill_NT.shape)
        drug_kill_NT[:, 1:] = accumulate_drug(dose_kill_NT)[:, :-1]
        dead_NT = factual.died[:, None] & (np.arange(factual.n_steps) == factual.length[:, None] - 1)
        volume_NT = np.where(dead_NT, MAX_VOLUME_CM3, factual.volume_cm3.astype(np.float64))
        return cls(volume_NT, dead_NT, drug_kill_NT)
