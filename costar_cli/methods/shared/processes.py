"""Several processes that train together, as `torchrun` starts them (decision 115).

All of them take every step, with the same random numbers, and each computes its share of every batch's microbatches,
forward and backward. What these give is gathered, and gradients are summed: what follows, a contrast over all positions
among it, is that of one process. The first process alone writes and speaks.
"""

import atexit
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor, distributed

from costar_cli.reporting import launched

__all__ = ["anywhere", "count", "first_says", "gathered", "here", "join", "rank", "share", "summed", "together", "wait"]

Number = TypeVar("Number", float, float | None)


_TOGETHER = [False]


@contextmanager
def together() -> Iterator[None]:
    """Have what trains in this context share its work with the other processes of `torchrun`.

    The training verbs do. Elsewhere the processes are somebody else's program, and each computes by itself.
    """
    before, _TOGETHER[0] = _TOGETHER[0], True
    try:
        yield
    finally:
        _TOGETHER[0] = before


def _launched(name: str, alone: int) -> int:
    return launched(name, alone) if _TOGETHER[0] else alone


def count() -> int:
    """Return how many processes train together."""
    return _launched("WORLD_SIZE", 1)


def here() -> int:
    """Return how many of them are on this machine."""
    return _launched("LOCAL_WORLD_SIZE", 1)


def rank() -> int:
    """Return which of them this is: 0 for the first, and for one that trains alone."""
    return _launched("RANK", 0)


def join(device: torch.device) -> torch.device:
    """Meet the other processes, if there are any and they were not met yet; return this one's device."""
    if count() == 1:
        return device
    if device.type == "cuda":
        device = torch.device("cuda", launched("LOCAL_RANK"))
        torch.cuda.set_device(device)
    if not distributed.is_initialized():
        distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
        atexit.register(distributed.destroy_process_group)
    return device


def wait() -> None:
    """Wait until all processes are here."""
    if count() > 1:
        distributed.barrier()


def share(number: int) -> range:
    """Return which of so many microbatches this process computes."""
    processes = count()
    return range(rank() * number // processes, (rank() + 1) * number // processes)


def gathered(own: Sequence[tuple[Tensor, ...]], like: Tensor) -> list[tuple[Tensor, ...]]:
    """Return what the microbatches of all processes gave, in order, in the dtype and on the device of `like`."""
    if count() == 1:
        return list(own)
    shapes: list[list[list[torch.Size]]] = [[] for _ in range(count())]
    distributed.all_gather_object(shapes, [[value.shape for value in values] for values in own])
    flat = torch.cat([like.new_zeros(0), *(value.detach().reshape(-1) for values in own for value in values)])
    sent = like.new_zeros(max(sum(shape.numel() for of in process for shape in of) for process in shapes))
    sent[: len(flat)] = flat
    received = [torch.empty_like(sent) for _ in shapes]
    distributed.all_gather(received, sent)
    return [values for flat, process in zip(received, shapes, strict=True) for values in _cut(flat, process)]


def _cut(flat: Tensor, shapes: Sequence[Sequence[torch.Size]]) -> Iterator[tuple[Tensor, ...]]:
    """Yield the tensors of each microbatch of a process, which lie one behind the other."""
    first = 0
    for of in shapes:
        values = []
        for shape in of:
            values.append(flat[first : first + shape.numel()].view(shape))
            first += shape.numel()
        yield tuple(values)


def summed(values: Sequence[Tensor]) -> list[Tensor]:
    """Return the sums of tensors over all processes."""
    if count() == 1:
        return list(values)
    flat = torch.cat([value.reshape(-1) for value in values])
    distributed.all_reduce(flat)
    parts = torch.split(flat, [value.numel() for value in values])
    return [part.view(value.shape) for part, value in zip(parts, values, strict=True)]


def anywhere(flag: bool) -> bool:  # noqa: FBT001 - a fact
    """Return whether something has happened in any process."""
    if count() == 1:
        return flag
    device = "cuda" if distributed.get_backend() == "nccl" else "cpu"
    return bool(summed([torch.tensor([float(flag)], device=device)])[0])


def first_says(values: Sequence[Number]) -> list[Number]:
    """Return the first process's numbers, so that all decide alike whatever their rounding."""
    said = [list(values)]
    if count() > 1:
        distributed.broadcast_object_list(said)
    return said[0]
