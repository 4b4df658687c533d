"""Encoding a panel without gradients, some subjects at a time."""

from collections.abc import Callable

import torch
from torch import Tensor

from costar_cli.methods.shared.microbatches import on_cores
from costar_cli.methods.transformers.network import BalancedNetwork, samples_at_once

__all__ = ["encode_in_pieces"]


def encode_in_pieces(
    function: Callable[..., tuple[Tensor, ...]], network: BalancedNetwork, *inputs_N: Tensor
) -> tuple[Tensor, ...]:
    """Return what a function makes of N subjects, some at a time; its results lead with the subjects, too."""
    device = inputs_N[0].device
    size = samples_at_once(network, inputs_N[0].shape[1], device)

    def call(some: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        with torch.no_grad():
            return function(*some)

    parts = on_cores(call, zip(*(torch.split(values, size) for values in inputs_N), strict=True), device=device)
    return tuple(torch.cat(values) for values in zip(*parts, strict=True))
