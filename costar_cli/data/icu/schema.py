"""The variables of an ICU panel: 25 covariates with units and without gaps, 44 statics (spec ICU-1 to 3)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from costar_cli.data.findings import counted, shown
from costar_cli.data.icu.table import IcuTable
from costar_cli.data.schema import Variable
from costar_cli.diagnostics import Diagnostic
from costar_cli.reporting import Reporter
from simulators.icu import COVARIATES, ETHNICITY_SHARES, GENDERS

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


Singles = NDArray[np.float32]
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
