"""What the columns of a design tell apart, and what they say nothing of (spec MIXED-6)."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from costar_cli.methods.mixed.law import Design, Floats

Pairs = Sequence[tuple[int, int]]

START_DECAY: Final = 0.31  # of exposures, where a search for it begins
LEAST_SQUARE: Final = 1e-8  # of columns of mean square one, added to all: what is less than this is none
NEARLY: Final = 0.9  # cosine of exposures, above which a search may take one treatment for the other
TRACE: Final = 1e-12  # mean square below which a column is none: one dose of usual size in a million steps has 1e-6
UNSEEN: Final = 1 / 16  # mean square that stands for none: the effect is a guess then, and wide


def gram(phi_MP: Floats) -> Floats:
    """Return mean products `[P,P]` of columns, those of directions of which they say nothing being small."""
    gram_PP = phi_MP.T @ phi_MP / len(phi_MP)
    silent_PK = silent(gram_PP)
    return np.asarray(gram_PP + np.diag(LEAST_SQUARE * np.diag(gram_PP)) + UNSEEN * silent_PK @ silent_PK.T)


def silent(gram_PP: Floats) -> Floats:
    """Return the directions of which columns say nothing, by their mean products: `[P,K]`, in units of the columns.

    That is a column of zeros, or of what is left of doses long ago, or the difference of treatments that are always
    given together (spec MIXED-6).
    """
    square_P = np.diag(gram_PP)
    unit_P = np.sqrt(np.where(square_P > TRACE, square_P, 1.0))
    value_P, axes_PP = np.linalg.eigh(gram_PP / np.outer(unit_P, unit_P))
    return np.asarray(unit_P[:, None] * axes_PP[:, value_P < LEAST_SQUARE])


def likeness(design: Design) -> Floats:
    """Return the cosines `[L,L]` of the factors' exposures: 1 of those that were always given together, and as much."""
    factors, first = design.dose_NTL.shape[-1], design.level_NTB.shape[-1]
    phi_MP = design.columns(np.full((1, factors), START_DECAY))[design.counted_NT > 0]
    exposure_ML = phi_MP[:, first : first + factors]
    gram_LL = exposure_ML.T @ exposure_ML
    size_LL = np.sqrt(np.outer(np.diag(gram_LL), np.diag(gram_LL)))
    likeness_LL = gram_LL / np.where(size_LL > 0, size_LL, 1.0)
    np.fill_diagonal(likeness_LL, 1.0)
    return np.asarray(likeness_LL)


def alike(likeness_LL: Floats) -> NDArray[np.intp]:
    """Return for each factor the first one that was given whenever it was, and as much of it `[L]`: mostly itself.

    These share their decays: two of them would tell their effects apart by what nobody observed (spec MIXED-6).
    """
    return np.asarray((likeness_LL > 1 - LEAST_SQUARE).argmax(axis=0))


def sharing(likeness_LL: Floats, tied: Pairs) -> NDArray[np.intp]:
    """Return for each factor the one whose decays it has `[L]`: of those that are alike, and of those that are tied."""
    sharing_L = alike(likeness_LL)
    for one, other in tied:
        sharing_L[sharing_L == sharing_L[other]] = sharing_L[one]
    return sharing_L


def nearly_alike(likeness_LL: Floats) -> Pairs:
    """Return the pairs of factors that were given together for the most part, though not always (spec MIXED-13)."""
    above_LL = np.triu(likeness_LL, k=1)
    pairs = np.argwhere((above_LL > NEARLY) & (above_LL <= 1 - LEAST_SQUARE)).tolist()
    return [(one, other) for one, other in pairs]
