"""The artifact in memory."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

__all__ = ["Artifact"]


@dataclass(frozen=True, slots=True)
class Artifact:
    """What one file holds.

    Attributes:
        kind: `dataset`, `encoder`, `model`, `evaluation`, `estimates` or `run-state`.
        arrays: flat names with slashes, for example `source/train/panel/outcomes`; numbers, booleans or strings.
        meta: one JSON document: config, schema, names, history.
        parents: role to digest, for example `{"dataset": "ab12..."}`.
        digest: SHA-256 over kind, schema version, meta, parents, and the digest of every array.
        schema_version: of the file format.
        versions: of the software that wrote it; not part of the digest.
        path: where it lies.
    """

    kind: str
    arrays: Mapping[str, NDArray[Any]]
    meta: Mapping[str, Any]
    parents: Mapping[str, str] = field(default_factory=dict)
    digest: str = ""
    schema_version: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    path: Path | None = None
