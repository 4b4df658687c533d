"""What training and encoding ask of an encoder, whatever its architecture, and how members encode a batch."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import product
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from costar_cli.config.models import EncoderConfig
from costar_cli.methods.shared.dropout import Masks, MaskShapes, MaskSource, largest_mask
from costar_cli.methods.shared.members import Dims, Params, call_members
from costar_cli.methods.shared.microbatches import (
    Microbatch,
    ToMasks,
    map_microbatches,
    microbatch_size,
    on_cores,
    split_with_masks,
)
from costar_cli.methods.shared.streams import Stream

# Of the largest array of a microbatch on a CPU: measured for the tumour encoder (64 rows). Fewer would fit the caches
# better, but the threads would spend the gain waiting for one another in the interpreter.
CPU_ELEMENTS = 2_240_000


class Representations(NamedTuple):
    """What the encoder knows at each step: overall `z_BTD`, and per component `[C,B,T,D]` in order Y, A, X."""

    z_BTD: Tensor
    components_CBTD: Tensor


class HistoryEncoder(nn.Module, ABC):
    """Representations of every history of a subject in one pass that looks at no later step.

    Pure: what is random comes in as masks. Padding is inert, since it comes last.

    Args:
        dims: numbers of covariates, treatments, outcomes and statics; covariates and statics may be 0.
        config: shape of the encoder.
    """

    statics_are_series: ClassVar[bool] = False  # whether views of a subject differ in its statics, too
    takes_bytes: ClassVar[bool] = True  # masks as bytes of `Dropout`, or as zeros and ones

    def __init__(self, dims: Dims, config: EncoderConfig) -> None:
        super().__init__()
        self.dims, self.config = dims, config

    @property
    @abstractmethod
    def n_components(self) -> int:
        """Return C, the number of component representations; there may be none."""

    @abstractmethod
    def mask_shapes(self, n_steps: int) -> MaskShapes:
        """Return the shape of every dropout mask of one sample."""

    @abstractmethod
    def forward(self, history_BTS: Tensor, statics_BV: Tensor, masks: Masks = None) -> Representations:
        """Encode `history_BTS` (`[x_t, a_{t-1}, y_t]`, scaled) and `statics_BV`; without masks there is no dropout."""

    def at(self, history_BTS: Tensor, statics_BV: Tensor, step_B: Tensor) -> Tensor:
        """Return `z [B,1,D]` of one step of each series."""
        z_BTD: Tensor = self(history_BTS, statics_BV).z_BTD
        return z_BTD[torch.arange(len(step_B), device=step_B.device), step_B, None]

    def mask_source(self, n_steps: int, streams: Sequence[Stream], like: Tensor) -> MaskSource:
        """Return what draws every mask for passes over `n_steps` steps, on the device of a tensor."""
        shapes, rate = self.mask_shapes(n_steps), self.config.dropout
        return MaskSource(shapes, rate, streams, device=like.device, dtype=like.dtype, raw=self.takes_bytes)


def samples_at_once(encoder: HistoryEncoder, samples: int, n_steps: int, device: torch.device) -> int:
    """Return how many samples to encode at once."""
    largest = largest_mask(encoder.mask_shapes(n_steps))
    return microbatch_size(largest, samples, device, cpu_elements=CPU_ELEMENTS, shared=True)


def members_at_once(encoder: HistoryEncoder, samples: int, n_steps: int) -> int:
    """Return how many members share a step on a CPU: those whose batches fill half a microbatch (measured)."""
    return max(1, CPU_ELEMENTS // largest_mask(encoder.mask_shapes(n_steps)) // (2 * samples))


def microbatch_calls(
    encoder: HistoryEncoder, history_RBTS: Tensor, statics_RBV: Tensor, masks: MaskSource | None
) -> Iterator[Microbatch]:
    """Yield calls of a module with the encoder's signature on a few samples each, their masks drawn on the way."""

    def call(inputs: tuple[Tensor, ...], to_masks: ToMasks, module: nn.Module, params: Params) -> tuple[Tensor, ...]:
        return tuple(call_members(module, params, *inputs, to_masks()))

    size = samples_at_once(encoder, history_RBTS.shape[1], history_RBTS.shape[2], history_RBTS.device)
    return split_with_masks(call, (history_RBTS, statics_RBV), masks, size)


def encode_members(
    encoder: HistoryEncoder,
    params_R: Params,
    history_RBTS: Tensor,
    statics_RBV: Tensor,
    masks: MaskSource | None = None,
) -> Representations:
    """Return representations `z [R,B,T,D]` and components `[R,C,B,T,D]`; without masks there is no dropout."""
    calls = microbatch_calls(encoder, history_RBTS, statics_RBV, masks)
    parts = map_microbatches(encoder, calls, params_R, device=history_RBTS.device)
    if len(parts) == 1:
        return Representations(*parts[0])
    return Representations(torch.cat([p[0] for p in parts], dim=1), torch.cat([p[1] for p in parts], dim=2))


def encode_panel(
    encoders: Sequence[HistoryEncoder], history_NTS: Tensor, statics_NV: Tensor, step_N: Tensor | None = None
) -> Tensor:
    """Return `z [R,N,T,D]` of every subject and step, without gradients, by an encoder per member.

    With `step_N` it is of one step of each subject, T = 1. On a CPU with several threads members run side by side, too.
    """
    inputs_N = (history_NTS, statics_NV, *(() if step_N is None else (step_N,)))
    size = samples_at_once(encoders[0], len(history_NTS), history_NTS.shape[1], history_NTS.device)
    parts = list(zip(*(torch.split(values, size) for values in inputs_N), strict=True))

    def encode(job: tuple[HistoryEncoder, tuple[Tensor, ...]]) -> Tensor:
        encoder, (history_BTS, statics_BV, *step_B) = job
        with torch.no_grad():
            if step_B:
                return encoder.at(history_BTS, statics_BV, *step_B)
            z_BTD: Tensor = encoder(history_BTS, statics_BV).z_BTD
            return z_BTD

    z_BTD = list(on_cores(encode, product(encoders, parts), device=history_NTS.device))
    members = (z_BTD[first : first + len(parts)] for first in range(0, len(z_BTD), len(parts)))
    return torch.stack([torch.cat(own) for own in members])
