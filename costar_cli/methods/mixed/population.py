"""What the training subjects leave open of the means of effects: their covariance at the fit (spec MIXED-11)."""

from typing import Final

import numpy as np

from costar_cli.methods.mixed.law import Design, Floats

SUBJECTS: Final = 512  # whose columns are held at once
LEAST: Final = 1e-9  # of the largest information, after scaling: directions about which less is known stay as they are


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
