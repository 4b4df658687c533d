"""Walk over an untrusted HDF5 file before any array is read, then unpack its arrays in bounded memory.

A hostile file costs seconds: every declaration is checked against limits first, HDF5 hands out only stored bytes, and
the filters are undone here.
"""

import hashlib
import math
import os
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
from h5py import h5d, h5g, h5l, h5o, h5s, h5z
from numpy.typing import NDArray

from costar_cli.errors import ArtifactError, UsageError
from costar_cli.files.digest import hdf5_tag, stored_width
from costar_cli.files.header import damaged, reading
from costar_cli.files.spec import NAME

MIN_CHUNK_BYTES: Final = 16 * 1024  # smaller chunks would make a large array a long walk
MAX_BLOCK_BYTES: Final = 1024 * 1024  # of a chunk, or of an array stored in one piece
MAX_OBJECTS: Final = 20_000  # groups and arrays
FREE_BYTES: Final = 256 * 1024 * 1024  # up to here any compression ratio is believed
MEMORY_PER_BYTE: Final = 5  # the most that numpy's memory takes for a byte of an array: text
MAX_RATIO: Final = 128  # beyond, of all arrays together
LIMIT_VARIABLE: Final = "COSTAR_MAX_ARTIFACT_GB"
DEFAULT_LIMIT_GB: Final = 8.0

FILTERS: Final = {h5z.FILTER_SHUFFLE: "shuffle", h5z.FILTER_DEFLATE: "deflate"}
FILTER_CHAINS: Final = ((), ("deflate",), ("shuffle",), ("shuffle", "deflate"))

Bytes = NDArray[np.uint8]


def check_total(declared_bytes: int, path: Path) -> None:
    """Check the size of all arrays in memory against `COSTAR_MAX_ARTIFACT_GB`.

    Raises:
        ArtifactError: they are larger.
        UsageError: the variable is not a positive number.
    """
    text = os.environ.get(LIMIT_VARIABLE, "")
    try:
        limit_gb = float(text) if text else DEFAULT_LIMIT_GB
    except ValueError:
        limit_gb = math.nan
    if not limit_gb > 0:
        raise UsageError(f"{text!r} is not a size in gigabytes", where=LIMIT_VARIABLE, fix="give a positive number")
    if declared_bytes > limit_gb * 1e9:
        size = f"{declared_bytes / 1e9:,.1f}" if declared_bytes < 10**15 else "over a million"
        raise ArtifactError(
            f"the arrays would take {size} GB of memory, more than the {limit_gb:g} GB allowed",
            where=str(path),
            fix=f"raise {LIMIT_VARIABLE} if you trust the file and have enough memory",
        )


def is_bomb(declared_bytes: int, stored_bytes: int) -> bool:
    """Return whether a little compressed data would unpack to a lot of memory.

    Honest arrays may compress a thousandfold (the plans of a sliding treatment), but not together and at this size;
    for the exception, the writer falls back to storing them uncompressed.
    """
    return declared_bytes > max(FREE_BYTES, MAX_RATIO * stored_bytes)


