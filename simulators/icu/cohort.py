"""The whole cohort: chunks of stays, each from its own child seed (docs/spec/cohort.md)."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from simulators.icu.care import MEAN_PRESSURE, give_care
from simulators.icu.charting import recorded
from simulators.icu.latent import draw_latent
from simulators.icu.layout import HourLayout
from simulators.icu.marginals import clinical_values, diastolic_mmhg
from simulators.icu.physiology import Physiology
from simulators.icu.stays import MOST_STAYS, IcuStays, deidentified, draw_stays, with_every_ethnicity

__all__ = ["IcuCohort", "simulate_icu"]

Ints = NDArray[np.int64]
Singles = NDArray[np.float32]

CHUNK_STAYS: Final = 512  # part of what a seed means: stays of a chunk are drawn together
EVERY_ETHNICITY_FROM: Final = 5000  # stays
STATICS_KEY, CHUNK_KEY = 0, 1  # children of the seed


@dataclass(frozen=True, slots=True)
class IcuCohort:
    """S stays and their M stay-hours, stay by stay and hour by hour without gaps.

    `stay [M]` is the row of the stay in `stays` and `hours_in [M]` counts from 0. `values [M,25]` has the columns of
    `COVARIATES`, NaN where nothing was recorded; `complete [M,25]` is what would have been recorded. `diastolic [M]` is
    the diastolic blood pressure in mmHg, recorded with the mean pressure. `vent [M]` and `vaso [M]` say who was
    ventilated or had vasopressors in that hour.
    """

    stays: IcuStays
    stay: NDArray[np.int32]
    hours_in: NDArray[np.int32]
    values: Singles
    complete: Singles
    diastolic: Singles
    vent: NDArray[np.bool_]
    vaso: NDArray[np.bool_]

    def __len__(self) -> int:
        return int(self.stay.shape[0])

    @property
    def subject_id(self) -> Ints:
        """Return the patient of each stay-hour `[M]`."""
        return self.stays.subject_id[self.stay]

    @property
    def hadm_id(self) -> Ints:
        """Return the admission of each stay-hour `[M]`."""
        return self.stays.hadm_id[self.stay]

    @property
    def icustay_id(self) -> Ints:
        """Return the ICU stay of each stay-hour `[M]`."""
        return self.stays.icustay_id[self.stay]

    @classmethod
    def concatenate(cls, parts: "list[IcuCohort]") -> Self:
        """Return one cohort of the stays of all parts, in order."""
        first_stay = np.cumsum([0] + [len(part.stays) for part in parts[:-1]])
        stay = [part.stay + np.int32(first) for part, first in zip(parts, first_stay, strict=True)]
        names = ("hours_in", "values", "complete", "diastolic", "vent", "vaso")
        joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
        return cls(stays=IcuStays.concatenate([part.stays for part in parts]), stay=np.concatenate(stay), **joined)


def simulate_icu(
    n_stays: int = 12_000,
    *,
    seed: int = 0,
    deid_age: bool = True,
    on_progress: Callable[[int], None] | None = None,
) -> IcuCohort:
    """Simulate an ICU cohort in the schema of MIMIC-Extract.

    The stay-hours of the first m of n stays do not depend on n. From 5,000 stays on, each of the 41 ethnicities occurs.

    Args:
        n_stays: number of stays, one per patient.
        seed: the same seed gives the same cohort.
        deid_age: store ages above 89 near 300, as MIMIC-III does.
        on_progress: called after each chunk with its number of stays.

    Raises:
        ValueError: no stay, or more than there are identifiers.
    """
    if not 1 <= n_stays <= MOST_STAYS:
        raise ValueError(f"a cohort has 1 to {MOST_STAYS:,} stays, not {n_stays:,}")
    physiology = Physiology.of_covariates()
    parts = []
    for first in range(0, n_stays, CHUNK_STAYS):
        n = min(CHUNK_STAYS, n_stays - first)
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(CHUNK_KEY, first // CHUNK_STAYS)))
        stays_rng, latent_rng, care_rng, charting_rng, diastolic_rng = rng.spawn(5)
        stays = draw_stays(first, CHUNK_STAYS, stays_rng)  # all of a chunk, so that they do not depend on n
        layout = HourLayout.of(stays.length)
        latent = draw_latent(physiology, stays.take(np.argsort(layout.rank_of)), layout, latent_rng)
        care = give_care(latent, layout, care_rng)
        mask_MV = recorded(latent, care, layout, charting_rng)
        complete_MV = clinical_values(latent.score)
        diastolic_M = diastolic_mmhg(complete_MV, latent.score, diastolic_rng)
        kept = stays.take(slice(n))
        rows = layout.stay_major()[: kept.length.sum()]
        part = IcuCohort(
            stays=kept,
            stay=np.repeat(np.arange(n, dtype=np.int32), kept.length),
            hours_in=layout.hour[rows].astype(np.int32),
            values=np.where(mask_MV, complete_MV, np.float32(np.nan))[rows],
            complete=complete_MV[rows],
            diastolic=np.where(mask_MV[:, MEAN_PRESSURE], diastolic_M, np.float32(np.nan))[rows],
            vent=care.vent[rows],
            vaso=care.vaso[rows],
        )
        parts.append(part)
        if on_progress is not None:
            on_progress(n)
    cohort = IcuCohort.concatenate(parts)
    ethnicity_rng, age_rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(STATICS_KEY,))).spawn(2)
    stays = with_every_ethnicity(cohort.stays, ethnicity_rng) if n_stays >= EVERY_ETHNICITY_FROM else cohort.stays
    if deid_age:
        stays = replace(stays, age=deidentified(stays.age, age_rng))
    return replace(cohort, stays=stays)
