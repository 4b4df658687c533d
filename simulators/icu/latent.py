"""The latent scores of every stay-hour, before any treatment (spec COHORT-4 to 6)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulators.icu.layout import HourLayout
from simulators.icu.physiology import (
    AGE_CAP,
    AGE_CENTRE,
    COURSE_DRIFT,
    MALE_SHARE,
    SEDATION,
    SHOCK,
    Physiology,
    course_moments,
)
from simulators.icu.stays import IcuStays

__all__ = ["LatentScores", "draw_latent"]

Singles = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class LatentScores:
    """Standard scores by stay-hour in hour-major order, and the two factors that drive care.

    `score [M,25]` belongs to the covariates and `shock [M]` to factor 5, with its drift; `shock_level [S]` and
    `sedation_level [S]` are the patients' factors 5 and 6, by rank. `clock [M]` counts hours from the midnight
    before admission.
    """

    score: Singles
    shock: Singles
    shock_level: Singles
    sedation_level: Singles
    clock: NDArray[np.int64]


def draw_latent(physiology: Physiology, stays: IcuStays, layout: HourLayout, rng: np.random.Generator) -> LatentScores:
    """Draw the scores of stays that are sorted as the layout's ranks."""
    patient_rng, hourly_rng, white_rng = rng.spawn(3)
    level_SV = patient_rng.standard_normal((len(stays), SEDATION + 1), np.float32) @ _single(physiology.patient_root.T)
    patient_SV = level_SV[:, : SHOCK + 1] * _single(physiology.patient_sd)
    decades = (np.minimum(stays.age, AGE_CAP) - AGE_CENTRE) / 10.0
    male = (stays.gender == "M") - MALE_SHARE
    patient_SV += _single(np.outer(decades, physiology.age_slope) + np.outer(male, physiology.male_shift))
    # The autoregression starts in its stationary law, so that first hours are as correlated as later ones.
    phi, first = _single(physiology.phi), layout.start[1]
    score_MV = hourly_rng.standard_normal((layout.n_rows, len(phi)), np.float32)
    score_MV[:first] = score_MV[:first] @ _single(physiology.start_root.T)
    score_MV[first:] = score_MV[first:] @ _single(physiology.innovation_root.T)
    for t, rows in enumerate(layout.hours()):
        if t > 0:
            before = score_MV[layout.start[t - 1] :][: rows.stop - rows.start]
            score_MV[rows] += phi * before
    score_MV *= _single(physiology.ar_sd)
    score_MV += patient_SV[layout.rank]
    score_MV += _single(physiology.white_sd) * white_rng.standard_normal(score_MV.shape, np.float32)
    clock = stays.admission_hour[layout.rank] + layout.hour
    for v in np.flatnonzero(physiology.clock_amplitude):
        angle = 2.0 * np.pi * (np.arange(24) - physiology.clock_peak[v]) / 24.0
        score_MV[:, v] += _single(physiology.clock_amplitude[v] * np.cos(angle))[clock % 24]
    elapsed = layout.hour / np.maximum(layout.length[layout.rank] - 1, 1)
    drift = np.asarray(COURSE_DRIFT)[stays.course[layout.rank]] * elapsed - course_moments()[0]
    score_MV += drift.astype(np.float32)[:, None] * _single(physiology.shock_loading)
    return LatentScores(score_MV[:, :SHOCK], score_MV[:, SHOCK], level_SV[:, SHOCK], level_SV[:, SEDATION], clock)


def _single(values: NDArray[np.float64]) -> Singles:
    return values.astype(np.float32)
