"""Trends over the stay and smooth paths of each patient (spec ICU-8, ICU-9)."""

from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import toeplitz

__all__ = ["gaussian_paths", "matern_covariance", "trend_basis", "trend_classes"]

Floats = NDArray[np.float64]

TREND_COEFFICIENTS: Final = (
    (1.0, 0.9, 0.0, -0.5, -1.0),
    (1.0, 1.0, 0.5, 0.2, 0.2),
    (-0.3, -0.2, -0.2, -0.3, -0.2),
)  # [class, basis]
BASIS_BY_POWER: Final = (
    (1.0, -4.0, 6.0, -4.0, 1.0),
    (11.0, -12.0, -6.0, 12.0, -4.0),
    (11.0, 12.0, -6.0, -12.0, 6.0),
    (1.0, 4.0, 6.0, 4.0, -4.0),
    (0.0, 0.0, 0.0, 0.0, 1.0),
)  # [basis, power of u], over 24: the middle piece of the uniform quartic B-splines


def trend_basis(trend_hours: int) -> Floats:
    """Return the quartic uniform B-spline bases `[T,5]` on [0, trend_hours], at hours 0..trend_hours-1."""
    u = np.arange(trend_hours) / trend_hours
    return np.asarray(np.vander(u, 5, increasing=True) @ np.array(BASIS_BY_POWER).T / 24.0)


def trend_classes(trend_hours: int) -> Floats:
    """Return the trend `[3,T]` of each class at hours 0..trend_hours-1."""
    return np.asarray(np.array(TREND_COEFFICIENTS) @ trend_basis(trend_hours).T)


def matern_covariance(n_hours: int, *, length_hours: float, noise: float) -> Floats:
    """Return the covariance `[T,T]` of a path: Matérn 5/2 with variance 1, plus white noise of the given variance."""
    distance = np.sqrt(5.0) * np.arange(n_hours) / length_hours
    covariance = (1.0 + distance + distance**2 / 3.0) * np.exp(-distance)
    covariance[:1] += noise
    return np.asarray(toeplitz(covariance))


def gaussian_paths(normal_NT: Floats, covariance_TT: Floats) -> Floats:
    """Return paths `[N,T]` of independent standard normal draws `[N,T]`, one per patient and hour.

    One Cholesky root serves all lengths up to that of the covariance, since the root of a shorter grid is its upper
    left part. The product is summed hour by hour: a path does not depend on other patients, nor on its own later hours.
    """
    n_hours = normal_NT.shape[1]
    root_TT = np.linalg.cholesky(covariance_TT)[:n_hours, :n_hours]
    path_NT = np.zeros_like(normal_NT)
    for s in range(n_hours):
        path_NT[:, s:] += normal_NT[:, s, None] * root_TT[s:, s]
    return path_NT
