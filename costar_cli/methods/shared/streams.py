"""Random streams as pure functions of their key: (seed, stage, purpose, member, epoch, step) (spec PANEL-13)."""

from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from costar_cli.methods.shared.keys import keyed_bits


class Stream:
    """The randomness of one member for one purpose at one step.

    The stream of step 17 does not depend on whether steps 0 to 16 ran in this process, so resuming needs no generator
    state; and it does not depend on the other members, so training together equals training apart.
    """

    is_replayed: ClassVar[bool] = False

    def __init__(self, *key: int | str) -> None:
        self._bits = keyed_bits(*key)
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

    def uniform(self, *shape: int, device: torch.device) -> Tensor:
        """Return uniform numbers in [0, 1), in single precision, on a device."""
        return torch.from_numpy(self._numpy.random(shape, dtype=np.float32)).to(device)

    def permutation(self, count: int) -> Tensor:
        """Return a random order of `count` items on the CPU."""
        return torch.from_numpy(self._numpy.permutation(count))

    def torch_seed(self) -> int:
        """Return a seed for the framework's own generators (initialisation)."""
        return int(self._numpy.integers(2**63))


class _Draw(NamedTuple):
    """What was asked of a stream: which of its methods, and with what."""

    kind: str
    shape: tuple[int, ...]
    device: torch.device
    dtype: torch.dtype | None

    def of(self, stream: Stream) -> Tensor:
        if self.kind == "random_bytes":
            return stream.random_bytes(self.shape[0], self.device)
        if self.kind == "permutation":
            return stream.permutation(self.shape[0])
        if self.dtype is None:
            return stream.uniform(*self.shape, device=self.device)
        return stream.normal(*self.shape, device=self.device, dtype=self.dtype)


class ReplayedStream(Stream):
    """Random numbers of one member in memory that stays where it is, for steps that are recorded and replayed.

    The first step draws from its own stream. `refill` draws the same from the stream of a later one, into the same
    memory, which is handed out again in the same order if the step is computed anew. Shapes of what is computed from
    these numbers must depend on shapes alone, not on values.
    """

    is_replayed = True

    def __init__(self, first: Stream) -> None:
        self._source: Stream | None = first
        self._drawn: list[tuple[_Draw, Tensor]] = []
        self._next = 0

    def refill(self, stream: Stream) -> None:
        """Draw for another step."""
        for draw, memory in self._drawn:
            memory.copy_(draw.of(stream))
        self._source, self._next = None, 0

    def random_bytes(self, count: int, device: torch.device) -> Tensor:
        """Return `count` random bytes on a device."""
        return self._given(_Draw("random_bytes", (count,), device, None))

    def normal(self, *shape: int, device: torch.device, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return standard normal numbers on a device."""
        return self._given(_Draw("normal", shape, device, dtype))

    def uniform(self, *shape: int, device: torch.device) -> Tensor:
        """Return uniform numbers in [0, 1), in single precision, on a device."""
        return self._given(_Draw("uniform", shape, device, None))

    def permutation(self, count: int) -> Tensor:
        """Return a random order of `count` items on the CPU."""
        return self._given(_Draw("permutation", (count,), torch.device("cpu"), None))

    def torch_seed(self) -> int:
        """Return a seed for the framework's own generators, in the first step.

        Raises:
            RuntimeError: the step is recorded, and would repeat what the seed gives.
        """
        if self._source is None:
            raise RuntimeError("a step seeds a generator of its own, which cannot be recorded")
        return self._source.torch_seed()

    def _given(self, asked: _Draw) -> Tensor:
        if self._source is not None:
            self._drawn.append((asked, asked.of(self._source)))
            return self._drawn[-1][1]
        if self._next == len(self._drawn) or self._drawn[self._next][0] != asked:
            raise RuntimeError("a step asks for other random numbers than the one before")
        self._next += 1
        return self._drawn[self._next - 1][1]
