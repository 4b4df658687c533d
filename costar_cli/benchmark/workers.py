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
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple, cast

from costar_cli.benchmark.cells import Bench, BenchReporter, Cell, with_values
from costar_cli.benchmark.ledger import Cost, Ledger, Status
from costar_cli.benchmark.report import Outcome
from costar_cli.config.models import RuntimeConfig
from costar_cli.errors import CostarError, Termination, as_costar_error
from costar_cli.reporting import NullTask, Task
from costar_cli.ui.output import Output

__all__ = ["CellEnd", "Crew", "side_by_side"]

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


@dataclass(eq=False)
class _Worker:
    process: Any
    pipe: Connection
    cell: Cell | None = None


class Crew:
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
            if worker.cell is not None and worker.process.pid is not None:
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
        told = replace(self._bench, reporter=cast("BenchReporter", None), settings=self._settings())  # it has its own
        process = CONTEXT.Process(target=_work, args=(theirs, told, self._make), daemon=True)
        process.start()
        theirs.close()
        self._workers.append(_Worker(process, ours))
        return self._workers[-1]

    def _settings(self) -> Any:  # noqa: ANN401 - the benchmark's, loaded when it runs
        settings = self._bench.settings
        if settings[RuntimeConfig].threads is not None:
            return settings
        return with_values(settings, {"runtime.threads": max(1, (os.cpu_count() or 1) // self._size)})

    def _hear(self, worker: _Worker) -> CellEnd | None:
        try:
            what, *values = worker.pipe.recv()
        except (EOFError, OSError):
            return self._bury(worker)
        if what == "begin":
            self._ledger.begin(*values)
        elif what == "end":
            self._ledger.end(*values)
        elif what in ("note", "warn"):
            self._bench.reporter.cell = worker.cell
            getattr(self._bench.reporter, what)(*values)
            self._bench.reporter.cell = None
        else:
            assert worker.cell is not None  # noqa: S101 - only a cell that was begun ends
            end, worker.cell = CellEnd(worker.cell, *values), None
            return end
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

    def __init__(self, pipe: Connection) -> None:
        super().__init__(Output(quiet=True))
        self._pipe = pipe

    def note(self, message: str) -> None:
        """Hand a note on."""
        self._pipe.send(("note", message))

    def warn(self, message: str) -> None:
        """Hand a warning on."""
        self._pipe.send(("warn", message))

    @contextmanager
    def task(self, title: str, *, total: int | None = None, done: int = 0, unit: str = "step") -> Iterator[Task]:  # noqa: ARG002
        """Show nothing."""
        yield NullTask()


class _ToldLedger:
    """Hands what is to be remembered on to the parent, who alone writes the ledger."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def begin(self, key: str, fingerprint: str) -> None:
        """Hand on that work begins."""
        self._pipe.send(("begin", key, fingerprint))

    def end(self, key: str, status: Status, cost: Cost, error: CostarError | None = None) -> None:
        """Hand on how work ended."""
        own = Cost(cost.wall_s, cost.memory_mb, cost.device_memory_mb)
        self._pipe.send(("end", key, status, own, error))


def _work(pipe: Connection, bench: Bench, make: Maker) -> None:
    """Make the cells that come over the pipe, until it is closed."""
    if hasattr(os, "setsid"):
        os.setsid()
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # the parent's results have stdout to themselves
    threading.Thread(target=_end_with_parent, daemon=True).start()
    bench = replace(bench, reporter=_Told(pipe), held=True)
    with suppress(EOFError, OSError, KeyboardInterrupt), Termination():
        while True:
            cell = pipe.recv()
            try:
                pipe.send(("over", make(bench, cell, _ToldLedger(pipe)), None))
            except Exception as error:  # whatever it is, the other cells can still be made
                known = as_costar_error(error)
                if known is not error:
                    traceback.print_exc()
                pipe.send(("over", None, known))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGINT)
