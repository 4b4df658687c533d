"""What the jobs of a benchmark take: measured while one is made, remembered in a file, expected of those left."""

import ctypes
import gc
import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import psutil
from pydantic import TypeAdapter

from costar_cli.cli.benchmarking.jobs import Job
from costar_cli.errors import CostarError
from costar_cli.files import write_bytes
from costar_cli.reporting.text import in_words

SAMPLE_S = 0.02
MEGABYTE = 1e6

Status = Literal["running", "done", "failed", "interrupted"]


@dataclass
class Cost:
    """What the making of an artifact took: wall time, and peak memory of the process and of the GPU."""

    wall_s: float = 0.0
    memory_mb: float = 0.0
    device_memory_mb: float | None = None


class Meter(Cost):
    """Measures wall time and peak memory of the process while the context lasts.

    Memory is what the process holds in the machine's main memory, the program included, sampled every 20 ms.
    """

    def __init__(self) -> None:
        super().__init__()
        self._done = threading.Event()
        self._process = psutil.Process(os.getpid())
        self._sampler = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Self:
        _on_gpu("reset_peak_memory_stats")
        self._begun = time.perf_counter()
        self._look()
        self._sampler.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._sampler.join()
        self._look()
        self.wall_s = time.perf_counter() - self._begun
        peak = _on_gpu("max_memory_allocated")
        self.device_memory_mb = None if peak is None else peak / MEGABYTE

    def _sample(self) -> None:
        while not self._done.wait(SAMPLE_S):
            self._look()

    def _look(self) -> None:
        with suppress(psutil.Error):
            self.memory_mb = max(self.memory_mb, self._process.memory_info().rss / MEGABYTE)


def give_memory_back() -> None:
    """Return freed memory to the system, which training keeps for reuse (`keep_freed_memory`, training/runtime.py).

    What one job leaves behind would otherwise count as the next one's, as far as the C library can tell.
    """
    gc.collect()
    if sys.platform.startswith("linux"):
        with suppress(AttributeError, OSError):  # other C libraries have no such call
            ctypes.CDLL(None).malloc_trim(0)


def _on_gpu(call: str) -> int | None:
    """Ask the framework about the GPU's memory, if it is loaded and there is one in use."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return None
    answer = getattr(torch.cuda, call)()
    return None if answer is None else int(answer)


@dataclass(frozen=True, slots=True)
class CostRecord:
    """What is known of the making of one artifact.

    `wall_s` is the time spent on it, over all attempts; `memory_mb` and `device_memory_mb` are the highest peaks.
    `partial` says that an attempt was killed and its time is not known. `fingerprint` says which artifact was made: a
    record of another one says nothing of what is there now.
    """

    status: Status = "running"
    fingerprint: str = ""
    wall_s: float = 0.0
    memory_mb: float | None = None
    device_memory_mb: float | None = None
    partial: bool = False
    error: dict[str, Any] | None = None


class CostLog:
    """The records of a benchmark's artifacts by key, in one JSON file that is replaced whole after each change.

    A file that cannot be understood counts as empty.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._records = _read(path)

    def get(self, key: str, fingerprint: str | None = None) -> CostRecord | None:
        """Return the record of an artifact, if it is of this fingerprint, where one is given."""
        record = self._records.get(key)
        return record if record and fingerprint in (None, record.fingerprint) else None

    def wall_s(self, job: str) -> float | None:
        """Return how long the artifacts of a job took together, None if one is not known to be done."""
        records = [record for key, record in self._records.items() if key.startswith(f"{job}/")]
        done = bool(records) and all(record.status == "done" for record in records)
        return sum(record.wall_s for record in records) if done else None

    def adopt(self, other: "CostLog") -> None:
        """Take over the records of another cost_log, but for artifacts that were known to be made here."""
        for key, record in other._records.items():
            known = self._records.get(key)
            if known is None or known.status != "done":
                self._set(key, record)

    def begin(self, key: str, fingerprint: str) -> None:
        """Remember that work begins; the time of earlier attempts at the same artifact counts."""
        before = self.get(key, fingerprint)
        if before is None or before.status == "done":
            before = CostRecord(fingerprint=fingerprint)
        elif before.status == "running":
            before = replace(before, partial=True)  # it was killed: nobody wrote how it ended
        self._set(key, replace(before, status="running", error=None))

    def end(self, key: str, status: Status, cost: Cost, error: CostarError | None = None) -> None:
        """Remember how the work ended, and what it took this time."""
        before = self._records[key]
        self._set(
            key,
            replace(
                before,
                status=status,
                wall_s=before.wall_s + cost.wall_s,
                memory_mb=_larger(before.memory_mb, cost.memory_mb),
                device_memory_mb=_larger(before.device_memory_mb, cost.device_memory_mb),
                error=error.to_json() if error else None,
            ),
        )

    def _set(self, key: str, record: CostRecord) -> None:
        self._records[key] = record
        document = {"records": {name: asdict(known) for name, known in self._records.items()}}
        write_bytes(self._path, (json.dumps(document, indent=1, allow_nan=False) + "\n").encode())


def _larger(first: float | None, second: float | None) -> float | None:
    known = [value for value in (first, second) if value is not None]
    return max(known) if known else None


def _read(path: Path) -> dict[str, CostRecord]:
    try:
        records = json.loads(path.read_bytes())["records"]
        return TypeAdapter(dict[str, CostRecord]).validate_python(records)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


class Clock:
    """Counts jobs, and expects each to take what its like took.

    A job's likes are those of the same method and domain on other data sets (in the cost_log, or made just now); for
    the first of a kind, all jobs of the same domain; and if there is none, all jobs.

    Of the `jobs` of a benchmark, those `left` are to be made.
    """

    def __init__(self, jobs: Sequence[Job], left: Sequence[Job], cost_log: CostLog) -> None:
        self._left = list(left)
        self._took: list[tuple[Job, float]] = []
        for job in jobs:
            took = None if job in self._left else cost_log.wall_s(job.key)
            if took is not None:
                self._took.append((job, took))

    @property
    def left(self) -> int:
        """Return how many jobs are left."""
        return len(self._left)

    def finish(self, job: Job, took_s: float | None = None) -> None:
        """Count a job, and remember how long it took, if it was made."""
        if job in self._left:
            self._left.remove(job)
        if took_s is not None:
            self._took.append((job, took_s))

    def outlook(self) -> str:
        """Return `7 more, about 4 min`, without the time where nothing is known yet; empty at the end."""
        if not self._left:
            return ""
        more = f"{len(self._left)} more"
        return f"{more}, about {in_words(sum(map(self._expected, self._left)))}" if self._took else more

    def _expected(self, job: Job) -> float:
        same_role = [(other, took_s) for other, took_s in self._took if other.role == job.role]
        likes = [took_s for other, took_s in same_role if other.method == job.method]
        known = likes or [took_s for _, took_s in same_role] or [took_s for _, took_s in self._took]
        return sum(known) / len(known)
