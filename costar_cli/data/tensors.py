"""Panels and queries as tensors on a device: scaled, and shifted where a model needs it."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from costar_cli.data.panel import Panel
from costar_cli.data.transforms import Scaler, scaled


@dataclass(frozen=True, slots=True)
class PanelTensors:
    """A scaled panel on a device.

    Shapes: `x_NTX`, `a_NTA`, `y_NTY`, `v_NV`, `length_N`; padded steps hold zeros. `observed_NTY` is 1 where an outcome
    is a target and 0 where it was filled or is another part's, None where all are; `seen_NTX` is 1 where a covariate
    was observed and 0 where it was filled, None where all were.
    """

    x_NTX: Tensor
    a_NTA: Tensor
    y_NTY: Tensor
    v_NV: Tensor
    length_N: Tensor
    observed_NTY: Tensor | None = None
    seen_NTX: Tensor | None = None

    @classmethod
    def from_panel(
        cls, panel: Panel, scaler: Scaler, *, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
    ) -> "PanelTensors":
        """Scale a panel and put it on a device."""
        observed = panel.observed[..., None]

        def put(values: NDArray[np.float32] | NDArray[np.bool_]) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(values)).to(device=device, dtype=dtype)

        return cls(
            x_NTX=put(np.where(observed, scaled(panel.covariates, scaler.covariates), 0)),
            a_NTA=put(panel.treatments),
            y_NTY=put(np.where(observed, scaled(panel.outcomes, scaler.outcomes), 0)),
            v_NV=put(scaled(panel.statics, scaler.statics)),
            length_N=torch.from_numpy(panel.length).to(device),
            observed_NTY=None if panel.outcome_observed is None and panel.since is None else put(panel.targets),
            seen_NTX=None if panel.covariate_observed is None else put(panel.covariate_observed),
        )

    def take(self, rows_K: Tensor) -> Self:
        """Return the panel of the given rows, in that order."""
        return type(self)(
            x_NTX=self.x_NTX[rows_K],
            a_NTA=self.a_NTA[rows_K],
            y_NTY=self.y_NTY[rows_K],
            v_NV=self.v_NV[rows_K],
            length_N=self.length_N[rows_K],
            observed_NTY=None if self.observed_NTY is None else self.observed_NTY[rows_K],
            seen_NTX=None if self.seen_NTX is None else self.seen_NTX[rows_K],
        )

    @property
    def active_NT(self) -> Tensor:
        """Return 1 where a position has a next step, `[N,T-1]`: position s predicts `y_{s+1}`."""
        position = torch.arange(self.y_NTY.shape[1] - 1, device=self.length_N.device)
        return (position < (self.length_N - 1)[:, None]).to(self.y_NTY.dtype)

    @property
    def history_NTS(self) -> Tensor:
        """Return `[x_t, a_{t-1}, y_t]` per step, the scalars known when `a_t` is decided (spec PANEL-3)."""
        previous = torch.zeros_like(self.a_NTA)
        previous[:, 1:] = self.a_NTA[:, :-1]
        return torch.cat([self.x_NTX, previous, self.y_NTY], dim=-1)
