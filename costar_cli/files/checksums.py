"""Seals: a Parquet file's metadata have the digest of all its other bytes, so that damage is noticed before it is read.

What reads Parquet is not safe: damaged files end the process that reads them, or are other tables to it.
"""

import re
from collections.abc import Iterator
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import IO, Final

__all__ = ["BLANK", "SEAL", "is_sealed", "seal"]

SEAL: Final = "costar.seal"  # of a Parquet file's metadata
BLANK: Final = "0" * 64  # in the place of the digest while it is computed
WRITTEN: Final = re.compile(rb"costar\.seal\x18\x40([0-9a-f]{64})")  # as Thrift writes the key and its text
LAST_BYTES: Final = 1 << 20  # of a file: metadata stand at its end
BLOCK_BYTES: Final = 1 << 20


def seal(file: IO[bytes]) -> None:
    """Put the digest of a file that was written with `BLANK` in its place.

    Raises:
        ValueError: the file has no such place.
    """
    if (place := _place(file)) is None:
        raise ValueError("the file has no place for a seal")
    digest = _digest(file, place)
    file.seek(place)
    file.write(digest)


def is_sealed(path: Path) -> bool:
    """Return whether a file is as it was when it was sealed; it is read in blocks.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        if (place := _place(file)) is None:
            return False
        file.seek(place)
        return file.read(len(BLANK)) == _digest(file, place)


def _place(file: IO[bytes]) -> int | None:
    begin = max(file.seek(0, 2) - LAST_BYTES, 0)
    file.seek(begin)
    found = list(WRITTEN.finditer(file.read(LAST_BYTES)))
    return begin + found[-1].start(1) if found else None


def _digest(file: IO[bytes], place: int) -> bytes:
    """Return the digest of a file that has `BLANK` at a place."""
    behind = place + len(BLANK)
    found = sha256()
    for block in chain(_blocks(file, 0, place), [BLANK.encode()], _blocks(file, behind, file.seek(0, 2))):
        found.update(block)
    return found.hexdigest().encode()


def _blocks(file: IO[bytes], begin: int, end: int) -> Iterator[bytes]:
    file.seek(begin)
    while begin < end and (block := file.read(min(BLOCK_BYTES, end - begin))):
        yield block
        begin += len(block)
