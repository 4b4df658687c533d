"""Latent scores: eight shared factors, persistence, and what age, sex, clock and course add (spec COHORT-4 to 6)."""

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from simulators.icu.variables import VARIABLES

__all__ = ["COURSE_DRIFT", "COURSE_SHARES", "N_FACTORS", "SEDATION", "SHOCK", "Physiology", "latent_correlation"]

Floats = NDArray[np.float64]

N_FACTORS: Final = 8  # red cells, renal, metabolic acid, CO2, shock, sedation/ventilation, liver/clotting, tonicity
SHOCK, SEDATION = 25, 26  # latent columns after the 25 covariates: factors 5 and 6 themselves
SHOCK_ICC, SHOCK_PHI = 0.6, 0.95  # our choice: between the persistence of heart rate and that of mean blood pressure
COURSE_SHARES: Final = (0.55, 0.30, 0.15)  # recovering, stable, deteriorating
COURSE_DRIFT: Final = (-0.8, 0.0, 1.0)  # sd of the shock factor over the stay
AGE_CENTRE, AGE_CAP = 65.0, 95.0  # years
AGE_VARIANCE: Final = 2.92  # decades²: variance of the capped age under the shares of `stays`
MALE_SHARE: Final = 0.56


def loadings() -> Floats:
    """Return the loadings `[27,8]` of the covariates, the shock factor and the sedation factor."""
    loading_VK = np.zeros((len(VARIABLES) + 2, N_FACTORS))
    for v, variable in enumerate(VARIABLES):
        for factor, loading in variable.loads.items():
            loading_VK[v, factor - 1] = loading
    loading_VK[SHOCK, 4] = loading_VK[SEDATION, 5] = 1.0
    return loading_VK


def latent_correlation() -> Floats:
    """Return the correlation `[27,27]` of the patient levels and of the innovations."""
    loading_VK = loadings()
    correlation_VV = loading_VK @ loading_VK.T
    np.fill_diagonal(correlation_VV, 1.0)
    return correlation_VV


def course_moments() -> tuple[float, float]:
    """Return mean and variance of the shock factor's drift, over courses and over the stay."""
    shares, drift = np.array(COURSE_SHARES), np.array(COURSE_DRIFT)
    mean = float(shares @ drift) / 2.0
    return mean, float(shares @ drift**2) / 3.0 - mean**2


@dataclass(frozen=True, slots=True)
class Physiology:
    """Coefficients of the latent scores, arrays over the 25 covariates and the shock factor `[26]`.

    A score is level + patient_sd B + ar_sd W(t) + white_sd e(t), with B ~ N(0, R) per patient, W a stationary
    autoregression with coefficient `phi` and innovations correlated by R, and e white. Age, sex, clock and course take
    their variance from the patient's share, so that a score has variance 1 in the cohort.
    """

    patient_sd: Floats
    ar_sd: Floats
    white_sd: Floats
    phi: Floats
    patient_root: Floats
    start_root: Floats
    innovation_root: Floats
    shock_loading: Floats
    age_slope: Floats
    male_shift: Floats
    clock_amplitude: Floats
    clock_peak: Floats

    @classmethod
    def of_covariates(cls) -> Self:
        """Return the physiology of `VARIABLES`."""
        columns = np.array(
            [(v.icc, v.phi, v.ar_share, v.age_slope, v.male_shift, v.clock_amplitude, v.clock_peak) for v in VARIABLES]
            + [(SHOCK_ICC, SHOCK_PHI, 1.0, 0.0, 0.0, 0.0, 0.0)]
        )
        icc, phi, ar_share, age_slope, male_shift, clock_amplitude, clock_peak = columns.T
        correlation_VV = latent_correlation()
        shock_loading = correlation_VV[SHOCK, : len(icc)]
        fixed_variance = (
            AGE_VARIANCE * age_slope**2
            + MALE_SHARE * (1 - MALE_SHARE) * male_shift**2
            + clock_amplitude**2 / 2.0
            + course_moments()[1] * shock_loading**2
        )
        hourly_VV = correlation_VV[: len(icc), : len(icc)]
        innovation_sd = np.sqrt(1.0 - phi**2)
        innovation_VV = hourly_VV * np.outer(innovation_sd, innovation_sd)
        return cls(
            patient_sd=np.sqrt(icc - fixed_variance),
            ar_sd=np.sqrt((1.0 - icc) * ar_share),
            white_sd=np.sqrt((1.0 - icc) * (1.0 - ar_share)),
            phi=phi,
            patient_root=_root(correlation_VV),
            start_root=_root(innovation_VV / (1.0 - np.outer(phi, phi))),
            innovation_root=_root(innovation_VV),
            shock_loading=shock_loading,
            age_slope=age_slope,
            male_shift=male_shift,
            clock_amplitude=clock_amplitude,
            clock_peak=clock_peak,
        )


def _root(covariance_VV: Floats) -> Floats:
    """Return the Cholesky root of a covariance."""
    return np.asarray(np.linalg.cholesky(covariance_VV), dtype=np.float64)
