"""The blocks of HDF5 that carry a checksum, found in a file, and that checksum made right again after a change."""

import re
from typing import NamedTuple

SIGNATURES = re.compile(rb"OHDR|OCHK|FRHP|FHDB|FHIB|BTHD|BTLF|BTIN|FAHD|FADB|EAHD|EAIB|EASB|EADB|SMTB|\x89HDF")
MASK = 0xFFFFFFFF
LONGEST = 4096


class Block(NamedTuple):
    """A checksummed stretch of a file: `size` bytes from `start`, then four of checksum."""

    name: str
    start: int
    size: int


def lookup3(data: bytes) -> int:
    """Return Bob Jenkins' lookup3 (`hashlittle`) of bytes, which HDF5 has as its checksum of metadata."""
    a = b = c = (0xDEADBEEF + len(data)) & MASK
    full = max(0, (len(data) - 1) // 12) * 12
    for i in range(0, full, 12):
        a = (a + int.from_bytes(data[i : i + 4], "little")) & MASK
        b = (b + int.from_bytes(data[i + 4 : i + 8], "little")) & MASK
        c = (c + int.from_bytes(data[i + 8 : i + 12], "little")) & MASK
        for x in (4, 6, 8, 16, 19, 4):
            a = ((a - c) & MASK) ^ _rotated(c, x)
            c = (c + b) & MASK
            a, b, c = b, c, a
    if not data:
        return c
    tail = data[full:].ljust(12, b"\0")
    a, b, c = ((v + int.from_bytes(tail[i : i + 4], "little")) & MASK for v, i in ((a, 0), (b, 4), (c, 8)))
    for x in (14, 11, 25, 16, 4, 14, 24):
        c = ((c ^ b) - _rotated(b, x)) & MASK
        a, b, c = b, c, a
    return b


def _rotated(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (32 - bits))) & MASK


def blocks_of(data: bytes) -> list[Block]:
    """Return the blocks of a sound file; a signature that no checksum follows is chance."""
    found = []
    for match in SIGNATURES.finditer(data):
        start = match.start()
        if size := _size(data, start):
            found.append(Block(match[0].decode("latin-1"), start, size))
    return found


def _size(data: bytes, start: int) -> int:
    for size in range(8, min(LONGEST, len(data) - start - 4)):
        check = int.from_bytes(data[start + size : start + size + 4], "little")
        if check and lookup3(data[start : start + size]) == check:
            return size
    return 0


def repaired(data: bytearray, block: Block) -> None:
    """Make the checksum of a changed block right."""
    end = block.start + block.size
    data[end : end + 4] = lookup3(bytes(data[block.start : end])).to_bytes(4, "little")
