"""Panels and queries as tensors on a device: scaled, and shifted where a model needs it."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from costar_cli.panel.panel import Panel
from costar_cli.panel.scale import Scaler, scaled

__all__ = ["PanelTensors"]


@dataclass(frozen=True, slots=True)
class PanelTensors:
    """A scaled panel on a device.

    Shapes: `x_NTX`, `a_NTA`, `y_NTY`, `v_NV`, `length_N`; padded steps hold zeros.
    """

    x_NTX: Tensor
    a_NTA: Tensor
    y_NTY: Tensor
    v_NV: Tensor
    length_N: Tensor

    @classmethod
    def from_panel(
        cls, panel: Panel, scaler: Scaler, *, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
    ) -> "PanelTensors":
        """Scale a panel and put it on a device."""
        observed = panel.observed[..., None]

        def put(values: NDArray[np.float32]) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(values)).to(device=device, dtype=dtype)

        return cls(
            x_NTX=put(np.where(observed, scaled(panel.covariates, scaler.covariates), 0)),
            a_NTA=put(panel.treatments),
            y_NTY=put(np.where(observed, scaled(panel.outcomes, scaler.outcomes), 0)),
            v_NV=put(scaled(panel.statics, scaler.statics)),
            length_N=torch.from_numpy(panel.length).to(device),
        )

    @property
    def history_NTS(self) -> Tensor:
        """Return `[x_t, a_{t-1}, y_t]` per step, the scalars known when `a_t` is decided (spec models 0.2, A.1)."""
        previous = torch.zeros_like(self.a_NTA)
        previous[:, 1:] = self.a_NTA[:, :-1]
        return torch.cat([self.x_NTX, previous, self.y_NTY], dim=-1)
