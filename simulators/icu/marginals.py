"""From latent standard scores to values in clinical units (spec COHORT-7, COHORT-11)."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from simulators.icu.care import MEAN_PRESSURE
from simulators.icu.variables import VARIABLES, IcuVariable

__all__ = ["clinical_values", "diastolic_mmhg"]

Singles = NDArray[np.float32]

COMA_BEST, COMA_RANGE = 15.0, 12.0  # points: fully awake, and what can be lost
COMA_LEVEL, COMA_SLOPE, COMA_OFFSET = 0.55, 1.35, 0.6  # points lost: exp(level - slope z) - offset
DIASTOLIC_MEAN, DIASTOLIC_SD = 60.5, 14.0  # mmHg, our assumption
DIASTOLIC_WITH_MEAN: Final = 0.86  # correlation of the scores of diastolic and mean pressure, our assumption
DIASTOLIC_LO: Final = 5.0  # mmHg


def clinical_values(score_MV: Singles) -> Singles:
    """Return the values `[M,25]` of scores: their law, clipped to the range, rounded to the clinical resolution."""
    value_MV = np.empty_like(score_MV)
    for v, variable in enumerate(VARIABLES):
        value_MV[:, v] = rounded(np.clip(unclipped(variable, score_MV[:, v]), variable.lo, variable.hi), variable)
    return value_MV


def unclipped(variable: IcuVariable, score: Singles) -> NDArray[np.floating]:
    """Return what the law of a variable makes of its scores."""
    if variable.law == "normal":
        return np.asarray(variable.mean + variable.sd * score)
    if variable.law == "lognormal":
        log_variance = np.log1p((variable.sd / variable.mean) ** 2)
        log_mean = np.log(variable.mean) - log_variance / 2.0
        return np.asarray(np.exp(log_mean + np.sqrt(log_variance) * score))
    lost = np.exp(COMA_LEVEL - COMA_SLOPE * score) - COMA_OFFSET
    return np.asarray(COMA_BEST - np.round(np.clip(lost, 0.0, COMA_RANGE)))


def rounded(value: NDArray[np.floating], variable: IcuVariable) -> NDArray[np.floating]:
    """Return values at the resolution with which they are recorded."""
    return np.asarray(np.round(value / variable.resolution) * variable.resolution)


def diastolic_mmhg(value_MV: Singles, score_MV: Singles, rng: np.random.Generator) -> Singles:
    """Return diastolic pressures `[M]` in whole mmHg that go with the mean pressures and do not exceed them."""
    own = np.sqrt(1.0 - DIASTOLIC_WITH_MEAN**2) * rng.standard_normal(len(score_MV), np.float32)
    diastolic = DIASTOLIC_MEAN + DIASTOLIC_SD * (DIASTOLIC_WITH_MEAN * score_MV[:, MEAN_PRESSURE] + own)
    return np.asarray(np.clip(np.round(diastolic), DIASTOLIC_LO, value_MV[:, MEAN_PRESSURE]), dtype=np.float32)
