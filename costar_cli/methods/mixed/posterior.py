"""What a history says of its subject's effects (spec MIXED-8, MIXED-11)."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from costar_cli.methods.mixed.effects import Effects
from costar_cli.methods.mixed.law import Floats
from costar_cli.methods.mixed.logit import LogitPosterior


@dataclass(frozen=True)
class Posterior:
    """Prefix sums of one outcome's transitions, and what they say of a subject's effects (spec MIXED-8).

    `exposure_NTJ` is what is left of earlier doses before each step's own.
    """

    effects: Effects
    prior_NP: Floats
    exposure_NTJ: Floats
    spread_NTZ1: Floats  # sums of spread' phi (r - phi' prior)
    cross_NTZP: Floats  # sums of spread' phi phi', of which the last may be those of random effects alone

    def at(self, row_M: NDArray[np.integer], step_M: NDArray[np.integer]) -> tuple[Floats, Floats]:
        """Return expected effects `[M,P]` from steps before `step`, and a factor `[M,Z,Z]` of their covariance."""
        root_MZZ = self._root(row_M, step_M)
        variance, z = self.effects.noise**2, self.effects.n_random
        summed_MZ1 = self.spread_NTZ1[row_M, step_M][..., None] / variance
        coordinates_MZ = (root_MZZ.swapaxes(1, 2) @ (root_MZZ @ summed_MZ1))[..., 0]
        mean_MP = self.prior_NP[row_M].copy()
        mean_MP[:, :z] += coordinates_MZ @ self.effects.spread.T
        return mean_MP, self.effects.spread @ root_MZZ.swapaxes(1, 2)

    def _root(self, row_M: NDArray[np.integer], step_M: NDArray[np.integer]) -> Floats:
        """Return `root [M,Z,Z]`, of which root' root is the inverse precision in coordinates of the spread."""
        z = self.effects.n_random
        cross_MZZ = self.cross_NTZP[row_M, step_M, :, :z]
        precision_MZZ = np.eye(z) + cross_MZZ @ self.effects.spread / self.effects.noise**2
        return np.asarray(np.linalg.inv(np.linalg.cholesky(precision_MZZ)))

    def moves(self, row_U: NDArray[np.integer], step_U: NDArray[np.integer]) -> Floats:
        """Return the derivatives `[U,P,P]` of expected effects by the means of all subjects (spec MIXED-11)."""
        learnt, root_UZZ = self.effects, self._root(row_U, step_U)
        factor_UZZ = learnt.spread @ root_UZZ.swapaxes(1, 2)
        moves_UPP = np.tile(np.eye(len(learnt.mean)), (len(row_U), 1, 1))
        moves_UPP[:, : learnt.n_random] -= factor_UZZ @ (root_UZZ @ self.cross_NTZP[row_U, step_U]) / learnt.noise**2
        return moves_UPP


@dataclass(frozen=True, slots=True)
class Known:
    """What histories say of the effects of one outcome: the expected `[Q,P]`, a factor `[Q,Z,Z]` of their covariance.

    `row_Q` and `step_Q` say whose they are, and where they end.
    """

    posterior: Posterior | LogitPosterior
    row_Q: NDArray[np.integer]
    step_Q: NDArray[np.integer]
    mean_QP: Floats
    factor_QZZ: Floats

    @classmethod
    def at(cls, posterior: Posterior | LogitPosterior, row_Q: NDArray[np.integer], step_Q: NDArray[np.integer]) -> Self:
        """Return what the steps before some origins say."""
        return cls(posterior, row_Q, step_Q, *posterior.at(row_Q, step_Q))

    def moves(self) -> tuple[Floats, NDArray[np.intp]]:
        """Return the derivatives `[U,P,P]` of expected effects by the means of all subjects (spec MIXED-11).

        They are those of U histories; `[Q]` says which of them is each query's.
        """
        steps = int(self.step_Q.max(initial=0)) + 1
        _, first_U, of_Q = np.unique(self.row_Q * steps + self.step_Q, return_index=True, return_inverse=True)
        return self.posterior.moves(self.row_Q[first_U], self.step_Q[first_U]), of_Q

    def left_open(self) -> Floats:
        """Return a factor `[Q,P,K]` of the covariance of effects, of what training leaves open in it where known."""
        learnt = self.posterior.effects
        links = ((0, 0), (0, len(learnt.mean) - learnt.n_random), (0, 0))
        own_QPZ = np.pad(self.factor_QZZ, links)
        # Counted, since without it 90 % intervals of average effects covered 16 % in the linear system. Decays count as
        # known: with them, linearised, intervals covered 99 %, as the decay of a dose without effect may be anything.
        if learnt.open is None:
            return own_QPZ
        moves_UPP, of_Q = self.moves()
        return np.concatenate([own_QPZ, (moves_UPP @ learnt.open)[of_Q]], axis=2)
