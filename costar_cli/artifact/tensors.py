"""Nested arrays and torch tensors to the flat arrays of an artifact, and back."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

__all__ = ["arrays_to_tensors", "flatten", "tensors_to_arrays", "unflatten"]


def flatten(nested: Mapping[str, Any], prefix: str = "") -> dict[str, NDArray[Any]]:
    """Return nested mappings of arrays as one mapping; the levels of a name are separated by slashes."""
    flat: dict[str, NDArray[Any]] = {}
    for key, value in nested.items():
        name = f"{prefix}/{key}" if prefix else key
        flat |= flatten(value, name) if isinstance(value, Mapping) else {name: np.asarray(value)}
    return flat


def unflatten(flat: Mapping[str, NDArray[Any]], prefix: str = "") -> dict[str, Any]:
    """Return the nested dictionaries that `flatten` made flat: all arrays, or those below `prefix`."""
    nested: dict[str, Any] = {}
    start = f"{prefix}/" if prefix else ""
    for name, array in flat.items():
        if name.startswith(start):
            *groups, leaf = name.removeprefix(start).split("/")
            level = nested
            for group in groups:
                level = level.setdefault(group, {})
            level[leaf] = array
    return nested


def tensors_to_arrays(tensors: Mapping[str, "torch.Tensor"]) -> dict[str, NDArray[Any]]:
    """Return torch tensors, of whatever device, as numpy arrays by the same names."""
    return {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}


def arrays_to_tensors(
    arrays: Mapping[str, NDArray[Any]], device: "torch.device | str" = "cpu"
) -> dict[str, "torch.Tensor"]:
    """Return numpy arrays as torch tensors on a device by the same names; on the CPU they share memory."""
    import torch  # noqa: PLC0415 - most users of artifacts need no torch

    return {name: torch.from_numpy(array).to(device) for name, array in arrays.items()}
