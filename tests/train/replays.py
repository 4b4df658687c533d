"""Recording and replaying on a CPU what a GPU does with CUDA graphs, where none is at hand."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from costar_cli.training.graphs import Recorder, Result

__all__ = ["CpuRecorder"]

aten = torch.ops.aten
WAITS = {aten._local_scalar_dense, aten.nonzero, aten.masked_select, aten.equal, aten.is_nonzero, aten._unique2}


def tensors_in(values: Any) -> list[Tensor]:
    return [value for value in tree_leaves(values) if isinstance(value, Tensor)]


class Tape(TorchDispatchMode):
    """The operators of a call, in order, with the memory that they read and write.

    As in a CUDA graph: no Python is run again, numbers that were no tensors are fixed, and recording changes nothing
    that was there before. What the operators make holds no number until the first replay.
    """

    def __init__(self) -> None:
        super().__init__()
        self._calls: list[tuple[Any, tuple[Any, ...], dict[str, Any], list[Tensor]]] = []
        self._own: set[int] = set()
        self._before: dict[int, tuple[Tensor, Tensor]] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func.overloadpacket in WAITS:
            raise RuntimeError(f"{func} waits for the device")
        if func.overloadpacket is aten.lift_fresh:
            raise RuntimeError("numbers are copied to the device")
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise RuntimeError(f"{func} draws random numbers")
        if func._schema.is_mutable:
            for value in self._written(func, args, kwargs):
                self._remember(value)
        result = func(*args, **kwargs)
        made = [] if func._schema.is_mutable else self._made(result, tensors_in((args, kwargs)))
        if made or func._schema.is_mutable:
            self._calls.append((func, args, kwargs, made))
        return result

    @staticmethod
    def _written(func, args, kwargs) -> list[Tensor]:
        named = {argument.name: value for argument, value in zip(func._schema.arguments, args, strict=False)} | kwargs
        writes = [a.name for a in func._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
        return tensors_in([named[name] for name in writes if name in named])

    def _remember(self, value: Tensor) -> None:
        storage = value.untyped_storage()
        place = storage.data_ptr()
        if place not in self._own and place not in self._before:
            whole = torch.empty(0, dtype=torch.uint8).set_(storage)
            self._before[place] = (whole, whole.clone())

    def _made(self, result: Any, given: list[Tensor]) -> list[Tensor]:
        """Return new tensors of a result: no views."""
        seen = {value.untyped_storage().data_ptr() for value in given}
        made = [value for value in tensors_in(result) if value.untyped_storage().data_ptr() not in seen]
        self._own |= {value.untyped_storage().data_ptr() for value in made}
        return made

    def forget(self) -> None:
        """Undo what was run to record it."""
        for whole, before in self._before.values():
            whole.copy_(before)
        for *_, made in self._calls:
            for value in made:
                value.detach().fill_(torch.nan if value.is_floating_point() else 1)

    @torch.no_grad()
    def replay(self) -> None:
        for func, args, kwargs, made in self._calls:
            result = func(*args, **kwargs)
            for memory, value in zip(made, tensors_in(result), strict=False):
                memory.detach().copy_(value)


class CpuRecorder(Recorder):
    def __init__(self) -> None:
        self.recorded = self.replays = 0

    def warm_up(self, call: Callable[[], Result]) -> Result:
        return call()

    def record(self, call: Callable[[], Result]) -> tuple[Result, Callable[[], None]]:
        with Tape() as tape:
            result = call()
        tape.forget()
        self.recorded += 1

        def replay() -> None:
            self.replays += 1
            tape.replay()

        return result, replay
