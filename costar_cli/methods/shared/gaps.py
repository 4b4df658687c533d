"""Gaps between visits in networks: how long steps are, and how much acts until they end (spec GROWTH-8).

Time is in usual gaps, the median of source-train, whatever the unit of the table: what is learnt of a step then begins
as it does where all steps are of one length. `M` are the axes before a step's own.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

import torch
from torch import Tensor, nn

from costar_cli.data import TreatmentEncoding

if TYPE_CHECKING:
    from costar_cli.methods.shared.covariate_transition import Rates

LEAST_LEFT: Final = 0.05  # of a level after a usual gap
LEAST_RATIO: Final = 1e-12  # of two rates: what decays faster than that is gone at once
NEAR: Final = 1e-3  # two rates whose ratio is, over a gap, as near to 1: the first terms of the series then suffice


@dataclass(frozen=True, slots=True)
class GapColumn:
    """Which column of encoded treatments tells the time until the next step, and what usual gaps are in its units."""

    column: int
    scale: float

    @classmethod
    def of(cls, encoding: TreatmentEncoding) -> Self | None:
        """Return the column of an encoding, None where all steps are of one length."""
        for dose, column in zip(encoding.doses, encoding.dose_columns, strict=True):
            if dose.elapsed is not None:
                return cls(column, dose.scale / dose.elapsed)
        return None

    def read(self, treatment_MA: Tensor) -> Tensor:
        """Return how long each step is, `[M]` in usual gaps; 1 where none is told, in padding and at last visits."""
        gap_M = treatment_MA[..., self.column] * self.scale
        return torch.where(gap_M > 0, gap_M, torch.ones_like(gap_M))


def lasting(gap: Tensor, left: Tensor, decay: Tensor) -> Tensor:
    """Return how much acts over a gap what acts by 1 in a step, and decays, on a level that reverts (spec MIXED-12).

    It is `(left^gap - decay^gap) / (left - decay)`, and has a gradient where the two are equal, too.
    """
    most, least = torch.maximum(left, decay), torch.minimum(left, decay)
    ratio = (least / most).clamp(min=LEAST_RATIO)
    apart = (least - most) / most  # exact where the two are almost equal, which the ratio less 1 is not
    log_ratio = torch.where(ratio > 0.5, torch.log1p(apart.clamp(min=-0.5)), ratio.log())
    near = apart.abs() * gap.clamp(min=1) < NEAR
    series = gap * (1 + (gap - 1) / 2 * apart * (1 + (gap - 2) / 3 * apart))
    quotient = torch.expm1(gap * log_ratio) / torch.where(near, -1.0, apart)  # of 0 / 0 there is no gradient
    return most ** (gap - 1) * torch.where(near, series, quotient)


def carried_over(dose_NTJ: Tensor, gap_NT: Tensor, decay_J: Tensor) -> Tensor:
    """Return what is left `[N,T,J]`, after gaps, of the doses given before each of them and of all earlier ones.

    Sums over the last 2, 4, 8, ... visits are made of one another.
    """
    clock_NT1, distance = gap_NT.cumsum(dim=-1)[..., None], 1
    left_NTJ = decay_J ** gap_NT[..., None] * dose_NTJ
    while distance < dose_NTJ.shape[-2]:
        since_NT1 = clock_NT1[..., distance:, :] - clock_NT1[..., :-distance, :]
        earlier_NTJ = decay_J**since_NT1 * left_NTJ[..., :-distance, :]
        left_NTJ = left_NTJ + nn.functional.pad(earlier_NTJ, (0, 0, distance, 0))
        distance *= 2
    return left_NTJ


@dataclass(frozen=True, slots=True)
class Span:
    """Steps of some lengths `[M]`, and what every step of a rollout needs."""

    gap_M: Tensor
    rates: "Rates"

    def weights(self, left_MY: Tensor) -> tuple[Tensor, Tensor]:
        """Return by how much what lasts acts until the step ends, `[M,Y]`, and all columns of effects, `[M,Y,P]`.

        Args:
            left_MY: what is left, after a usual gap, of a difference in the level of each outcome.
        """
        of_level_MY = lasting(self.gap_M[..., None], left_MY, torch.ones_like(left_MY))
        of_levels = of_level_MY[..., None].expand(*of_level_MY.shape, 1 + left_MY.shape[-1])
        fading = (
            lasting(self.gap_M[..., None, None], left_MY[..., None], rate[..., None, :])
            for rate in (self.rates.decay_1J, self.rates.fading_1F)
        )
        return of_level_MY, torch.cat([of_levels, *fading], dim=-1)
