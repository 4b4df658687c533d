"""Training steps as CUDA graphs: operators are recorded once, and launched together from then on.

Small models wait for launches on a GPU: a step of a few thousand operators takes as long as Python needs to issue them
(why no compilation: docs/adr/0038-no-compilation.md).
A graph issues all of them at once, with the same memory at every replay. So whatever a step depends on stands in memory
that is filled before: rows, random numbers (`ReplayedStream`), learning rate. What changes in a step changes in place.

The part that records is an argument: tests replay on a CPU, where no GPU is at hand.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from costar_cli.methods.base import Stage
from costar_cli.methods.shared.streams import ReplayedStream
from costar_cli.reporting import Reporter
from costar_cli.training.group import GroupState
from costar_cli.training.runtime import Runtime
from costar_cli.training.step import Gradients, Rates, gradients, require_finite, step_streams, training_step, update

Result = TypeVar("Result")


class Recorder(Protocol):
    """Records operators without running them, and runs them again."""

    def warm_up(self, call: Callable[[], Result]) -> Result:
        """Run a call once, so that all that is made at first use exists when it is recorded."""

    def record(self, call: Callable[[], Result]) -> tuple[Result, Callable[[], None]]:
        """Return what a call returns, in memory that each replay fills, and what replays it.

        Raises:
            RuntimeError: the call does what cannot be recorded.
        """


class CudaRecorder:
    """Records into a CUDA graph, by the recipe of the framework's notes on CUDA semantics. Never run so far."""

    def warm_up(self, call: Callable[[], Result]) -> Result:
        """Run a call on a stream of its own."""
        side, own = torch.cuda.Stream(), torch.cuda.current_stream()  # type: ignore[no-untyped-call]
        side.wait_stream(own)
        with torch.cuda.stream(side):
            result = call()
        own.wait_stream(side)
        return result

    def record(self, call: Callable[[], Result]) -> tuple[Result, Callable[[], None]]:
        """Capture a call."""
        graph, own = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
        try:
            with torch.cuda.graph(graph):
                result = call()
        finally:
            torch.cuda.set_stream(own)  # a capture that fails leaves its own stream behind
        return result, graph.replay


class ReplayedSteps:
    """The steps of a group of members: of its full batches the first is computed as ever, all others are replayed.

    An incomplete batch is computed as ever, too, and so are all steps of a stage that cannot be recorded.

    Args:
        stage: what is trained.
        state: of the group; its tensors stay where they are.
        runtime: where it is trained.
        recorder: what records and replays.
        reporter: told if the stage cannot be recorded.
    """

    def __init__(
        self, stage: Stage, state: GroupState, runtime: Runtime, recorder: Recorder, reporter: Reporter
    ) -> None:
        self._stage, self._state, self._runtime = stage, state, runtime
        self._recorder, self._reporter = recorder, reporter
        # The fused kernel of a GPU reads a learning rate in single precision, the one of a CPU in double
        rate_dtype = torch.float64 if runtime.kind == "cpu" else torch.float32
        self._rates = [torch.zeros((), dtype=dtype, device=runtime.device) for dtype in (rate_dtype, runtime.dtype)]
        self._size = min(stage.config.batch_size, stage.n_train)
        self._rows_RB = torch.empty(0, dtype=torch.int64)
        self._streams: list[ReplayedStream] = []
        self._recorded: tuple[Gradients, Callable[[], None]] | None = None
        self._gave_up = False

    def __call__(self, rows_RB: Tensor) -> Tensor:
        """Take one optimiser step of every member; return the losses `[R]`, detached.

        Raises:
            TrainingError: the loss or gradient of a member that is still in training is not finite.
        """
        if self._gave_up or rows_RB.shape[1] != self._size:
            return training_step(self._stage, self._state, rows_RB, self._runtime)
        if not self._streams:
            self._rows_RB = rows_RB.clone()
            self._streams = [ReplayedStream(stream) for stream in step_streams(self._stage, self._state)]
            self._fill_rates()
            return self._taken(self._recorder.warm_up(self._step))
        self._rows_RB.copy_(rows_RB)
        for own, stream in zip(self._streams, step_streams(self._stage, self._state), strict=True):
            own.refill(stream)
        self._fill_rates()
        if self._recorded is None:
            try:
                self._recorded = self._recorder.record(self._step)
            except RuntimeError as error:
                # No step is taken here: the traceback holds what the recording had computed until it failed.
                self._gave_up, self._streams = True, []
                reason = str(error).partition("\n")[0]
                self._reporter.note(f"stage `{self._stage.name}` is trained without CUDA graphs: {reason}")
        if self._recorded is None:
            return self(rows_RB)
        found, replay = self._recorded
        replay()
        return self._taken(found)

    def _step(self) -> Gradients:
        """Compute what is recorded."""
        found = gradients(self._stage, self._state, self._rows_RB, self._streams, self._runtime)
        update(self._stage, self._state, found, Rates(*self._rates))
        return found

    def _fill_rates(self) -> None:
        for memory, value in zip(self._rates, Rates.of(self._stage, self._state), strict=True):
            memory.fill_(value)

    def _taken(self, found: Gradients) -> Tensor:
        """Return the losses of a step that was taken, in memory of their own."""
        require_finite(self._stage, self._state, found)
        return found.loss_R.to(torch.float64, copy=True)
