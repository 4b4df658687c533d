"""Jobs as tasks on a Ray cluster that is there."""

import signal
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack, redirect_stdout, suppress
from dataclasses import replace
from typing import Any, cast

import costar_cli
from costar_cli.cli.benchmarking.cost_log import CostLog
from costar_cli.cli.benchmarking.jobs import BenchmarkWorkspace, Job, JobEnd
from costar_cli.cli.benchmarking.pool import ENDS_WITHIN_S, JobMaker, Message, attempt, deliver, for_workers
from costar_cli.cli.workspace import Workspace
from costar_cli.config.models import RuntimeConfig
from costar_cli.errors import STOPS, CostarError, MismatchError, StorageError, Termination, UsageError

LISTENS_S = 0.5  # between looks at the messages of tasks


class RayPool:
    """Jobs as tasks on a Ray cluster that is there: all that can be made are handed over at once.

    Files go through the benchmark's folder, which all nodes share; Ray carries settings there, and messages back.

    Args:
        benchmark: the benchmark, whose workspaces the parent holds.
        cost_log: where tasks' messages are recorded.
        make: makes a job.
        address: of the cluster, as Ray writes it: `auto`, `HOST:PORT`, `ray://HOST:PORT`.

    Raises:
        UsageError: Ray is not installed, there is no cluster, or no node of it is large enough for a job.
    """

    has_capacity = True

    def __init__(self, benchmark: BenchmarkWorkspace, cost_log: CostLog, make: JobMaker, address: str) -> None:
        data = replace(benchmark.data, file=benchmark.data.file and benchmark.data.file.resolve())
        there = replace(for_workers(benchmark, 1), data=data, folder=benchmark.folder.resolve())
        runtime = there.settings[RuntimeConfig]
        cores, gpus = runtime.threads or 1, int(runtime.device == "cuda")
        with ExitStack() as held:
            held.enter_context(redirect_stdout(sys.stderr))  # where Ray writes of tasks that died
            self._ray = connected(address)
            held.callback(self._ray.shutdown)
            require_capacity(self._ray, {"CPU": cores, "GPU": gpus})
            self._held = held.pop_all()
        # Files are no objects of Ray: a killed job would begin anew instead of where it saved, and files would exist
        # twice. Ray's own retries are off, since the parent begins such a job once more itself.
        self._run: Any = self._ray.remote(max_retries=0, num_cpus=cores, num_gpus=gpus)(_run)
        self._inbox = self._ray.remote(num_cpus=0)(_Inbox).remote()
        self._shared = self._ray.put((there, make, _installation(there)))
        self._reporter, self._cost_log = benchmark.reporter, cost_log
        self._jobs: dict[Any, Job] = {}

    @property
    def busy(self) -> int:
        """Return how many jobs are with Ray."""
        return len(self._jobs)

    def begin(self, job: Job) -> None:
        """Hand a job over."""
        self._jobs[self._run.remote(self._shared, job, self._inbox)] = job

    def ends(self) -> list[JobEnd]:
        """Wait a little; return the jobs that ended."""
        over, _ = self._ray.wait(list(self._jobs), num_returns=len(self._jobs), timeout=LISTENS_S)
        for job, message in self._ray.get(self._inbox.empty.remote()):
            deliver(self._reporter, self._cost_log, job, message)
        found = []
        for task in over:
            job = self._jobs.pop(task)
            try:
                found.append(JobEnd(job, *self._ray.get(task)))
            except self._ray.exceptions.TaskCancelledError:
                found.append(JobEnd(job))
            except self._ray.exceptions.RayError as error:
                how = str(error).strip().splitlines()[0][:200]
                fix = "see Ray's own logs, and run the same command to try it again"
                found.append(JobEnd(job, error=CostarError(f"its Ray task ended: {how}", fix=fix), died=True))
        return found

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


def connected(address: str) -> Any:  # noqa: ANN401 - the module of an extra
    """Return Ray, connected to a cluster that is there.

    Raises:
        UsageError: Ray is not installed, or there is no cluster.
    """
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, *STOPS)}
    try:
        import ray

        ray.init(address=address, log_to_driver=False, configure_logging=False)
    except ImportError:
        fix = "`pip install 'costar[ray]'` here and on the nodes, or use --workers"
        raise UsageError("Ray is not installed", where="--ray", fix=fix) from None
    except (ConnectionError, RuntimeError, ValueError) as error:
        fix = "start one with `ray start --head`, and give the address that it prints"
        details, cause = [], cast("BaseException | None", error)
        while cause is not None:
            details.append((str(cause).strip() or type(cause).__name__).splitlines()[-1][:300])
            cause = cause.__cause__
        raise UsageError(f"no Ray cluster answers at {address}", where="--ray", fix=fix, details=details) from error
    finally:
        for number, handler in handlers.items():  # ours, in whose place Ray puts its own
            signal.signal(number, handler)
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


class _Inbox:
    """Keeps messages of tasks until the parent asks; an actor of Ray."""

    def __init__(self) -> None:
        self._messages: list[tuple[Job, Message]] = []

    def put(self, job: Job, message: Message) -> None:
        """Take a message of a job."""
        self._messages.append((job, message))

    def empty(self) -> list[tuple[Job, Message]]:
        """Return all messages, once."""
        messages, self._messages = self._messages, []
        return messages


def _installation(benchmark: BenchmarkWorkspace) -> tuple[str, str]:
    """Return what a node must have in common with the parent: the version, and the folder with its lock."""
    return costar_cli.__version__, Workspace(benchmark.folder).holder


def _run(
    given: tuple[BenchmarkWorkspace, JobMaker, tuple[str, str]],
    job: Job,
    inbox: Any,  # noqa: ANN401 - a handle of Ray
) -> tuple[float | None, CostarError | None]:
    """Make a job in a process of Ray's; return the seconds that it took, and why it failed."""
    import ray

    benchmark, make, (version, holder) = given

    def send(message: Message) -> None:
        ray.get(inbox.put.remote(job, message))  # once it is there: the end of a job must not overtake it

    def checked(benchmark: BenchmarkWorkspace, job: Job, log: Any) -> float | None:  # noqa: ANN401 - of messages
        own, own_holder = _installation(benchmark)
        if own != version:
            text = f"costar {own} is installed on a node of the cluster, and {version} here"
            raise MismatchError(text, where="--ray", fix="install the same version everywhere")
        if own_holder != holder:
            fix = "choose one with --folder on a disk that all nodes share"
            text = "a node of the cluster does not see the benchmark's folder"
            raise StorageError(text, where=str(benchmark.folder), fix=fix)
        return make(benchmark, job, log)

    with suppress(KeyboardInterrupt), Termination():
        return attempt(send, benchmark, checked, job)
    return None, None
