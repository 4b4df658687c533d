"""What source-train says of the outcomes: values that cannot occur, levels that say little, and units of errors.

Spec BAND-1 and BAND-2.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Panel, PanelSchema, Queries, Scaler
from costar_cli.methods.shared.outcome_forms import OutcomeForm, choose_forms, error_units, may_be_relative

LEAST_SHARE: Final = 1e-3  # of the largest level of training, below which an outcome that can die out has done so
LEAST_STAYS: Final = 20  # steps that must have begun at a bound, and all stayed there, for it to be absorbing

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class OutcomeFacts:
    """Facts about each outcome, in the units of the data.

    `lower` and `upper` bound what can occur (None: nothing is known to); `least` is the level above which an origin is
    informative, None where all are; `forms` say in which unit errors are counted (spec GROWTH-3).
    """

    lower: tuple[float | None, ...]
    upper: tuple[float | None, ...]
    least: tuple[float | None, ...]
    forms: tuple[OutcomeForm, ...]

    @classmethod
    def of(cls, panel: Panel, schema: PanelSchema, scaler: Scaler) -> Self:
        """Take the facts from a panel, source-train; filled outcomes do not count."""
        seen_NTY, lower, upper, least = panel.observed_outcomes, [], [], []
        for o, variable in enumerate(schema.outcomes):
            y_NT, seen_NT = panel.outcomes[..., o].astype(np.float64), seen_NTY[..., o]
            low, high = (float(f(y_NT[seen_NT])) if seen_NT.any() else math.nan for f in (np.min, np.max))
            binary = variable.kind == "binary"
            lower.append(low if _absorbs(y_NT, seen_NT, low) else 0.0 if low >= 0 or binary else None)
            upper.append(1.0 if binary else high if _absorbs(y_NT, seen_NT, high) else None)
            least.append(LEAST_SHARE * high if may_be_relative(y_NT, seen_NT)[0] else None)
        return cls(tuple(lower), tuple(upper), tuple(least), choose_forms(panel, schema, scaler))

    @classmethod
    def from_meta(cls, meta: Mapping[str, Any]) -> Self:
        """Read what `to_meta` returned.

        Raises:
            ValueError: it is none of it.
            TypeError: likewise.
        """
        lower, upper, least = (
            tuple(None if v is None else float(v) for v in meta[name]) for name in ("lower", "upper", "least")
        )
        forms, values = tuple(OutcomeForm.from_meta(form) for form in meta["forms"]), (*lower, *upper, *least)
        if len({len(forms), len(lower), len(upper), len(least)}) > 1 or not all(math.isfinite(v or 0) for v in values):
            raise ValueError("bounds of outcomes are not finite, or not those of each outcome")
        pairs = zip(lower, upper, strict=True)
        if any(low is not None and high is not None and low > high for low, high in pairs):
            raise ValueError("a lower bound of an outcome is above the upper one")
        return cls(lower, upper, least, forms)

    def to_meta(self) -> dict[str, Any]:
        """Return what a model's file records."""
        plain = {name: list(getattr(self, name)) for name in ("lower", "upper", "least")}
        return {**plain, "forms": [form.to_meta() for form in self.forms]}

    def informative(self, level_QY: NDArray[np.floating]) -> NDArray[np.bool_]:
        """Return which levels at the origin leave something to predict, `[Q,Y]` (spec BAND-2)."""
        least_Y = np.array([-np.inf if value is None else value for value in self.least])
        return np.asarray(level_QY > least_Y)

    def clip(self, values_QHY: NDArray[np.floating]) -> Floats:
        """Return values, those that cannot occur moved to the nearest that can."""
        low_Y = np.array([-np.inf if value is None else value for value in self.lower])
        high_Y = np.array([np.inf if value is None else value for value in self.upper])
        return np.asarray(np.clip(values_QHY, low_Y, high_Y), dtype=np.float64)

    def error_units(self, panel: Panel, queries: Queries, scaler: Scaler) -> Floats:
        """Return the unit of errors from each origin `[Q,Y]`, in the units of the data (spec GROWTH-3)."""
        subjects, row_Q = np.unique(queries.subject, return_inverse=True)
        unit_NTY = error_units(self.forms, scaler.scale_outcomes(panel.outcomes[subjects]).astype(np.float64))
        return np.asarray(unit_NTY[row_Q, queries.origin] * scaler.outcomes[1])


def levels(panel: Panel, queries: Queries) -> Floats:
    """Return the last known outcomes at each origin `[Q,Y]`."""
    return panel.outcomes[queries.subject, queries.origin].astype(np.float64)


def _absorbs(y_NT: Floats, seen_NT: NDArray[np.bool_], bound: float) -> bool:
    """Return whether an outcome that reached a bound stayed there, every time."""
    at_NT = seen_NT[:, :-1] & seen_NT[:, 1:] & (y_NT[:, :-1] == bound)
    return int(at_NT.sum()) >= LEAST_STAYS and bool((y_NT[:, 1:][at_NT] == bound).all())
