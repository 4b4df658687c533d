"""What an ICU cohort must look like (spec COHORT-13).

Means, sds and missing shares are those of recorded values in MIMIC-Extract's summary of 34,472 stays or, where that has
none, in the open MIMIC-III demo; the mean of prothrombin time is our assumption. Correlations between variables are
those of the eight factors, which come near the demo's; lag correlations are the demo's.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

__all__ = ["CORRELATIONS", "LAG_CORRELATIONS", "RECORDED", "SELDOM_RECORDED", "PairTarget", "RecordedTarget"]


class RecordedTarget(NamedTuple):
    """Mean and sd of the recorded values in clinical units, and how many percent of stay-hours have none."""

    mean: float
    sd: float
    missing_percent: float


class PairTarget(NamedTuple):
    """Correlation of two variables' scores (lognormal ones on the log scale), and what it is in the open demo."""

    first: str
    second: str
    expected: float
    demo: float


RECORDED: Final[Mapping[str, RecordedTarget]] = {
    "heart rate": RecordedTarget(85.0, 17.3, 10.4),
    "red blood cell count": RecordedTarget(3.55, 0.66, 93.6),
    "sodium": RecordedTarget(138.6, 5.3, 89.9),
    "mean blood pressure": RecordedTarget(79.4, 15.5, 13.7),
    "systemic vascular resistance": RecordedTarget(1057, 399, 96.0),
    "glucose": RecordedTarget(140.5, 57.2, 76.7),
    "chloride urine": RecordedTarget(64.9, 48.3, 99.9),
    "glascow coma scale total": RecordedTarget(12.5, 3.6, 82.8),
    "hematocrit": RecordedTarget(31.0, 5.35, 88.5),
    "positive end-expiratory pressure set": RecordedTarget(6.16, 2.90, 92.6),
    "respiratory rate": RecordedTarget(19.1, 5.7, 11.8),
    "prothrombin time pt": RecordedTarget(16.0, 5.5, 94.0),
    "cholesterol": RecordedTarget(161.9, 51.3, 99.8),
    "hemoglobin": RecordedTarget(10.64, 1.90, 90.7),
    "creatinine": RecordedTarget(1.39, 1.48, 91.1),
    "blood urea nitrogen": RecordedTarget(26.2, 21.8, 91.2),
    "bicarbonate": RecordedTarget(24.2, 4.7, 91.2),
    "calcium ionized": RecordedTarget(1.12, 0.09, 96.0),
    "partial pressure of carbon dioxide": RecordedTarget(41.2, 9.6, 91.8),
    "magnesium": RecordedTarget(2.05, 0.41, 91.8),
    "anion gap": RecordedTarget(13.7, 4.0, 91.7),
    "phosphorous": RecordedTarget(3.6, 1.5, 94.0),
    "venous pvo2": RecordedTarget(43.9, 14.9, 99.96),
    "platelets": RecordedTarget(205, 113, 91.5),
    "calcium urine": RecordedTarget(5.4, 8.9, 99.99),
}
SELDOM_RECORDED: Final = (
    "chloride urine",
    "cholesterol",
    "venous pvo2",
    "calcium urine",
)  # in few patients, once or twice
CORRELATIONS: Final = (  # of values recorded together
    PairTarget("hematocrit", "hemoglobin", 0.94, 0.94),
    PairTarget("red blood cell count", "hematocrit", 0.85, 0.86),
    PairTarget("creatinine", "blood urea nitrogen", 0.68, 0.67),
    PairTarget("bicarbonate", "partial pressure of carbon dioxide", 0.60, 0.68),
    PairTarget("anion gap", "bicarbonate", -0.57, -0.56),
    PairTarget("creatinine", "anion gap", 0.38, 0.55),
    PairTarget("glascow coma scale total", "positive end-expiratory pressure set", -0.36, -0.38),
    PairTarget("prothrombin time pt", "platelets", -0.36, -0.34),
)
LAG_CORRELATIONS: Final[Mapping[str, Mapping[int, float]]] = {  # of values that many hours apart
    "heart rate": {1: 0.91, 4: 0.84, 12: 0.74, 24: 0.69},
    "mean blood pressure": {1: 0.64, 4: 0.55, 12: 0.44, 24: 0.40},
    "glucose": {1: 0.79, 4: 0.53, 12: 0.33},
    "creatinine": {1: 1.00, 4: 0.99, 12: 0.97, 24: 0.98},
}
