"""Dropout as an input: masks are drawn outside the forward pass, which stays a pure function (spec NET-4).

A mask element is one random byte: the keep probability is quantised to 1/256 (rate 0.1 keeps 230/256). Byte draws are
many times faster than the framework's Bernoulli generator on a CPU and make resume and ensembles exact.

Masks hold 0 and 1. The factor 1/keep that preserves the mean goes where it is cheapest: into the weights, values or
sums that a masked array is multiplied with next.
"""

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from costar_cli.methods.shared.streams import Stream

Masks = Mapping[str, Tensor] | None
MaskShapes = dict[str, tuple[int, ...]]


def masked(values: Tensor, masks: Masks, name: str) -> Tensor:
    """Return `values` times the mask of this name, or unchanged without masks (evaluation)."""
    return values if masks is None else values * masks[name]


def kept_bytes(rate: float) -> int:
    """Return how many of the 256 byte values keep an element."""
    return round(256 * (1 - rate))


def largest_mask(shapes: MaskShapes) -> int:
    """Return how many elements the largest mask of one sample has: about those of the largest array it needs."""
    return max(map(math.prod, shapes.values()))


def per_kept(rate: float) -> float:
    """Return the factor 1/keep."""
    return 256 / kept_bytes(rate)


def masked_relu(values: Tensor, masks: Masks, name: str) -> Tensor:
    """Return `relu(values)` times the mask of this name, in one saved array: it is positive where both let through."""
    if masks is None:
        return torch.relu(values)
    result: Tensor = _MaskedRelu.apply(values, masks[name])  # type: ignore[no-untyped-call]
    return result


class Dropout:
    """Dropout by random bytes, for modules that get the bytes themselves.

    Args:
        rate: how many values are dropped, quantised to 1/256.
    """

    def __init__(self, rate: float) -> None:
        self.keep = kept_bytes(rate)
        self.per_kept = per_kept(rate)

    def __call__(self, values: Tensor, drawn: Tensor | None) -> Tensor:
        """Return the kept values times 1/keep, or all of them without bytes (evaluation)."""
        return values if drawn is None else values * self.factors(drawn, values.dtype) * self.per_kept

    def factors(self, drawn: Tensor, dtype: torch.dtype) -> Tensor:
        """Return 1 for bytes that keep their value and 0 for those that drop it (comparing is slower on a CPU)."""
        return (self.keep - drawn.to(dtype, memory_format=torch.contiguous_format)).clamp(0, 1)


class _MaskedRelu(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(values: Tensor, mask: Tensor) -> Tensor:
        return torch.relu(values).mul_(mask)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:  # noqa: ANN401, ARG004
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        (output,) = ctx.saved_tensors
        return torch.ops.aten.threshold_backward(grads[0], output, 0), None


class MaskSource:
    """Draws the masks of one pass, a few samples at a time.

    Bytes are consumed sample by sample, so the masks do not depend on how many samples are drawn at once.

    Args:
        shapes: shape of each mask for a single sample, without the batch axis.
        rate: dropout rate.
        streams: one per member.
        device: where the masks live.
        dtype: of the masks.
        raw: whether to hand out the bytes as they were drawn, for modules that compare them themselves (`Dropout`).
    """

    def __init__(
        self,
        shapes: MaskShapes,
        rate: float,
        streams: Sequence[Stream],
        *,
        device: torch.device,
        dtype: torch.dtype,
        raw: bool = False,
    ) -> None:
        self._shapes, self._raw = shapes, raw
        self._keep = kept_bytes(rate)
        self._streams = streams
        self._device, self._dtype = device, dtype
        self._bytes_per_sample = -(-sum(map(math.prod, shapes.values())) // 8) * 8
        self._counts: list[int] = []
        self._drawn: list[list[Tensor]] = []
        self._lock = threading.Lock()

    def draw(self, samples: int) -> Callable[[], dict[str, Tensor]]:
        """Return what gives the masks of the next samples, the same at every call, on any thread and in any order."""
        if self._keep == 256:
            return dict
        self._counts.append(samples * self._bytes_per_sample)
        drawn = lru_cache(maxsize=1)(partial(self._bytes, len(self._counts) - 1))
        return lambda: self._masks(drawn(), samples)

    def _bytes(self, turn: int) -> list[Tensor]:
        """Return the bytes of one call of `draw`; the streams are read in the order of the calls."""
        with self._lock:
            while len(self._drawn) <= turn:
                count = self._counts[len(self._drawn)]
                self._drawn.append([stream.random_bytes(count, self._device) for stream in self._streams])
            drawn_R, self._drawn[turn] = self._drawn[turn], []
        return drawn_R

    def _masks(self, drawn_R: list[Tensor], samples: int) -> dict[str, Tensor]:
        """Return masks `[R,samples,...]` by name: 0 for dropped, 1 for kept, or the bytes."""
        masks = {}
        start = 0
        for name, shape in self._shapes.items():
            stop = start + math.prod(shape)
            bytes_R = [drawn.view(samples, -1)[:, start:stop].view(samples, *shape) for drawn in drawn_R]
            start = stop
            if self._raw:
                masks[name] = torch.stack(bytes_R) if len(bytes_R) > 1 else bytes_R[0][None]
                continue
            masks[name] = torch.empty((len(drawn_R), samples, *shape), dtype=self._dtype, device=self._device)
            for member, drawn in enumerate(bytes_R):
                torch.lt(drawn, self._keep, out=masks[name][member])
        return masks
