"""How outcomes change from step to step, and in which units networks read, predict and score them (spec GROWTH-1).

Everything here is in sds of the outcome: `u = (y - zero) / sd`, where y is standardised as models see it, and `zero`
and `sd` are the raw value 0 and the sd of source-train on that scale. `M` are the axes before the outcomes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, Self, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from costar_cli.data import Panel, PanelSchema, Scaler
from costar_cli.methods.shared.gaps import LEAST_LEFT

FormName = Literal["relative", "additive", "local"]

RETURNS: Final = 0.05  # share of zeros that are followed by a positive value, beyond which zeros are no end
SHIFT: Final = 1e-4  # of an sd, added before a logarithm or a division
LEVEL_UNIT: Final = 4.0  # the logarithm of a level is divided by this, so that it is of the size of other columns
CHANGE_UNIT: Final = 5.0  # changes between steps are times this, likewise
MOST_CHANGE: Final = 2.0  # of a step, as networks see it
LEAST_ERROR_UNIT: Final = 0.01  # of an sd, added to what errors are divided by
LEAST_LOCAL: Final = 0.1  # of an sd: what the local scale of a short history is drawn to
LOCAL_STEPS: Final = 2.0  # how many steps that counts as
LIMITS: Final = {"relative": (-1.0, 5.0), "additive": (-10.0, 10.0), "local": (-10.0, 10.0)}  # of a step's response
HUBER: Final = 0.1  # relative errors beyond this are counted by their size, not their square


@dataclass(frozen=True, slots=True)
class OutcomeForm:
    """The form of one outcome, and what it takes of the training subjects.

    Attributes:
        kind: a step changes the outcome by a share of its level (`relative`), by an amount in sds (`additive`), or by
            an amount in the mean size that the subject's own history had (`local`, for counts).
        zero, sd: the raw value 0, and the sd of observed values, in standardised units.
        mean: of observed values, in sds.
        low, high: bounds of what is predicted, in sds, unless a series already is beyond them.
    """

    kind: FormName
    zero: float
    sd: float
    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, kind: FormName, seen_M: NDArray[np.float64], moments: NDArray[np.float64]) -> Self:
        """Take scale and bounds from observed values; the bounds of amounts are half a range beyond those seen.

        Args:
            kind: the form.
            seen_M: observed values, in the units of the data.
            moments: mean and sd with which the outcome is standardised.
        """
        sd = float(seen_M.std()) or 1.0
        low, high = float(seen_M.min()), float(seen_M.max())
        if kind == "relative":
            low = 0.0
        else:
            room = 0.5 * (high - low)
            low, high = (max(low - room, 0.0) if low >= 0 else low - room), high + room
        mean, unit = float(moments[0]), float(moments[1])
        return cls(kind, -mean / unit, sd / unit, float(seen_M.mean()) / sd, low / sd, high / sd)

    @classmethod
    def from_meta(cls, meta: Mapping[str, Any]) -> Self:
        """Read what `to_meta` returned.

        Raises:
            ValueError: it is no form.
            TypeError: likewise.
        """
        form = cls(**meta)
        numbers = form.zero, form.sd, form.mean, form.low, form.high
        if form.kind not in get_args(FormName) or not all(map(math.isfinite, numbers)):
            raise ValueError(f"an outcome changes in no known form: {form}")
        if form.sd <= 0 or form.low > form.high:
            raise ValueError(f"the scale or the bounds of an outcome are none: {form}")
        return form

    def to_meta(self) -> dict[str, Any]:
        """Return what a model's file records."""
        return asdict(self)


def may_be_relative(y_NT: NDArray[np.floating], seen_NT: NDArray[np.bool_]) -> tuple[bool, float]:
    """Return whether an outcome can grow by shares of its level, and the share of its zeros from which it returns.

    It can where it is never negative and where zeros, if there are any, last: nothing grows out of zero.
    """
    seen_M = y_NT[seen_NT]
    if not len(seen_M) or seen_M.min() < 0 or seen_M.max() <= 0:
        return False, 0.0
    zero_NT = seen_NT[:, :-1] & seen_NT[:, 1:] & (y_NT[:, :-1] <= 0)
    returns = float((zero_NT & (y_NT[:, 1:] > 0)).sum() / max(zero_NT.sum(), 1))
    return returns <= RETURNS, returns


def choose_forms(
    panel: Panel, schema: PanelSchema, scaler: Scaler, asked: Literal["auto"] | FormName = "auto"
) -> tuple[OutcomeForm, ...]:
    """Return the form of each outcome, with what it takes of a panel (spec GROWTH-1).

    `auto` takes `local` for counts, and for outcomes that are never negative and return from zero; `relative` for other
    outcomes that are never negative; `additive` for the rest. What was filled, not observed, does not count.
    """
    seen_NTY = panel.observed_outcomes
    forms = []
    for outcome, variable in enumerate(schema.outcomes):
        y_NT, seen_NT = panel.outcomes[..., outcome].astype(np.float64), seen_NTY[..., outcome]
        seen_M = y_NT[seen_NT] if seen_NT.any() else np.zeros(1)
        kind: FormName = _automatic(y_NT, seen_NT, is_count=variable.kind == "count") if asked == "auto" else asked
        forms.append(OutcomeForm.of(kind, seen_M, scaler.outcomes[:, outcome]))
    return tuple(forms)


def _automatic(y_NT: NDArray[np.float64], seen_NT: NDArray[np.bool_], *, is_count: bool) -> FormName:
    relative, returns = may_be_relative(y_NT, seen_NT)
    if relative and not is_count:
        return "relative"
    return "local" if relative or returns else "additive"


def usual_size(y_NTY: NDArray[np.float64], steps: NDArray[np.int64], sd_Y: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the mean of `|y|` up to each step, shrunk to a small share of the sd as if two steps had shown that.

    It is what `OutcomeScale.units` has of local outcomes, here in the units of the data (spec GROWTH-1).

    Args:
        y_NTY: outcomes.
        steps: how many there are up to each step, `[T,1]` or `[N,T,1]`.
        sd_Y: of the outcomes.
    """
    total_NTY = np.abs(y_NTY).cumsum(axis=1) + LOCAL_STEPS * LEAST_LOCAL * sd_Y
    return np.asarray(total_NTY / (steps + LOCAL_STEPS))


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
