"""Several processes that train together, as `torchrun` starts them.

Where there are as many members as processes, each trains some (`training/divided.py`). Otherwise all of
them take every step, with the same random numbers, and each computes its share of every batch's microbatches, forward
and backward. What these give is gathered, and gradients are summed: what follows, a contrast over all positions among
it, is that of one process. The first process alone writes and speaks.
"""

import atexit
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from costar_cli.errors import UnforeseenError
from costar_cli.reporting import launched

if TYPE_CHECKING:  # one process alone has nobody to meet, and closed forms are fitted without torch
    import torch
    from torch import Tensor

Number = TypeVar("Number", float, float | None)
Item = TypeVar("Item")


_TOGETHER = [False]


@contextmanager
def together() -> Iterator[None]:
    """Have what trains in this context share its work with the other processes of `torchrun`.

    The training verbs do. Elsewhere the processes are somebody else's program, and each computes by itself.
    """
    with _sharing(wanted=True):
        yield


@contextmanager
def apart() -> Iterator[None]:
    """Have what trains in this context compute as one process does, whatever the others do meanwhile."""
    with _sharing(wanted=False):
        yield


@contextmanager
def _sharing(*, wanted: bool) -> Iterator[None]:
    before, _TOGETHER[0] = _TOGETHER[0], wanted
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


def join(device: "torch.device") -> "torch.device":
    """Meet the other processes, if there are any and they were not met yet; return this one's device."""
    if count() == 1:
        return device
    import torch  # noqa: PLC0415
    from torch import distributed  # noqa: PLC0415

    if device.type == "cuda":
        device = torch.device("cuda", launched("LOCAL_RANK"))
        torch.cuda.set_device(device)
    if not distributed.is_initialized():
        distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
        atexit.register(distributed.destroy_process_group)
    return device


def wait() -> None:
    """Wait until all processes are here.

    Raises:
        UnforeseenError: another process has ended; so do all functions below that exchange something.
    """
    if count() > 1:
        from torch import distributed  # noqa: PLC0415

        with _meeting():
            distributed.barrier()


@contextmanager
def _meeting() -> Iterator[None]:
    """Say what it means if the others cannot be reached."""
    try:
        yield
    except RuntimeError as error:
        raise UnforeseenError(
            "another process that trains together with this one has ended, or cannot be reached",
            fix="see its messages above, and those of `torchrun`; the same command continues",
            details=[str(error).partition("\n")[0]],
        ) from error


def share(number: int) -> range:
    """Return which of so many microbatches this process computes."""
    processes = count()
    return range(rank() * number // processes, (rank() + 1) * number // processes)


def gathered(own: "Sequence[tuple[Tensor, ...]]", like: "Tensor") -> "list[tuple[Tensor, ...]]":
    """Return what the microbatches of all processes gave, in order, in the dtype and on the device of `like`."""
    if count() == 1:
        return list(own)
    import torch  # noqa: PLC0415
    from torch import distributed  # noqa: PLC0415

    shapes = said([[value.shape for value in values] for values in own])
    flat = torch.cat([like.new_zeros(0), *(value.detach().reshape(-1) for values in own for value in values)])
    sent = like.new_zeros(max(sum(shape.numel() for of in process for shape in of) for process in shapes))
    sent[: len(flat)] = flat
    received = [torch.empty_like(sent) for _ in shapes]
    with _meeting():
        distributed.all_gather(received, sent)
    found = []
    for flat, process in zip(received, shapes, strict=True):
        first = 0  # the tensors of a process's microbatches lie one behind the other
        for of in process:
            values = []
            for shape in of:
                values.append(flat[first : first + shape.numel()].view(shape))
                first += shape.numel()
            found.append(tuple(values))
    return found


def summed(values: "Sequence[Tensor]") -> "list[Tensor]":
    """Return the sums of tensors over all processes."""
    if count() == 1:
        return list(values)
    import torch  # noqa: PLC0415
    from torch import distributed  # noqa: PLC0415

    flat = torch.cat([value.reshape(-1) for value in values])
    with _meeting():
        distributed.all_reduce(flat)
    parts = torch.split(flat, [value.numel() for value in values])
    return [part.view(value.shape) for part, value in zip(parts, values, strict=True)]


def anywhere(flag: bool) -> bool:  # noqa: FBT001 - a fact
    """Return whether something has happened in any process."""
    if count() == 1:
        return flag
    import torch  # noqa: PLC0415
    from torch import distributed  # noqa: PLC0415

    device = "cuda" if distributed.get_backend() == "nccl" else "cpu"
    return bool(summed([torch.tensor([float(flag)], device=device)])[0])


def first_says(values: Sequence[Number]) -> list[Number]:
    """Return the first process's numbers, so that all decide alike whatever their rounding."""
    numbers = [list(values)]
    if count() > 1:
        from torch import distributed  # noqa: PLC0415

        with _meeting():
            distributed.broadcast_object_list(numbers)
    return numbers[0]


def said(value: Item) -> list[Item]:
    """Return what each process says, in their order; it is sent as `pickle` writes it."""
    if count() == 1:
        return [value]
    from torch import distributed  # noqa: PLC0415

    values = [value] * count()
    with _meeting():
        distributed.all_gather_object(values, value)
    return values
