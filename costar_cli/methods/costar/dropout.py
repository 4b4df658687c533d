"""Dropout as an input: masks are drawn outside the forward pass, which stays a pure function.

A mask element is one random byte: the keep probability is quantised to 1/256 (rate 0.1 keeps 230/256). Byte draws are
many times faster than the framework's Bernoulli generator on a CPU and make resume and ensembles exact.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from costar_cli.methods.streams import Stream

__all__ = ["MaskShapes", "MaskSource", "Masks", "masked"]

Masks = Mapping[str, Tensor] | None
MaskShapes = dict[str, tuple[int, ...]]


def masked(values: Tensor, masks: Masks, name: str) -> Tensor:
    """Return `values` times the mask of this name, or unchanged without masks (evaluation)."""
    return values if masks is None else values * masks[name]


class MaskSource:
    """Draws the masks of one pass, a few samples at a time.

    Bytes are consumed sample by sample, so the masks do not depend on how many samples are drawn at once.

    Args:
        shapes: shape of each mask for a single sample, without the batch axis.
        rate: dropout rate.
        streams: one per member.
        device: where the masks live.
        dtype: of the masks.
    """

    def __init__(
        self, shapes: MaskShapes, rate: float, streams: Sequence[Stream], *, device: torch.device, dtype: torch.dtype
    ) -> None:
        self._shapes = shapes
        self._keep = round(256 * (1 - rate))
        self._streams = streams
        self._device, self._dtype = device, dtype
        self._bytes_per_sample = -(-sum(map(math.prod, shapes.values())) // 8) * 8

    def draw(self, samples: int) -> Callable[[], dict[str, Tensor]]:
        """Draw the bytes of the next samples; return what turns them into masks, to be called on any thread."""
        if self._keep == 256:
            return dict
        count = samples * self._bytes_per_sample
        return partial(self._factors, [stream.random_bytes(count, self._device) for stream in self._streams], samples)

    def _factors(self, drawn_R: list[Tensor], samples: int) -> dict[str, Tensor]:
        """Return factors `[R,samples,...]` by name: 0 for dropped, 1/keep for kept."""
        factors = {}
        start = 0
        for name, shape in self._shapes.items():
            factor = torch.empty((len(drawn_R), samples, *shape), dtype=self._dtype, device=self._device)
            stop = start + math.prod(shape)
            for member, drawn in enumerate(drawn_R):
                torch.lt(drawn.view(samples, -1)[:, start:stop].view(samples, *shape), self._keep, out=factor[member])
            factors[name] = factor.mul_(256 / self._keep)
            start = stop
        return factors
