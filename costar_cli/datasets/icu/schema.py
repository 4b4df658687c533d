"""The variables of an ICU panel: 25 covariates with units, 44 statics (spec ICU-1, ICU-3)."""

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from costar_cli.datasets.icu.table import IcuTable
from costar_cli.panel.findings import counted, shown
from costar_cli.panel.schema import Variable
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
            reporter.warn(
                f"{counted(len(odd), 'patient')} with a value of `{static}` that MIMIC-III does not have: "
                f"{shown(np.unique(odd))}; all columns of `{static}` are 0 for them"
            )
