"""TOML and other files that anybody may have named: read within bounds; folders, devices and idle pipes are refused."""

import os
import re
import stat
import time
import tomllib
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

from costar_cli.errors import UsageError

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


MOST_BYTES: Final = 1_000_000
DEEPEST: Final = 32  # tables and lists within each other
# Strings of TOML, which may hold what looks like a comment, and comments.
STRING_OR_COMMENT: Final = re.compile(
    r'"""(?:\\.|[^\\])*?"""(?!")|'
    r"'''.*?'''(?!')|"
    r'"(?:\\.|[^"\\\n])*"|'
    r"'[^'\n]*'|"
    r"#[^\n]*",
    re.DOTALL,
)
_NO_KEY: Final = re.compile(r"[^\w.\- \t]")
_BRACKETS: Final = re.compile(r"[\[{]|[\]}]")


def read_toml(
    path: Path, what: str, *, fix: str | None = None, most: int = MOST_BYTES, shorter: str | None = None
) -> tuple[str, dict[str, Any]]:
    """Return the text and the tables of a file.

    Args:
        path: the file.
        what: what messages call it.
        fix: what to do about a file of another kind.
        most: bytes that it may have.
        shorter: what to do about a file with more; `fix` by default.

    Raises:
        UsageError: the file is missing, no TOML, too large, or nested more than 32 deep.
    """

    def refused(problem: str) -> UsageError:
        return UsageError(f"the {what} {problem}", where=str(path), fix=fix)

    try:
        content = read_bounded(path, most)
    except TooLargeError as error:
        raise UsageError(f"the {what} {error}", where=str(path), fix=shorter or fix) from None
    except RefusedError as error:
        raise refused(str(error)) from None
    try:
        text = content.decode("utf-8")
        plain = STRING_OR_COMMENT.sub("x", text)
        # the parser takes time squared for dotted keys
        keys_too_deep = any(words.count(".") >= DEEPEST for words in _NO_KEY.split(plain))
        depths = accumulate(1 if bracket[0] in "[{" else -1 for bracket in _BRACKETS.finditer(plain))
        if keys_too_deep or any(depth > DEEPEST for depth in depths):
            raise refused(f"is nested more than {DEEPEST} levels deep")
        return text, tomllib.loads(text)
    except UnicodeDecodeError:
        raise refused("is not UTF-8 text") from None
    except (ValueError, RecursionError) as error:  # also of a number of thousands of digits
        raise refused(f"is not TOML: {said_of(error)}") from None
