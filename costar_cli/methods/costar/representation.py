"""What training and encoding ask of an encoder, whatever its architecture, and how members encode a batch."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from costar_cli.config.models import EncoderConfig
from costar_cli.methods.shared.dropout import Masks, MaskShapes, MaskSource
from costar_cli.methods.shared.members import Params, call_members, n_members
from costar_cli.methods.shared.microbatches import Microbatch, map_microbatches
from costar_cli.methods.shared.streams import Stream

__all__ = ["Dims", "HistoryEncoder", "Representations", "encode_members", "encode_panel", "microbatch_calls"]

Dims = tuple[int, int, int, int]  # numbers of covariates, treatments, outcomes and statics


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

    def mask_source(self, n_steps: int, streams: Sequence[Stream], like: Tensor) -> MaskSource:
        """Return what draws every mask for passes over `n_steps` steps, on the device of a tensor."""
        shapes, rate = self.mask_shapes(n_steps), self.config.dropout
        return MaskSource(shapes, rate, streams, device=like.device, dtype=like.dtype, raw=self.takes_bytes)


MicrobatchInput = tuple[Tensor, Tensor, Callable[[], dict[str, Tensor]]]
CACHE_ELEMENTS = 2_240_000  # of the largest array of a microbatch on a CPU: measured for the tumour encoder (64 rows)


def samples_per_microbatch(encoder: HistoryEncoder, samples: int, n_steps: int, device: torch.device) -> int:
    """Return how many samples to encode at once.

    On a CPU as many as measured best, but no fewer microbatches than cores; on a GPU all that fit into 2^28 elements.
    Fewer would fit the caches better, but the threads would spend the gain waiting for one another in the interpreter.
    """
    largest = max(map(math.prod, encoder.mask_shapes(n_steps).values()))
    if device.type != "cpu":
        return max(1, 2**28 // largest)
    return max(1, min(CACHE_ELEMENTS // largest, -(-samples // torch.get_num_threads())))


def microbatch_calls(
    encoder: HistoryEncoder, history_RBTS: Tensor, statics_RBV: Tensor, masks: MaskSource | None
) -> Iterator[Microbatch]:
    """Yield calls of a module with the encoder's signature on a few samples each, their masks drawn on the way."""
    size = samples_per_microbatch(encoder, history_RBTS.shape[1], history_RBTS.shape[2], history_RBTS.device)
    histories, statics = torch.split(history_RBTS, size, dim=1), torch.split(statics_RBV, size, dim=1)

    def microbatch(args: MicrobatchInput, module: nn.Module, params: Params) -> tuple[Tensor, ...]:
        history, statics, to_masks = args
        return tuple(call_members(module, params, history, statics, to_masks()))

    for history, static in zip(histories, statics, strict=True):
        yield partial(microbatch, (history, static, masks.draw(history.shape[1]) if masks else dict))


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


def encode_panel(encoder: HistoryEncoder, params_R: Params, history_NTS: Tensor, statics_NV: Tensor) -> Tensor:
    """Return `z [R,N,T,D]` of every subject and step, one member after another, without gradients."""
    with torch.no_grad():
        members = [{name: value[r : r + 1] for name, value in params_R.items()} for r in range(n_members(params_R))]
        return torch.cat(
            [encode_members(encoder, member, history_NTS[None], statics_NV[None]).z_BTD for member in members]
        )
