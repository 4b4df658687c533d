"""ICU stays as one table, whether simulated or read from a file of MIMIC-Extract."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Self

import numpy as np
from numpy.typing import NDArray

from costar_cli.data.icu.settings import MimicConfig
from costar_cli.reporting import Reporter
from simulators.icu import IcuCohort, simulate_icu

Singles = NDArray[np.float32]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class IcuTable:
    """S patients with one stay each and their M stay-hours, patient by patient and hour by hour without gaps.

    Per patient: `subject_id [S]`, `gender [S]`, `ethnicity [S]`, `age [S]` in years (NaN where unknown) and `length
    [S]`, the hours of the stay. Per stay-hour: `values [M,25]` with the columns of `COVARIATES`, NaN where nothing was
    recorded, and, where somebody asked for them, `diastolic [M]` in mmHg, `vent [M]` and `vaso [M]`. `embedded` says
    that no patient is real.
    """

    subject_id: NDArray[np.int64]
    gender: NDArray[np.str_]
    ethnicity: NDArray[np.str_]
    age: NDArray[np.float64]
    length: NDArray[np.int64]
    values: Singles
    diastolic: Singles | None = None
    vent: Bools | None = None
    vaso: Bools | None = None
    embedded: bool = False

    def __len__(self) -> int:
        return len(self.subject_id)

    @classmethod
    def of_cohort(cls, cohort: IcuCohort) -> Self:
        """Return the table of a simulated cohort."""
        stays = cohort.stays
        return cls(
            subject_id=stays.subject_id,
            gender=stays.gender,
            ethnicity=stays.ethnicity,
            age=stays.age,
            length=stays.length,
            values=cohort.values,
            diastolic=cohort.diastolic,
            vent=cohort.vent,
            vaso=cohort.vaso,
            embedded=True,
        )

    def hours_of(self, rows: NDArray[np.int64], n_hours: int) -> tuple[NDArray[np.int64], Bools]:
        """Return where the first hours of some patients are among the M, `[N,T]`, and which exist `[N,T]`."""
        start = np.cumsum(self.length) - self.length
        hour = np.arange(n_hours)
        within = hour < self.length[rows, None]
        return start[rows, None] + np.where(within, hour, 0), within


def embedded_cohort(config: MimicConfig, reporter: Reporter) -> IcuCohort:
    """Simulate the cohort that stands in for MIMIC-III."""
    with reporter.task("simulate ICU stays", total=config.stays, unit="patient") as task:
        return simulate_icu(config.stays, seed=child_seed(config.seed, Stream.COHORT), on_progress=task.advance)


class Stream(IntEnum):
    """What a child seed is for; the numbers are part of what a seed means."""

    COHORT = 0
    WORLD = 1
    SOURCE_SPLIT = 2
    TARGET_SPLIT = 3
    SUBSAMPLE = 4


def child_seed(seed: int, stream: Stream) -> int:
    """Return the seed of a stream, 63 bits; the simulators make child seeds of their own from it."""
    state = np.random.SeedSequence(seed, spawn_key=(int(stream),)).generate_state(1, np.uint64)
    return int(state[0] >> np.uint64(1))
