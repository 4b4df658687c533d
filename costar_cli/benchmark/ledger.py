"""What a benchmark remembers beside its artifacts: what each took to make, and why some could not be made."""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from costar_cli.artifact import write_bytes
from costar_cli.benchmark.costs import Meter
from costar_cli.errors import CostarError

__all__ = ["Ledger", "Record"]

Status = Literal["running", "done", "failed", "interrupted"]


@dataclass(frozen=True, slots=True)
class Record:
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


class Ledger:
    """The records of a benchmark's artifacts by key, in one JSON file that is replaced whole after each change.

    Args:
        path: the file; one that cannot be understood counts as empty.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._records = _read(path)

    def get(self, key: str, fingerprint: str | None = None) -> Record | None:
        """Return the record of an artifact, if it is of this fingerprint, where one is given."""
        record = self._records.get(key)
        return record if record and fingerprint in (None, record.fingerprint) else None

    def wall_s(self, cell: str) -> float | None:
        """Return how long the artifacts of a cell took together, None if one is not known to be done."""
        records = [record for key, record in self._records.items() if key.startswith(f"{cell}/")]
        done = bool(records) and all(record.status == "done" for record in records)
        return sum(record.wall_s for record in records) if done else None

    def begin(self, key: str, fingerprint: str) -> None:
        """Remember that work begins; the time of earlier attempts at the same artifact counts."""
        before = self.get(key, fingerprint)
        if before is None or before.status == "done":
            before = Record(fingerprint=fingerprint)
        elif before.status == "running":
            before = replace(before, partial=True)  # it was killed: nobody wrote how it ended
        self._set(key, replace(before, status="running", error=None))

    def end(self, key: str, status: Status, meter: Meter, error: CostarError | None = None) -> None:
        """Remember how the work ended, and what it took this time."""
        before = self._records[key]
        self._set(
            key,
            replace(
                before,
                status=status,
                wall_s=before.wall_s + meter.wall_s,
                memory_mb=_larger(before.memory_mb, meter.memory_mb),
                device_memory_mb=_larger(before.device_memory_mb, meter.device_memory_mb),
                error=error.to_json() if error else None,
            ),
        )

    def _set(self, key: str, record: Record) -> None:
        self._records[key] = record
        document = {"records": {name: asdict(known) for name, known in self._records.items()}}
        write_bytes(self._path, (json.dumps(document, indent=1, allow_nan=False) + "\n").encode())


def _larger(first: float | None, second: float | None) -> float | None:
    known = [value for value in (first, second) if value is not None]
    return max(known) if known else None


def _read(path: Path) -> dict[str, Record]:
    try:
        records = json.loads(path.read_bytes())["records"]
        return TypeAdapter(dict[str, Record]).validate_python(records)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}
