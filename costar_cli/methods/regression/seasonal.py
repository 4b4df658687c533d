"""The seasonal naive anchor: the value one season ago, with the season that repeats best (spec LAST-3)."""

from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Panel, Queries, Scaler
from costar_cli.files import Artifact
from costar_cli.methods.base import Device, Fit, FitTask, Fitted
from costar_cli.methods.regression.naive import NaiveModel
from costar_cli.methods.regression.settings import MOST_SEASON, SeasonalNaiveConfig
from costar_cli.methods.shared.trained import ReadsModels

LONGEST_SEASON: Final = 400  # steps: a year of days
SEASON_SUBJECTS: Final = 500  # on which seasons are compared
LEAST_GAIN: Final = 0.05  # of the squared error of the last value; less is what chance gives
SHARE_OF_GAIN: Final = 0.95  # of the best season's, which a shorter one needs in its stead


@dataclass(frozen=True, kw_only=True)
class SeasonalNaive(NaiveModel):
    """Predicts the value of the same season, the last time that it was seen."""

    method: str = "seasonal-naive"

    @classmethod
    def from_artifact(cls, artifact: Artifact, device: Device = "cpu", **own: Any) -> Self:  # noqa: ANN401
        """Read a model artifact.

        Raises:
            ValueError: the season is no number of steps.
        """
        model = super().from_artifact(artifact, device, **own)
        season = model.params["season"]
        if season.dtype != np.int64 or season.shape != (1,) or not 1 <= model.season <= MOST_SEASON:
            raise ValueError(f"a season is one number from 1 to {MOST_SEASON:,}, not {season.tolist()}")
        return model

    @property
    def season(self) -> int:
        """Return the steps of a season."""
        return int(self.params["season"][0])

    def repeated(self, panel: Panel, queries: Queries) -> NDArray[np.float32]:
        """Return outcomes of whole seasons ago; the last value where the history is shorter than that."""
        origin_Q1 = queries.origin.astype(np.int64)[:, None]
        then_QH = origin_Q1 + np.arange(1, queries.horizon + 1) - _lags(self.season, queries.horizon)
        return panel.outcomes[queries.subject[:, None], np.where(then_QH >= 0, then_QH, origin_Q1)]


class SeasonalNaiveMethod(ReadsModels):
    """The value one season ago; few-shot keeps the source's season."""

    model = SeasonalNaive

    def fit(self, task: FitTask) -> Fit:
        """Find the season in the training subjects, where the settings do not say it."""
        yield from ()
        season = task.settings_of(SeasonalNaiveConfig).season
        if season is None and isinstance(task.start, SeasonalNaive):
            season = task.start.season
        if season is None:
            season = find_season(task.panels[task.train], task.horizon, task.scaler)
        return Fitted({"season": np.array([season])}, {"season": season})


SEASONAL_NAIVE = SeasonalNaiveMethod()


def find_season(panel: Panel, horizon: int, scaler: Scaler) -> int:
    """Return the season whose repetition is nearest to what came next in a panel; 1 where none is much nearer.

    A season is tried where at least half of the subjects have seen it twice; of a season and its multiples, which are
    as near but for chance, the shortest is returned (spec LAST-3).
    """
    in_order = np.argsort(panel.subject_id, kind="stable")
    some = np.unique(np.linspace(0, len(in_order) - 1, min(SEASON_SUBJECTS, len(in_order))).round().astype(np.int64))
    panel = panel.take(in_order[some])
    steps = int(np.median(panel.length))
    longest = min(LONGEST_SEASON, steps // 2)
    if longest < 2:
        return 1
    error_G, observed_NTY = np.full(steps, np.inf), panel.observed_outcomes
    for lag in range(1, steps):  # mean squared differences of observed outcomes so many steps apart, in sds
        both_NTY = observed_NTY[:, lag:] & observed_NTY[:, :-lag]
        if both_NTY.any():
            difference_NTY = (panel.outcomes[:, lag:] - panel.outcomes[:, :-lag]) / scaler.outcomes[1]
            error_G[lag] = np.square(difference_NTY[both_NTY]).mean()
    lags = (_lags(season, horizon) for season in range(1, longest + 1))
    score_S = np.array([error_G[lag_H[lag_H < steps]].mean() for lag_H in lags])
    if not 0 < score_S[0] < np.inf:
        return 1
    gain_S = 1 - score_S / score_S[0]
    enough_S = gain_S >= max(SHARE_OF_GAIN * gain_S.max(), LEAST_GAIN)
    return 1 + int(enough_S.argmax()) if enough_S.any() else 1


def _lags(season: int, horizon: int) -> NDArray[np.int64]:
    """Return the whole seasons, in steps, between each predicted step and what is repeated there, `[H]`."""
    return np.asarray(season * -(-np.arange(1, horizon + 1) // season), dtype=np.int64)
