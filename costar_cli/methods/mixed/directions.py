"""What the columns of a design tell apart, and what they say nothing of (spec MIXED-6)."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from costar_cli.methods.mixed.law import Design, Floats

START_DECAY: Final = 0.31  # of exposures, where a search for it begins
LEAST_SQUARE: Final = 1e-8  # of columns of mean square one, added to all: what is less than this is none
UNSEEN: Final = 1 / 16  # mean square that stands for none: the effect is a guess then, and wide


def gram(phi_MP: Floats) -> Floats:
    """Return mean products `[P,P]` of columns, those of directions of which they say nothing being small."""
    gram_PP = phi_MP.T @ phi_MP / len(phi_MP)
    silent_PK = silent(gram_PP)
    return np.asarray(gram_PP + np.diag(LEAST_SQUARE * np.diag(gram_PP)) + UNSEEN * silent_PK @ silent_PK.T)


def silent(gram_PP: Floats) -> Floats:
    """Return the directions of which columns say nothing, by their mean products: `[P,K]`, in units of the columns.

    That is a column of zeros, or the difference of treatments that are always given together (spec MIXED-6).
    """
    square_P = np.diag(gram_PP)
    unit_P = np.sqrt(np.where(square_P > 0, square_P, 1.0))
    value_P, axes_PP = np.linalg.eigh(gram_PP / np.outer(unit_P, unit_P))
    return np.asarray(unit_P[:, None] * axes_PP[:, value_P < LEAST_SQUARE])


def alike(design: Design) -> NDArray[np.intp]:
    """Return for each factor the first one that was given whenever it was, and as much of it `[L]`: mostly itself.

    These share their decays: two of them would tell their effects apart by what nobody observed (spec MIXED-6).
    """
    factors, first = design.dose_NTL.shape[-1], design.level_NTB.shape[-1]
    phi_MP = design.columns(np.full((1, factors), START_DECAY))[design.counted_NT > 0]
    exposure_ML = phi_MP[:, first : first + factors]
    gram_LL = exposure_ML.T @ exposure_ML
    size_L = np.sqrt(np.diag(gram_LL))
    alike_LL = gram_LL > (1 - LEAST_SQUARE) * np.outer(size_L, size_L)
    return np.asarray((alike_LL | np.eye(factors, dtype=bool)).argmax(axis=0))
