"""Write artifacts: beside the target, read back and verified, then moved into its place."""

import errno
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from costar_cli import __version__
from costar_cli.artifact.atomic import TempFile, replacing
from costar_cli.artifact.digest import array_sha256, sha256
from costar_cli.artifact.dtypes import dtype_tag, stored_array
from costar_cli.artifact.hdf5 import write_hdf5
from costar_cli.artifact.header import Header, body_sha256
from costar_cli.artifact.limits import MAX_MANIFEST_BYTES, check_total
from costar_cli.artifact.manifest import ArrayEntry, Manifest
from costar_cli.artifact.problems import exists, storage_error
from costar_cli.artifact.read import verify_artifact
from costar_cli.artifact.record import Artifact
from costar_cli.artifact.sink import write_all
from costar_cli.artifact.spec import SCHEMA_VERSION
from costar_cli.artifact.structure import looks_like_bomb

__all__ = ["content_digest", "write_artifact"]


@dataclass(frozen=True, slots=True)
class _Content:
    kind: str
    stored: Mapping[str, NDArray[Any]]
    manifest: bytes
    digest: str


def write_artifact(
    path: str | os.PathLike[str],
    *,
    kind: str,
    arrays: Mapping[str, NDArray[Any]],
    meta: Mapping[str, Any],
    parents: Mapping[str, str] | None = None,
    overwrite: bool = False,
) -> Artifact:
    """Write an artifact; whatever happens, the path holds the complete old file or the complete new one.

    Folders on the way are created. The same content gives the same bytes with the same software.

    Args:
        path: the file; a symbolic link is followed.
        kind: `dataset`, `encoder`, `model`, `evaluation`, `estimates` or `run-state`.
        arrays: names such as `source/train/panel/outcomes` to numbers, booleans or strings.
        meta: what JSON can hold, without NaN.
        parents: role to digest.
        overwrite: whether to replace a file that exists.

    Returns:
        The artifact as `read_artifact` would return it, with the given arrays.

    Raises:
        MismatchError: the file exists and `overwrite` is false.
        StorageError: the disk is full, read-only or forbidden.
        ValueError: the content is not what `spec.py` and `docs/format.md` say about the kind.
    """
    target = Path(os.path.realpath(path))
    try:
        _refuse_existing(target, overwrite=overwrite)
        content = _content(kind, arrays, meta, parents or {})
        check_total(sum(array.nbytes for array in content.stored.values()), target)
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target) as temp:
            _write(temp, content)
            written = verify_artifact(temp.path)
            _refuse_existing(target, overwrite=overwrite)
    except OSError as error:
        raise storage_error(error, target) from error
    return Artifact(
        kind=kind,
        arrays=dict(arrays),
        meta=written.meta,
        parents=written.parents,
        digest=written.digest,
        schema_version=written.schema_version,
        versions=written.versions,
        path=Path(path),
    )


def content_digest(
    kind: str, *, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any], parents: Mapping[str, str] | None = None
) -> str:
    """Return the digest that `write_artifact` gives to this content; nothing is written."""
    return _content(kind, arrays, meta, parents or {}).digest


def _refuse_existing(target: Path, *, overwrite: bool) -> None:
    if target.is_dir():
        raise storage_error(IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR)), target)
    if not overwrite and os.path.lexists(target):
        raise exists(target)


def _content(
    kind: str, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any], parents: Mapping[str, str]
) -> _Content:
    stored, entries = {}, {}
    for name, array in arrays.items():
        try:
            stored[name] = stored_array(np.asarray(array))
        except ValueError as error:
            raise ValueError(f"array {name!r}: {error}") from None
        tag = dtype_tag(np.asarray(array), stored[name])
        entries[name] = ArrayEntry(dtype=tag, shape=list(stored[name].shape), sha256=array_sha256(stored[name]))
    manifest = Manifest(
        kind=kind, schema_version=SCHEMA_VERSION, meta=dict(meta), parents=dict(parents), arrays=entries
    )
    if problems := manifest.problems():
        raise ValueError("; ".join(problems))
    text = manifest.to_bytes()
    if len(text) > MAX_MANIFEST_BYTES:
        raise ValueError(f"meta of {len(text):,} bytes: store large things as arrays")
    return _Content(kind, stored, text, sha256(text))


def _write(temp: TempFile, content: _Content) -> None:
    """Write a complete artifact into the temporary file."""
    arrays = {f"arrays/{name}": array for name, array in content.stored.items()}
    arrays["manifest"] = np.frombuffer(content.manifest, np.uint8)
    write_hdf5(temp.fd, arrays, compress=True)
    with h5py.File(temp.path, "r", locking=False) as file:
        too_small = looks_like_bomb(file["/"].id, temp.path, content.kind)
    if too_small:  # honest, but no reader could tell
        os.ftruncate(temp.fd, 0)
        write_hdf5(temp.fd, arrays, compress=False)
    header = Header(
        kind=content.kind,
        schema_version=SCHEMA_VERSION,
        digest=content.digest,
        versions=software_versions(),
        total_bytes=os.fstat(temp.fd).st_size,
        body_sha256=body_sha256(temp.path),
    )
    write_all(temp.fd, header.render(), 0)


@cache
def software_versions() -> dict[str, str]:
    """Return the versions that a file records; torch's without importing it."""
    versions = {
        "costar": __version__,
        "h5py": h5py.version.version,
        "hdf5": h5py.version.hdf5_version,
        "numpy": np.__version__,
        "python": ".".join(str(part) for part in sys.version_info[:3]),
    }
    with suppress(metadata.PackageNotFoundError):
        versions["torch"] = metadata.version("torch")
    return {name: version.replace(" ", "")[:40] for name, version in versions.items()}
