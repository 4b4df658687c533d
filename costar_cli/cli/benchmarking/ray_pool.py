"""Cells as tasks on a Ray cluster that is there: Ray says where each one runs, and the parent has the cost_log.

Files go through the benchmark's folder, which all nodes share; Ray carries settings there, and messages back.
"""

import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from dataclasses import replace
from typing import Any, NamedTuple

import costar_cli
from costar_cli.cli.benchmarking.cost_log import CostLog
from costar_cli.cli.benchmarking.jobs import BenchmarkWorkspace, Job, JobEnd
from costar_cli.cli.benchmarking.pool import ENDS_WITHIN_S, JobMaker, attempt, deliver, prepared
from costar_cli.cli.workspace import Workspace
from costar_cli.config.models import RuntimeConfig
from costar_cli.errors import STOPS, CostarError, MismatchError, StorageError, Termination, UsageError

__all__ = ["RayPool"]

LISTENS_S = 0.5  # between looks at what tasks tell


class RayPool:
    """Cells as tasks: all that can be made are handed over at once.

    Args:
        benchmark: the benchmark, whose workspaces the parent holds.
        cost_log: where what tasks tell of their jobs is written.
        make: makes a job; it can be found by its name.
        address: of the cluster, as Ray writes it: `auto`, `HOST:PORT`, `ray://HOST:PORT`.

    Raises:
        UsageError: Ray is not installed, there is no cluster, or none of its nodes has room for a job.
    """

    has_capacity = True

    def __init__(self, benchmark: BenchmarkWorkspace, cost_log: CostLog, make: JobMaker, address: str) -> None:
        data = replace(benchmark.data, file=benchmark.data.file and benchmark.data.file.resolve())
        there = replace(prepared(benchmark, 1), data=data, folder=benchmark.folder.resolve())
        runtime = there.settings[RuntimeConfig]
        cores, gpus = runtime.threads or 1, int(runtime.device == "cuda")
        with ExitStack() as held:
            held.enter_context(redirect_stdout(sys.stderr))  # where Ray tells of tasks that died
            self._ray = connected(address)
            held.callback(self._ray.shutdown)
            require_capacity(self._ray, {"CPU": cores, "GPU": gpus})
            self._held = held.pop_all()
        self._run: Any = self._ray.remote(max_retries=0, num_cpus=cores, num_gpus=gpus)(_run)
        self._inbox = self._ray.remote(num_cpus=0)(_Inbox).remote()
        self._given = self._ray.put((there, make, _Installation.of(there)))
        self._reporter, self._cost_log = benchmark.reporter, cost_log
        self._jobs: dict[Any, Job] = {}

    @property
    def busy(self) -> int:
        """Return how many jobs are with Ray."""
        return len(self._jobs)

    def begin(self, job: Job) -> None:
        """Hand a job over."""
        self._jobs[self._run.remote(self._given, job, self._inbox)] = job

    def ends(self) -> list[JobEnd]:
        """Wait a little; return the jobs that ended."""
        over, _ = self._ray.wait(list(self._jobs), num_returns=len(self._jobs), timeout=LISTENS_S)
        for job, (what, *values) in self._ray.get(self._inbox.empty.remote()):
            deliver(self._reporter, self._cost_log, job, what, values)
        return [self._end(task) for task in over]

    def interrupt(self) -> None:
        """Let every task save where it is and end."""
        for task in self._jobs:
            self._ray.cancel(task)
        until = time.monotonic() + ENDS_WITHIN_S
        while self._jobs and time.monotonic() < until:
            self.ends()

    def close(self) -> None:
        """End what still runs, and leave the cluster."""
        for task in self._jobs:
            self._ray.cancel(task, force=True)
        self._held.close()

    def _end(self, task: Any) -> JobEnd:  # noqa: ANN401 - Ray's reference
        job, errors = self._jobs.pop(task), self._ray.exceptions
        try:
            return JobEnd(job, *self._ray.get(task))
        except errors.TaskCancelledError:
            return JobEnd(job)
        except errors.RayError as error:
            how = str(error).strip().splitlines()[0][:200]
            fix = "see Ray's own logs, and run the same command to try it again"
            return JobEnd(job, error=CostarError(f"its Ray task ended: {how}", fix=fix), died=True)


