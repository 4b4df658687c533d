"""ICU stays on the way to a panel: the table, who is in which part, and series without gaps (spec ICU-1 to 5)."""

from costar_cli.datasets.icu.covariates import Imputation
from costar_cli.datasets.icu.parts import ChosenStays, choose_stays
from costar_cli.datasets.icu.schema import COVARIATE_VARIABLES, STATIC_VARIABLES, encode_statics, warn_of_odd_labels
from costar_cli.datasets.icu.seeds import Stream, child_seed
from costar_cli.datasets.icu.table import IcuTable, embedded_cohort

__all__ = [
    "COVARIATE_VARIABLES",
    "STATIC_VARIABLES",
    "ChosenStays",
    "IcuTable",
    "Imputation",
    "Stream",
    "child_seed",
    "choose_stays",
    "embedded_cohort",
    "encode_statics",
    "warn_of_odd_labels",
]
