"""Write artifacts: beside the target, read back and verified, then moved into its place; the same bytes each time."""

import base64
import errno
import io
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np
from h5py import h5f, h5fd, h5g, h5o, h5p, h5s
from numpy.typing import NDArray

from costar_cli.errors import MismatchError, storage_error
from costar_cli.files.atomic import Sink, interrupts_deferred, replacing, write_all
from costar_cli.files.digest import array_sha256, dtype_tag, sha256, software_versions, stored_array
from costar_cli.files.header import HEADER_BYTES, Header, body_sha256
from costar_cli.files.read import Artifact, verify_artifact
from costar_cli.files.spec import MAX_MANIFEST_BYTES, SCHEMA_VERSION, ArrayEntry, Manifest
from costar_cli.files.structure import are_small, check_total, looks_like_bomb

CHUNK_BYTES: Final = 256 * 1024  # what the writer aims at
PLAIN_BYTES: Final = 4 * 1024  # smaller arrays are stored in one piece, uncompressed
DEFLATE_LEVEL: Final = 4
# A file with a group `g` that keeps up to 512 names in its header, where HDF5's default is 8 (`sandbox.py` says what
# that is good for): h5py can copy such a group but not ask for one (H5Pset_link_phase_change).
COMPACT_GROUP: Final = (
    b"c-rgqaB<`1lHy|K;9!7(|4?AX2;mz*#kWk%`RecC62!z%!6byN5C*uI7=T*X"
    b"co={bWBO*8c^(W@1B-;#nLwOSgTo1IAiEhr4vAo(8MqLhZ36(oG&Nx"
)


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
        stored, manifest = _content(kind, arrays, meta, parents or {})
        check_total(sum(array.nbytes for array in stored.values()), target)
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target) as temp:
            every = {f"arrays/{name}": array for name, array in stored.items()}
            every["manifest"] = np.frombuffer(manifest, np.uint8)
            write_hdf5(temp.fd, every, compress=True)
            if not are_small(stored.values()):
                with h5py.File(temp.path, "r", locking=False) as file:
                    refused = looks_like_bomb(file["/"].id, temp.path, kind)
                if refused:  # honest, but no reader could tell
                    os.ftruncate(temp.fd, 0)
                    write_hdf5(temp.fd, every, compress=False)
            header = Header(
                kind=kind,
                schema_version=SCHEMA_VERSION,
                digest=sha256(manifest),
                versions=software_versions(),
                total_bytes=os.fstat(temp.fd).st_size,
                body_sha256=body_sha256(temp.path),
            )
            write_all(temp.fd, header.render(), 0)
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
    return sha256(_content(kind, arrays, meta, parents or {})[1])


def _refuse_existing(target: Path, *, overwrite: bool) -> None:
    if target.is_dir():
        raise storage_error(IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR)), target)
    if not overwrite and os.path.lexists(target):
        raise MismatchError("the file exists", where=str(target), fix="`--overwrite` replaces it")


def _content(
    kind: str, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any], parents: Mapping[str, str]
) -> tuple[dict[str, NDArray[Any]], bytes]:
    """Return arrays as they are stored, and the manifest, whose SHA-256 is the digest."""
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
    return stored, text


def write_hdf5(fd: int, arrays: Mapping[str, NDArray[Any]], *, compress: bool) -> None:
    """Write arrays, as `dtypes.stored_array` returns them, by name into an empty file, behind room for the header.

    Raises:
        OSError: the disk is full or the like.
    """
    sink = Sink(fd)
    try:
        create, access = h5p.create(h5p.FILE_CREATE), h5p.create(h5p.FILE_ACCESS)
        create.set_userblock(HEADER_BYTES)
        create.set_obj_track_times(False)
        access.set_fileobj_driver(h5fd.fileobj_driver, sink)
        access.set_libver_bounds(h5f.LIBVER_V110, h5f.LIBVER_V110)  # all metadata carry checksums
        with interrupts_deferred(), h5py.File(h5f.create(b"artifact", h5f.ACC_TRUNC, create, access)) as file:
            for name in sorted(arrays):
                root = file.id
                array = arrays[name]
                *groups, leaf = name.encode("ascii").split(b"/")
                parent = root
                for group in groups:
                    parent = h5g.open(parent, group) if group in parent else _create_group(parent, group)
                options: dict[str, Any] = {}
                if array.nbytes >= PLAIN_BYTES:
                    options["chunks"] = chunk_shape(array.shape, array.dtype.itemsize)
                    if compress:
                        options |= {"compression": "gzip", "compression_opts": DEFLATE_LEVEL}
                        options["shuffle"] = array.dtype.kind != "S" and array.dtype.itemsize > 1
                dtype = h5py.string_dtype("utf-8", array.dtype.itemsize) if array.dtype.kind == "S" else array.dtype
                dataset = h5py.Group(parent).create_dataset(leaf, array.shape, dtype, track_times=False, **options)
                if array.size:
                    dataset.id.write(h5s.ALL, h5s.ALL, array, dataset.id.get_type())
                sink.check()
    except Exception as error:
        sink.check()  # what HDF5 makes of a failed write matters less than why it failed
        raise RuntimeError(f"HDF5 cannot store the arrays: {error}") from error
    sink.check()


def chunk_shape(shape: tuple[int, ...], width: int) -> tuple[int, ...]:
    """Return chunks of about `CHUNK_BYTES` that are consecutive runs of an array in C order.

    They are full along the last axes, 1 along the first ones, and cut one axis between into equal parts.
    """
    row_bytes, axis = width, len(shape)
    while axis > 0 and row_bytes * shape[axis - 1] <= CHUNK_BYTES:
        axis -= 1
        row_bytes *= shape[axis]
    if axis == 0:
        return shape
    length = shape[axis - 1]
    parts = -(-length // max(1, CHUNK_BYTES // row_bytes))
    return (*(1,) * (axis - 1), -(-length // parts), *shape[axis:])


def _create_group(parent: Any, name: bytes) -> Any:  # noqa: ANN401 - h5py has no types
    with h5py.File(io.BytesIO(zlib.decompress(base64.b85decode(COMPACT_GROUP))), "r") as file:
        h5o.copy(file.id, b"g", parent, name)
    return h5g.open(parent, name)
