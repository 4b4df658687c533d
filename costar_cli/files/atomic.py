"""Write files whole or not at all, also through HDF5 and on a disk that fails.

HDF5 crashes the process when it cannot write its last metadata, on a full disk for example (measured: segmentation
fault on close, HDF5 1.14 and 2.0). So `Sink` keeps the first error, swallows what comes after, and the writer raises
the error once HDF5 has closed. polars tells of the same error in words of its own, or not at all, and is given a
`Sink`, too. For the same reason Ctrl-C waits: Python could raise it inside a call from HDF5.
"""

import io
import os
import secrets
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from costar_cli.errors import STOPS, cut_bytes, storing

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

OPEN_FILES_ARE_BUSY = os.name == "nt"  # Windows neither moves nor removes a file that somebody has open
BINARY = getattr(os, "O_BINARY", 0)  # Windows would write other line ends
NO_LINK = getattr(os, "O_NOFOLLOW", 0)
FOLDER = getattr(os, "O_DIRECTORY", 0)
MOST_NAME_BYTES = 100  # of a target, in the name of its temporary file
PIECES = ".dir"  # ending of a folder that exists only as long as the `.tmp` file of the same name


@dataclass(frozen=True, slots=True)
class TempFile:
    """An open temporary file beside the one that it will replace."""

    fd: int
    path: Path

    @contextmanager
    def pieces(self) -> Iterator[Path]:
        """Yield a folder beside the file for what it is made of; it is removed before the file takes its place."""
        folder = self.path.with_suffix(PIECES)
        folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            _remove_folder(folder)


@contextmanager
def replacing(target: Path) -> Iterator[TempFile]:
    """Yield a temporary file in the folder of `target`; when the context ends, it takes the place of `target`.

    After an exception, Ctrl-C included, it is removed and `target` is as it was. What an earlier process left when it
    was killed is removed too: a living process holds a lock on its file, on Windows by having it open.

    Raises:
        OSError: the file cannot be written.
    """
    with _temporary(target.parent, target.name) as path:
        with _created(path) as fd:
            yield TempFile(fd, path)
            os.fsync(fd)
            if not OPEN_FILES_ARE_BUSY:  # still locked, so that nobody takes it for abandoned
                os.replace(path, target)
        if OPEN_FILES_ARE_BUSY:
            os.replace(path, target)
    folder = target.parent
    with suppress(OSError):  # some file systems cannot sync a folder; the file is complete either way
        fd = os.open(folder, os.O_RDONLY | FOLDER)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


@contextmanager
def scratch_file(folder: Path, name: str) -> Iterator[Path]:
    """Yield a file of a folder for what does not fit into memory; it is removed at the end.

    What an earlier process left when it was killed is removed first.

    Raises:
        OSError: the file cannot be written.
    """
    with _temporary(folder, name) as path, _created(path):
        yield path


@contextmanager
def scratch_folder(folder: Path, name: str) -> Iterator[Path]:
    """Yield a folder in a folder for files that are moved out of it once all are complete; it is removed at the end.

    What an earlier process left when it was killed is removed first.

    Raises:
        OSError: the folder cannot be made.
    """
    with _temporary(folder, name) as path, _created(path) as fd, TempFile(fd, path).pieces() as made:
        yield made


def write_bytes(path: Path, data: bytes) -> None:
    """Write a whole file, or leave the old one as it was.

    Raises:
        StorageError: the folder is missing, read-only or full.
    """
    with storing(path), replacing(path) as file, os.fdopen(os.dup(file.fd), "wb") as out:
        out.write(data)


@contextmanager
def _temporary(folder: Path, name: str) -> Iterator[Path]:
    """Yield the path of a temporary file; neither it nor its pieces outlive the context, whenever Ctrl-C comes."""
    stem = f".{cut_bytes(name, MOST_NAME_BYTES)}."
    with suppress(OSError):  # a folder that may be written but not listed
        ours = [path for path in folder.iterdir() if path.name.startswith(stem) and len(path.name) == len(stem) + 12]
        for path in ours:
            if path.suffix == ".tmp":
                with suppress(OSError):
                    fd = os.open(path, os.O_RDWR | NO_LINK)
                    try:
                        _lock(fd)
                    finally:
                        os.close(fd)
                    path.unlink()
        for path in ours:
            if path.suffix == PIECES and not path.with_suffix(".tmp").exists():
                shutil.rmtree(path, ignore_errors=True)
    path = folder / f"{stem}{secrets.token_hex(4)}.tmp"
    try:
        yield path
        _remove(path)
    except BaseException:
        _remove(path)
        raise


