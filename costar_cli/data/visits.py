"""Visits at any time: how long each step is, and when the steps of plans are (spec PANEL-17)."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from costar_cli.data.dose import Dose
from costar_cli.data.panel import Panel
from costar_cli.data.schema import TreatmentEncoding

ELAPSED: Final = "elapsed"  # what plans call the time until the next visit
AFTER, AT = "after", "at"  # what they say in its place


def elapsed(encoding: TreatmentEncoding, treatments: NDArray[np.number]) -> NDArray[np.float64] | None:
    """Return how long each step of encoded treatments `[...,A]` is, in units of a step; None where all are one.

    Where none is told, in padding, it is 1.
    """
    for dose, column in zip(encoding.doses, encoding.dose_columns, strict=True):
        if dose.elapsed is not None:
            gap = dose.decode(treatments[..., column])
            return np.where(gap > 0, gap, 1.0)
    return None


def elapsed_dose(encoding: TreatmentEncoding) -> Dose | None:
    """Return the dose that is the time until the next step, None where all steps are of one length."""
    return next((dose for dose in encoding.doses if dose.elapsed is not None), None)


def dose_of_gaps(gap_M: NDArray[np.float64], *, unit: str, microseconds: int | None) -> Dose:
    """Return the dose that is the time until the next step, of gaps as source-train has them, in units of so long.

    Raises:
        ValueError: they never change.
    """
    dose = Dose.learn(ELAPSED, gap_M, unit=unit)
    return dose.model_copy(update={"elapsed": float(np.median(gap_M)), "microseconds": microseconds})


def visit_dates(
    panel: Panel, dose: Dose, subject_Q: NDArray[np.integer], origin_Q: NDArray[np.integer], gap_QH: NDArray[np.float64]
) -> NDArray[np.object_] | None:
    """Return when the visits `[Q,H]` of plans are, as text, that many units apart; None without dates."""
    if panel.calendar is None or dose.microseconds is None:
        return None
    begin_Q = panel.calendar.at(subject_Q, origin_Q, panel.length[subject_Q])
    ahead_QH = np.rint(np.cumsum(gap_QH, axis=1) * dose.microseconds).astype("m8[us]")
    date_QH = begin_Q[:, None] + ahead_QH
    whole = not (ahead_QH.astype(np.int64) % 86_400_000_000).any() and panel.calendar.written == "D"
    texts = np.datetime_as_string(date_QH.astype("M8[m]"), unit="D" if whole else "m").astype(object)
    return np.array([None if text == "NaT" else text.replace("T", " ") for text in texts.ravel()]).reshape(texts.shape)
