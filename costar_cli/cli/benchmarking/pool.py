"""Jobs side by side, in processes of this machine or on a Ray cluster (`ray_pool`); the parent has the cost log.

A worker sends its parent as messages what it would otherwise write or show.

Why no pool of a library: with joblib's loky and with `ProcessPoolExecutor`, a worker that is killed, as where memory is
short, ends all jobs, here only its own, which is begun once more; workers outlive a parent that is killed; and Ctrl-C
prints tracebacks (measured with 2 workers and 6 jobs: no result, 2 orphans, 2 and 106 lines). Messages would need a
channel beside them anyway, on Ray, too.
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
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from costar_cli.cli.benchmarking.cost_log import CostLog
from costar_cli.cli.benchmarking.jobs import BenchmarkWorkspace, Job, JobEnd, JobReporter, Outcome, with_values
from costar_cli.config.models import RuntimeConfig
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import CostarError, Termination, UsageError, as_costar_error
from costar_cli.reporting import NullTask, Task
from costar_cli.reporting.output import Output

if TYPE_CHECKING:
    from costar_cli.cli.benchmarking.ray_pool import RayPool

CONTEXT = multiprocessing.get_context("spawn")  # a fork of a process with threads may wait for ever
ENDS_WITHIN_S = 60.0  # an interrupted worker: it saves its state between two steps

JobMaker = Callable[[BenchmarkWorkspace, Job, Any], float | None]
"""Makes a job, found by its name in every process; returns the seconds that it took, None if it was there."""
Message = tuple[Any, ...]
"""A method of the cost log or the reporter, and its arguments."""
Send = Callable[[Message], object]
Pool: TypeAlias = "ProcessPool | RayPool"
PoolMaker = Callable[[BenchmarkWorkspace, CostLog, JobMaker], "ProcessPool | RayPool"]


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


def run_jobs(pool: Pool, jobs: Sequence[Job], outcome: Outcome) -> Generator[JobEnd]:
    """Make jobs as soon as what they need is there; yield how each ended.

    A job whose process dies is begun once more. The caller keeps `outcome` up to date, which blocks jobs.
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


def for_workers(benchmark: BenchmarkWorkspace, threads: int) -> BenchmarkWorkspace:
    """Return a benchmark as workers get it: without a reporter, and with a number of threads if it has none."""
    settings = benchmark.settings
    if settings[RuntimeConfig].threads is None:
        settings = with_values(settings, {"runtime.threads": threads})
    return replace(benchmark, reporter=cast("JobReporter", None), settings=settings, held=True)


def deliver(reporter: JobReporter, cost_log: CostLog, job: Job, message: Message) -> None:
    """Record or show a message of a job."""
    what, *values = message
    if what in ("begin", "end"):
        getattr(cost_log, what)(*values)
        return
    reporter.job = job
    getattr(reporter, what)(*values)
    reporter.job = None


class _MessageReporter(JobReporter):
    """Sends notes and warnings to the parent."""

    def __init__(self, send: Send) -> None:
        super().__init__(Output(quiet=True))
        self._send = send

    def note(self, message: str) -> None:
        self._send(("note", message))

    def say(self, diagnostic: Diagnostic) -> None:
        self._send(("say", diagnostic))

    @contextmanager
    def task(self, title: str, *, total: int | None = None, done: int = 0, unit: str = "step") -> Iterator[Task]:  # noqa: ARG002
        yield NullTask()


def attempt(
    send: Send, benchmark: BenchmarkWorkspace, make: JobMaker, job: Job
) -> tuple[float | None, CostarError | None]:
    """Make a job; return the seconds that it took, and why it failed; all else is sent."""
    cost_log = SimpleNamespace(begin=lambda *of: send(("begin", *of)), end=lambda *of: send(("end", *of)))
    try:
        return make(replace(benchmark, reporter=_MessageReporter(send)), job, cost_log), None
    except Exception as error:  # whatever it is, the other jobs can still be made
        Termination.stop_if_signalled()  # unless it is what a library made of an interrupt
        known = as_costar_error(error)
        if known is not error:
            traceback.print_exc()
        return None, known


@dataclass(eq=False)
class _Worker:
    process: Any
    pipe: Connection
    job: Job | None = None
    is_ready: bool = False


class ProcessPool:
    """Up to `size` workers, started when they are needed.

    A worker is in a process group of its own, so that Ctrl-C reaches it through its parent alone; if that dies, the
    worker saves where it is and ends.

    Args:
        benchmark: the benchmark, whose workspaces the parent holds.
        cost_log: where workers' messages are recorded.
        make: makes a job.
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
        worker = next((one for one in self._workers if one.job is None), None)
        if worker is None:
            ours, theirs = CONTEXT.Pipe()
            there = for_workers(self._benchmark, max(1, (os.cpu_count() or 1) // self._size))
            process = CONTEXT.Process(target=_work, args=(theirs, there, self._make), daemon=True)
            with _interrupts_blocked():
                process.start()
            theirs.close()
            worker = _Worker(process, ours)
            self._workers.append(worker)
        worker.job = job
        with suppress(OSError):  # it has died since its last job, which `ends` finds
            worker.pipe.send(job)

    def ends(self) -> list[JobEnd]:
        """Wait for messages of workers; return the jobs that ended."""
        found = []
        by_pipe = {worker.pipe: worker for worker in self._workers}
        for worker in (by_pipe[pipe] for pipe in wait(list(by_pipe)) if isinstance(pipe, Connection)):
            try:
                message = worker.pipe.recv()
            except (EOFError, OSError):
                self._workers.remove(worker)
                worker.process.join()
                code = worker.process.exitcode
                how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
                fix = "use fewer `--workers` if memory is short, and run the same command to try it again"
                error = CostarError(f"the process that made it ended by {how}", fix=fix)
                found += [JobEnd(worker.job, error=error, died=True)] if worker.job else []
                continue
            if message[0] == "ready":
                worker.is_ready = True
            elif worker.job is not None and message[0] == "over":
                found.append(JobEnd(worker.job, *message[1:]))
                worker.job = None
            elif worker.job is not None:
                deliver(self._benchmark.reporter, self._cost_log, worker.job, message)
        return found

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


def _work(pipe: Connection, benchmark: BenchmarkWorkspace, make: JobMaker) -> None:
    """Make the jobs that come over the pipe, until it is closed."""

    def end_with_parent() -> None:
        if (parent := multiprocessing.parent_process()) is not None:
            parent.join()
            os.kill(os.getpid(), signal.SIGINT)

    def send(message: Message) -> None:
        try:
            pipe.send(message)
        except OSError:  # the parent is dead, and its signal may come later than this
            raise KeyboardInterrupt from None

    if hasattr(os, "setsid"):
        os.setsid()
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # the parent's results have stdout to themselves
    threading.Thread(target=end_with_parent, daemon=True).start()
    with suppress(EOFError, OSError, KeyboardInterrupt):
        try:
            with Termination():
                if hasattr(signal, "pthread_sigmask"):
                    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
                send(("ready",))
                while True:
                    send(("over", *attempt(send, benchmark, make, pipe.recv())))
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # one that comes now finds nothing to end


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Start processes that Ctrl-C does not reach until they ask for it: while they import, it is a traceback."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # starting it would let interrupts in again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
