"""An ICU cohort in the schema of MIMIC-Extract, for those without access to MIMIC-III (docs/spec/cohort.md).

Correlated, persistent physiology with age, clock and course effects; ventilation and vasopressors that respond to it;
and recorded values as sparse as real ones. Means, spreads, missing shares and correlations are those of the real data.

A typical use: `simulate_icu(12_000, seed=0)`.
"""

from simulators.icu.cohort import IcuCohort, simulate_icu
from simulators.icu.schema import COVARIATES, ETHNICITY_SHARES, GENDERS, INTERVENTIONS, STATICS
from simulators.icu.stays import IcuStays
from simulators.icu.variables import VARIABLES, IcuVariable

__all__ = [
    "COVARIATES",
    "ETHNICITY_SHARES",
    "GENDERS",
    "INTERVENTIONS",
    "STATICS",
    "VARIABLES",
    "IcuCohort",
    "IcuStays",
    "IcuVariable",
    "simulate_icu",
]
