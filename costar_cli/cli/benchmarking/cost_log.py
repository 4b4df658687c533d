"""What the folder of a benchmark keeps beside its files: what jobs took, and which part of a benchmark it is."""

import ctypes
import gc
import json
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

import psutil
from pydantic import TypeAdapter

from costar_cli.cli.benchmarking.jobs import Job
from costar_cli.cli.workspace import Workspace
from costar_cli.errors import CostarError, MismatchError
from costar_cli.files import read_header, verify_artifact, write_bytes
from costar_cli.files.shards import Shard, check_parts, find_parts
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


@contextmanager
def measured() -> Iterator[Cost]:
    """Measure wall time and peak memory of the process while the context lasts; the cost is known behind it.

    Memory is what the process holds in the machine's main memory, the program included, sampled every 20 ms.
    """
    cost, process, done = Cost(), psutil.Process(), threading.Event()

    def look() -> None:
        with suppress(psutil.Error):
            cost.memory_mb = max(cost.memory_mb, process.memory_info().rss / MEGABYTE)

    def sample() -> None:
        while not done.wait(SAMPLE_S):
            look()

    def gpu() -> Any:  # noqa: ANN401 - a module of the framework, if it is loaded by now and there is a GPU
        torch = sys.modules.get("torch")
        return torch.cuda if torch is not None and torch.cuda.is_available() else None

    if gpu():
        gpu().reset_peak_memory_stats()
    begun = time.perf_counter()
    look()
    sampler = threading.Thread(target=sample, daemon=True)
    sampler.start()
    try:
        yield cost
    finally:
        done.set()
        sampler.join()
        look()
        cost.wall_s = time.perf_counter() - begun
        if gpu():
            cost.device_memory_mb = gpu().max_memory_allocated() / MEGABYTE


def give_memory_back() -> None:
    """Return freed memory to the system, which training keeps for reuse (`keep_freed_memory`, training/runtime.py).

    What one job leaves behind would otherwise count as the next one's, as far as the C library can tell.
    """
    gc.collect()
    if sys.platform.startswith("linux"):
        with suppress(AttributeError, OSError):  # other C libraries have no such call
            ctypes.CDLL(None).malloc_trim(0)


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
        try:
            records = json.loads(path.read_bytes())["records"]
            self._records = TypeAdapter(dict[str, CostRecord]).validate_python(records)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            self._records = {}

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
        """Take over the records of another log, but for artifacts that are known to have been made here."""
        for key, record in other._records.items():
            if key not in self._records or self._records[key].status != "done":
                self._set(key, record)

    def begin(self, key: str, fingerprint: str) -> None:
        """Remember that work begins; the time of earlier attempts at the same artifact counts."""
        before = self.get(key, fingerprint)
        if before is None or before.status == "done":
            before = CostRecord(fingerprint=fingerprint)
        elif before.status == "running":
            before = replace(before, partial=True)  # it was killed before it could record how it ended
        self._set(key, replace(before, status="running", error=None))

    def end(self, key: str, status: Status, cost: Cost, error: CostarError | None = None) -> None:
        """Remember how the work ended, and what it took this time."""

        def larger(first: float | None, second: float | None) -> float | None:
            return max((value for value in (first, second) if value is not None), default=None)

        before = self._records[key]
        after = replace(
            before,
            status=status,
            wall_s=before.wall_s + cost.wall_s,
            memory_mb=larger(before.memory_mb, cost.memory_mb),
            device_memory_mb=larger(before.device_memory_mb, cost.device_memory_mb),
            error=error.to_json() if error else None,
        )
        self._set(key, after)

    def _set(self, key: str, record: CostRecord) -> None:
        self._records[key] = record
        document = {"records": {name: asdict(known) for name, known in self._records.items()}}
        write_bytes(self._path, (json.dumps(document, indent=1, allow_nan=False) + "\n").encode())


