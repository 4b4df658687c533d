"""ICU stays as one table, whether simulated or read from a file of MIMIC-Extract."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from costar_cli.data.findings import counted, shown
from costar_cli.data.icu.settings import MimicConfig
from costar_cli.data.schema import Variable
from costar_cli.diagnostics import Diagnostic
from costar_cli.reporting import Reporter
from simulators.icu import COVARIATES, ETHNICITY_SHARES, GENDERS, IcuCohort, simulate_icu

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


UNITS: Final = {
    "heart rate": "/min",
    "red blood cell count": "10^6/uL",
    "sodium": "mmol/L",
    "mean blood pressure": "mmHg",
    "systemic vascular resistance": "dyn s/cm5",
    "glucose": "mg/dL",
    "chloride urine": "mmol/L",
    "glascow coma scale total": "points",
    "hematocrit": "%",
    "positive end-expiratory pressure set": "cmH2O",
    "respiratory rate": "/min",
    "prothrombin time pt": "s",
    "cholesterol": "mg/dL",
    "hemoglobin": "g/dL",
    "creatinine": "mg/dL",
    "blood urea nitrogen": "mg/dL",
    "bicarbonate": "mmol/L",
    "calcium ionized": "mmol/L",
    "partial pressure of carbon dioxide": "mmHg",
    "magnesium": "mg/dL",
    "anion gap": "mmol/L",
    "phosphorous": "mg/dL",
    "venous pvo2": "mmHg",
    "platelets": "10^3/uL",
    "calcium urine": "mg/dL",
}
ETHNICITIES: Final = tuple(sorted(ETHNICITY_SHARES))
LABELS: Final[Mapping[str, tuple[str, ...]]] = {"gender": GENDERS, "ethnicity": ETHNICITIES}

COVARIATE_VARIABLES: Final = tuple(Variable(name=name, unit=UNITS[name]) for name in COVARIATES)
STATIC_VARIABLES: Final = (
    *(
        Variable(name=f"{static}={label}", kind="binary", standardize=False)
        for static, labels in LABELS.items()
        for label in labels
    ),
    Variable(name="age", unit="years"),
)


def encode_statics(table: IcuTable, rows: NDArray[np.int64], *, age_cap: float) -> NDArray[np.float32]:
    """Return the statics `[N,44]`: one column per gender and per ethnicity of MIMIC-III, and the capped age.

    The columns do not depend on the data, so that models of one cohort can read another. A label that MIMIC-III does
    not have gives zeros in all of its columns.
    """
    given = {"gender": table.gender[rows], "ethnicity": table.ethnicity[rows]}
    columns = [given[static] == label for static, labels in LABELS.items() for label in labels]
    return np.stack([*columns, np.minimum(table.age[rows], age_cap)], axis=1).astype(np.float32)


def warn_of_odd_labels(table: IcuTable, rows: NDArray[np.int64], reporter: Reporter) -> None:
    """Warn of patients whose gender or ethnicity MIMIC-III does not have."""
    for static, given in {"gender": table.gender[rows], "ethnicity": table.ethnicity[rows]}.items():
        odd = given[~np.isin(given, LABELS[static])]
        if len(odd):
            patients, values = counted(len(odd), "patient"), shown(np.unique(odd))
            reporter.say(Diagnostic.of("static-values-unknown", static, patients=patients, values=values))


Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Imputation:
    """How gaps of covariates are filled, learned from the source's training patients.

    The last value that the patient had takes the place of a missing one. Before the first there is none: then it is
    the mean of the patient's own recorded values in the hours kept, later ones included (`own_mean`), and where the
    patient has none at all, or without `own_mean`, `fallback [F]`: the mean of the values recorded in source-train.
    Covariates that were never recorded in source-train have no fallback (NaN) and are 0 for everybody.
    """

    fallback: Floats
    own_mean: bool

    @classmethod
    def learn(cls, values_NTF: Singles, *, own_mean: bool) -> Self:
        """Return the imputation that training patients `[N,T,F]`, NaN where nothing was recorded, teach."""
        return cls(_recorded_means(values_NTF, axis=(0, 1)), own_mean)

    def tell(self, names: tuple[str, ...], reporter: Reporter) -> None:
        """Warn of covariates that say nothing."""
        if never := [name for name, mean in zip(names, self.fallback, strict=True) if np.isnan(mean)]:
            count = counted(len(never), "covariate is", "covariates are")
            reporter.say(Diagnostic.of("covariates-never-recorded", count=count, names=shown(never)))

    def __call__(self, values_NTF: Singles, length_N: NDArray[np.int64]) -> Singles:
        """Return the covariates `[N,T,F]` without gaps; hours beyond the length hold zeros."""
        known = np.isfinite(self.fallback)
        filled_NTF = forward_filled(np.where(known, values_NTF, np.float32(np.nan)))
        start_NF = np.broadcast_to(np.where(known, self.fallback, 0.0), (len(values_NTF), len(known)))
        if self.own_mean:
            own_NF = np.where(known, _recorded_means(values_NTF, axis=1), np.nan)
            start_NF = np.where(np.isnan(own_NF), start_NF, own_NF)
        complete_NTF = np.where(np.isnan(filled_NTF), start_NF[:, None].astype(np.float32), filled_NTF)
        observed_NT = np.arange(values_NTF.shape[1]) < length_N[:, None]
        return np.where(observed_NT[..., None], complete_NTF, np.float32(0))


def forward_filled(values_NTF: Singles) -> Singles:
    """Return each value that is missing replaced by the last one before it, NaN where there is none."""
    hour_T1 = np.arange(values_NTF.shape[1], dtype=np.int16)[:, None]
    last_NTF = np.where(np.isnan(values_NTF), np.int16(0), hour_T1)
    np.maximum.accumulate(last_NTF, axis=1, out=last_NTF)
    return np.take_along_axis(values_NTF, last_NTF.astype(np.int64), axis=1)


def _recorded_means(values_NTF: Singles, axis: int | tuple[int, ...]) -> Floats:
    """Return the means of what was recorded, NaN where nothing was."""
    recorded = np.isfinite(values_NTF)
    total = np.where(recorded, values_NTF, np.float32(0)).sum(axis=axis, dtype=np.float64)
    count = recorded.sum(axis=axis)
    mean: Floats = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
    return mean
