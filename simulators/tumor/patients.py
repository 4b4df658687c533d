"""Virtual patients: tumour stage, initial volume and response to treatment (spec TUMOR-2, TUMOR-3)."""

from dataclasses import dataclass, fields
from typing import Final, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

__all__ = ["STAGES", "Stage", "TumorPatients", "diameter_cm", "sample_patients", "volume_cm3"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Stage:
    """How often a stage occurs, and its law of the diameter: ln D ~ N(mu, sigma^2) with D in [lo_cm, hi_cm]."""

    name: str
    count: int
    mu: float
    sigma: float
    lo_cm: float
    hi_cm: float


# Counts of patients: Detterbeck & Gibson 2008, J. Thorac. Oncol.; mu and sigma of ln D (D in cm) and its bounds in cm:
# Geng, Paganetti & Grassberger 2017, Sci. Rep. 7:13542, as in the code of Lim, Alaa & van der Schaar 2018
STAGES: Final = (
    Stage("I", 1432, 1.72, 4.70, 0.3, 5.0),
    Stage("II", 128, 1.96, 1.63, 0.3, 13.0),
    Stage("IIIA", 1306, 1.91, 9.40, 0.3, 13.0),
    Stage("IIIB", 7248, 2.76, 6.87, 0.3, 13.0),
    Stage("IV", 12840, 3.86, 8.82, 0.3, 13.0),
)
ALPHA_MEAN: Final = 0.0398  # per Gy: linear radiosensitivity, Geng et al. 2017
ALPHA_SD: Final = 0.168  # per Gy, Geng et al. 2017
RHO_MEAN: Final = 7.0e-5  # per day: Gompertz growth, Geng et al. 2017
RHO_SD: Final = 7.23e-3  # per day, Geng et al. 2017
ALPHA_RHO_CORRELATION: Final = 0.87  # dimensionless, Geng et al. 2017
ALPHA_BETA_RATIO: Final = 10.0  # Gy: beta = alpha / 10, Geng et al. 2017
BETA_CHEMO_MEAN: Final = 0.028  # per day and unit of concentration, Geng et al. 2017
BETA_CHEMO_SD: Final = 0.0007  # per day and unit of concentration, Geng et al. 2017
TYPE_GAIN: Final = 0.1  # share of the mean by which types 1 and 3 respond better, Lim, Alaa & van der Schaar 2018
RADIO_TYPE: Final = 1  # patient type that responds better to radiotherapy, Lim et al. 2018
CHEMO_TYPE: Final = 3  # patient type that responds better to chemotherapy, Lim et al. 2018


def volume_cm3(diameter_cm: ArrayLike) -> Floats:
    """Return the volume in cm³ of a sphere of the given diameter in cm."""
    return np.asarray(4.0 / 3.0 * np.pi * (np.asarray(diameter_cm, dtype=np.float64) / 2.0) ** 3)


def diameter_cm(volume_cm3: ArrayLike) -> Floats:
    """Return the diameter in cm of a sphere of the given volume in cm³."""
    return np.asarray(2.0 * np.cbrt(np.asarray(volume_cm3, dtype=np.float64) / (4.0 / 3.0 * np.pi)))


@dataclass(frozen=True, slots=True)
class TumorPatients:
    """The true parameters of N patients, arrays `[N]`.

    `stage` indexes `STAGES`; `initial_volume_cm3` is V_0; `alpha` (per Gy) and `beta` (per Gy²) are the response to
    radiotherapy; `rho` (per day) is the growth; `beta_chemo` (per day and unit of drug concentration) is the response
    to chemotherapy; `patient_type` is 1 (better to radiotherapy), 2 (neutral) or 3 (better to chemotherapy).
    """

    stage: NDArray[np.int8]
    initial_volume_cm3: Floats
    alpha: Floats
    beta: Floats
    rho: Floats
    beta_chemo: Floats
    patient_type: NDArray[np.int8]

    def __len__(self) -> int:
        return int(self.alpha.shape[0])

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_] | slice) -> Self:
        """Return the given patients, in that order."""
        return type(self)(*(getattr(self, field.name)[rows] for field in fields(self)))


def sample_patients(n: int, rng: np.random.Generator) -> TumorPatients:
    """Draw n patients from the priors.

    Each parameter has its own child stream of `rng`, so the first m of n patients do not depend on n.

    Args:
        n: number of patients.
        rng: generator with a seed sequence, as `np.random.default_rng` makes; two calls give different patients.
    """
    stage_rng, volume_rng, response_rng, type_rng, chemo_rng = rng.spawn(5)
    weights = np.array([stage.count for stage in STAGES], dtype=np.float64)
    stage = stage_rng.choice(len(STAGES), size=n, p=weights / weights.sum()).astype(np.int8)
    mu, sigma, lo, hi = np.array([(s.mu, s.sigma, s.lo_cm, s.hi_cm) for s in STAGES]).T[:, stage]
    initial_cm = np.clip(np.exp(_truncated_normal(volume_rng, mu, sigma, np.log(lo), np.log(hi))), lo, hi)
    # (alpha, rho) are drawn from a bivariate normal until n pairs are positive; about one pair in two is.
    mean, r = np.array([ALPHA_MEAN, RHO_MEAN]), ALPHA_RHO_CORRELATION
    root = np.array([[ALPHA_SD, 0.0], [RHO_SD * r, RHO_SD * (1 - r**2) ** 0.5]])  # of the covariance (Cholesky)
    accepted = np.empty((0, 2))
    while len(accepted) < n:
        pairs = mean + response_rng.standard_normal((n + 16, 2)) @ root.T
        accepted = np.concatenate([accepted, pairs[(pairs > 0).all(axis=1)]])
    alpha, rho = accepted[:n].T.copy()
    patient_type = type_rng.integers(1, 4, size=n, dtype=np.int8)
    alpha = alpha + TYPE_GAIN * ALPHA_MEAN * (patient_type == RADIO_TYPE)
    beta_chemo = _truncated_normal(chemo_rng, np.full(n, BETA_CHEMO_MEAN), BETA_CHEMO_SD, 0.0, np.inf)
    return TumorPatients(
        stage=stage,
        initial_volume_cm3=volume_cm3(initial_cm),
        alpha=alpha,
        beta=alpha / ALPHA_BETA_RATIO,
        rho=rho,
        beta_chemo=beta_chemo + TYPE_GAIN * BETA_CHEMO_MEAN * (patient_type == CHEMO_TYPE),
        patient_type=patient_type,
    )


def _truncated_normal(
    rng: np.random.Generator, mean: Floats, sd: Floats | float, lo: Floats | float, hi: Floats | float
) -> Floats:
    """Draw one value per entry of `mean` by inverting the normal distribution function between the bounds."""
    p_lo, p_hi = ndtr((lo - mean) / sd), ndtr((hi - mean) / sd)
    z = ndtri(p_lo + (p_hi - p_lo) * rng.random(mean.shape))
    return np.clip(mean + sd * z, lo, hi)
