"""The units in which networks read, predict and score outcomes (spec GROWTH-1 to 3).

Everything here is in sds of the outcome, as in `outcome_forms`. `M` are the axes before the outcomes.
"""

from collections.abc import Sequence
from typing import Final, get_args

import torch
from torch import Tensor, nn

from costar_cli.methods.shared.gaps import LEAST_LEFT
from costar_cli.methods.shared.outcome_forms import (
    LEAST_ERROR_UNIT,
    LEAST_LOCAL,
    LEVEL_UNIT,
    LIMITS,
    LOCAL_STEPS,
    SHIFT,
    FormName,
    OutcomeForm,
)

CHANGE_UNIT: Final = 5.0  # changes between steps are times this, likewise
MOST_CHANGE: Final = 2.0  # of a step, as networks see it
HUBER: Final = 0.1  # relative errors beyond this are counted by their size, not their square


class OutcomeScale(nn.Module):
    """The forms of all outcomes as tensors: units, columns that networks read, steps, and errors.

    It has no parameters. Outcomes go in and come out standardised, as everywhere in networks.

    Args:
        forms: one per outcome.
    """

    def __init__(self, forms: Sequence[OutcomeForm]) -> None:
        super().__init__()
        self.forms = tuple(forms)
        self.has_relative = any(form.kind == "relative" for form in forms)
        for name in ("zero", "sd", "mean", "low", "high"):
            values = torch.tensor([float(getattr(form, name)) for form in forms])
            self.register_buffer(f"{name}_Y", values, persistent=False)
        limits = torch.tensor([LIMITS[form.kind] for form in forms])
        self.register_buffer("least_Y", limits[:, 0].contiguous(), persistent=False)
        self.register_buffer("most_Y", limits[:, 1].contiguous(), persistent=False)
        for kind in get_args(FormName):
            is_kind = torch.tensor([form.kind == kind for form in forms])
            self.register_buffer(f"is_{kind}_Y", is_kind, persistent=False)

    zero_Y: Tensor
    sd_Y: Tensor
    mean_Y: Tensor
    low_Y: Tensor
    high_Y: Tensor
    least_Y: Tensor
    most_Y: Tensor
    is_relative_Y: Tensor
    is_additive_Y: Tensor
    is_local_Y: Tensor

    def in_sd(self, y_MY: Tensor) -> Tensor:
        """Return outcomes in sds, from the raw zero on."""
        return (y_MY - self.zero_Y) / self.sd_Y

    def standardised(self, u_MY: Tensor) -> Tensor:
        """Return what `in_sd` was given."""
        return u_MY * self.sd_Y + self.zero_Y

    def units(self, y_NTY: Tensor) -> Tensor:
        """Return the unit of a step at every origin `[N,T,Y]`, in sds: 1, or the mean size of the history so far.

        Of T steps `y` up to the origin that is `(sum |u| + 2 * 0.1) / (T + 2)` (spec GROWTH-1).
        """
        size_NTY = self.in_sd(y_NTY).abs()
        n_T1 = torch.arange(1, y_NTY.shape[-2] + 1, device=y_NTY.device, dtype=y_NTY.dtype)[:, None]
        local_NTY = (size_NTY.cumsum(dim=-2) + LOCAL_STEPS * LEAST_LOCAL) / (n_T1 + LOCAL_STEPS)
        return torch.where(self.is_local_Y, local_NTY, torch.ones_like(local_NTY))

    def level(self, u_MY: Tensor, unit_MY: Tensor) -> Tensor:
        """Return the level as a column: its logarithm, its standardised value, or its size in its own unit."""
        amount_MY = torch.where(self.is_local_Y, u_MY, u_MY - self.mean_Y) / unit_MY
        if not self.has_relative:
            return amount_MY
        log_MY = torch.log(u_MY.clamp(min=0) + SHIFT) / LEVEL_UNIT
        return torch.where(self.is_relative_Y, log_MY, amount_MY)

    def columns(self, y_NTY: Tensor, unit_NTY: Tensor) -> Tensor:
        """Return what networks read of the outcomes at every step, `[N,T,3Y]`: level, change since before, log unit.

        The raw level is not among them where it may have another distribution in another population.
        """
        u_NTY = self.in_sd(y_NTY)
        before_NTY = torch.cat([u_NTY[..., :1, :], u_NTY[..., :-1, :]], dim=-2)
        size_NTY = torch.where(self.is_relative_Y, before_NTY.clamp(min=0) + SHIFT, unit_NTY)
        change_NTY = ((u_NTY - before_NTY) / size_NTY).clamp(-MOST_CHANGE, MOST_CHANGE)
        change_NTY = torch.where(self.is_relative_Y, CHANGE_UNIT * change_NTY, change_NTY)
        return torch.cat([self.level(u_NTY, unit_NTY), change_NTY, torch.log(unit_NTY)], dim=-1)

    def reverting(self, effect_MY: Tensor) -> Tensor:
        """Return what is left, after a step, of a difference in the level, given the effect of the level on its own."""
        slope_MY = torch.where(self.is_relative_Y, effect_MY / LEVEL_UNIT, effect_MY)
        return (1 + slope_MY).clamp(LEAST_LEFT, 1.0)

    def bounds(self, u_MY: Tensor) -> tuple[Tensor, Tensor]:
        """Return the bounds of a series that stands at u: a series that already is beyond them may stay there."""
        return torch.minimum(self.low_Y, u_MY), torch.maximum(self.high_Y, u_MY)

    def after(
        self,
        u_MY: Tensor,
        response_MY: Tensor,
        unit_MY: Tensor,
        bounds: tuple[Tensor, Tensor],
        gap_M1: Tensor | None = None,
    ) -> Tensor:
        """Return u after a step, or after a gap of so many steps, within bounds (spec GROWTH-2, GROWTH-8)."""
        steps_M1 = None if gap_M1 is None else gap_M1.clamp(min=1)
        each_MY = response_MY if steps_M1 is None else response_MY / steps_M1
        change_MY = torch.minimum(torch.maximum(each_MY, self.least_Y), self.most_Y)
        if steps_M1 is not None:
            compounded_MY = (1 + torch.where(self.is_relative_Y, change_MY, 0.0)) ** steps_M1 - 1
            change_MY = torch.where(self.is_relative_Y, compounded_MY, steps_M1 * change_MY)
        size_MY = torch.where(self.is_relative_Y, u_MY, unit_MY)
        return torch.minimum(torch.maximum(u_MY + size_MY * change_MY, bounds[0]), bounds[1])

    def error_unit(self, y_MY: Tensor, unit_MY: Tensor) -> Tensor:
        """Return what errors of predictions from an origin at y are divided by, in sds (spec GROWTH-3)."""
        relative_MY = self.in_sd(y_MY).abs() + LEAST_ERROR_UNIT
        local_MY = (unit_MY + LEAST_ERROR_UNIT).sqrt()
        one_MY = torch.ones_like(unit_MY)
        return torch.where(self.is_relative_Y, relative_MY, torch.where(self.is_local_Y, local_MY, one_MY))

    def penalty(self, predicted_MY: Tensor, true_MY: Tensor, error_unit_MY: Tensor) -> Tensor:
        """Return what is minimised: squared errors in their unit, of relative ones Huber's function (spec GROWTH-3)."""
        error_MY = (predicted_MY - true_MY) / (self.sd_Y * error_unit_MY)
        if not self.has_relative:
            return error_MY.square()
        size_MY = error_MY.abs()
        huber_MY = torch.where(size_MY < HUBER, size_MY.square(), HUBER * (2 * size_MY - HUBER))
        return torch.where(self.is_relative_Y, huber_MY, error_MY.square())
