"""Cells side by side: processes that each make one cell after another, and a parent that has the ledger.

A worker tells its parent over a pipe what it would otherwise write or show. It is in a process group of its own, so
that Ctrl-C reaches it through its parent alone; if that dies, the worker saves where it is and ends.
"""

import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple, Protocol, cast

from costar_cli.cli.benchmarking.cells import Bench, BenchReporter, Cell, with_values
from costar_cli.cli.benchmarking.ledger import Cost, Ledger, Status
from costar_cli.cli.benchmarking.report import Outcome
from costar_cli.config.models import RuntimeConfig
from costar_cli.errors import CostarError, Termination, UsageError, as_costar_error
from costar_cli.reporting import NullTask, Task
from costar_cli.reporting.output import Output

__all__ = [
    "CellEnd",
    "Crew",
    "CrewMaker",
    "Maker",
    "Post",
    "Workers",
    "attempt",
    "choose_crew",
    "pass_on",
    "side_by_side",
    "told",
]

Maker = Callable[
    [Bench, Cell, Any], float | None
]  # makes a cell; returns the seconds that it took, None if it was there
CONTEXT = multiprocessing.get_context("spawn")  # a fork of a process with threads may wait for ever
ENDS_WITHIN_S = 60.0  # an interrupted worker: it saves its state between two steps


class CellEnd(NamedTuple):
    """How a cell ended: the seconds that it took if it was made, or an error, or the cell that it lacks.

    `died` says that the process that made it has ended.
    """

    cell: Cell
    took_s: float | None = None
    error: CostarError | None = None
    blocked: str | None = None
    died: bool = False


class Crew(Protocol):
    """What makes cells side by side."""

    @property
    def busy(self) -> int:
        """Return how many cells are being made."""

    @property
    def has_room(self) -> bool:
        """Return whether one more cell can be begun."""

    def begin(self, cell: Cell) -> None:
        """Begin to make a cell."""

    def ends(self) -> list[CellEnd]:
        """Wait until something is told; return the cells that ended."""

    def interrupt(self) -> None:
        """Let every cell be saved where it is."""

    def close(self) -> None:
        """End all work."""


CrewMaker = Callable[[Bench, Ledger, Maker], Crew]


class Post(Protocol):
    """Brings messages to the parent."""

    def send(self, message: Any, /) -> None:  # noqa: ANN401 - a kind and its values
        """Send one."""


@dataclass(eq=False)
class _Worker:
    process: Any
    pipe: Connection
    cell: Cell | None = None
    is_ready: bool = False


