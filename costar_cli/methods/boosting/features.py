"""What the trees see: a history in the units of its origin, and the plan (spec BOOST-1 and 2).

`P` columns of trees, `M` origins, `L` treatment factors, `C` decays.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Panel, Scaler, TreatmentEncoding
from costar_cli.methods.shared.doses import dose_table
from costar_cli.methods.shared.outcome_forms import OutcomeForm, usual_size

Floats = NDArray[np.float64]
Origins = NDArray[np.int64]

DECAYS: Final = (0.0, 0.5, 0.8, 1.0)  # of exposures: the last dose, half-lives of 1 and 3 steps, the total
RECENT: Final = 0.3  # weight of the newest outcome in the running mean that forgets
LEAST_UNIT: Final = 1e-3  # of an sd, added to the level that a relative change is divided by


class Histories:
    """The histories of a panel at every step, as columns for trees.

    Whatever is known at step t is computed from steps up to t alone, so that one pass serves every origin. Outcomes
    that were filled are part of a history.

    Args:
        panel: the subjects.
        scaler: gives the sds of outcomes.
        encoding: how treatments are coded.
        forms: how each outcome changes.
        lags: how many past outcomes are columns.
    """

    def __init__(
        self, panel: Panel, scaler: Scaler, encoding: TreatmentEncoding, forms: Sequence[OutcomeForm], lags: int
    ) -> None:
        self.forms, self.lags = tuple(forms), lags
        self.sd_Y = scaler.outcomes[1]
        self.y_NTY = panel.outcomes.astype(np.float64)
        self.x_NTX = panel.covariates.astype(np.float64)
        self.v_NV = panel.statics.astype(np.float64)
        self.dose_NTL = panel.treatments.astype(np.float64) @ dose_table(encoding)
        steps_T1 = np.arange(1, panel.n_steps + 1)[:, None]
        self.mean_NTY = self.y_NTY.cumsum(axis=1) / steps_T1
        self.local_NTY = usual_size(self.y_NTY, steps_T1, self.sd_Y)
        self.recent_NTY = np.empty_like(self.y_NTY)
        self.exposure_NTJ = np.zeros((*self.y_NTY.shape[:2], len(DECAYS) * self.dose_NTL.shape[-1]))
        decay_J = np.repeat(DECAYS, self.dose_NTL.shape[-1])
        self.recent_NTY[:, 0] = self.y_NTY[:, 0]
        for t in range(1, panel.n_steps):
            self.recent_NTY[:, t] = (1 - RECENT) * self.recent_NTY[:, t - 1] + RECENT * self.y_NTY[:, t]
            given_NJ = np.tile(self.dose_NTL[:, t - 1], len(DECAYS))
            self.exposure_NTJ[:, t] = decay_J * self.exposure_NTJ[:, t - 1] + given_NJ

    @property
    def width(self) -> int:
        """Return P, the columns of a history, the same for every outcome."""
        others = self.dose_NTL.shape[-1], self.x_NTX.shape[-1], self.v_NV.shape[-1]
        return history_width(self.lags, len(self.forms), *others)

    def unit(self, subject: Origins, origin: Origins, outcome: int) -> Floats:
        """Return `[M]`, in units of the data, what changes from an origin on are divided by (spec BOOST-1)."""
        kind = self.forms[outcome].kind
        if kind == "relative":
            return np.asarray(np.abs(self.y_NTY[subject, origin, outcome]) + LEAST_UNIT * self.sd_Y[outcome])
        if kind == "local":
            return np.asarray(self.local_NTY[subject, origin, outcome])
        return np.full(len(subject), self.sd_Y[outcome])

    def at(self, subject: Origins, origin: Origins, outcome: int) -> Floats:
        """Return the columns `[M,P]` of histories for the trees of one outcome; NaN where there is no such step."""
        y_MY, unit_M = self.y_NTY[subject, origin], self.unit(subject, origin, outcome)
        before = np.maximum(origin - 1, 0)
        began_M1 = (origin > 0)[:, None]
        step_MK = origin[:, None] - np.arange(1, self.lags + 1)
        past_MK = self.y_NTY[subject[:, None], np.maximum(step_MK, 0), outcome] - y_MY[:, outcome, None]
        others = np.arange(len(self.forms)) != outcome
        change_MY = (y_MY - self.y_NTY[subject, before]) / self.sd_Y
        x_MX = self.x_NTX[subject, origin]
        level_unit_M = unit_M if self.forms[outcome].kind == "local" else np.full_like(unit_M, self.sd_Y[outcome])
        columns = [
            np.where(step_MK >= 0, past_MK / unit_M[:, None], np.nan),
            ((self.mean_NTY[subject, origin, outcome] - y_MY[:, outcome]) / unit_M)[:, None],
            ((self.recent_NTY[subject, origin, outcome] - y_MY[:, outcome]) / unit_M)[:, None],
            (y_MY[:, outcome] / level_unit_M)[:, None],
            y_MY[:, others] / self.sd_Y[others],
            np.where(began_M1, change_MY, np.nan)[:, others],
            self.exposure_NTJ[subject, origin],
            x_MX,
            np.where(began_M1, x_MX - self.x_NTX[subject, before], np.nan),
            self.v_NV[subject],
            origin[:, None].astype(np.float64),
        ]
        return np.concatenate(columns, axis=1)


def history_width(lags: int, n_outcomes: int, n_factors: int, n_covariates: int, n_statics: int) -> int:
    """Return P, the columns of a history, which `Histories.at` has."""
    own, others = lags + 3, 2 * (n_outcomes - 1)
    return own + others + len(DECAYS) * n_factors + 2 * n_covariates + n_statics + 1


def plan_columns(dose_MHL: Floats) -> Floats:
    """Return the columns `[M,P]` of a plan: each step's doses, then its own exposures at its end (spec BOOST-2)."""
    n, horizon, n_factors = dose_MHL.shape
    decay_J = np.repeat(DECAYS, n_factors)
    exposure_MJ = np.zeros((n, len(decay_J)))
    for h in range(horizon):
        exposure_MJ = decay_J * exposure_MJ + np.tile(dose_MHL[:, h], len(DECAYS))
    return np.concatenate([dose_MHL.reshape(n, horizon * n_factors), exposure_MJ], axis=1)
