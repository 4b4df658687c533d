"""Read files that anybody may have named: folders, endless devices, and pipes that nobody writes to, are refused."""

import os
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

WAITED_S: Final = 1.0  # for a command to begin to write to a pipe
LOOKED_S: Final = 0.02
DIGITS: Final = "a number of thousands of digits"


class RefusedError(Exception):
    """Why a file is not read, as the end of a sentence that begins with its name."""


class TooLargeError(RefusedError):
    """A file is longer than its kind may be."""


def read_bounded(path: Path, most: int) -> bytes:
    """Return the content of a file of so many bytes at most.

    Raises:
        RefusedError: it does not exist, is a folder, is longer, or is a pipe that nobody writes to.
        OSError: it cannot be read.
    """
    try:
        # a pipe is opened without waiting for somebody to write to it; Windows has no such pipes
        with open(path, "rb", opener=lambda at, flags: os.open(at, flags | getattr(os, "O_NONBLOCK", 0))) as file:
            begun = _begun(file.fileno()) if stat.S_ISFIFO(os.fstat(file.fileno()).st_mode) else b""
            data = begun + file.read(most + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise RefusedError("does not exist") from None
    except IsADirectoryError:
        raise RefusedError("is a folder") from None
    if len(data) > most:
        raise TooLargeError(f"is larger than {most:,} bytes")
    return data


def _begun(fd: int) -> bytes:
    """Wait until somebody writes to a pipe; return the first byte where it is there. Reads wait from then on.

    Raises:
        RefusedError: nobody has opened it to write.
    """
    until = time.monotonic() + WAITED_S
    first = b""
    with suppress(BlockingIOError):  # somebody has opened it, and has not written yet
        while not (first := os.read(fd, 1)):
            if time.monotonic() > until:
                raise RefusedError("is a pipe that nobody writes to")
            time.sleep(LOOKED_S)
    os.set_blocking(fd, True)
    return first


def said_of(error: Exception) -> str:
    """Return what a parser says is wrong with a text, without what it advises programmers to do."""
    return DIGITS if "set_int_max_str_digits" in str(error) else str(error)
