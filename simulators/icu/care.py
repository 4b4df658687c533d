"""Ventilation and vasopressors, who gets them and what they do (spec COHORT-9, COHORT-10)."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from simulators.icu.latent import LatentScores
from simulators.icu.layout import HourLayout
from simulators.icu.schema import COVARIATES

__all__ = ["MEAN_PRESSURE", "Care", "give_care"]

Bools = NDArray[np.bool_]

MEAN_PRESSURE: Final = COVARIATES.index("mean blood pressure")
VENT_LOGIT: Final = -0.56  # ventilated at hour 0 in 38 % of the stays
VENT_SEDATION, VENT_SHOCK = 0.8, 0.4  # logits per sd of the patient's factors
VENT_LOG_HOURS, VENT_LOG_SD = float(np.log(21.0)), 1.1  # lognormal duration: median 21 h (19 h: 17.9 % of hours)
VENT_RESTART: Final = 0.002  # per hour off the ventilator
VASO_LOGIT: Final = -5.22  # start, per hour: 12.7 % of hours (-5.15: 13.2 %)
VASO_PRESSURE, VASO_SHOCK = -1.2, 0.5  # logits per sd of mean blood pressure and of shock
VASO_STAY: Final = 0.93  # per hour: probability to go on
VASO_LIFT: Final = 0.35  # sd of mean blood pressure in the hour after


@dataclass(frozen=True, slots=True)
class Care:
    """What was given in each stay-hour `[M]`, in hour-major order."""

    vent: Bools
    vaso: Bools


def give_care(latent: LatentScores, layout: HourLayout, rng: np.random.Generator) -> Care:
    """Give ventilation and vasopressors hour by hour; the pressure score rises in the hour after a vasopressor.

    `latent.score` is changed in place.
    """
    vent_rng, vaso_rng = rng.spawn(2)
    vent, vaso = np.zeros((2, layout.n_rows), dtype=np.bool_)
    risk = expit(VENT_LOGIT + VENT_SEDATION * latent.sedation_level + VENT_SHOCK * latent.shock_level)
    hours_left = np.zeros(len(layout.length))
    for t, rows in enumerate(layout.hours()):
        present = rows.stop - rows.start
        hours_left = hours_left[:present] - 1.0
        start = (hours_left <= 0.0) & (vent_rng.random(present) < (risk if t == 0 else VENT_RESTART))
        duration = np.exp(VENT_LOG_HOURS + VENT_LOG_SD * vent_rng.standard_normal(int(start.sum())))
        hours_left[start] = np.ceil(duration)
        vent[rows] = hours_left > 0.0
    on = np.zeros(len(layout.length), dtype=np.bool_)
    uniform = vaso_rng.random(layout.n_rows)
    for rows in layout.hours():
        on = on[: rows.stop - rows.start]
        pressure = latent.score[rows, MEAN_PRESSURE]
        pressure += np.float32(VASO_LIFT) * on
        chance = expit(VASO_LOGIT + VASO_PRESSURE * pressure + VASO_SHOCK * latent.shock[rows])
        on = uniform[rows] < np.where(on, VASO_STAY, chance)
        vaso[rows] = on
    return Care(vent, vaso)
