"""Write arrays as HDF5, the same bytes each time."""

from collections.abc import Mapping
from typing import Any

import h5py
from h5py import h5f, h5fd, h5g, h5p, h5s
from numpy.typing import NDArray

from costar_cli.artifact.header import HEADER_BYTES
from costar_cli.artifact.limits import CHUNK_BYTES, PLAIN_BYTES
from costar_cli.artifact.sink import Sink, interrupts_deferred

__all__ = ["chunk_shape", "write_hdf5"]

DEFLATE_LEVEL = 4


def write_hdf5(fd: int, arrays: Mapping[str, NDArray[Any]], *, compress: bool) -> None:
    """Write arrays, as `dtypes.stored_array` returns them, by name into an empty file, behind room for the header.

    Raises:
        OSError: the disk is full or the like.
    """
    sink = Sink(fd)
    try:
        with interrupts_deferred(), _create(sink) as file:
            for name in sorted(arrays):
                _write_array(file.id, name, arrays[name], compress=compress)
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


def _create(sink: Sink) -> h5py.File:
    create, access = h5p.create(h5p.FILE_CREATE), h5p.create(h5p.FILE_ACCESS)
    create.set_userblock(HEADER_BYTES)
    create.set_obj_track_times(False)
    access.set_fileobj_driver(h5fd.fileobj_driver, sink)
    access.set_libver_bounds(h5f.LIBVER_V110, h5f.LIBVER_V110)  # all metadata carry checksums
    return h5py.File(h5f.create(b"artifact", h5f.ACC_TRUNC, create, access))


def _write_array(root: Any, name: str, array: NDArray[Any], *, compress: bool) -> None:  # noqa: ANN401 - h5py has no types
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


def _create_group(parent: Any, name: bytes) -> Any:  # noqa: ANN401 - h5py has no types
    plist = h5p.create(h5p.GROUP_CREATE)
    plist.set_obj_track_times(False)
    return h5g.create(parent, name, None, plist)
