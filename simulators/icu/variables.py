"""The 25 covariates: level, spread, persistence, age, clock, and the factors they load on (spec COHORT-8)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["VARIABLES", "IcuVariable", "Law"]

Law = Literal["normal", "lognormal", "coma score"]


@dataclass(frozen=True, slots=True, kw_only=True)
class IcuVariable:
    """One covariate: the law of its values in clinical units, and the dynamics of its latent standard score.

    `mean` and `sd` are those of the law; its values are clipped to `lo`..`hi` and rounded to multiples of `resolution`.
    `icc` is the share of the latent variance between patients; `phi` is the hourly autoregression and `ar_share` its
    share of the variance within a patient. `age_slope` (sd per decade), `male_shift` (sd) and `clock_amplitude` (sd,
    highest at `clock_peak` o'clock) move the level. `loads` maps factors 1..8 to loadings.
    """

    name: str
    law: Law
    mean: float
    sd: float
    icc: float
    phi: float
    ar_share: float
    age_slope: float
    lo: float
    hi: float
    resolution: float
    loads: Mapping[int, float]
    clock_amplitude: float
    clock_peak: float
    male_shift: float


def _variable(
    name: str,
    law: Law,
    level: tuple[float, float],
    dynamics: tuple[float, float, float, float],
    bounds: tuple[float, float],
    resolution: float,
    loads: Mapping[int, float],
    clock: tuple[float, float] = (0.0, 0.0),
    *,
    male_shift: float = 0.0,
) -> IcuVariable:
    """Read a row of the table: (mean, sd), (ICC, phi, AR share, age slope), (lo, hi), ..., (amplitude, peak)."""
    (mean, sd), (icc, phi, ar_share, age_slope) = level, dynamics
    return IcuVariable(
        name=name,
        law=law,
        mean=mean,
        sd=sd,
        icc=icc,
        phi=phi,
        ar_share=ar_share,
        age_slope=age_slope,
        lo=bounds[0],
        hi=bounds[1],
        resolution=resolution,
        loads=loads,
        clock_amplitude=clock[0],
        clock_peak=clock[1],
        male_shift=male_shift,
    )


# Means and sds: recorded values of 34,472 stays in MIMIC-Extract's summary, or of the open MIMIC-III demo; ICC, phi and
# AR share are fitted to lag correlations of the demo. Sources by row: spec COHORT-8. Three levels are
# not the target itself but meet it: chloride urine (64.9, 48.3) and calcium urine (5.4, 8.9) lose their tail to the
# range, and end-expiratory pressure (6.16, 2.90) is recorded of the ventilated, who have higher ones.
# fmt: off
VARIABLES: Final = (
    _variable("heart rate", "normal", (85.0, 17.3), (0.59, 0.94, 0.78, -0.10), (20, 200), 1,
              {3: 0.20, 5: 0.45}, (0.10, 16)),
    _variable("red blood cell count", "normal", (3.55, 0.66), (0.70, 0.97, 0.90, -0.10), (1.2, 7), 0.1,
              {1: 0.88}, male_shift=0.25),
    _variable("sodium", "normal", (138.6, 5.3), (0.70, 0.98, 0.92, 0.03), (110, 175), 1,
              {6: 0.20, 8: 0.60}),
    _variable("mean blood pressure", "normal", (79.4, 15.5), (0.40, 0.86, 0.48, -0.08), (20, 180), 1,
              {2: 0.10, 5: -0.55}, (0.10, 14)),
    _variable("systemic vascular resistance", "lognormal", (1057, 399), (0.55, 0.95, 0.70, 0.05), (200, 3500), 0.1,
              {5: -0.45}),
    _variable("glucose", "lognormal", (140.5, 57.2), (0.36, 0.80, 0.85, 0.05), (33, 1000), 1,
              {3: 0.25}, (0.12, 15)),
    _variable("chloride urine", "lognormal", (66.0, 54.4), (0.60, 0.98, 0.90, 0), (10, 250), 0.1,
              {2: -0.15, 8: -0.30}),
    _variable("glascow coma scale total", "coma score", (12.5, 3.6), (0.72, 0.985, 0.92, -0.05), (3, 15), 1,
              {5: -0.25, 6: -0.60}),
    _variable("hematocrit", "normal", (31.0, 5.35), (0.70, 0.97, 0.88, -0.10), (12, 60), 0.1,
              {1: 0.97}, male_shift=0.25),
    _variable("positive end-expiratory pressure set", "lognormal", (5.73, 2.76), (0.60, 0.985, 0.95, 0), (0, 25), 1,
              {4: 0.35, 6: 0.60}),
    _variable("respiratory rate", "normal", (19.1, 5.7), (0.42, 0.95, 0.46, 0.05), (4, 60), 1,
              {3: 0.25, 4: 0.20, 5: 0.30}, (0.08, 16)),
    _variable("prothrombin time pt", "lognormal", (16.0, 5.5), (0.50, 0.98, 0.92, 0.05), (9.9, 97), 0.1,
              {5: 0.35, 7: 0.60}),
    _variable("cholesterol", "normal", (161.9, 51.3), (0.95, 0.999, 1, -0.10), (32, 600), 0.1,
              {5: -0.25}),
    _variable("hemoglobin", "normal", (10.64, 1.90), (0.70, 0.97, 0.88, -0.10), (4, 20), 0.1,
              {1: 0.97}, male_shift=0.25),
    _variable("creatinine", "lognormal", (1.39, 1.48), (0.80, 0.995, 0.97, 0.12), (0.1, 25), 0.1,
              {2: 0.85}, male_shift=0.15),
    _variable("blood urea nitrogen", "lognormal", (26.2, 21.8), (0.82, 0.995, 0.97, 0.22), (1, 250), 1,
              {2: 0.80, 8: 0.25}),
    _variable("bicarbonate", "normal", (24.2, 4.7), (0.65, 0.985, 0.93, 0.05), (4, 55), 1,
              {2: -0.25, 3: -0.70, 4: 0.50}),
    _variable("calcium ionized", "normal", (1.12, 0.09), (0.45, 0.95, 0.80, 0), (0.6, 1.8), 0.01,
              {7: -0.35}),
    _variable("partial pressure of carbon dioxide", "lognormal", (41.2, 9.6), (0.65, 0.95, 0.85, 0.03), (12, 150), 1,
              {3: -0.25, 4: 0.85}),
    _variable("magnesium", "normal", (2.05, 0.41), (0.45, 0.97, 0.80, 0), (0.7, 6), 0.1,
              {2: 0.45}),
    _variable("anion gap", "normal", (13.7, 4.0), (0.65, 0.98, 0.90, -0.05), (3, 50), 1,
              {2: 0.45, 3: 0.65}),
    _variable("phosphorous", "lognormal", (3.6, 1.5), (0.50, 0.98, 0.90, -0.10), (0.5, 15), 0.1,
              {2: 0.55, 3: 0.20}),
    _variable("venous pvo2", "normal", (43.9, 14.9), (0.60, 0.95, 0.80, 0), (15, 200), 0.1,
              {5: -0.40}),
    _variable("platelets", "lognormal", (205, 113), (0.82, 0.99, 0.95, -0.03), (5, 1500), 1,
              {2: -0.20, 5: -0.25, 7: -0.45}),
    _variable("calcium urine", "lognormal", (5.76, 13.3), (0.60, 0.98, 0.90, 0), (0.1, 60), 0.1,
              {2: -0.30}),
)
# fmt: on
