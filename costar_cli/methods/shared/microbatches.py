"""Microbatches: a batch in parts that fit the caches, each computed forward and backward by one core.

An operator on data that fit a cache is too small to be split over threads, and one on a whole batch waits for memory;
so a core takes a microbatch through all operators. Too small ones lose more by waiting for the interpreter than the
caches give. Gradients are summed in the order of the microbatches: which core was faster has no say.
A batch of many microbatches keeps what the backward pass needs of the first ones only, and computes it again for the
others: large panels then take a fraction of the memory, and up to a third more time.
"""

import copy
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from costar_cli.methods.shared import processes
from costar_cli.methods.shared.cores import chosen, chosen_threads
from costar_cli.methods.shared.dropout import MaskSource
from costar_cli.methods.shared.members import Params

Microbatch = Callable[[nn.Module, Params], tuple[Tensor, ...]]
ToMasks = Callable[[], dict[str, Tensor]]  # draws the masks of a microbatch, the same at every call
Item = TypeVar("Item")
Result = TypeVar("Result")

WORTH_SPLITTING = 5  # batches of less than this part of what is computed at once: cores get into each other's way
GPU_ELEMENTS = 2**28  # of the largest array of a microbatch: 1 GiB in single precision, so that a few fit any GPU
# Retail pretraining, 43 microbatches: 2.7 GB instead of 6.5 GB, the same numbers to the bit, and nothing seen on the
# clock.
KEPT_MICROBATCHES = 12  # at most of a batch, of one member, whose intermediate results wait for the backward pass
MICROBATCH_GB, PROGRAM_GB = 0.15, 0.75  # what one of them takes at most, and all else (measured: the retail panel)
_KEPT = [KEPT_MICROBATCHES]


def worker_count() -> int:
    """Return how many microbatches run side by side on a CPU: the chosen threads, or as many as an operator has."""
    return chosen_threads() or torch.get_num_threads()


