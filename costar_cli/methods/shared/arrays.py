"""What every artifact of a trained method holds: parameters of all members by name, and the scaler."""

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from costar_cli.methods.shared.members import Params
from costar_cli.panel import Scaler

__all__ = ["params_from_arrays", "params_to_arrays", "scaler_from_arrays"]


def params_to_arrays(params: Params) -> dict[str, NDArray[np.generic]]:
    """Return the parameters under the names that an artifact uses."""
    return {f"params/{name}": value.detach().cpu().numpy() for name, value in params.items()}


def params_from_arrays(arrays: Mapping[str, NDArray[np.generic]]) -> Params:
    """Return the parameters that an artifact holds."""
    prefix = "params/"
    return {n.removeprefix(prefix): torch.from_numpy(np.array(v)) for n, v in arrays.items() if n.startswith(prefix)}


def scaler_from_arrays(arrays: Mapping[str, NDArray[np.generic]]) -> Scaler:
    """Return the scaler that an artifact holds."""
    return Scaler(**{name: np.asarray(arrays[f"scaler/{name}"]) for name in ("covariates", "outcomes", "statics")})
