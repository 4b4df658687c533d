"""How outcomes change from step to step, and in which units their errors are counted (spec GROWTH-1 and 3).

Everything here is in sds of the outcome: `u = (y - zero) / sd`, where y is standardised as models see it, and `zero`
and `sd` are the raw value 0 and the sd of source-train on that scale. `M` are the axes before the outcomes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Panel, PanelSchema, Scaler

FormName = Literal["relative", "additive", "local"]

RETURNS: Final = 0.05  # share of zeros that are followed by a positive value, beyond which zeros are no end
SHIFT: Final = 1e-4  # of an sd, added before a logarithm or a division
LEVEL_UNIT: Final = 4.0  # the logarithm of a level is divided by this, so that it is of the size of other columns
LEAST_ERROR_UNIT: Final = 0.01  # of an sd, added to what errors are divided by
LEAST_LOCAL: Final = 0.1  # of an sd: what the local scale of a short history is drawn to
LOCAL_STEPS: Final = 2.0  # how many steps that counts as
LIMITS: Final = {"relative": (-1.0, 5.0), "additive": (-10.0, 10.0), "local": (-10.0, 10.0)}  # of a step's response


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
        if asked == "auto":
            relative, returns = may_be_relative(y_NT, seen_NT)
            grows = relative and variable.kind != "count"
            kind: FormName = "relative" if grows else "local" if relative or returns else "additive"
        else:
            kind = asked
        forms.append(OutcomeForm.of(kind, seen_M, scaler.outcomes[:, outcome]))
    return tuple(forms)


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


def error_units(forms: Sequence[OutcomeForm], y_NTY: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return what errors of predictions from each origin are divided by, for standardised outcomes (spec GROWTH-3).

    It is what `OutcomeScale.error_unit` has for networks, in units of standardised outcomes. The numbers of a form
    are rounded to single precision, as they are there, so that both agree.
    """
    zero_Y, sd_Y = (np.array([getattr(form, name) for form in forms], np.float32) for name in ("zero", "sd"))
    size_NTY = np.abs((y_NTY - zero_Y.astype(np.float64)) / sd_Y.astype(np.float64))
    step_T1 = np.arange(1, y_NTY.shape[-2] + 1)[:, None]
    local_NTY = (size_NTY.cumsum(axis=-2) + LOCAL_STEPS * LEAST_LOCAL) / (step_T1 + LOCAL_STEPS)
    unit_NTY = np.ones_like(y_NTY)
    for o, form in enumerate(forms):
        if form.kind == "relative":
            unit_NTY[..., o] = size_NTY[..., o] + LEAST_ERROR_UNIT
        elif form.kind == "local":
            unit_NTY[..., o] = np.sqrt(local_NTY[..., o] + LEAST_ERROR_UNIT)
    return unit_NTY * sd_Y
