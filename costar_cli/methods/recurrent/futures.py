"""Futures simulated from residuals, with draws that depend on nothing but the history asked about (spec GNET-3 to 5).

A draw is a hash of seed, member, subject, origin, sample and step. So an answer does not depend on which other queries
share its batch. Plans of one history are compared under the same draws, which cancels most of the noise in their
difference, and no plan changes what comes before it acts.
"""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from costar_cli.data.tensors import PanelTensors
from costar_cli.methods.shared.streams import Stream

GOLDEN = 0x9E3779B97F4A7C15  # the odd constants of splitmix64 (Steele et al. 2014)
MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
STEPS = 2**20  # more than any horizon


@dataclass(frozen=True)
class Draws:
    """Random whole numbers for the futures of some histories; `key_Q` identifies each history."""

    key_Q: Tensor

    @classmethod
    def of(cls, seed: int, member: int, subject_id_Q: Tensor, origin_Q: Tensor) -> Self:
        """Return the draws of histories, each the same wherever it is asked about."""
        first = Stream(seed, "futures", member).torch_seed()
        return cls(_mixed(_mixed(subject_id_Q + first) + origin_Q))

    def below(self, count: int, samples: int, step: int) -> Tensor:
        """Return `[Q,S]` numbers, each of `0..count-1` as likely as the others, for one step of S futures."""
        counter_S = torch.arange(samples, device=self.key_Q.device) * STEPS + step + 1
        bits_QS = _mixed(self.key_Q[:, None] + counter_S * _signed(GOLDEN))
        return _shifted(bits_QS, 33) % count


def _mixed(bits: Tensor) -> Tensor:
    """Return the finaliser of splitmix64, on 64-bit integers that wrap around."""
    bits = (bits ^ _shifted(bits, 30)) * _signed(MIX[0])
    bits = (bits ^ _shifted(bits, 27)) * _signed(MIX[1])
    return bits ^ _shifted(bits, 31)


def _shifted(bits: Tensor, count: int) -> Tensor:
    """Return the bits moved right, with zeros moved in."""
    return (bits >> count) & ((1 << (64 - count)) - 1)


def _signed(word: int) -> int:
    return word - 2**64 if word >= 2**63 else word


@dataclass(frozen=True)
class Residuals:
    """What one member got wrong on subjects that it has not learned from: `value_KTE`, of which `length_K` steps."""

    value_KTE: Tensor
    length_K: Tensor

    def at(self, subject_QS: Tensor, position_Q: Tensor) -> Tensor:
        """Return the residuals `[Q,S,E]` of subjects at a position, or at their last one where that comes earlier."""
        position_QS = torch.minimum(position_Q[:, None], self.length_K[subject_QS] - 1)
        return self.value_KTE[subject_QS, position_QS]


def usable_length(panel: PanelTensors) -> Tensor:
    """Return how many steps of each subject have a target: one less where covariates are predicted too."""
    return panel.length_N - 1 - (1 if panel.x_NTX.shape[2] else 0)


def has_residuals(panel: PanelTensors) -> Tensor:
    """Return of which subjects, `[N]`, there are residuals of every outcome."""
    known_NTY = known_targets(panel)
    return usable_length(panel) > 0 if known_NTY is None else known_NTY.any(dim=1).all(dim=-1)


def known_position(panel: PanelTensors, *, of_covariates: bool = False) -> Tensor | None:
    """Return the position `[N,T-1,Y]` whose residual stands for each one's; None where each has its own.

    That of a target that was not observed is the last one before it, or the first one after it.
    """
    known_NTY = known_targets(panel, of_covariates=of_covariates)
    if known_NTY is None:
        return None
    position_T1 = torch.arange(known_NTY.shape[1], device=known_NTY.device)[:, None]
    last_NTY = torch.where(known_NTY, position_T1, -1).cummax(dim=1).values
    return torch.where(last_NTY < 0, known_NTY.int().argmax(dim=1, keepdim=True), last_NTY)


def known_targets(panel: PanelTensors, *, of_covariates: bool = False) -> Tensor | None:
    """Return where usable positions have a target that was observed, `[N,T-1,F]`; None where all were."""
    observed_NTF = panel.seen_NTX if of_covariates else panel.observed_NTY
    if observed_NTF is None:
        return None
    position_T = torch.arange(observed_NTF.shape[1] - 1, device=panel.length_N.device)
    return (position_T < usable_length(panel)[:, None])[..., None] & (observed_NTF[:, 1:] > 0)
