"""How large effects usually are, and what the training subjects leave open of their means (spec MIXED-5, MIXED-11)."""

from typing import Any, Final

import numpy as np

from costar_cli.methods.mixed.law import Design, Floats

SUBJECTS: Final = 512  # whose columns are held at once
LEAST: Final = 1e-9  # of the largest information, after scaling: directions about which less is known stay as they are

LEAST_NOISE: Final = 1e-6  # of the response's variance: responses without any noise have no likelihood
MOST_RATIO: Final = 12.0  # logarithm, of the variance of effects of doses to that of noise


def open_factor(design: Design, spread_ZZ: Floats, variance: float, decay_CL: Floats, usual: float) -> Floats:
    """Return a factor `[P,P]` of the covariance of means, given the variances and the decays.

    Args:
        design: the transitions that were learnt from.
        spread_ZZ: factor of the covariance of effects between subjects.
        variance: of a response.
        decay_CL: of exposures.
        usual: sd of effects of doses around zero beforehand.
    """
    z, p = len(spread_ZZ), len(spread_ZZ) + design.link_NTF.shape[-1]
    information_PP, doses = np.zeros((p, p)), np.arange(z - decay_CL.size, z)
    information_PP[doses, doses] = 1 / usual**2
    for first in range(0, len(design.counted_NT), SUBJECTS):
        rows = slice(first, first + SUBJECTS)
        phi_NTP = design.take(rows).columns(decay_CL) * design.counted_NT[rows, :, None]
        turned_NTZ = phi_NTP[..., :z] @ spread_ZZ
        inner_NZZ = np.eye(z) + turned_NTZ.swapaxes(1, 2) @ turned_NTZ / variance
        explained_NZP = np.linalg.solve(np.linalg.cholesky(inner_NZZ), turned_NTZ.swapaxes(1, 2) @ phi_NTP)
        phi_MP, half_MP = phi_NTP.reshape(-1, p), explained_NZP.reshape(-1, p)
        information_PP += (phi_MP.T @ phi_MP - half_MP.T @ half_MP / variance) / variance
    return inverse_factor(information_PP)


def inverse_factor(information_PP: Floats) -> Floats:
    """Return F with F F' the inverse of a matrix, as far as it has one."""
    square_P = np.diag(information_PP)
    unit_P = np.where(square_P > 0, 1 / np.sqrt(np.where(square_P > 0, square_P, 1.0)), 0.0)
    value_P, axes_PP = np.linalg.eigh(information_PP * unit_P[:, None] * unit_P)
    known_P = value_P > LEAST * value_P.max(initial=0.0)
    inverse_P = np.where(known_P, 1 / np.sqrt(np.where(known_P, value_P, 1.0)), 0.0)
    return np.asarray(unit_P[:, None] * axes_PP * inverse_P)


def usual_effect(design: Design, decay_CL: Floats) -> float:
    """Return the sd of effects of doses around zero, at some decays (spec MIXED-5).

    It is that of the largest restricted likelihood in the pooled regression, in which all other effects are integrated
    out; the search is over its ratio to the noise, down to where it would count as much as all doses that were given.
    """
    from scipy.optimize import minimize_scalar  # noqa: PLC0415  # half a second to import, needed here alone

    counted_NT = design.counted_NT > 0
    phi_MP, response_M = design.columns(decay_CL)[counted_NT], design.response_NT[counted_NT]
    place_P, first = np.arange(phi_MP.shape[1]), design.level_NTB.shape[-1]
    is_dose_P = (place_P >= first) & (place_P < first + decay_CL.size)
    other_MF = phi_MP[:, ~is_dose_P]
    left_M = response_M - other_MF @ np.linalg.lstsq(other_MF, response_M, rcond=None)[0]
    dose_MK = phi_MP[:, is_dose_P & (phi_MP != 0).any(axis=0)]
    dose_MK = dose_MK - other_MF @ np.linalg.lstsq(other_MF, dose_MK, rcond=None)[0]
    gram_KK, least = dose_MK.T @ dose_MK, max(LEAST_NOISE * float(np.var(response_M)), 1e-12)
    square_K, direction_KK = np.linalg.eigh(gram_KK)
    square_K, product_K = square_K.clip(min=0), direction_KK.T @ (dose_MK.T @ left_M)
    count = max(len(response_M) - other_MF.shape[1], 1)

    def noise_squared(ratio: float) -> float:
        explained = float((ratio * product_K**2 / (1 + ratio * square_K)).sum())
        return float(max((left_M @ left_M - explained) / count, least))

    def loss(log_ratio: float) -> float:
        ratio = float(np.exp(log_ratio))
        return float(count * np.log(noise_squared(ratio)) + np.log1p(ratio * square_K).sum())

    all_doses = max(float(np.trace(gram_KK)), 1.0)
    found: Any = minimize_scalar(loss, bounds=(-np.log(all_doses), MOST_RATIO), method="bounded")
    ratio = float(np.exp(found.x))
    return float(np.sqrt(ratio * noise_squared(ratio)))
