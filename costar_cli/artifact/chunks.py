"""Unpack arrays in bounded memory: HDF5 hands out the stored bytes, this module undoes the filters."""

import hashlib
import zlib
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
from h5py import h5s
from numpy.typing import NDArray

from costar_cli.artifact.dtypes import stored_width
from costar_cli.artifact.structure import Member

__all__ = ["unpack"]

Bytes = NDArray[np.uint8]


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
    if member.chunk is None:
        block = np.empty(member.raw_bytes, np.uint8)
        if block.size:
            shaped = block.view(_memory_type(member)).reshape(member.shape)
            member.dataset.read(h5s.ALL, h5s.ALL, shaped, member.dataset.get_type())
        yield block
        return
    chunks = _chunk_table(member)
    for offset in _offsets(member):
        size, filter_mask = chunks.pop(offset, (0, 0))
        if not 0 < size <= member.chunk_bytes + member.chunk_bytes // 64 + 1024:
            raise ValueError(f"chunk {offset} has {size:,} bytes stored")
        stored_mask, stored = member.dataset.read_direct_chunk(offset)
        if stored_mask != filter_mask or len(stored) != size:
            raise ValueError(f"chunk {offset} is not what the index says")
        yield _unfilter(stored, filter_mask, member)[: _valid_bytes(member, offset)]


def _memory_type(member: Member) -> Any:  # noqa: ANN401 - a numpy type
    return f"S{stored_width(member.tag)}" if member.tag.startswith("utf8") else np.dtype(member.tag).newbyteorder("<")


def _chunk_table(member: Member) -> dict[tuple[int, ...], tuple[int, int]]:
    """Return stored size and filter mask by offset; a chunk more than expected is an error."""
    table: dict[tuple[int, ...], tuple[int, int]] = {}

    def note(info: Any) -> bool | None:  # noqa: ANN401 - h5py has no types
        table[tuple(info.chunk_offset)] = (info.size, info.filter_mask)
        return True if len(table) > member.n_chunks else None

    member.dataset.chunk_iter(note)
    if len(table) != member.n_chunks:
        raise ValueError(f"not the {member.n_chunks:,} chunks that its shape needs")
    return table


def _offsets(member: Member) -> Iterator[tuple[int, ...]]:
    return product(*(range(0, n, c) for n, c in zip(member.shape, member.chunk or (), strict=True)))


def _valid_bytes(member: Member, offset: tuple[int, ...]) -> int:
    """Return how much of a chunk lies inside the array: all, or a prefix at the end of an axis."""
    elements = 1
    for start, chunk, length in zip(offset, member.chunk or (), member.shape, strict=True):
        elements *= min(chunk, length - start)
    return elements * stored_width(member.tag)


def _unfilter(stored: bytes, filter_mask: int, member: Member) -> Bytes:
    data, width = stored, stored_width(member.tag)
    applied = [name for i, name in enumerate(member.filters) if not filter_mask >> i & 1]
    if "deflate" in applied:
        inflate = zlib.decompressobj()
        try:
            data = inflate.decompress(stored, member.chunk_bytes + 1)
        except zlib.error as error:
            raise ValueError(f"compressed bytes are damaged: {error}") from None
        if not inflate.eof:
            raise ValueError("a chunk is cut short, or unpacks to more than it declares")
    if len(data) != member.chunk_bytes:
        raise ValueError(f"a chunk holds {len(data):,} bytes, not {member.chunk_bytes:,}")
    block = np.frombuffer(data, np.uint8)
    if "shuffle" in applied and width > 1:
        block = np.ascontiguousarray(block.reshape(width, -1).T).reshape(-1)
    return block
