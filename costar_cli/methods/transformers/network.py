"""What training and encoding ask of a network that ends in a balancing head."""

import math
from abc import ABC, abstractmethod
from typing import TypeVar

import torch
from torch import nn

from costar_cli.methods.shared.balancing import BalancingHead
from costar_cli.methods.shared.dropout import MaskShapes

__all__ = ["BalancedNetwork", "NetworkT", "samples_at_once"]

CPU_ELEMENTS = 1_500_000  # of the largest mask of what is computed at once (measured: more overflow the caches)
GPU_ELEMENTS = 2**28


class BalancedNetwork(nn.Module, ABC):
    """A network whose `forward(*inputs, masks)` returns representations and outcomes; it ends in a balancing head."""

    head: BalancingHead

    @abstractmethod
    def mask_shapes(self, n_steps: int) -> MaskShapes:
        """Return the shape of every dropout mask of one sample."""


NetworkT = TypeVar("NetworkT", bound=BalancedNetwork)


def samples_at_once(network: BalancedNetwork, n_steps: int, device: torch.device) -> int:
    """Return how many samples to compute at once: few on a CPU, many on a GPU."""
    largest = max(map(math.prod, network.mask_shapes(n_steps).values()))
    return max(1, (CPU_ELEMENTS if device.type == "cpu" else GPU_ELEMENTS) // largest)
