"""What the ridge regressions see: the recent window of histories, and normal equations summed over all origins."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Panel, Scaler
from costar_cli.errors import Termination
from costar_cli.methods.regression.linear import Floats, ScaledSeries

CHUNK_ROWS = 16_384  # origins whose features are held at once


class WindowFeatures:
    """The last `window` outcomes, covariates and treatments before each origin, and the statics.

    Steps before the first one hold zeros, the mean of what is standardised, and a flag per step says which are real.
    """

    def __init__(self, panel: Panel, scaler: Scaler, window: int) -> None:
        series = ScaledSeries.of(panel, scaler)
        before = np.zeros_like(panel.treatments, dtype=np.float64)
        before[:, 1:] = panel.treatments[:, :-1]
        real = np.ones((*panel.outcomes.shape[:2], 1))
        seen_NTS = np.concatenate([series.y_NTY, series.x_NTX, before, real], axis=2)
        self._padded_NTS = np.pad(seen_NTS, ((0, 0), (window - 1, 0), (0, 0)))
        self._statics_NV, self._window = series.v_NV, window
        self.answers_NTY = series.y_NTY

    @property
    def width(self) -> int:
        """Return P."""
        return int(self._window * self._padded_NTS.shape[2] + self._statics_NV.shape[1])

    def at(self, subject: NDArray[np.integer], origin: NDArray[np.integer]) -> Floats:
        """Return the features `[M,P]` of histories, the most recent step last."""
        steps_MW = origin[:, None] + np.arange(self._window)
        seen_MP = self._padded_NTS[subject[:, None], steps_MW].reshape(len(subject), -1)
        return np.concatenate([seen_MP, self._statics_NV[subject]], axis=1)


@dataclass(frozen=True, slots=True)
class StepMoments:
    """The normal equations of one step: rows `n`, means, and second moments about them, columns first, answers last."""

    n: float
    mean_P: Floats
    mean_Y: Floats
    gram_PP: Floats
    cross_PY: Floats
    power_Y: Floats

    @classmethod
    def of(cls, sums_CC: Floats, known: NDArray[np.intp], answer: NDArray[np.intp]) -> "StepMoments | None":
        """Return those of sums of products whose column 0 is one; None without rows."""
        n = float(sums_CC[0, 0])
        if n == 0:
            return None
        mean_P, mean_Y = sums_CC[0, known] / n, sums_CC[0, answer] / n
        return cls(
            n,
            mean_P,
            mean_Y,
            sums_CC[np.ix_(known, known)] / n - np.outer(mean_P, mean_P),
            sums_CC[np.ix_(known, answer)] / n - np.outer(mean_P, mean_Y),
            sums_CC[answer, answer] / n - mean_Y**2,
        )

    def error(self, weight_PY: Floats, intercept_Y: Floats) -> float:
        """Return the squared error per row of a regression on these rows."""
        bias_Y = self.mean_Y - self.mean_P @ weight_PY - intercept_Y
        explained = (weight_PY * (self.gram_PP @ weight_PY - 2 * self.cross_PY)).sum(axis=0)
        return float((self.power_Y + explained + bias_Y**2).sum())


Blocks = Sequence[StepMoments | None]  # of outcomes that share their rows, in the order of the outcomes


def step_moments(panel: Panel, features: WindowFeatures, horizon: int, *, apart: bool) -> list[Blocks]:
    """Return for each step of the horizon the normal equations of all outcomes in one block, or in one block each.

    The rows of a step are the origins that it follows; one pass over them serves every step.

    Args:
        panel: the subjects.
        features: their histories.
        horizon: H.
        apart: whether each outcome has rows of its own, those where it was observed. Else all count as observed.
    """
    columns = _Columns(features.width, panel.treatments.shape[2], panel.outcomes.shape[2], horizon)
    steps, outcomes = range(horizon), range(columns.n_outcomes)
    if not apart:
        # Products are summed by how many steps follow an origin: those of a step are the sums of all who have it.
        sums_GCC = np.zeros((horizon, columns.n, columns.n))
        for subject_M, origin_M, last in _origins(panel, horizon):
            columns_MC = columns.of(panel, features, subject_M, origin_M, last)
            sums_GCC[last] += columns_MC.T @ columns_MC
        return [[StepMoments.of(sums_GCC[h:].sum(axis=0), columns.known(h), columns.answer(h))] for h in steps]
    used = {(h, o): np.r_[0, columns.known(h), columns.answer(h)[o]] for h in steps for o in outcomes}
    sums = {key: np.zeros((len(index), len(index))) for key, index in used.items()}
    observed_NTY = panel.targets
    for subject_M, origin_M, last in _origins(panel, horizon):
        columns_MC = columns.of(panel, features, subject_M, origin_M, last)
        for h in range(last + 1):
            observed_MY = observed_NTY[subject_M, origin_M + h + 1]
            for o in outcomes:
                rows_MC = columns_MC[np.ix_(observed_MY[:, o], used[h, o])]
                sums[h, o] += rows_MC.T @ rows_MC
    return [
        [StepMoments.of(sums[h, o], np.arange(1, len(used[h, o]) - 1), np.array([-1])) for o in outcomes] for h in steps
    ]


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns of a row: one, the history, the whole plan (zeros after its end), the answers of all steps."""

    width: int
    n_treatments: int
    n_outcomes: int
    horizon: int

    @property
    def n(self) -> int:
        return 1 + self.width + self.horizon * (self.n_treatments + self.n_outcomes)

    def known(self, h: int) -> NDArray[np.intp]:
        """Return the columns that predict step h: the history and the plan up to it."""
        return np.arange(1, 1 + self.width + (h + 1) * self.n_treatments)

    def answer(self, h: int) -> NDArray[np.intp]:
        """Return the columns of the answers of step h."""
        first = self.n - self.horizon * self.n_outcomes + h * self.n_outcomes
        return first + np.arange(self.n_outcomes)

    def of(
        self, panel: Panel, features: WindowFeatures, subject_M: NDArray[np.intp], origin_M: NDArray[np.intp], last: int
    ) -> Floats:
        """Return the rows `[M,C]` of origins that steps 0 to `last` follow."""
        ahead_MG = origin_M[:, None] + np.arange(last + 1)
        columns_MC = np.zeros((len(subject_M), self.n))
        columns_MC[:, 0] = 1
        columns_MC[:, 1 : 1 + self.width] = features.at(subject_M, origin_M)
        plan = columns_MC[:, 1 + self.width :][:, : (last + 1) * self.n_treatments]
        plan[:] = panel.treatments[subject_M[:, None], ahead_MG].reshape(len(subject_M), -1)
        answers = columns_MC[:, self.n - self.horizon * self.n_outcomes :][:, : (last + 1) * self.n_outcomes]
        answers[:] = features.answers_NTY[subject_M[:, None], ahead_MG + 1].reshape(len(subject_M), -1)
        return columns_MC


def _origins(panel: Panel, horizon: int) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp], int]]:
    """Yield origins in chunks: rows, steps, and how many more steps than one follow, at most horizon - 1."""
    ahead_NT = np.minimum(panel.length[:, None] - 2 - np.arange(panel.n_steps), horizon - 1)
    for last in range(horizon):
        subject, origin = np.nonzero(ahead_NT == last)
        for first in range(0, len(subject), CHUNK_ROWS):
            Termination.stop_if_signalled()
            yield subject[first : first + CHUNK_ROWS], origin[first : first + CHUNK_ROWS], last
