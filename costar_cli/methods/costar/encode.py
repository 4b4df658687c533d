"""Encoding batches and panels for all members, in pieces that stay in the cache."""

import math
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, nn

from costar_cli.methods.costar.representation import HistoryEncoder, Representations
from costar_cli.methods.shared.dropout import MaskSource
from costar_cli.methods.shared.members import Params, call_members, n_members
from costar_cli.methods.shared.microbatches import Piece, map_pieces

__all__ = ["encode_members", "encode_panel", "piece_calls"]

PieceInput = tuple[Tensor, Tensor, Callable[[], dict[str, Tensor]]]
CACHE_ELEMENTS = 2_240_000  # of the largest array of a piece on a CPU: measured for the tumour encoder (64 samples)


def samples_per_piece(encoder: HistoryEncoder, samples: int, n_steps: int, device: torch.device) -> int:
    """Return how many samples to encode at once.

    On a CPU as many as measured best, but no fewer pieces than cores; on a GPU all that fit into 2^28 elements. Fewer
    would fit the caches better, but the threads would spend the gain waiting for one another in the interpreter.
    """
    largest = max(map(math.prod, encoder.mask_shapes(n_steps).values()))
    if device.type != "cpu":
        return max(1, 2**28 // largest)
    return max(1, min(CACHE_ELEMENTS // largest, -(-samples // torch.get_num_threads())))


def piece_calls(
    encoder: HistoryEncoder, history_RBTS: Tensor, statics_RBV: Tensor, masks: MaskSource | None
) -> Iterator[Piece]:
    """Yield calls of a module with the encoder's signature on a few samples each, their masks drawn on the way."""
    size = samples_per_piece(encoder, history_RBTS.shape[1], history_RBTS.shape[2], history_RBTS.device)
    histories, statics = torch.split(history_RBTS, size, dim=1), torch.split(statics_RBV, size, dim=1)

    def piece(args: PieceInput, module: nn.Module, params: Params) -> tuple[Tensor, ...]:
        history, statics, to_masks = args
        return tuple(call_members(module, params, history, statics, to_masks()))

    for history, static in zip(histories, statics, strict=True):
        yield partial(piece, (history, static, masks.draw(history.shape[1]) if masks else dict))


def encode_members(
    encoder: HistoryEncoder,
    params_R: Params,
    history_RBTS: Tensor,
    statics_RBV: Tensor,
    masks: MaskSource | None = None,
) -> Representations:
    """Return representations `z [R,B,T,D]` and components `[R,C,B,T,D]`; without masks there is no dropout."""
    calls = piece_calls(encoder, history_RBTS, statics_RBV, masks)
    pieces = map_pieces(encoder, calls, params_R, device=history_RBTS.device)
    if len(pieces) == 1:
        return Representations(*pieces[0])
    return Representations(torch.cat([p[0] for p in pieces], dim=1), torch.cat([p[1] for p in pieces], dim=2))


def encode_panel(encoder: HistoryEncoder, params_R: Params, history_NTS: Tensor, statics_NV: Tensor) -> Tensor:
    """Return `z [R,N,T,D]` of every subject and step, one member after another, without gradients."""
    with torch.no_grad():
        members = [{name: value[r : r + 1] for name, value in params_R.items()} for r in range(n_members(params_R))]
        return torch.cat(
            [encode_members(encoder, member, history_NTS[None], statics_NV[None]).z_BTD for member in members]
        )