@contextmanager
def operators_on(cores: int) -> Iterator[None]:
    """Give each operator of this thread so many cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(cores)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def cores_for_microbatches(cores: int) -> Iterator[None]:
    """Give each operator one core, and microbatches so many: what is too small to be split is computed by one.

    Threads that share an operator sleep between two of them (`OMP_WAIT_POLICY`), and waking one takes longer than a
    small operator: steps of recurrent networks took 2 to 3 times as long with two threads as with one.
    """
    with chosen(cores), operators_on(1):
        yield


def keep_microbatches(memory_gb: float) -> None:
    """Keep as many microbatches of a batch for the backward pass as a process of this size has room for.

    The others are computed again, so that results are the same to the bit. Holds for the process, as threads do.
    """
    room = int((memory_gb - PROGRAM_GB) / MICROBATCH_GB)
    _KEPT[0] = max(1, min(KEPT_MICROBATCHES, room))


def on_cores(function: Callable[[Item], Result], items: Iterable[Item], *, device: torch.device) -> Iterator[Result]:
    """Yield the function of each item, in order; on a CPU with several threads items run side by side."""
    n_workers = worker_count()
    if device.type != "cpu" or n_workers == 1:
        return map(function, items)
    return _workers(n_workers).map(function, items)


def microbatch_size(
    largest: int,
    samples: int,
    device: torch.device,
    *,
    cpu_elements: int,
    gpu_elements: int = GPU_ELEMENTS,
    shared: bool = False,
) -> int:
    """Return how many samples to compute at once.

    Args:
        largest: elements of the largest array that one sample needs.
        samples: how many there are.
        device: where they are computed.
        cpu_elements: elements of that array at once on a CPU: what the caches hold, measured for each family.
        gpu_elements: the same on a GPU: what its memory holds.
        shared: each core of a CPU gets one, unless there are too few samples.

    Several processes have as many each.
    """
    at_most = (cpu_elements if device.type == "cpu" else gpu_elements) // largest
    is_split = shared and device.type == "cpu" and samples * WORTH_SPLITTING > at_most
    least = (worker_count() if is_split else 1) * processes.count()
    return max(1, min(at_most, -(-samples // least)))


def split_with_masks(
    call: Callable[[tuple[Tensor, ...], ToMasks, nn.Module, Params], tuple[Tensor, ...]],
    inputs_RB: Sequence[Tensor],
    masks: MaskSource | None,
    size: int,
) -> Iterator[Microbatch]:
    """Yield the call of a module on `size` samples each, their dropout masks drawn on the way; none without masks."""
    for some in zip(*(torch.split(values, size, dim=1) for values in inputs_RB), strict=True):
        yield partial(call, some, masks.draw(some[0].shape[1]) if masks else dict)


def encode_in_microbatches(
    encode: Callable[..., tuple[Tensor, ...]], *inputs_N: Tensor, size: int
) -> tuple[Tensor, ...]:
    """Return what a function makes of N subjects, `size` at a time and without gradients; its results lead with them.

    The function must change nothing: on a CPU with several threads microbatches run side by side.
    """

    def call(some: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        with torch.no_grad():
            return encode(*some)

    some = zip(*(torch.split(values, size) for values in inputs_N), strict=True)
    parts = on_cores(call, some, device=inputs_N[0].device)
    return tuple(torch.cat(values) for values in zip(*parts, strict=True))


def map_microbatches(
    module: nn.Module, microbatches: Iterable[Microbatch], params: Params, *, device: torch.device
) -> list[tuple[Tensor, ...]]:
    """Return what each microbatch makes of the module and its parameters, differentiable with respect to these alone.

    On a CPU with several threads they run side by side, each thread with its own copy of the module (`functional_call`
    puts parameters into a module while it runs); elsewhere one after another. A microbatch may be called twice, for the
    backward pass, and must then return the same. Several processes run some each.
    """
    n_workers, microbatches = worker_count() if device.type == "cpu" else 1, list(microbatches)
    alone = processes.count() == 1
    names, values = list(params), list(params.values())
    kept = max(1, _KEPT[0] // len(values[0]))  # those of several members are as many times larger
    if alone and (device.type != "cpu" or (n_workers == 1 and len(microbatches) <= kept)):
        return [microbatch(module, params) for microbatch in microbatches]
    per_microbatch, *outputs = _Microbatches.apply(module, microbatches, names, n_workers, kept, *values)  # type: ignore[no-untyped-call]
    return [tuple(outputs[first : first + per_microbatch]) for first in range(0, len(outputs), per_microbatch)]


def start_microbatches(
    module: nn.Module, microbatches: Iterable[Microbatch], params: Params, *, device: torch.device
) -> Callable[[], list[tuple[Tensor, ...]]]:
    """Start the microbatches without gradients; return what waits for their results.

    On a CPU with several threads no core is idle at the end of these microbatches when others are mapped meanwhile.
    """

    def run(microbatch: Microbatch) -> tuple[Tensor, ...]:
        with torch.no_grad():
            return microbatch(_own_copy(module), fixed)

    fixed = {name: value.detach() for name, value in params.items()}
    n_workers, own, like = worker_count(), _own(list(microbatches)), next(iter(params.values()))
    if device.type != "cpu" or n_workers == 1:
        results = [run(microbatch) for microbatch in own]
        return lambda: processes.gathered(results, like)
    futures = [_workers(n_workers).submit(run, microbatch) for microbatch in own]
    return lambda: processes.gathered([future.result() for future in futures], like)


def _own(microbatches: list[Item]) -> list[Item]:
    """Return those that this process runs: all where it is the only one."""
    share = processes.share(len(microbatches))
    return microbatches[share.start : share.stop]


class _Microbatches(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        module: nn.Module,
        microbatches: list[Microbatch],
        names: list[str],
        n_workers: int,
        kept: int,
        *values: Tensor,
    ) -> tuple[int | Tensor, ...]:
        needs_grad = any(ctx.needs_input_grad)
        ctx.first, ctx.like = processes.share(len(microbatches)).start, values
        microbatches = _own(microbatches)

        def run(microbatch: Microbatch, *, keep: bool = True) -> tuple[list[Tensor], tuple[Tensor, ...]]:
            with torch.set_grad_enabled(needs_grad and keep):
                leaves = [value.detach().requires_grad_(needs_grad) for value in values]
                return leaves, microbatch(_own_copy(module), dict(zip(names, leaves, strict=True)))

        def first_run(index: int) -> tuple[list[Tensor], tuple[Tensor, ...]]:
            return run(microbatches[index], keep=index < kept)

        results = list(_workers(n_workers).map(first_run, range(len(microbatches))))
        every = processes.gathered([outputs for _, outputs in results], values[0])
        ctx.n_workers, ctx.n_outputs = n_workers, len(every[0])
        outputs = [output.detach() for outputs in every for output in outputs]
        if needs_grad:
            again = [partial(run, microbatch) for microbatch in microbatches[kept:]]
            ctx.graphs = [partial(_as_is, result) for result in results[:kept]] + again
        ctx.set_materialize_grads(False)
        return ctx.n_outputs, *outputs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:  # noqa: ANN401
        grads = grads[1:]

        def run(index: int) -> tuple[Tensor, ...]:
            leaves, outputs = ctx.graphs[index]()
            ctx.graphs[index] = None
            place = ctx.first + index
            given = grads[place * ctx.n_outputs : (place + 1) * ctx.n_outputs]
            used = [(o, g.to(o.dtype)) for o, g in zip(outputs, given, strict=True) if g is not None]
            outputs_used, grads_used = zip(*used, strict=True)
            slopes: tuple[Tensor, ...] = torch.autograd.grad(
                outputs_used, leaves, grads_used, allow_unused=True, materialize_grads=True
            )
            return slopes

        slopes = _workers(ctx.n_workers).map(run, range(len(ctx.graphs)))
        total = [value.clone() for value in next(slopes, map(torch.zeros_like, ctx.like))]
        for some_grads in slopes:
            torch._foreach_add_(total, list(some_grads))
        return None, None, None, None, None, *processes.summed(total)


def _as_is(value: Item) -> Item:
    return value


_COPIES = threading.local()


def _own_copy(module: nn.Module) -> nn.Module:
    """Return this thread's copy of a module; parameters and results do not depend on which copy it is."""
    copies: WeakKeyDictionary[nn.Module, nn.Module] = _COPIES.__dict__.setdefault("of", WeakKeyDictionary())
    if module not in copies:
        copies[module] = copy.deepcopy(module)
    return copies[module]


@lru_cache(maxsize=1)
def _workers(count: int) -> ThreadPoolExecutor:
    """Return threads whose operators do not spawn threads of their own.

    Where they are as many as the cores that the process may use, each keeps to one: the system often wakes two of them
    on the same core and takes its time to separate them.
    """
    barrier = threading.Barrier(count + 1)
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []

    def begin() -> None:
        # Not with fewer threads than cores: two processes would choose the same ones. Steps take 8 % less time.
        if len(cores) == count:
            os.sched_setaffinity(0, {unclaimed.pop()})  # of this thread alone
        torch.set_num_threads(1)
        torch.get_num_threads()
        barrier.wait()

    unclaimed = list(cores)
    before = torch.get_num_threads()
    pool = ThreadPoolExecutor(count, thread_name_prefix="costar", initializer=begin)
    for _ in range(count):
        pool.submit(int)
    barrier.wait()
    torch.set_num_threads(before)
    return pool
