"""Read artifacts, trusted or not: one clear error within seconds and bounded memory, and no code is ever run."""

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np
from numpy.typing import NDArray

from costar_cli.errors import ArtifactError
from costar_cli.files.digest import array_from_bytes, stored_tag
from costar_cli.files.header import Header, body_sha256, damaged, read_file_header, reading, wrong_kind
from costar_cli.files.sandbox import check_safe
from costar_cli.files.spec import MAX_MANIFEST_BYTES, Manifest
from costar_cli.files.structure import Member, survey, unpack

PathLike = str | os.PathLike[str]

SETTLED_NS: Final = 100_000_000  # clocks of file systems tick every 1 to 10 ms
MOST_HEADERS, MOST_KEPT = 64, 1_000_000  # headers that are kept, and the characters of the meta of one


@dataclass(frozen=True, slots=True)
class Artifact:
    """What one file holds.

    Attributes:
        kind: `dataset`, `encoder`, `model`, `evaluation`, `refutation`, `estimates` or `run-state`.
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


@dataclass(frozen=True, slots=True)
class OpenArtifact:
    """An open file: what it says of itself, and its arrays by name."""

    header: Header
    manifest: Manifest
    members: dict[str, Member]


@contextmanager
def open_artifact(path: Path, *, kind: str | None = None) -> Iterator[OpenArtifact]:
    """Open an artifact, check its structure and its manifest, and close it when the context ends.

    Raises:
        ArtifactError: it cannot be read, is unsafe or damaged, or is not of the `kind` asked for.
    """
    with reading(path, kind=kind):
        header = read_file_header(path)
    if kind is not None and header.kind != kind:
        raise wrong_kind(header.kind, kind, path)
    with reading(path, kind=header.kind):
        check_safe(path, header.kind)
    with reading(path, kind=header.kind), h5py.File(path, "r", locking=False) as file:
        found = survey(file["/"].id, path, header.kind)
        if (member := found.pop("manifest", None)) is None:
            raise damaged("the manifest is missing", path, kind=header.kind)
        if member.tag != "uint8" or len(member.shape) != 1 or member.raw_bytes > MAX_MANIFEST_BYTES:
            raise damaged(f"the manifest is not text of at most {MAX_MANIFEST_BYTES:,} bytes", path, kind=header.kind)
        data = np.empty(member.raw_bytes, np.uint8)
        if unpack(member, data) != header.digest:
            problem = "the manifest is damaged: its digest differs from the header"
            raise damaged(problem, path, "manifest", kind=header.kind)
        try:
            manifest = Manifest.from_bytes(data.tobytes())
        except ValueError as error:
            raise damaged(f"the manifest is unusable: {error}", path, "manifest", kind=header.kind) from None
        if problems := manifest.problems():
            problem, *details = problems
            problem = f"the content does not match its kind: {problem}"
            raise damaged(problem, path, kind=header.kind, details=details[:20])
        if (manifest.kind, manifest.schema_version) != (header.kind, header.schema_version):
            raise damaged("header and manifest disagree", path, "manifest", kind=header.kind)
        members = {name.removeprefix("arrays/"): member for name, member in found.items()}
        expected = {f"arrays/{name}" for name in manifest.arrays}
        details = [f"/{name}: missing" for name in sorted(expected - set(found))]
        details += [f"/{name}: not in the manifest" for name in sorted(set(found) - expected)]
        for name, entry in manifest.arrays.items():
            if (member := members.get(name)) is None:
                continue
            if (member.tag, list(member.shape)) != (stored_tag(entry.dtype), entry.shape):
                details.append(f"/arrays/{name}: {member.tag} {member.shape}, not {entry.dtype} {tuple(entry.shape)}")
        if details:
            kind = manifest.kind
            raise damaged("the arrays differ from the manifest", path, "arrays", kind=kind, details=details[:20])
        yield OpenArtifact(header, manifest, members)


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
        arrays = {}
        for name, entry in opened.manifest.arrays.items():
            if only is None or any(name == prefix or name.startswith(f"{prefix.rstrip('/')}/") for prefix in only):
                with reading(path, f"arrays/{name}", kind=opened.header.kind):
                    data = np.empty(opened.members[name].raw_bytes, np.uint8)
                    _unpack(opened, path, name, data)
                    arrays[name] = array_from_bytes(data, entry.dtype, tuple(entry.shape))
        return _artifact(opened, path, arrays)


@contextmanager
def complete(artifact: Artifact) -> Iterator[None]:
    """Tell what a model or an encoder lacks, or has of another shape, as an error of its file.

    Raises:
        ArtifactError: reading it failed.
    """
    try:
        yield
    except (LookupError, ValueError, TypeError, AttributeError, RuntimeError) as error:
        if type(error).__name__ == "OutOfMemoryError":  # torch's, of the device: says nothing of the file
            raise
        verb = {"encoder": "retrain it with `costar pretrain`", "part": "make it again with --shard and --overwrite"}
        raise ArtifactError(
            f"the {artifact.kind} artifact is incomplete or damaged",
            where=f"{artifact.path}: {error}",
            fix=verb.get(artifact.kind, "retrain it with `costar finetune`"),
        ) from error


_HEADERS: dict[tuple[int, ...] | None, tuple[Artifact, str]] = {}


def read_header(path: PathLike) -> Artifact:
    """Read everything but the arrays; `arrays` is empty.

    Raises:
        ArtifactError: as `read_artifact`.
    """
    path = Path(path)
    # A verb asks for the header of each file several times, and its structure takes 10 to 30 ms to check. Nothing is
    # kept of a file that changed just now: a clock's tick may hide a further change.
    version: tuple[int, ...] | None = None
    with suppress(OSError):
        found = path.stat()
        if time.time_ns() - max(found.st_mtime_ns, found.st_ctime_ns) >= SETTLED_NS:
            version = found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
    if (kept := _HEADERS.get(version)) is None:
        with open_artifact(path) as opened:
            artifact = _artifact(opened, path, {})
        if version is not None and len(meta := json.dumps(artifact.meta)) <= MOST_KEPT:
            if len(_HEADERS) == MOST_HEADERS:
                del _HEADERS[next(iter(_HEADERS))]
            _HEADERS[version] = artifact, meta
        return artifact
    artifact, meta = kept
    return replace(artifact, path=path, meta=json.loads(meta), parents=dict(artifact.parents))


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


def _unpack(opened: OpenArtifact, path: Path, name: str, out: NDArray[np.uint8] | None) -> None:
    place, kind = f"arrays/{name}", opened.header.kind
    with reading(path, place, kind=kind):
        if unpack(opened.members[name], out) != opened.manifest.arrays[name].sha256:
            raise damaged("the array is damaged: its digest differs from the manifest", path, place, kind=kind)


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


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return kind, digest, lineage, config, the rest of meta, versions, and every array's name, type, shape and size.

    All of it is JSON. No array is read.

    Raises:
        ArtifactError: as `read_artifact`.
    """
    path = Path(path)
    with open_artifact(path) as opened:
        header, manifest = opened.header, opened.manifest
        arrays = [
            {
                "name": name,
                "dtype": entry.dtype,
                "shape": entry.shape,
                "bytes": opened.members[name].raw_bytes,
                "stored_bytes": opened.members[name].stored_bytes,
                "sha256": entry.sha256,
            }
            for name, entry in sorted(manifest.arrays.items())
        ]
    return {
        "path": str(path),
        "kind": manifest.kind,
        "schema_version": manifest.schema_version,
        "digest": header.digest,
        "parents": manifest.parents,
        "config": manifest.meta.get("config"),
        "meta": {key: value for key, value in manifest.meta.items() if key != "config"},
        "versions": dict(header.versions),
        "file_bytes": header.total_bytes,
        "array_bytes": sum(array["bytes"] for array in arrays),
        "arrays": arrays,
    }