def _remove(path: Path) -> None:
    _remove_folder(path.with_suffix(PIECES))
    with suppress(PermissionError):  # Windows does not remove a file that is still mapped; the next process does
        path.unlink(missing_ok=True)


def _remove_folder(folder: Path) -> None:
    with interrupts_deferred():  # inside `rmtree`, Python 3.11 may close a file twice
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _created(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | BINARY, 0o666)
    try:
        with suppress(OSError):  # a network disk may have no locks
            _lock(fd)
        yield fd
    finally:
        os.close(fd)


def _lock(fd: int) -> None:
    """Mark a file as in use by this process, or raise where another one has it; Windows does so when it is opened."""
    if not OPEN_FILES_ARE_BUSY:
        import fcntl  # noqa: PLC0415 - POSIX alone has it

        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


class Sink(io.RawIOBase):
    """A seekable file over a descriptor that keeps its first error in `error`."""

    def __init__(self, fd: int) -> None:
        super().__init__()
        self.error: BaseException | None = None
        self._fd = fd
        self._position = 0
        self._end = 0

    def check(self) -> None:
        """Raise the first error, if there was one."""
        if self.error is not None:
            raise self.error

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move to a position."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._end}[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        """Fill the buffer from the position; zeros where nothing was written."""
        view = memoryview(buffer).cast("B")
        got = 0
        if self.error is None:
            try:
                os.lseek(self._fd, self._position, os.SEEK_SET)  # Windows has neither preadv nor pwrite
                data = os.read(self._fd, len(view))
                got = len(data)
                view[:got] = data
            except BaseException as error:
                self.error = error
        view[got:] = bytes(len(view) - got)
        self._position += len(view)
        return len(view)

    def write(self, data: "ReadableBuffer", /) -> int:
        """Write all of the data at the position, or keep the error."""
        view = memoryview(data).cast("B")
        if self.error is None:
            try:
                write_all(self._fd, view, self._position)
            except BaseException as error:
                self.error = error
        self._position += len(view)
        self._end = max(self._end, self._position)
        return len(view)

    def truncate(self, size: int | None = None, /) -> int:
        """Set the size of the file, or keep the error."""
        self._end = self._position if size is None else size
        if self.error is None:
            try:
                os.ftruncate(self._fd, self._end)
            except BaseException as error:
                self.error = error
        return self._end

    def flush(self) -> None:
        """Do nothing: nothing is buffered."""


@contextmanager
def open_sink(path: Path) -> Iterator[Sink]:
    """Yield a sink over a new file.

    Raises:
        OSError: the file cannot be written.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | BINARY, 0o600)
    try:
        sink = Sink(fd)
        yield sink
        sink.check()
    finally:
        os.close(fd)


def write_all(fd: int, data: "ReadableBuffer", position: int) -> None:
    """Write all of the data at a position of a file.

    Raises:
        OSError: the system cannot.
    """
    view, done = memoryview(data), 0
    os.lseek(fd, position, os.SEEK_SET)
    while done < len(view):
        done += os.write(fd, view[done:])


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Let Ctrl-C, and SIGTERM and SIGHUP where Python handles them, take effect when the context ends."""
    if threading.current_thread() is not threading.main_thread():
        yield  # handlers run in the main thread alone
        return
    pending: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        pending.append(number)

    found = {number: signal.getsignal(number) for number in (signal.SIGINT, *STOPS)}
    handlers = {number: handler for number, handler in found.items() if callable(handler)}
    for number in handlers:
        signal.signal(number, note)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for pending_number in pending:
            signal.raise_signal(pending_number)
