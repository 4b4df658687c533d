"""Hourly covariates without gaps: what was recorded before, else a mean (spec ICU-2)."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from costar_cli.panel.findings import counted, shown
from costar_cli.reporting import Reporter

Singles = NDArray[np.float32]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Imputation:
    """How gaps of covariates are filled, learned from the source's training patients.

    The last value that the patient had takes the place of a missing one. Before the first there is none: then it is
    the mean of the patient's own recorded values in the hours kept, later ones included (`own_mean`), and where the
    patient has none at all, or without `own_mean`, `fallback [F]`: the mean of the values recorded in source-train.
    Covariates that were never recorded in source-train have no fallback (NaN) and are 0 for everybody.
    """

    fallback: Floats
    own_mean: bool

    @classmethod
    def learn(cls, values_NTF: Singles, *, own_mean: bool) -> Self:
        """Return the imputation that training patients `[N,T,F]`, NaN where nothing was recorded, teach."""
        return cls(_recorded_means(values_NTF, axis=(0, 1)), own_mean)

    def tell(self, names: tuple[str, ...], reporter: Reporter) -> None:
        """Warn of covariates that say nothing."""
        if never := [name for name, mean in zip(names, self.fallback, strict=True) if np.isnan(mean)]:
            are = "is" if len(never) == 1 else "are"
            reporter.warn(
                f"{counted(len(never), 'covariate')} {are} never recorded in source/train and held at 0: {shown(never)}"
            )

    def __call__(self, values_NTF: Singles, length_N: NDArray[np.int64]) -> Singles:
        """Return the covariates `[N,T,F]` without gaps; hours beyond the length hold zeros."""
        known = np.isfinite(self.fallback)
        filled_NTF = forward_filled(np.where(known, values_NTF, np.float32(np.nan)))
        start_NF = np.broadcast_to(np.where(known, self.fallback, 0.0), (len(values_NTF), len(known)))
        if self.own_mean:
            own_NF = np.where(known, _recorded_means(values_NTF, axis=1), np.nan)
            start_NF = np.where(np.isnan(own_NF), start_NF, own_NF)
        complete_NTF = np.where(np.isnan(filled_NTF), start_NF[:, None].astype(np.float32), filled_NTF)
        observed_NT = np.arange(values_NTF.shape[1]) < length_N[:, None]
        return np.where(observed_NT[..., None], complete_NTF, np.float32(0))


def forward_filled(values_NTF: Singles) -> Singles:
    """Return each value that is missing replaced by the last one before it, NaN where there is none."""
    hour_T1 = np.arange(values_NTF.shape[1], dtype=np.int16)[:, None]
    last_NTF = np.where(np.isnan(values_NTF), np.int16(0), hour_T1)
    np.maximum.accumulate(last_NTF, axis=1, out=last_NTF)
    return np.take_along_axis(values_NTF, last_NTF.astype(np.int64), axis=1)


def _recorded_means(values_NTF: Singles, axis: int | tuple[int, ...]) -> Floats:
    """Return the means of what was recorded, NaN where nothing was."""
    recorded = np.isfinite(values_NTF)
    total = np.where(recorded, values_NTF, np.float32(0)).sum(axis=axis, dtype=np.float64)
    count = recorded.sum(axis=axis)
    mean: Floats = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
    return mean
