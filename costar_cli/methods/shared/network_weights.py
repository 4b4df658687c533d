"""Inverse probability weights for networks: of a batch's steps and windows, for each member (spec RMSN-2, 3, 5)."""

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from costar_cli.data.tensors import PanelTensors
from costar_cli.methods.shared.ipw import describe_weights
from costar_cli.methods.shared.windows import OriginRows

QUANTILES: Final = (0.01, 0.99)
CHUNK: Final = 2**20  # windows whose weights are formed at once
LARGEST_FLOAT32: Final = 80.0  # logarithm of a weight, of what float32 holds


def log_likelihood(logits: Tensor, treatment: Tensor) -> Tensor:
    """Return the log-likelihood `[...]` of treatments `[...,da]`, each column an independent binary."""
    # The reference divides P(a = 1) by P(a = 1) whatever was given (E-12): no weight for those without the treatment.
    return -functional.binary_cross_entropy_with_logits(logits, treatment, reduction="none").sum(dim=-1)


@dataclass(frozen=True)
class Clipped:
    """Bounds of each member's weights, `[R]`, and the mean of its clipped weights, `[R,J]`, per step of a window."""

    low_R: Tensor
    high_R: Tensor
    mean_RJ: Tensor

    def __call__(self, weight_RJB: Tensor) -> Tensor:
        """Return weights clipped to the bounds, with mean 1 at each step over what the bounds were found on."""
        low, high = self.low_R[:, None, None], self.high_R[:, None, None]
        return weight_RJB.clamp(low, high) / self.mean_RJ[..., None]

    def take(self, member_R: Tensor) -> Self:
        """Return the bounds and means of some members."""
        return type(self)(self.low_R[member_R], self.high_R[member_R], self.mean_RJ[member_R])

    @classmethod
    def of(cls, members: list[NDArray[np.float64]], like: Tensor) -> Self:
        """Find bounds and means of each member's weights `[J,M]`."""
        bounds = [np.quantile(weight_JM, QUANTILES) for weight_JM in members]
        means = [np.mean(weight_JM.clip(*pair), axis=1) for weight_JM, pair in zip(members, bounds, strict=True)]
        low_R, high_R = torch.tensor(np.array(bounds)).to(like).T
        return cls(low_R, high_R, torch.tensor(np.array(means)).to(like))


class TreatmentWeights:
    """The weights of every step of a panel for each member, and of the windows of a decoder.

    Args:
        log_ratio_RNT: log-likelihood with earlier treatments less that with the history, at positions `0..T-2`.
        panel: the series.

    Attributes:
        described: for each member, the mean and extremes of its weights before clipping, and how many equally weighted
            steps they are worth (`effective_share`).
    """

    def __init__(self, log_ratio_RNT: Tensor, panel: PanelTensors) -> None:
        position = torch.arange(log_ratio_RNT.shape[2], device=log_ratio_RNT.device)
        active_NT = position < panel.length_N[:, None] - 1
        self._log_RNT = torch.where(active_NT, log_ratio_RNT, 0.0).double()
        self._sum_RNT = functional.pad(self._log_RNT.cumsum(dim=2), (1, 0))  # [..., t]: of the steps before t
        raw = [_exp(log_NT[active_NT]).cpu().numpy()[None] for log_NT in self._log_RNT]
        self._step = Clipped.of(raw, panel.y_NTY)
        bounds = zip(raw, self._step.low_R.tolist(), self._step.high_R.tolist(), strict=True)
        self.described = [dict(describe_weights(weight[0], weight[0].clip(low, high))) for weight, low, high in bounds]

    def of_steps(self, member_R: Tensor, subject_RB: Tensor) -> Tensor:
        """Return the clipped weight of every step of some subjects, `[R,T,B]`, of mean 1 over all active steps."""
        weight_RBT = _exp(self._log_RNT[member_R[:, None], subject_RB])
        return self._step.take(member_R)(weight_RBT.transpose(1, 2).to(self._step.low_R))

    def of_windows(self, member_R: Tensor, subject_RB: Tensor, start_RB: Tensor, steps: int) -> Tensor:
        """Return the product of the weights from the step before each window up to each of its steps, `[R,J,B]`."""
        step_J1 = torch.arange(1, steps + 1, device=start_RB.device)[:, None]
        at = member_R[:, None, None], subject_RB[:, None], start_RB[:, None] + step_J1
        before_R1B = self._sum_RNT[at[0], at[1], start_RB[:, None] - 1]
        return _exp(self._sum_RNT[at] - before_R1B).to(self._step.low_R)

    def of_origins(self, member_R: Tensor, subject_RB: Tensor, steps: int) -> Tensor:
        """Return the product of the weights from each position up to each of the steps that follow, `[R,B,T,H]`."""
        total_RBT = self._sum_RNT[member_R[:, None], subject_RB]
        origin_T = torch.arange(total_RBT.shape[2] - 1, device=total_RBT.device)
        last_TH = (origin_T[:, None] + torch.arange(1, steps + 1, device=origin_T.device)).clamp(max=len(origin_T))
        return _exp(total_RBT[..., last_TH] - total_RBT[..., :-1, None]).to(self._step.low_R)

    def clipped_over_origins(self, panel: PanelTensors, steps: int) -> Clipped:
        """Return what clips the weights from every origin of a panel's subjects, and gives them mean 1 at each step."""
        subject_N, members = torch.arange(len(panel.length_N), device=panel.length_N.device), []
        within_NT = torch.arange(self._log_RNT.shape[2], device=subject_N.device) < panel.length_N[:, None] - steps
        for member in range(len(self._log_RNT)):
            weights_NTH = self.of_origins(subject_N.new_tensor([member]), subject_N[None], steps)[0]
            members.append(weights_NTH[within_NT].double().cpu().numpy().T)
        return Clipped.of(members, self._step.low_R)

    def clipped_over(self, rows: OriginRows) -> Clipped:
        """Return what clips the weights of a decoder's windows, and gives them mean 1 at each step."""
        members = []
        for member in range(len(self._log_RNT)):
            member_1 = torch.tensor([member], device=rows.start_M.device)
            chunks = zip(torch.split(rows.subject_M, CHUNK), torch.split(rows.start_M, CHUNK), strict=True)
            weights = [self.of_windows(member_1, n[None], t[None], rows.steps)[0].double().cpu() for n, t in chunks]
            members.append(torch.cat(weights, dim=1).numpy())
        return Clipped.of(members, self._step.low_R)


def _exp(log: Tensor) -> Tensor:
    return log.clamp(-LARGEST_FLOAT32, LARGEST_FLOAT32).exp()
