"""Cells side by side: processes that each make one job after another, and a parent that has the cost_log.

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
from typing import Any, Protocol, cast

from costar_cli.cli.benchmarking.cost_log import Cost, CostLog, Status
from costar_cli.cli.benchmarking.jobs import BenchmarkWorkspace, Job, JobEnd, JobReporter, Outcome, with_values
from costar_cli.config.models import RuntimeConfig
from costar_cli.errors import CostarError, Termination, UsageError, as_costar_error
from costar_cli.reporting import NullTask, Task
from costar_cli.reporting.output import Output

__all__ = [
    "JobMaker",
    "Pool",
    "PoolMaker",
    "ProcessPool",
    "Sender",
    "attempt",
    "choose_pool",
    "deliver",
    "prepared",
    "run_jobs",
]

JobMaker = Callable[
    [BenchmarkWorkspace, Job, Any], float | None
]  # makes a job; returns the seconds that it took, None if it was there
CONTEXT = multiprocessing.get_context("spawn")  # a fork of a process with threads may wait for ever
ENDS_WITHIN_S = 60.0  # an interrupted worker: it saves its state between two steps


class Pool(Protocol):
    """What makes jobs side by side."""

    @property
    def busy(self) -> int:
        """Return how many jobs are being made."""

    @property
    def has_capacity(self) -> bool:
        """Return whether one more job can be begun."""

    def begin(self, job: Job) -> None:
        """Begin to make a job."""

    def ends(self) -> list[JobEnd]:
        """Wait until something is told; return the jobs that ended."""

    def interrupt(self) -> None:
        """Let every job be saved where it is."""

    def close(self) -> None:
        """End all work."""


PoolMaker = Callable[[BenchmarkWorkspace, CostLog, JobMaker], Pool]


class Sender(Protocol):
    """Brings messages to the parent."""

    def send(self, message: Any, /) -> None:  # noqa: ANN401 - a kind and its values
        """Send one."""


@dataclass(eq=False)
class _Worker:
    process: Any
    pipe: Connection
    job: Job | None = None
    is_ready: bool = False


class ProcessPool:
    """Up to `size` workers, started when they are needed.

    Args:
        benchmark: the benchmark, whose workspaces the parent holds.
        cost_log: where what workers tell of their jobs is written.
        make: makes a job; it can be found by its name.
        size: how many workers at once.
    """

    def __init__(self, benchmark: BenchmarkWorkspace, cost_log: CostLog, make: JobMaker, size: int) -> None:
        self._benchmark, self._cost_log, self._make, self._size = benchmark, cost_log, make, size
        self._workers: list[_Worker] = []

    @property
    def busy(self) -> int:
        """Return how many jobs are being made."""
        return sum(worker.job is not None for worker in self._workers)

    @property
    def has_capacity(self) -> bool:
        """Return whether one more job can be begun."""
        return self.busy < self._size

    def begin(self, job: Job) -> None:
        """Let a worker make a job."""
        worker = next((one for one in self._workers if one.job is None), None) or self._start()
        worker.job = job
        with suppress(OSError):  # it has died since its last job, which `ends` hears
            worker.pipe.send(job)

    def ends(self) -> list[JobEnd]:
        """Wait until workers tell something; return the jobs that ended."""
        by_pipe = {worker.pipe: worker for worker in self._workers}
        heard = [self._hear(by_pipe[pipe]) for pipe in wait(list(by_pipe)) if isinstance(pipe, Connection)]
        return [end for end in heard if end is not None]

    def interrupt(self) -> None:
        """Let every worker save where it is and end; a second Ctrl-C ends them at once."""
        for worker in self._workers:
            if not worker.is_ready:
                worker.process.kill()  # it still imports
            elif worker.job is not None and worker.process.pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(worker.process.pid, signal.SIGINT)
        while self.busy and wait([worker.pipe for worker in self._workers], ENDS_WITHIN_S):
            self.ends()

    def close(self) -> None:
        """End all workers."""
        for worker in self._workers:
            worker.pipe.close()  # what an idle one waits for
            worker.process.join(1.0 if worker.job is None else 0.0)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
        self._workers.clear()

    def _start(self) -> _Worker:
        ours, theirs = CONTEXT.Pipe()
        threads = max(1, (os.cpu_count() or 1) // self._size)
        process = CONTEXT.Process(
            target=_work, args=(theirs, prepared(self._benchmark, threads), self._make), daemon=True
        )
        with _interrupts_blocked():
            process.start()
        theirs.close()
        self._workers.append(_Worker(process, ours))
        return self._workers[-1]

    def _hear(self, worker: _Worker) -> JobEnd | None:
        try:
            what, *values = worker.pipe.recv()
        except (EOFError, OSError):
            return self._bury(worker)
        if what == "ready":
            worker.is_ready = True
            return None
        assert worker.job is not None  # noqa: S101 - only one that makes a job tells anything
        if what == "over":
            end, worker.job = JobEnd(worker.job, *values), None
            return end
        deliver(self._benchmark.reporter, self._cost_log, worker.job, what, values)
        return None

    def _bury(self, worker: _Worker) -> JobEnd | None:
        self._workers.remove(worker)
        worker.process.join()
        code, job = worker.process.exitcode, worker.job
        if job is None:
            return None
        how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        error = CostarError(
            f"the process that made it ended by {how}",
            fix="use fewer `--workers` if memory is short, and run the same command to try it again",
        )
        return JobEnd(job, error=error, died=True)


def choose_pool(workers: int, ray: str | None) -> PoolMaker | None:
    """Return what makes jobs side by side: a Ray cluster, so many processes, or nothing.

    Raises:
        UsageError: both are asked for.
    """
    if ray is None:
        return partial(ProcessPool, size=workers) if workers > 1 else None
    if workers > 1:
        fix = "leave out --workers: a cluster has its own"
        raise UsageError("cells are made by workers here or by a Ray cluster, not both", where="--ray", fix=fix)
    from costar_cli.cli.benchmarking.ray_pool import RayPool

    return partial(RayPool, address=ray)


def prepared(benchmark: BenchmarkWorkspace, threads: int) -> BenchmarkWorkspace:
    """Return a benchmark as those who make its jobs are told of it: with a number of threads if it has none."""
    settings = benchmark.settings
    if settings[RuntimeConfig].threads is None:
        settings = with_values(settings, {"runtime.threads": threads})
    return replace(benchmark, reporter=cast("JobReporter", None), settings=settings, held=True)  # they have their own


def deliver(reporter: JobReporter, cost_log: CostLog, job: Job, what: str, values: Sequence[Any]) -> None:
    """Write or show what is told while a job is made."""
    if what in ("begin", "end"):
        getattr(cost_log, what)(*values)
        return
    reporter.job = job
    getattr(reporter, what)(*values)
    reporter.job = None


def run_jobs(pool: Pool, jobs: Sequence[Job], outcome: Outcome) -> Generator[JobEnd]:
    """Make jobs as soon as what they need is there; yield how each ended.

    A job whose process dies is begun once more. What `outcome` says of jobs that failed is looked up each time.
    """
    waiting, unfinished, died = list(jobs), {job.key for job in jobs}, set[str]()
    try:
        while unfinished:
            for job in list(waiting):
                if blocked := outcome.blocked_by(job):
                    waiting.remove(job)
                    unfinished.remove(job.key)
                    yield JobEnd(job, blocked=blocked)
                elif pool.has_capacity and not unfinished & set(job.needs):
                    waiting.remove(job)
                    pool.begin(job)
            for end in pool.ends() if pool.busy else ():
                if end.died and end.job.key not in died:
                    died.add(end.job.key)
                    waiting.insert(0, end.job)
                else:
                    unfinished.remove(end.job.key)
                    yield end
    except BaseException:
        pool.interrupt()
        raise
    finally:
        pool.close()


class _MessageReporter(JobReporter):
    """Hands notes and warnings on to the parent."""

    def __init__(self, sender: Sender) -> None:
        super().__init__(Output(quiet=True))
        self._post = sender

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


class _MessageLog:
    """Hands what is to be remembered on to the parent, who alone writes the cost_log."""

    def __init__(self, sender: Sender) -> None:
        self._post = sender

    def begin(self, key: str, fingerprint: str) -> None:
        """Hand on that work begins."""
        self._post.send(("begin", key, fingerprint))

    def end(self, key: str, status: Status, cost: Cost, error: CostarError | None = None) -> None:
        """Hand on how work ended."""
        own = Cost(cost.wall_s, cost.memory_mb, cost.device_memory_mb)
        self._post.send(("end", key, status, own, error))


def attempt(
    sender: Sender, benchmark: BenchmarkWorkspace, make: JobMaker, job: Job
) -> tuple[float | None, CostarError | None]:
    """Make a job; return the seconds that it took, and why it failed; the rest is told by post."""
    try:
        return make(replace(benchmark, reporter=_MessageReporter(sender)), job, _MessageLog(sender)), None
    except Exception as error:  # whatever it is, the other jobs can still be made
        Termination.stop_if_signalled()  # unless it is what a library made of an interrupt
        known = as_costar_error(error)
        if known is not error:
            traceback.print_exc()
        return None, known


def _work(pipe: Connection, benchmark: BenchmarkWorkspace, make: JobMaker) -> None:
    """Make the jobs that come over the pipe, until it is closed."""
    if hasattr(os, "setsid"):
        os.setsid()
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # the parent's results have stdout to themselves
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(EOFError, OSError, KeyboardInterrupt):
        try:
            _make_what_comes(pipe, benchmark, make)
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # one that comes now finds nothing to end


def _make_what_comes(pipe: Connection, benchmark: BenchmarkWorkspace, make: JobMaker) -> None:
    with Termination():
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        pipe.send(("ready",))
        while True:
            pipe.send(("over", *attempt(pipe, benchmark, make, pipe.recv())))


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
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
