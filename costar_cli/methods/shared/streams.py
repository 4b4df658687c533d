"""Random streams as pure functions of their key: (seed, stage, purpose, member, epoch, step) (spec PANEL-13)."""

import hashlib

import numpy as np
import torch
from torch import Tensor

__all__ = ["Stream"]


class Stream:
    """The randomness of one member for one purpose at one step.

    The stream of step 17 does not depend on whether steps 0 to 16 ran in this process, so resuming needs no generator
    state; and it does not depend on the other members, so training together equals training apart.
    """

    def __init__(self, *key: int | str) -> None:
        digest = hashlib.blake2b("/".join(map(str, key)).encode(), digest_size=16).digest()
        self._bits = np.random.SFC64(np.random.SeedSequence(int.from_bytes(digest, "little")))
        self._numpy = np.random.Generator(self._bits)
        self._torch: torch.Generator | None = None

    def random_bytes(self, count: int, device: torch.device) -> Tensor:
        """Return `count` random bytes on a device."""
        if device.type == "cpu":
            words = self._bits.random_raw((count + 7) // 8)
            return torch.from_numpy(words.view(np.uint8)[:count])
        if self._torch is None:
            self._torch = torch.Generator(device).manual_seed(self.torch_seed())
        return torch.randint(256, (count,), dtype=torch.uint8, device=device, generator=self._torch)

    def normal(self, *shape: int, device: torch.device, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return standard normal numbers on a device."""
        return torch.from_numpy(self._numpy.standard_normal(shape, dtype=np.float32)).to(device=device, dtype=dtype)

    def uniform(self, *shape: int) -> Tensor:
        """Return uniform numbers in [0, 1) on the CPU."""
        return torch.from_numpy(self._numpy.random(shape, dtype=np.float32))

    def permutation(self, count: int) -> Tensor:
        """Return a random order of `count` items on the CPU."""
        return torch.from_numpy(self._numpy.permutation(count))

    def torch_seed(self) -> int:
        """Return a seed for the framework's own generators (initialisation)."""
        return int(self._numpy.integers(2**63))
