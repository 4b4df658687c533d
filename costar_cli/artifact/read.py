"""Read artifacts, trusted or not: one clear error within seconds and bounded memory, and no code is ever run."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costar_cli.artifact.chunks import unpack
from costar_cli.artifact.dtypes import array_from_bytes
from costar_cli.artifact.header import body_sha256
from costar_cli.artifact.problems import damaged, reading
from costar_cli.artifact.reader import OpenArtifact, open_artifact
from costar_cli.artifact.record import Artifact

__all__ = ["read_artifact", "read_header", "verify_artifact"]

PathLike = str | os.PathLike[str]


def read_artifact(path: PathLike, *, kind: str | None = None, only: Sequence[str] | None = None) -> Artifact:
    """Read an artifact and check the digest of every array read.

    Args:
        path: the file.
        kind: what it must be, for example `dataset`; None for any.
        only: names, or prefixes of names up to a slash, of the arrays to read; the others are neither read nor hashed.

    Raises:
        ArtifactError: it is missing, foreign, damaged, unsafe, newer, or of another kind.
    """
    path = Path(path)
    with open_artifact(path, kind=kind) as opened:
        names = [name for name in opened.manifest.arrays if only is None or _selected(name, only)]
        return _artifact(opened, path, {name: _load(opened, path, name) for name in names})


def read_header(path: PathLike) -> Artifact:
    """Read everything but the arrays; `arrays` is empty.

    Raises:
        ArtifactError: as `read_artifact`.
    """
    path = Path(path)
    with open_artifact(path) as opened:
        return _artifact(opened, path, {})


def verify_artifact(path: PathLike) -> Artifact:
    """Check every byte of an artifact in bounded memory and return its header; `arrays` is empty.

    Raises:
        ArtifactError: as `read_artifact`, or any byte is not as it was written.
    """
    path = Path(path)
    with open_artifact(path) as opened:
        for name in opened.manifest.arrays:
            _unpack(opened, path, name, None)
        header = opened.header
        with reading(path, kind=header.kind):
            intact = header.total_bytes == path.stat().st_size and header.body_sha256 == body_sha256(path)
        if not intact:
            raise damaged("the content is intact, but other bytes of the file were changed", path, kind=header.kind)
        return _artifact(opened, path, {})


def _selected(name: str, only: Sequence[str]) -> bool:
    return any(name == prefix or name.startswith(f"{prefix.rstrip('/')}/") for prefix in only)


def _load(opened: OpenArtifact, path: Path, name: str) -> NDArray[Any]:
    entry = opened.manifest.arrays[name]
    with reading(path, f"arrays/{name}", kind=opened.header.kind):
        data = np.empty(opened.members[name].raw_bytes, np.uint8)
        _unpack(opened, path, name, data)
        return array_from_bytes(data, entry.dtype, tuple(entry.shape))


def _unpack(opened: OpenArtifact, path: Path, name: str, out: NDArray[np.uint8] | None) -> None:
    place, kind = f"arrays/{name}", opened.header.kind
    with reading(path, place, kind=kind):
        if unpack(opened.members[name], out) != opened.manifest.arrays[name].sha256:
            raise damaged("the array is damaged: another digest than in the manifest", path, place, kind=kind)


def _artifact(opened: OpenArtifact, path: Path, arrays: Mapping[str, NDArray[Any]]) -> Artifact:
    manifest = opened.manifest
    return Artifact(
        kind=manifest.kind,
        arrays=arrays,
        meta=manifest.meta,
        parents=manifest.parents,
        digest=opened.header.digest,
        schema_version=manifest.schema_version,
        versions=opened.header.versions,
        path=path,
    )