class Clock:
    """Counts jobs, and expects each to take what jobs like it took.

    These are the jobs of the same method and domain on other data sets (in the log, or made just now); for the first
    one of a kind, all jobs of the same domain; and if there is none, all jobs.

    Of the `jobs` of a benchmark, those `left` are to be made.
    """

    def __init__(self, jobs: Sequence[Job], left: Sequence[Job], cost_log: CostLog) -> None:
        self.left = list(left)
        known = ((job, cost_log.wall_s(job.key)) for job in jobs if job not in self.left)
        self._took = [(job, took_s) for job, took_s in known if took_s is not None]

    def finish(self, job: Job, took_s: float | None = None) -> None:
        """Count a job, and remember how long it took, if it was made."""
        if job in self.left:
            self.left.remove(job)
        if took_s is not None:
            self._took.append((job, took_s))

    def outlook(self) -> str:
        """Return `7 more, about 4 min`, without the time where nothing is known yet; empty at the end."""
        if not self.left:
            return ""
        if not self._took:
            return f"{len(self.left)} more"
        expected_s = 0.0
        for job in self.left:
            same_role = [(other, took_s) for other, took_s in self._took if other.role == job.role]
            likes = [took_s for other, took_s in same_role if other.method == job.method]
            known = likes or [took_s for _, took_s in same_role] or [took_s for _, took_s in self._took]
            expected_s += sum(known) / len(known)
        return f"{len(self.left)} more, about {in_words(expected_s)}"


NOTE: Final = "part.json"  # of a part's folder: which part it is, whatever the folder is called


def note_shard(folder: Path, shard: Shard) -> None:
    """Write down in a part's folder which part it is, unless it says so.

    Raises:
        StorageError: the disk is full or read-only.
    """
    if _noted(folder) != str(shard):
        Workspace(folder).make()
        write_bytes(folder / NOTE, (json.dumps({"shard": str(shard)}) + "\n").encode())


def _noted(folder: Path) -> str | None:
    """Return which part a folder is, None where it does not say."""
    path = folder / NOTE
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        if path.is_file():
            return str(json.loads(path.read_bytes())["shard"])
    return None


def merge_shards(folder: Path) -> list[Path]:
    """Bring the artifacts and times of all parts into the benchmark's folder; return the files that were copied.

    What several parts have made alike, data and encoders, is there once.

    Raises:
        UsageError: there are no parts, parts of two divisions, or not all of them.
        MismatchError: a part is not the one that its folder's name says, or a file differs between parts, or from the
            one in the folder; nothing is copied then.
        ArtifactError: what a part made is damaged; nothing is copied then.
        LockedError: another process works in the benchmark's folder, or still makes a part.
    """
    made = "`costar benchmark ... --shard I/N --folder FOLDER` makes them"
    shards = find_parts(folder, what="a benchmark", fix=made)
    parts = list(shards.values())
    found: dict[Path, tuple[Path, str]] = {}
    with ExitStack() as held:
        for place in (folder, *parts):
            held.enter_context(Workspace(place).lock())
        check_parts(shards, {shard: _noted(part) for shard, part in shards.items()}, fix=made)
        places = [folder, *parts]
        for path in (path for place in places for path in sorted(place.glob("seed-*/*.h5"))):
            place = next(one for one in reversed(places) if path.is_relative_to(one))
            target, digest = folder / path.relative_to(place), read_header(path).digest
            first, known = found.setdefault(target, (path, digest))
            if known != digest:
                raise MismatchError(
                    f"two parts made {target.name} differently",
                    where=f"{first}, {path}",
                    fix="run all parts with the same settings, costar and kind of machine",
                )
        copied = [target for target, (path, _) in found.items() if path != target]
        for target in copied:
            verify_artifact(found[target][0])
        for target in copied:
            Workspace(target.parent).make()
            write_bytes(target, found[target][0].read_bytes())
        cost_log = CostLog(folder / "ledger.json")
        for part in parts:
            cost_log.adopt(CostLog(part / "ledger.json"))
    return copied
