"""What the columns of a design tell apart, and what they say nothing of (spec MIXED-6)."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from costar_cli.methods.mixed.law import Design, Floats

Pairs = Sequence[tuple[int, int]]

START_DECAY: Final = 0.31  # of exposures, where a search for it begins
LEAST_SQUARE: Final = 1e-8  # of columns of mean square one, added to all: what is less than this is none
NEARLY: Final = 0.9  # cosine of exposures, above which a search may take one treatment for the other
PSEUDO: Final = 4  # subjects as whom the usual variance counts; with 2, bands of 90 % held 83 % after five odd steps
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


@dataclass(frozen=True)
class Apart:
    """The directions `[Z,K]` in which effects of such pairs differ, and the variance `[K]` that is usual there."""

    axes_ZK: Tensor
    usual_K: Tensor

    @classmethod
    def of(cls, pairs: Pairs, spread_ZZ: Floats, decay_CL: Floats, usual: float) -> Self:
        """Return them, each carry-over's for itself: as different as effects usually are, or as what both do together.

        Args:
            pairs: of factors.
            spread_ZZ: factor of the covariance of effects between subjects.
            decay_CL: of exposures, whose effects are the last of these.
            usual: sd of effects of doses around zero.
        """
        z, (carry_overs, factors) = len(spread_ZZ), decay_CL.shape
        axes_KZ = np.zeros((carry_overs * len(pairs), z))
        for k, (carry_over, (one, other)) in enumerate(product(range(carry_overs), pairs)):
            first = z - decay_CL.size + carry_over * factors
            axes_KZ[k, [first + one, first + other]] = np.array([1, -1]) / np.sqrt(2)
        together_K = np.square(abs(axes_KZ) @ spread_ZZ).sum(axis=1)
        return cls(torch.from_numpy(axes_KZ.T.copy()), torch.from_numpy(np.maximum(together_K, usual**2)))

    def loss(self, spread_ZZ: Tensor) -> Tensor:
        """Return minus the log-density of spreads: as if some more subjects had differed by the usual variance.

        How they did has nothing to do with their other effects: `own_K` is what these leave unexplained (MIXED-13).
        """
        if not len(self.usual_K):
            return torch.zeros((), dtype=torch.float64)
        own_K = 1 / (torch.linalg.solve(spread_ZZ, self.axes_ZK) ** 2).sum(dim=0)
        all_K = ((spread_ZZ.T @ self.axes_ZK) ** 2).sum(dim=0)
        loss: Tensor = 0.5 * PSEUDO * (own_K.log() + (self.usual_K + all_K) / own_K).sum()
        return loss
