"""Standardisation with the statistics of source-train, for every part of a data set."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from costar_cli.data.panel import Panel
from costar_cli.data.schema import PanelSchema, Variable

SCALED: Final = ("covariates", "outcomes", "statics")


@dataclass(frozen=True, slots=True)
class Scaler:
    """Means and population standard deviations, in the units of the data; identity where a variable says so.

    Shapes: `covariates [2,X]`, `outcomes [2,Y]`, `statics [2,V]`; row 0 is the mean, row 1 the sd.
    """

    covariates: NDArray[np.float64]
    outcomes: NDArray[np.float64]
    statics: NDArray[np.float64]

    @classmethod
    def fit(cls, panel: Panel, schema: PanelSchema) -> Self:
        """Fit on the history steps of the source-train panel (all observed steps but the last; spec PANEL-8).

        Subjects with a single step contribute it. What was filled does not count. Constant variables get sd 1.
        """
        used = np.arange(panel.n_steps) < np.maximum(panel.length - 1, 1)[:, None]
        return cls(
            covariates=_moments(panel.covariates[used], schema.covariates, panel.observed_covariates[used]),
            outcomes=_moments(panel.outcomes[used], schema.outcomes, panel.observed_outcomes[used]),
            statics=_moments(panel.statics, schema.statics),
        )

    @classmethod
    def read(cls, arrays: Mapping[str, NDArray[np.generic]], schema: PanelSchema) -> Self:
        """Return what an artifact's arrays hold, `scaler/covariates` and so on.

        Raises:
            ValueError: these are no means and sds of the schema's columns.
        """
        for name in SCALED:
            moments = arrays[f"scaler/{name}"]
            if moments.shape != (2, len(getattr(schema, name))) or moments.dtype.kind != "f":
                problem = f"{moments.dtype} {moments.shape}, not two rows of numbers for the schema's columns"
                raise ValueError(f"scaler/{name} is {problem}")
            if not (np.isfinite(moments).all() and (moments[1] > 0).all()):
                raise ValueError(f"scaler/{name} has means or sds that are none")
        return cls(**{name: np.asarray(arrays[f"scaler/{name}"]) for name in SCALED})

    def scale_outcomes(self, outcomes: NDArray[np.floating]) -> NDArray[np.float32]:
        """Return `(y - mean) / sd` along the last axis."""
        return scaled(outcomes, self.outcomes)

    def unscale_outcomes(self, outcomes: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return standardised outcomes in the units of the data."""
        values: NDArray[np.float64] = outcomes.astype(np.float64) * self.outcomes[1] + self.outcomes[0]
        return values

    def error_scale(self, schema: PanelSchema) -> NDArray[np.float64]:
        """Return what errors are divided by, `[Y]`: the sds of the outcomes where errors are told in these, else 1."""
        return self.outcomes[1] if schema.error_unit.space == "standardized" else np.ones(len(schema.outcomes))

    def to_arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return the arrays that an artifact stores."""
        return {"covariates": self.covariates, "outcomes": self.outcomes, "statics": self.statics}


def scaled(values: NDArray[np.floating], moments: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return `(values - mean) / sd` along the last axis as float32."""
    result: NDArray[np.float32] = ((values - moments[0]) / moments[1]).astype(np.float32)
    return result


def _moments(
    values_MF: NDArray[np.float32], variables: tuple[Variable, ...], observed_MF: NDArray[np.bool_] | None = None
) -> NDArray[np.float64]:
    if observed_MF is None or observed_MF.all():
        mean, sd = values_MF.mean(axis=0, dtype=np.float64), values_MF.std(axis=0, dtype=np.float64)
    else:
        known = [values_M[observed_M] for values_M, observed_M in zip(values_MF.T, observed_MF.T, strict=True)]
        mean = np.array([values.mean(dtype=np.float64) if len(values) else 0.0 for values in known])
        sd = np.array([values.std(dtype=np.float64) if len(values) else 0.0 for values in known])
    keep = np.array([v.standardize for v in variables], dtype=bool)
    return np.stack([np.where(keep, mean, 0.0), np.where(keep & (sd > 0), sd, 1.0)])
