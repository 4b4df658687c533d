"""Who is admitted, and for how long: statics and lengths of ICU stays (spec COHORT-1 to 3)."""

from dataclasses import dataclass, fields, replace
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from simulators.icu.physiology import COURSE_SHARES, MALE_SHARE
from simulators.icu.schema import ETHNICITY_SHARES

__all__ = ["LONGEST_STAY_HOURS", "IcuStays", "draw_stays", "with_every_ethnicity"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LOG_HOURS_MEAN, LOG_HOURS_SD = 3.90, 0.78  # ln of the duration in hours: mean 63.6 rows, as in MIMIC-Extract
SHORTEST_STAY_HOURS, LONGEST_STAY_HOURS = 12, 240  # MIMIC-Extract's default cohort
AGE_BINS: Final = ((15.0, 20.0, 0.01), (20.0, 45.0, 0.14), (45.0, 65.0, 0.33), (65.0, 85.0, 0.42), (85.0, np.inf, 0.10))
AGE_TAIL_YEARS: Final = 3.5  # mean excess above 85
DEID_ABOVE, DEID_AGE = 89.0, 300.0  # MIMIC-III stores ages above 89 near 300
MOST_STAYS: Final = 99_999  # identifiers of MIMIC-III have as many digits


@dataclass(frozen=True, slots=True)
class IcuStays:
    """S stays of S patients, arrays `[S]`.

    `subject_id`, `hadm_id` and `icustay_id` identify patient, admission and stay, in MIMIC-III's ranges. `gender` is F
    or M, `ethnicity` one of 41 labels, `age` in years (above 89 stored near 300 where de-identified). `length` counts
    the hourly rows, `admission_hour` is the clock hour of the first, and `course` is 0 (recovering), 1 (stable) or 2
    (deteriorating).
    """

    subject_id: Ints
    hadm_id: Ints
    icustay_id: Ints
    gender: NDArray[np.str_]
    ethnicity: NDArray[np.str_]
    age: Floats
    length: Ints
    admission_hour: Ints
    course: Ints

    def __len__(self) -> int:
        return int(self.subject_id.shape[0])

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_] | slice) -> Self:
        """Return the given stays, in that order."""
        return type(self)(*(getattr(self, field.name)[rows] for field in fields(self)))

    @classmethod
    def concatenate(cls, parts: "list[IcuStays]") -> Self:
        """Return the stays of all parts, in order."""
        return cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))


def draw_stays(first: int, n: int, rng: np.random.Generator) -> IcuStays:
    """Draw n stays, numbered from `first` on; ages are true ages."""
    gender_rng, ethnicity_rng, age_rng, length_rng, hour_rng, course_rng = rng.spawn(6)
    number = np.arange(first, first + n, dtype=np.int64)
    labels, shares = np.array(list(ETHNICITY_SHARES)), np.array(list(ETHNICITY_SHARES.values()))
    # Ages are uniform within bins, rising to 45 in the second (triangular), exponential above 85.
    age_bin = age_rng.choice(len(AGE_BINS), size=n, p=np.array([share for *_, share in AGE_BINS]))
    youngest, oldest, _ = np.array(AGE_BINS)[age_bin].T
    uniform = 1.0 - age_rng.random(n)  # in (0, 1]: bins are open on the left
    within = np.where(age_bin == 1, np.sqrt(uniform), uniform)
    tail = age_bin == len(AGE_BINS) - 1
    age: Floats = youngest + np.where(tail, 0.0, oldest - youngest) * within
    age[tail] = youngest[tail] - AGE_TAIL_YEARS * np.log(uniform[tail])
    # Rows are floor(D) + 1 hours of a lognormal duration D truncated to 12..240 h.
    lo, hi = ndtr((np.log([SHORTEST_STAY_HOURS, LONGEST_STAY_HOURS]) - LOG_HOURS_MEAN) / LOG_HOURS_SD)
    hours = np.exp(LOG_HOURS_MEAN + LOG_HOURS_SD * ndtri(lo + (hi - lo) * length_rng.random(n)))
    return IcuStays(
        subject_id=1 + number,
        # the factors are prime to MOST_STAYS: identifiers are unique and look unordered, as in MIMIC-III
        hadm_id=100_001 + (number * 48_271) % MOST_STAYS,
        icustay_id=200_001 + (number * 69_623) % MOST_STAYS,
        gender=np.where(gender_rng.random(n) < MALE_SHARE, "M", "F"),
        ethnicity=ethnicity_rng.choice(labels, size=n, p=shares / shares.sum()),
        age=age,
        length=np.asarray(np.floor(hours), dtype=np.int64) + 1,
        admission_hour=hour_rng.integers(24, size=n),
        course=course_rng.choice(len(COURSE_SHARES), size=n, p=COURSE_SHARES),
    )


def with_every_ethnicity(stays: IcuStays, rng: np.random.Generator) -> IcuStays:
    """Give each label that no stay has to one stay of the most frequent label, so that statics keep their width."""
    missing = [label for label in ETHNICITY_SHARES if label not in set(stays.ethnicity)]
    candidates = np.flatnonzero(stays.ethnicity == max(ETHNICITY_SHARES, key=ETHNICITY_SHARES.__getitem__))
    ethnicity = stays.ethnicity.copy()
    ethnicity[rng.choice(candidates, size=len(missing), replace=False)] = missing
    return replace(stays, ethnicity=ethnicity)


def deidentified(age: Floats, rng: np.random.Generator) -> Floats:
    """Return ages as MIMIC-III stores them: 300 to 305 above 89."""
    return np.where(age > DEID_ABOVE, DEID_AGE + 5.0 * rng.random(len(age)), age)
