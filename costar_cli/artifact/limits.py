"""How much an artifact may ask of the reader, so that a hostile file costs seconds and bounded memory."""

import math
import os
from pathlib import Path
from typing import Final

from costar_cli.errors import ArtifactError, UsageError

__all__ = [
    "CHUNK_BYTES",
    "MAX_BLOCK_BYTES",
    "MAX_JSON_DEPTH",
    "MAX_MANIFEST_BYTES",
    "MAX_OBJECTS",
    "MIN_CHUNK_BYTES",
    "PLAIN_BYTES",
    "check_total",
    "is_bomb",
]

CHUNK_BYTES: Final = 256 * 1024  # what the writer aims at
MIN_CHUNK_BYTES: Final = 16 * 1024  # smaller chunks would make a large array a long walk
MAX_BLOCK_BYTES: Final = 1024 * 1024  # of a chunk, or of an array stored in one piece
PLAIN_BYTES: Final = 4 * 1024  # smaller arrays are stored in one piece, uncompressed
MAX_MANIFEST_BYTES: Final = 8 * 1024 * 1024
MAX_JSON_DEPTH: Final = 64
MAX_OBJECTS: Final = 20_000  # groups and arrays
FREE_BYTES: Final = 256 * 1024 * 1024  # up to here any compression ratio is believed
MAX_RATIO: Final = 128  # beyond, of all arrays together
LIMIT_VARIABLE: Final = "COSTAR_MAX_ARTIFACT_GB"
DEFAULT_LIMIT_GB: Final = 8.0


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
            fix=f"if you trust the file and have the memory, set {LIMIT_VARIABLE} higher",
        )


def is_bomb(declared_bytes: int, stored_bytes: int) -> bool:
    """Return whether a little compressed data would unpack to a lot of memory.

    Honest arrays may compress a thousandfold (the plans of a sliding treatment), but not together and at this size;
    for the exception, the writer falls back to storing them uncompressed.
    """
    return declared_bytes > max(FREE_BYTES, MAX_RATIO * stored_bytes)
