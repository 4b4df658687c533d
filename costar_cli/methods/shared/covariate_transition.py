"""Covariates that are forecast with the outcomes: their law, and their course in a rollout (spec GROWTH-7).

Letters are those of `structured.py`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import torch
from torch import Tensor, nn

from costar_cli.data.tensors import PanelTensors
from costar_cli.methods.shared.gaps import LEAST_LEFT, lasting

if TYPE_CHECKING:
    from costar_cli.methods.shared.structured import StructuredDecoder

Reach = tuple[list[float], list[float]]

SMALL_START: Final = 0.1  # weights of the last layer at first: predictions begin near the last value


def reach_of(panel: PanelTensors) -> Reach:
    """Return the smallest and the largest value of each covariate and static, standardised, where observed."""
    inside_NT1 = (torch.arange(panel.x_NTX.shape[1], device=panel.length_N.device) < panel.length_N[:, None])[..., None]
    if panel.seen_NTX is not None:
        seen_NTX = inside_NT1 & (panel.seen_NTX > 0)
        inside_NT1 = torch.where(seen_NTX.any(dim=1).any(dim=0), seen_NTX, inside_NT1)
    infinite = panel.x_NTX.new_tensor(torch.inf)
    low_X = torch.where(inside_NT1, panel.x_NTX, infinite).amin(dim=(0, 1))
    high_X = torch.where(inside_NT1, panel.x_NTX, -infinite).amax(dim=(0, 1))
    low, high = (torch.cat(parts) for parts in ((low_X, panel.v_NV.amin(dim=0)), (high_X, panel.v_NV.amax(dim=0))))
    return low.tolist(), high.tolist()


def reach_of_covariates(reach: Reach, n_covariates: int) -> Reach | None:
    """Return the part of `reach_of` that is about covariates, None where there are none."""
    low, high = reach
    return (low[:n_covariates], high[:n_covariates]) if n_covariates else None


class CovariateTransition(nn.Module):
    """How covariates change in a step, and what they add to the responses of outcomes (spec GROWTH-7).

    Both are linear and the same for all subjects, but for a drift of each covariate that the state z tells.

    Args:
        width: D.
        n_outcomes: Y.
        n_exposures: J.
        reach: smallest and largest covariates that were learned from; forecasts stay within half a range of them.
    """

    low_X: Tensor
    high_X: Tensor

    def __init__(self, width: int, n_outcomes: int, n_exposures: int, reach: Reach) -> None:
        super().__init__()
        low_X, high_X = (torch.tensor(values, dtype=torch.float32, device=torch.device("cpu")) for values in reach)
        room_X, n = 0.5 * (high_X - low_X), len(low_X)
        self.register_buffer("low_X", low_X - room_X, persistent=False)
        self.register_buffer("high_X", high_X + room_X, persistent=False)
        self.links = nn.Linear(n, n_outcomes, bias=False)
        self.change = nn.Linear(n + n_outcomes + 2 * n_exposures, n, bias=False)
        self.drift = nn.Linear(width, n)
        with torch.no_grad():
            for start in (self.links.weight, self.change.weight, self.drift.weight, self.drift.bias):
                start.mul_(SMALL_START)

    def bounded(self, x_MX: Tensor) -> Tensor:
        """Return covariates within their bounds."""
        return torch.minimum(torch.maximum(x_MX, self.low_X), self.high_X)

    def after(self, x_MX: Tensor, drift_MX: Tensor, known_MI: Tensor, change_GX: Tensor | None = None) -> Tensor:
        """Return covariates after a step, given levels, exposures and doses, by weights that are its own by default."""
        change_GX = self.change.weight.T if change_GX is None else change_GX
        return self.bounded(x_MX + drift_MX + torch.cat([x_MX, known_MI], dim=-1) @ change_GX)

    def after_gap(self, x_MX: Tensor, drift_MX: Tensor, known_MI: Tensor, gap_M: Tensor, rates: "Rates") -> Tensor:
        """Return covariates after gaps of some lengths, in which what acts decays and they revert (spec GROWTH-8).

        Doses of a step act in its first unit of time alone, beside what is left of them.
        """
        n_exposures, gap_M1 = rates.decay_1J.shape[-1], gap_M[..., None]
        sizes = [rates.change_GX.shape[-2] - 2 * n_exposures, n_exposures, n_exposures]
        steady_GX, exposed_JX, given_JX = torch.split(rates.change_GX, sizes, dim=-2)
        level_MG, exposure_MJ, dose_MJ = torch.split(torch.cat([x_MX, known_MI], dim=-1), sizes, dim=-1)
        left_X = 1 + torch.diagonal(steady_GX[..., : x_MX.shape[-1], :], dim1=-2, dim2=-1)
        left_1X = left_X.clamp(LEAST_LEFT, 1.0)[..., None, :]
        change_MX = lasting(gap_M1, left_1X, torch.ones_like(left_1X)) * (drift_MX + level_MG @ steady_GX)
        change_MX = change_MX + gap_M1.clamp(max=1) * left_1X ** (gap_M1.clamp(min=1) - 1) * (dose_MJ @ given_JX)
        acting_MXJ = lasting(gap_M1[..., None], left_1X[..., None], rates.decay_1J[..., None, :])
        exposed_1XJ = exposed_JX.mT.unsqueeze(-3)
        return self.bounded(x_MX + change_MX + (acting_MXJ * exposed_1XJ * exposure_MJ[..., None, :]).sum(dim=-1))


class Rates(NamedTuple):
    """What every step of a rollout needs of a decoder, or of those of R members, which then lead all of it.

    `decay_1J` and `fading_1F` are what is left after a step; `links_XY` and `change_GX` the weights of
    `CovariateTransition`, empty where no covariates are forecast.
    """

    decay_1J: Tensor
    fading_1F: Tensor
    links_XY: Tensor
    change_GX: Tensor

    @classmethod
    def of_members(cls, decoders: "Sequence[StructuredDecoder]") -> "Rates":
        """Return the rates of R members."""
        return cls(*map(torch.stack, zip(*(decoder.rates() for decoder in decoders), strict=True)))


class CovariateCourse:
    """Covariates from where they stand on, a rollout's at its origins, and what they add to responses."""

    def __init__(self, law: CovariateTransition, rates: Rates, x_MX: Tensor, drift_MX: Tensor) -> None:
        self.law, self.rates, self.x_MX, self.drift_MX = law, rates, law.bounded(x_MX), drift_MX

    def links(self) -> Tensor:
        """Return what covariates add to the responses of outcomes, `[M,Y]`."""
        return self.x_MX @ self.rates.links_XY

    def fork(self, parent_M: Tensor) -> None:
        """Go on from the courses that each of some others comes from."""
        self.x_MX, self.drift_MX = (values.index_select(-2, parent_M) for values in (self.x_MX, self.drift_MX))

    def advance(self, known_MI: Tensor, gap_M: Tensor | None = None) -> None:
        """Take a step, or one over a gap, given levels, exposures and doses."""
        if gap_M is None:
            self.x_MX = self.law.after(self.x_MX, self.drift_MX, known_MI, self.rates.change_GX)
        else:
            self.x_MX = self.law.after_gap(self.x_MX, self.drift_MX, known_MI, gap_M, self.rates)