class Workers:
    """Up to `size` workers, started when they are needed.

    Args:
        bench: the benchmark, whose workspaces the parent holds.
        ledger: where what workers tell of their cells is written.
        make: makes a cell; it can be found by its name.
        size: how many workers at once.
    """

    def __init__(self, bench: Bench, ledger: Ledger, make: Maker, size: int) -> None:
        self._bench, self._ledger, self._make, self._size = bench, ledger, make, size
        self._workers: list[_Worker] = []

    @property
    def busy(self) -> int:
        """Return how many cells are being made."""
        return sum(worker.cell is not None for worker in self._workers)

    @property
    def has_room(self) -> bool:
        """Return whether one more cell can be begun."""
        return self.busy < self._size

    def begin(self, cell: Cell) -> None:
        """Let a worker make a cell."""
        worker = next((one for one in self._workers if one.cell is None), None) or self._start()
        worker.cell = cell
        with suppress(OSError):  # it has died since its last cell, which `ends` hears
            worker.pipe.send(cell)

    def ends(self) -> list[CellEnd]:
        """Wait until workers tell something; return the cells that ended."""
        by_pipe = {worker.pipe: worker for worker in self._workers}
        heard = [self._hear(by_pipe[pipe]) for pipe in wait(list(by_pipe)) if isinstance(pipe, Connection)]
        return [end for end in heard if end is not None]

    def interrupt(self) -> None:
        """Let every worker save where it is and end; a second Ctrl-C ends them at once."""
        for worker in self._workers:
            if not worker.is_ready:
                worker.process.kill()  # it still imports
            elif worker.cell is not None and worker.process.pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(worker.process.pid, signal.SIGINT)
        while self.busy and wait([worker.pipe for worker in self._workers], ENDS_WITHIN_S):
            self.ends()

    def close(self) -> None:
        """End all workers."""
        for worker in self._workers:
            worker.pipe.close()  # what an idle one waits for
            worker.process.join(1.0 if worker.cell is None else 0.0)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
        self._workers.clear()

    def _start(self) -> _Worker:
        ours, theirs = CONTEXT.Pipe()
        threads = max(1, (os.cpu_count() or 1) // self._size)
        process = CONTEXT.Process(target=_work, args=(theirs, told(self._bench, threads), self._make), daemon=True)
        with _deaf_to_interrupts():
            process.start()
        theirs.close()
        self._workers.append(_Worker(process, ours))
        return self._workers[-1]

    def _hear(self, worker: _Worker) -> CellEnd | None:
        try:
            what, *values = worker.pipe.recv()
        except (EOFError, OSError):
            return self._bury(worker)
        if what == "ready":
            worker.is_ready = True
            return None
        assert worker.cell is not None  # noqa: S101 - only one that makes a cell tells anything
        if what == "over":
            end, worker.cell = CellEnd(worker.cell, *values), None
            return end
        pass_on(self._bench.reporter, self._ledger, worker.cell, what, values)
        return None

    def _bury(self, worker: _Worker) -> CellEnd | None:
        self._workers.remove(worker)
        worker.process.join()
        code, cell = worker.process.exitcode, worker.cell
        if cell is None:
            return None
        how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        error = CostarError(
            f"the process that made it ended by {how}",
            fix="use fewer `--workers` if memory is short, and run the same command to try it again",
        )
        return CellEnd(cell, error=error, died=True)


def choose_crew(workers: int, ray: str | None) -> CrewMaker | None:
    """Return what makes cells side by side: a Ray cluster, so many processes, or nothing.

    Raises:
        UsageError: both are asked for.
    """
    if ray is None:
        return partial(Workers, size=workers) if workers > 1 else None
    if workers > 1:
        fix = "leave out --workers: a cluster has its own"
        raise UsageError("cells are made by workers here or by a Ray cluster, not both", where="--ray", fix=fix)
    from costar_cli.cli.benchmarking.ray_tasks import RayTasks

    return partial(RayTasks, address=ray)


def told(bench: Bench, threads: int) -> Bench:
    """Return a benchmark as those who make its cells are told of it: with a number of threads if it has none."""
    settings = bench.settings
    if settings[RuntimeConfig].threads is None:
        settings = with_values(settings, {"runtime.threads": threads})
    return replace(bench, reporter=cast("BenchReporter", None), settings=settings, held=True)  # they have their own


def pass_on(reporter: BenchReporter, ledger: Ledger, cell: Cell, what: str, values: Sequence[Any]) -> None:
    """Write or show what is told while a cell is made."""
    if what in ("begin", "end"):
        getattr(ledger, what)(*values)
        return
    reporter.cell = cell
    getattr(reporter, what)(*values)
    reporter.cell = None


def side_by_side(crew: Crew, cells: Sequence[Cell], outcome: Outcome) -> Generator[CellEnd]:
    """Make cells as soon as what they need is there; yield how each ended.

    A cell whose process dies is begun once more. What `outcome` says of cells that failed is looked up each time.
    """
    waiting, unfinished, died = list(cells), {cell.key for cell in cells}, set[str]()
    try:
        while unfinished:
            for cell in list(waiting):
                if blocked := outcome.blocked_by(cell):
                    waiting.remove(cell)
                    unfinished.remove(cell.key)
                    yield CellEnd(cell, blocked=blocked)
                elif crew.has_room and not unfinished & set(cell.needs):
                    waiting.remove(cell)
                    crew.begin(cell)
            for end in crew.ends() if crew.busy else ():
                if end.died and end.cell.key not in died:
                    died.add(end.cell.key)
                    waiting.insert(0, end.cell)
                else:
                    unfinished.remove(end.cell.key)
                    yield end
    except BaseException:
        crew.interrupt()
        raise
    finally:
        crew.close()


class _Told(BenchReporter):
    """Hands notes and warnings on to the parent."""

    def __init__(self, post: Post) -> None:
        super().__init__(Output(quiet=True))
        self._post = post

    def note(self, message: str) -> None:
        """Hand a note on."""
        self._post.send(("note", message))

    def warn(self, message: str) -> None:
        """Hand a warning on."""
        self._post.send(("warn", message))

    @contextmanager
    def task(self, title: str, *, total: int | None = None, done: int = 0, unit: str = "step") -> Iterator[Task]:  # noqa: ARG002
        """Show nothing."""
        yield NullTask()


class _ToldLedger:
    """Hands what is to be remembered on to the parent, who alone writes the ledger."""

    def __init__(self, post: Post) -> None:
        self._post = post

    def begin(self, key: str, fingerprint: str) -> None:
        """Hand on that work begins."""
        self._post.send(("begin", key, fingerprint))

    def end(self, key: str, status: Status, cost: Cost, error: CostarError | None = None) -> None:
        """Hand on how work ended."""
        own = Cost(cost.wall_s, cost.memory_mb, cost.device_memory_mb)
        self._post.send(("end", key, status, own, error))


def attempt(post: Post, bench: Bench, make: Maker, cell: Cell) -> tuple[float | None, CostarError | None]:
    """Make a cell; return the seconds that it took, and why it failed; the rest is told by post."""
    try:
        return make(replace(bench, reporter=_Told(post)), cell, _ToldLedger(post)), None
    except Exception as error:  # whatever it is, the other cells can still be made
        Termination.stop_if_signalled()  # unless it is what a library made of an interrupt
        known = as_costar_error(error)
        if known is not error:
            traceback.print_exc()
        return None, known


def _work(pipe: Connection, bench: Bench, make: Maker) -> None:
    """Make the cells that come over the pipe, until it is closed."""
    if hasattr(os, "setsid"):
        os.setsid()
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # the parent's results have stdout to themselves
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(EOFError, OSError, KeyboardInterrupt):
        try:
            _make_what_comes(pipe, bench, make)
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # one that comes now finds nothing to end


def _make_what_comes(pipe: Connection, bench: Bench, make: Maker) -> None:
    with Termination():
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        pipe.send(("ready",))
        while True:
            pipe.send(("over", *attempt(pipe, bench, make, pipe.recv())))


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Start processes to which Ctrl-C does not come until they ask for it: while they import, it is a traceback."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # starting it would let interrupts in again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGINT)
