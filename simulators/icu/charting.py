"""Which values were recorded: bedside charting, laboratory panels, blood gases, subgroups (spec COHORT-12).

Targets are the missing shares of MIMIC-Extract's summary. Where a rate is not the one that clinical
practice suggests but the one that meets its target, the constant says so.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from simulators.icu.care import Care
from simulators.icu.latent import LatentScores
from simulators.icu.layout import HourLayout
from simulators.icu.schema import COVARIATES

__all__ = ["recorded"]

Bools = NDArray[np.bool_]

GAP_STARTS, GAP_LASTS = 0.05, 0.55  # per hour: bedside charting pauses, and stays paused
BEDSIDE_LOSS: Final = {"heart rate": 0.005, "mean blood pressure": 0.04, "respiratory rate": 0.02}
GLUCOSE_PROTOCOL_SHARE, GLUCOSE_PROTOCOL_RATE = 0.25, 0.55  # patients on hourly protocol, measured per hour
GLUCOSE_GAPS: Final = (5, 6, 7)  # hours between fingersticks of the others
DRAW_HOURS, DRAW_SHARES = (2, 3, 4, 5), (1 / 6, 1 / 3, 1 / 3, 1 / 6)  # clock hours of 04:00 ± 1.5 h
ADMISSION_HOURS: Final = 3  # the admission draw is in one of the first hours
EXTRA_RATE, EXTRA_SHOCK = 0.030, 0.4  # extra draws per hour, and log rate per sd of shock
LOSS: Final = 0.01  # a laboratory value that gets lost
PANEL: Final = {  # probability to be in a draw: chemistry, blood count, coagulation
    "sodium": 1.0,
    "bicarbonate": 1.0,
    "blood urea nitrogen": 1.0,
    "creatinine": 1.0,
    "anion gap": 1.0,
    "magnesium": 0.95,
    "phosphorous": 0.65,
    "hematocrit": 1.0,
    "hemoglobin": 1.0,
    "platelets": 1.0,
    "red blood cell count": 0.72,
    "prothrombin time pt": 0.65,
}
HEMATOCRIT_EXTRA: Final = 0.0275  # per hour: hematocrit-only draws, 30 % of the panels (20 % leave 89.7 % missing)
GAS_SHARE: Final = 0.68  # patients with arterial gases
GAS_VENTILATED, GAS_OTHERWISE = 1 / 4, 1 / 10  # per hour (1/5 and 1/14 leave 93.7 % missing)
GAS_CALCIUM, GAS_SODIUM = 0.45, 0.20  # gases that report calcium; sodium, without which 91.4 % are missing
COMA_SHARE, COMA_GAPS = 0.48, (2, 3, 3, 3)  # patients scored, hours between (4 h leave 88 % missing)
PEEP_GAPS: Final = (2, 3)  # hours between, while ventilated (3 h leave 93.7 % missing)
RESISTANCE_SHARE, RESISTANCE_RATE, RESISTANCE_HOURS = 0.13, 0.45, 48  # patients, per hour, first hours (9 %: 97.4 %)
FEW: Final = {  # share of patients, and most values of one
    "cholesterol": (0.10, 1),
    "chloride urine": (0.05, 2),
    "venous pvo2": (0.012, 3),
    "calcium urine": (0.005, 1),
}


def recorded(latent: LatentScores, care: Care, layout: HourLayout, rng: np.random.Generator) -> Bools:
    """Return which values `[M,25]` were recorded, in hour-major order."""
    bedside_rng, glucose_rng, panel_rng, gas_rng, subgroup_rng, few_rng = rng.spawn(6)
    mask_MV = np.zeros((layout.n_rows, len(COVARIATES)), dtype=np.bool_)
    # Bedside charting pauses; pauses start and last as a two-state Markov chain.
    charted = np.empty(layout.n_rows, dtype=np.bool_)
    uniform = bedside_rng.random(layout.n_rows)
    pause = np.full(len(layout.length), GAP_STARTS / (GAP_STARTS + 1.0 - GAP_LASTS))
    for rows in layout.hours():
        paused = uniform[rows] < pause[: rows.stop - rows.start]
        charted[rows] = ~paused
        pause = np.where(paused, GAP_LASTS, GAP_STARTS)
    for name, loss in BEDSIDE_LOSS.items():
        _put(mask_MV, name, charted & (bedside_rng.random(layout.n_rows) >= loss))
    protocol = _patients(layout, glucose_rng, GLUCOSE_PROTOCOL_SHARE)
    hourly = glucose_rng.random(layout.n_rows) < GLUCOSE_PROTOCOL_RATE
    _put(mask_MV, "glucose", charted & np.where(protocol, hourly, layout.renewals(glucose_rng, GLUCOSE_GAPS)))
    n_days = int(latent.clock.max(initial=0)) // 24 + 1
    daily = panel_rng.choice(DRAW_HOURS, size=(len(layout.length), n_days), p=DRAW_SHARES)
    admission = panel_rng.integers(ADMISSION_HOURS, size=len(layout.length))
    extra = panel_rng.random(layout.n_rows) < -np.expm1(-EXTRA_RATE * np.exp(EXTRA_SHOCK * latent.shock))
    day, clock_hour = np.divmod(latent.clock, 24)
    drawn = (daily[layout.rank, day] == clock_hour) | (admission[layout.rank] == layout.hour) | extra
    for name, share in PANEL.items():
        _put(mask_MV, name, drawn & (panel_rng.random(layout.n_rows) < share * (1.0 - LOSS)))
    _put(mask_MV, "hematocrit", panel_rng.random(layout.n_rows) < HEMATOCRIT_EXTRA)
    rate = -np.expm1(-np.where(care.vent, GAS_VENTILATED, GAS_OTHERWISE))
    gas = _patients(layout, gas_rng, GAS_SHARE) & (gas_rng.random(layout.n_rows) < rate)
    _put(mask_MV, "partial pressure of carbon dioxide", gas & (gas_rng.random(layout.n_rows) >= LOSS))
    _put(mask_MV, "calcium ionized", gas & (gas_rng.random(layout.n_rows) < GAS_CALCIUM))
    _put(mask_MV, "sodium", gas & (gas_rng.random(layout.n_rows) < GAS_SODIUM))
    scored = _patients(layout, subgroup_rng, COMA_SHARE) & layout.renewals(subgroup_rng, COMA_GAPS)
    _put(mask_MV, "glascow coma scale total", scored)
    _put(mask_MV, "positive end-expiratory pressure set", care.vent & layout.renewals(subgroup_rng, PEEP_GAPS))
    monitored = _patients(layout, subgroup_rng, RESISTANCE_SHARE) & (layout.hour < RESISTANCE_HOURS)
    measured = subgroup_rng.random(layout.n_rows) < RESISTANCE_RATE
    _put(mask_MV, "systemic vascular resistance", monitored & measured)
    for name, (share, most) in FEW.items():
        _put(mask_MV, name, layout.few(few_rng, share=share, most=most))
    return mask_MV


def _put(mask_MV: Bools, name: str, where: Bools) -> None:
    mask_MV[:, COVARIATES.index(name)] |= where


def _patients(layout: HourLayout, rng: np.random.Generator, share: float) -> Bools:
    """Return the stay-hours `[M]` of a random share of the stays."""
    chosen: Bools = (rng.random(len(layout.length)) < share)[layout.rank]
    return chosen
