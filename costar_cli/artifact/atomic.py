"""Replace a file by a complete new one, or leave the old one as it was."""

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from costar_cli.errors import StorageError

__all__ = ["TempFile", "replacing", "write_bytes"]


@dataclass(frozen=True, slots=True)
class TempFile:
    """An open temporary file beside the one that it will replace."""

    fd: int
    path: Path


@contextmanager
def replacing(target: Path) -> Iterator[TempFile]:
    """Yield a temporary file in the folder of `target`; when the context ends, it takes the place of `target`.

    After an exception, Ctrl-C included, it is removed and `target` is as it was. What an earlier process left when it
    was killed is removed too: a living process holds a lock on its file.

    Raises:
        OSError: the file cannot be written.
    """
    stem = f".{target.name[:100]}."
    _remove_abandoned(target.parent, stem)
    path = target.parent / f"{stem}{secrets.token_hex(4)}.tmp"
    fd = -1
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        with suppress(OSError):  # a network disk may have no locks
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield TempFile(fd, path)
        os.fsync(fd)
        os.replace(path, target)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        if fd >= 0:
            os.close(fd)
    _sync_folder(target.parent)


def write_bytes(path: Path, data: bytes) -> None:
    """Write a whole file, or leave the old one as it was.

    Raises:
        StorageError: the folder is missing, read-only or full.
    """
    try:
        with replacing(path) as file, os.fdopen(os.dup(file.fd), "wb") as out:
            out.write(data)
    except OSError as error:
        raise StorageError(f"cannot write `{path}`: {error.strerror or error}", fix="choose another path") from error


def _remove_abandoned(folder: Path, stem: str) -> None:
    with suppress(OSError):  # a folder that may be written but not listed
        for path in folder.iterdir():
            if path.name.startswith(stem) and path.name.endswith(".tmp") and len(path.name) == len(stem) + 12:
                with suppress(OSError):
                    _remove_unless_locked(path)


def _remove_unless_locked(path: Path) -> None:
    fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
    finally:
        os.close(fd)


def _sync_folder(folder: Path) -> None:
    with suppress(OSError):  # some file systems cannot sync a folder; the file is complete either way
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
