"""Preconditioned feature averaging (spec THEORY-4): the head for which the theory bounds the error.

A history gets the outcome whose labelled histories have the mean feature that it is nearest to in direction, after the
second moments of all histories, labelled or not, have been applied to that mean `power - 1` times.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PfaHead:
    """A fitted head: `directions [K,R]`, `Sigma^(power-1) b_i` up to a common factor, and `values [R,Y]`."""

    directions: Floats
    values: Floats

    @classmethod
    def fit(
        cls,
        features_NK: Floats,
        labelled_MK: Floats,
        outcomes_MY: Floats,
        *,
        values_RY: Floats,
        tolerance: float,
        power: int = 1,
        probability_N: Floats | None = None,
        probability_M: Floats | None = None,
    ) -> "PfaHead":
        """Fit the head of one treatment.

        Args:
            features_NK: representations of all histories, whatever treatment followed, labelled or not.
            labelled_MK: representations of the labelled ones that received the treatment.
            outcomes_MY: their outcomes.
            values_RY: outcomes to choose from.
            tolerance: largest distance at which an outcome counts as one of the values.
            power: t of the theory; 1 compares with the mean features themselves.
            probability_N: weight of each history, all alike by default.
            probability_M: weight of each labelled one, all alike by default.

        Raises:
            ValueError: a power below 1, or no labelled outcome near any value.
        """
        if power < 1:
            raise ValueError("the power is at least 1")
        moments_KK = features_NK.T @ (_shares(probability_N, len(features_NK))[:, None] * features_NK)
        largest = np.linalg.norm(moments_KK, ord=2)
        near_MR = np.linalg.norm(outcomes_MY[:, None] - values_RY[None], axis=2) <= tolerance
        if not near_MR.any():
            raise ValueError("no labelled outcome is near any of the values")
        mean_KR = labelled_MK.T @ (_shares(probability_M, len(labelled_MK))[:, None] * near_MR)
        scaled = moments_KK / largest if largest > 0 else moments_KK  # a factor changes no comparison
        return cls(np.linalg.matrix_power(scaled, power - 1) @ mean_KR, values_RY)

    def choose(self, features_NK: Floats) -> NDArray[np.intp]:
        """Return which of the values each history gets, `[N]`."""
        return np.asarray((features_NK @ self.directions).argmax(axis=1))

    def predict(self, features_NK: Floats) -> Floats:
        """Return the outcomes `[N,Y]` of representations `[N,K]`."""
        return np.asarray(self.values[self.choose(features_NK)])


def binned_values(outcomes_M: Floats, tolerance: float) -> Floats:
    """Return the centres `[R,1]` of the bins of width `2 * tolerance` that hold labelled scalar outcomes."""
    lowest = outcomes_M.min()
    used = np.unique(((outcomes_M - lowest) / (2 * tolerance)).astype(np.int64))
    return np.asarray(lowest + (2 * used[:, None] + 1) * tolerance, dtype=np.float64)


def clustered_values(outcomes_MY: Floats, count: int, seed: int = 0) -> Floats:
    """Return `count` centres `[R,Y]` of labelled outcomes that are vectors, by k-means."""
    from sklearn.cluster import KMeans  # noqa: PLC0415  # a second to import, needed here alone

    return np.asarray(KMeans(count, n_init=10, random_state=seed).fit(outcomes_MY).cluster_centers_)


def _shares(probability: Floats | None, count: int) -> Floats:
    return np.full(count, 1 / count) if probability is None else probability / probability.sum()
