"""What campaigns share: time-boxed cases with a seed, each in a forked process with limits, and one line at the end."""

import json
import os
import pkgutil
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from random import Random
from typing import NamedTuple

import costar_cli
from costar_cli.errors import STOPS

LONGEST_S, MOST_MB = 20.0, 1_000.0
CODES = {0, 2, 3, 4, 5, 7, 8, 9, 10, 129, 130, 143}  # all but 1, which is a bug


class Ended(NamedTuple):
    """How a case ended: exit code (negative: signal), seconds of CPU time, largest memory, stdout and stderr."""

    code: int
    seconds: float
    memory_mb: float
    out: str
    err: str


class Campaign:
    """Cases until the time is over; `fail` keeps what went wrong. Those of verbs have a workspace to copy."""

    def __init__(self, name: str, seconds: float, seed: int, workspace: Path | None) -> None:
        self.name, self.seed, self.random = name, seed, Random(seed)  # noqa: S311
        self.notes = list[str]()
        self.cases, self.failures, self.slowest, self.largest = 0, list[str](), 0.0, 0.0
        self._seconds = seconds
        self.folder = Path(tempfile.mkdtemp(prefix=f"campaign-{name}-"))
        self.source = self.folder / "source"
        if workspace:
            shutil.copytree(workspace, self.source)

    def rounds(self) -> Iterator[int]:
        """Count cases until the time is over."""
        end = time.monotonic() + self._seconds
        while time.monotonic() < end:
            self.cases += 1
            yield self.cases

    def fail(self, what: str) -> None:
        """Keep a failure, told with its case."""
        self.failures.append(f"case {self.cases}: {what}"[:400])

    def calibrated(self, ended: Ended, what: str, *, codes: set[int] = CODES, limit_s: float = LONGEST_S) -> None:
        """See that a case ended as it should: a known code, in time, with little memory, without a traceback."""
        self.slowest, self.largest = max(self.slowest, ended.seconds), max(self.largest, ended.memory_mb)
        if ended.code not in codes or "Traceback" in ended.err:
            self.fail(f"{what}: code {ended.code}, {ended.err[-200:]!r}")
        elif ended.seconds > limit_s or ended.memory_mb > MOST_MB:
            self.fail(f"{what}: {ended.seconds:.1f} s, {ended.memory_mb:.0f} MB")

    def document(self, ended: Ended, what: str) -> None:
        """See that stdout is one JSON document."""
        try:
            json.loads(ended.out)
        except ValueError:
            self.fail(f"{what}: stdout is no document but {ended.out[:80]!r}")

    def line(self) -> str:
        """Return the result in one line, with the failures below."""
        most = f"slowest {self.slowest:.1f} s, largest {self.largest:.0f} MB" if self.slowest else ""
        told = f"{self.name}: {self.cases:,} cases, {len(self.failures)} failures, seed {self.seed}; {most}"
        return "\n  ".join([told.rstrip("; "), *self.notes, *self.failures[:20]])


def in_child(work: Callable[[], int], *, stop: Callable[[int], object] | None = None, file_bytes: int = 0) -> Ended:
    """Run work in a forked process with limits; `stop` sends a signal to the process of an id."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:

        def limited() -> int:
            os.dup2(err.fileno(), 2)
            os.dup2(out.fileno(), 1)
            _limit(file_bytes)
            return work()

        pid = forked(limited)
        if stop:
            stop(pid)
        _, status, usage = os.wait4(pid, 0)
        seconds = usage.ru_utime + usage.ru_stime
        texts = [file.seek(0) or file.read().decode("utf-8", "replace") for file in (out, err)]
    return Ended(os.waitstatus_to_exitcode(status), seconds, usage.ru_maxrss / 1024, *texts)


def forked(work: Callable[[], int]) -> int:
    """Begin work in a forked process, and return its id.

    Whatever comes, the process ends here: what went on as its parent would remove its parent's folders on the way out.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, *STOPS})
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            try:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
                code = work()
            except BaseException as error:
                os.write(2, f"Traceback: {error!r}".encode())
            finally:
                with suppress(OSError, ValueError):
                    sys.stdout.flush()
        finally:
            os._exit(code)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return pid


def lives(pid: int) -> bool:
    """Return whether a child has not ended."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


def warm() -> None:
    """Import what verbs import, so that a forked case need not; nothing is run, which threads might not survive."""
    for module in pkgutil.walk_packages(costar_cli.__path__, "costar_cli."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    for name in ("torch", "polars", "sklearn.ensemble", "matplotlib.backends.backend_agg", "filelock", "jinja2"):
        import_module(name)


def _limit(file_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (12 * 2**30,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if file_bytes:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes,) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
    signal.alarm(300)  # of what waits for ever; on a busy machine the clock tells of others


def costar(*words: object, cwd: Path) -> Callable[[], int]:
    """Return the work of a verb."""

    def work() -> int:
        os.chdir(cwd)
        from costar_cli.__main__ import run_here

        sys.argv = ["costar", *map(str, words)]
        return run_here()

    return work