@dataclass(frozen=True, slots=True)
class Member:
    """One HDF5 dataset whose declaration has been checked.

    `chunk` is its chunk shape, or None when it is stored in one piece. Chunks are consecutive runs of the array in
    C order: 1 along the first axes, full along the last ones, and anything along one axis between.
    """

    dataset: Any = field(repr=False)
    tag: str
    shape: tuple[int, ...]
    chunk: tuple[int, ...] | None
    filters: tuple[str, ...]
    stored_bytes: int

    @property
    def raw_bytes(self) -> int:
        """Return the bytes of the whole array as stored in memory."""
        return math.prod(self.shape) * stored_width(self.tag)

    @property
    def memory_bytes(self) -> int:
        """Return the most memory that the array can take in numpy, where text has four bytes per character."""
        return self.raw_bytes * (MEMORY_PER_BYTE if self.tag.startswith("utf8") else 1)

    @property
    def chunk_bytes(self) -> int:
        """Return the bytes of an unpacked chunk."""
        return math.prod(self.chunk or self.shape) * stored_width(self.tag)

    @property
    def n_chunks(self) -> int:
        """Return how many chunks cover the array."""
        return math.prod(-(-n // c) for n, c in zip(self.shape, self.chunk or self.shape, strict=True))


def survey(root: Any, path: Path, kind: str) -> dict[str, Member]:  # noqa: ANN401 - h5py has no types
    """Return every dataset below `root` by name, having read none.

    Raises:
        ArtifactError: anything but plain groups and plain arrays of believable size.
    """
    members = dict(_walk(root, path, kind))
    declared_bytes, stored_bytes = totals(members.values())
    if stored_bytes > path.stat().st_size:
        raise damaged("the arrays claim more storage than the file has", path, kind=kind)
    check_total(declared_bytes, path)
    if is_bomb(declared_bytes, stored_bytes):
        raise damaged(f"{stored_bytes:,} bytes would unpack to {declared_bytes:,}", path, kind=kind)
    return members


def are_small(stored: Iterable[NDArray[Any]]) -> bool:
    """Return whether arrays take so little memory that any compression ratio is believed."""
    return sum(array.nbytes for array in stored) * MEMORY_PER_BYTE <= FREE_BYTES


def looks_like_bomb(root: Any, path: Path, kind: str) -> bool:  # noqa: ANN401 - h5py has no types
    """Return whether an undamaged file compresses so well that `survey` would refuse it."""
    return is_bomb(*totals(member for _, member in _walk(root, path, kind)))


def totals(members: Iterable[Member]) -> tuple[int, int]:
    """Return the bytes that arrays take in memory, and in the file."""
    sizes = [(member.memory_bytes, member.stored_bytes) for member in members]
    return sum(memory for memory, _ in sizes), sum(stored for _, stored in sizes)


def _walk(root: Any, path: Path, kind: str) -> Iterator[tuple[str, Member]]:  # noqa: ANN401 - h5py has no types
    pending, seen = [("", root)], {h5o.get_info(root).addr}
    while pending:
        prefix, group = pending.pop()
        with reading(path, prefix, kind=kind):
            if group.get_num_objs() > MAX_OBJECTS - len(seen):
                raise ValueError(f"more than {MAX_OBJECTS:,} groups and arrays")
            names = list(group)
        for link in names:
            name = f"{prefix}/{link.decode('utf-8', 'backslashreplace')}".removeprefix("/")
            with reading(path, name, kind=kind):
                if not NAME.fullmatch(name):
                    raise ValueError("not a name for a group or array")
                link_type = group.links.get_info(link).type
                if link_type != h5l.TYPE_HARD:
                    raise ValueError("an external link" if link_type == h5l.TYPE_EXTERNAL else "a soft link")
                info = h5o.get_info(group, link)
                if info.type not in (h5o.TYPE_GROUP, h5o.TYPE_DATASET):
                    raise ValueError("neither a group nor an array")
                if info.rc != 1 or info.addr in seen:
                    raise ValueError("a second hard link to the same object")
                if info.num_attrs:
                    raise ValueError("it has HDF5 attributes")
                seen.add(info.addr)
                child = h5o.open(group, link)
                if isinstance(child, h5g.GroupID):
                    pending.append((name, child))
                else:
                    yield name, _member(child)


def _member(dataset: Any) -> Member:  # noqa: ANN401 - h5py has no types
    plist = dataset.get_create_plist()
    layout = plist.get_layout()
    if layout not in (h5d.CONTIGUOUS, h5d.CHUNKED):
        raise ValueError("a virtual array of other files" if layout == h5d.VIRTUAL else "an array of compact layout")
    if plist.get_external_count():
        raise ValueError("an array stored in other files")
    chunk = plist.get_chunk() if layout == h5d.CHUNKED else None
    tag, space = hdf5_tag(dataset.get_type()), dataset.get_space()
    if space.get_simple_extent_type() not in (h5s.SCALAR, h5s.SIMPLE):
        raise ValueError("an array without a shape")
    shape = tuple(space.get_simple_extent_dims())
    if tuple(space.get_simple_extent_dims(True)) != shape:
        raise ValueError("an array of extendable shape")
    filters = tuple(FILTERS.get(plist.get_filter(i)[0], "unknown") for i in range(plist.get_nfilters()))
    member = Member(dataset, tag, shape, chunk, filters, stored_bytes=dataset.get_storage_size())
    if filters not in FILTER_CHAINS:
        raise ValueError("a filter other than shuffle and deflate")
    if chunk is None:
        if member.raw_bytes > MAX_BLOCK_BYTES:
            raise ValueError(f"an array of {member.raw_bytes:,} bytes in one piece")
        if member.stored_bytes != member.raw_bytes:
            raise ValueError(f"shape {shape} with {member.stored_bytes:,} bytes stored")
        return member
    axis = next((i for i, n in enumerate(chunk) if n != 1), len(chunk))
    if chunk[axis + 1 :] != shape[axis + 1 :] or any(c > n for c, n in zip(chunk, shape, strict=True)):
        raise ValueError(f"chunks {chunk} are not runs of shape {shape}")
    if member.chunk_bytes > MAX_BLOCK_BYTES or member.n_chunks > 1 + member.raw_bytes // MIN_CHUNK_BYTES:
        raise ValueError(f"chunks of {member.chunk_bytes:,} bytes")
    if not member.stored_bytes:
        raise ValueError(f"shape {shape} with nothing stored")
    return member


def unpack(member: Member, out: Bytes | None = None) -> str:
    """Return the SHA-256 of an array's bytes, and put them into `out` if given.

    Without `out` no more than a chunk is in memory.

    Raises:
        ValueError: what is stored is not what the declaration says.
    """
    digest, done = hashlib.sha256(), 0
    for block in _blocks(member):
        digest.update(block.data)
        if out is not None:
            out[done : done + block.size] = block
        done += block.size
    return digest.hexdigest()


def _blocks(member: Member) -> Iterator[Bytes]:
    """Yield the array's bytes in C order, piece by piece."""
    width = stored_width(member.tag)
    if member.chunk is None:
        block = np.empty(member.raw_bytes, np.uint8)
        if block.size:
            texts = f"S{width}" if member.tag.startswith("utf8") else ""
            shaped = block.view(texts or np.dtype(member.tag).newbyteorder("<")).reshape(member.shape)
            member.dataset.read(h5s.ALL, h5s.ALL, shaped, member.dataset.get_type())
        yield block
        return
    chunks: dict[tuple[int, ...], tuple[int, int]] = {}  # stored size and filter mask by offset

    def note(info: Any) -> bool | None:  # noqa: ANN401 - h5py has no types
        chunks[tuple(info.chunk_offset)] = (info.size, info.filter_mask)
        return True if len(chunks) > member.n_chunks else None

    member.dataset.chunk_iter(note)
    if len(chunks) != member.n_chunks:
        raise ValueError(f"not stored in the {member.n_chunks:,} chunks that its shape requires")
    for offset in product(*(range(0, n, c) for n, c in zip(member.shape, member.chunk, strict=True))):
        size, filter_mask = chunks.pop(offset, (0, 0))
        if not 0 < size <= member.chunk_bytes + member.chunk_bytes // 64 + 1024:
            raise ValueError(f"chunk {offset} has {size:,} bytes stored")
        stored_mask, stored = member.dataset.read_direct_chunk(offset)
        if stored_mask != filter_mask or len(stored) != size:
            raise ValueError(f"chunk {offset} does not match the index")
        data, applied = stored, [name for i, name in enumerate(member.filters) if not filter_mask >> i & 1]
        if "deflate" in applied:
            inflate = zlib.decompressobj()
            try:
                data = inflate.decompress(stored, member.chunk_bytes + 1)
            except zlib.error as error:
                raise ValueError(f"compressed bytes are damaged: {error}") from None
            if not inflate.eof:
                raise ValueError("a chunk is truncated, or unpacks to more than it declares")
        if len(data) != member.chunk_bytes:
            raise ValueError(f"a chunk holds {len(data):,} bytes, not {member.chunk_bytes:,}")
        block = np.frombuffer(data, np.uint8)
        if "shuffle" in applied and width > 1:
            block = np.ascontiguousarray(block.reshape(width, -1).T).reshape(-1)
        # all of a chunk lies inside the array, or a prefix at the end of an axis
        inside = math.prod(min(c, n - at) for at, c, n in zip(offset, member.chunk, member.shape, strict=True))
        yield block[: inside * width]