def connected(address: str) -> Any:  # noqa: ANN401 - the module of an extra
    """Return Ray, connected to a cluster that is there.

    Raises:
        UsageError: Ray is not installed, or there is no cluster.
    """
    try:
        with _own_handlers():
            import ray
    except ImportError:
        fix = "`pip install 'costar[ray]'` here and on the nodes, or use --workers"
        raise UsageError("Ray is not installed", where="--ray", fix=fix) from None
    try:
        with _own_handlers():
            ray.init(address=address, log_to_driver=False, configure_logging=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        fix = "start one with `ray start --head`, and give the address that it prints"
        details = [line[:300] for line in _reasons(error)]
        raise UsageError(f"no Ray cluster answers at {address}", where="--ray", fix=fix, details=details) from error
    return ray


def require_capacity(ray: Any, needs: Mapping[str, int]) -> None:  # noqa: ANN401 - the module of an extra
    """Refuse a job that no node of the cluster can ever begin: Ray would wait for one in silence.

    Raises:
        UsageError: no node has so many cores or GPUs.
    """
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if any(all(node.get(name, 0) >= count for name, count in needs.items()) for node in nodes):
        return
    asked = " and ".join(f"{count} {name}{'s' * (count > 1)}" for name, count in needs.items() if count)
    there = [", ".join(f"{node.get(name, 0):g} {name}s" for name in needs) for node in nodes]
    fix = "use fewer --threads or another --device, or add such a node"
    raise UsageError(f"no node of the Ray cluster has {asked} for a cell", where="--ray", fix=fix, details=there[:20])


def _reasons(error: BaseException | None) -> Iterator[str]:
    """Yield the last line of an error, and of its causes."""
    while error is not None:
        yield str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
        error = error.__cause__


@contextmanager
def _own_handlers() -> Iterator[None]:
    """Keep our handlers of signals, in whose place Ray puts its own."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, *STOPS)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


class _Inbox:
    """Keeps what tasks tell until the parent asks; an actor of Ray."""

    def __init__(self) -> None:
        self._messages: list[tuple[Job, Any]] = []

    def put(self, job: Job, message: Any) -> None:  # noqa: ANN401 - a kind and its values
        """Take a message of a job."""
        self._messages.append((job, message))

    def empty(self) -> list[tuple[Job, Any]]:
        """Return all messages, once."""
        messages, self._messages = self._messages, []
        return messages


class _InboxSender(NamedTuple):
    """Brings what is told of a job to the inbox."""

    inbox: Any
    job: Job

    def send(self, message: Any) -> None:  # noqa: ANN401 - a kind and its values
        """Send a message, and wait until it is there: the end of a job must not overtake it."""
        import ray

        ray.get(self.inbox.put.remote(self.job, message))


class _Installation(NamedTuple):
    """What a node must have in common with the parent."""

    version: str
    holder: str

    @classmethod
    def of(cls, benchmark: BenchmarkWorkspace) -> "_Installation":
        return cls(costar_cli.__version__, Workspace(benchmark.folder).holder)


def _run(
    given: tuple[BenchmarkWorkspace, JobMaker, _Installation],
    job: Job,
    inbox: Any,  # noqa: ANN401 - a handle of Ray
) -> tuple[float | None, CostarError | None]:
    """Make a job in a process of Ray's; return the seconds that it took, and why it failed."""
    benchmark, make, theirs = given

    def checked(benchmark: BenchmarkWorkspace, job: Job, cost_log: Any) -> float | None:  # noqa: ANN401 - what hands records on
        _require_common(benchmark, theirs)
        return make(benchmark, job, cost_log)

    with suppress(KeyboardInterrupt), Termination():
        return attempt(_InboxSender(inbox, job), benchmark, checked, job)
    return None, None


def _require_common(benchmark: BenchmarkWorkspace, theirs: _Installation) -> None:
    ours = _Installation.of(benchmark)
    if ours.version != theirs.version:
        text = f"costar {ours.version} is installed on a node of the cluster, and {theirs.version} here"
        raise MismatchError(text, where="--ray", fix="install the same version everywhere")
    if ours.holder != theirs.holder:
        fix = "choose one with --folder on a disk that all nodes share"
        raise StorageError(
            "a node of the cluster does not see the benchmark's folder", where=str(benchmark.folder), fix=fix
        )
