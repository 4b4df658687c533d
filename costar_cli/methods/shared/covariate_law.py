"""Covariates that are forecast with the outcomes: their law, and their course in a rollout (spec GROWTH-7).

Letters are those of `structured.py`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import torch
from torch import Tensor, nn

from costar_cli.panel.tensors import PanelTensors

if TYPE_CHECKING:
    from costar_cli.methods.shared.structured import StructuredDecoder

__all__ = ["SMALL_START", "CovariateCourse", "CovariateLaw", "Rates", "Reach", "reach_of", "reach_of_covariates"]

Reach = tuple[list[float], list[float]]

SMALL_START: Final = 0.1  # weights of the last layer at first: predictions begin near the last value


def reach_of(panel: PanelTensors) -> Reach:
    """Return the smallest and the largest value of each covariate and static, standardised, at observed steps."""
    inside_NT1 = (torch.arange(panel.x_NTX.shape[1], device=panel.length_N.device) < panel.length_N[:, None])[..., None]
    infinite = panel.x_NTX.new_tensor(torch.inf)
    low_X = torch.where(inside_NT1, panel.x_NTX, infinite).amin(dim=(0, 1))
    high_X = torch.where(inside_NT1, panel.x_NTX, -infinite).amax(dim=(0, 1))
    low, high = (torch.cat(parts) for parts in ((low_X, panel.v_NV.amin(dim=0)), (high_X, panel.v_NV.amax(dim=0))))
    return low.tolist(), high.tolist()


def reach_of_covariates(reach: Reach, n_covariates: int) -> Reach | None:
    """Return the part of `reach_of` that is about covariates, None where there are none."""
    low, high = reach
    return (low[:n_covariates], high[:n_covariates]) if n_covariates else None


class CovariateLaw(nn.Module):
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
        low_X, high_X = (torch.tensor(values, dtype=torch.float32) for values in reach)
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


class Rates(NamedTuple):
    """What every step of a rollout needs of a decoder, or of those of R members, which then lead all of it.

    `decay_1J` and `fading_1F` are what is left after a step; `links_XY` and `change_GX` the weights of `CovariateLaw`,
    empty where no covariates are forecast.
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

    def __init__(self, law: CovariateLaw, rates: Rates, x_MX: Tensor, drift_MX: Tensor) -> None:
        self.law, self.rates, self.x_MX, self.drift_MX = law, rates, law.bounded(x_MX), drift_MX

    def links(self) -> Tensor:
        """Return what covariates add to the responses of outcomes, `[M,Y]`."""
        return self.x_MX @ self.rates.links_XY

    def fork(self, parent_M: Tensor) -> None:
        """Go on from the courses that each of some others comes from."""
        self.x_MX, self.drift_MX = (values.index_select(-2, parent_M) for values in (self.x_MX, self.drift_MX))

    def advance(self, known_MI: Tensor) -> None:
        """Take a step, given levels, exposures and doses."""
        self.x_MX = self.law.after(self.x_MX, self.drift_MX, known_MI, self.rates.change_GX)
