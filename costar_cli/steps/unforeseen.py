"""Errors and signals that costar did not raise itself, in its own words."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

from costar_cli.errors import CostarError, DeviceError, ExitCode, StorageError

__all__ = ["InterruptedRunError", "TerminatedRunError", "Termination", "UnforeseenError", "as_costar_error"]

RESUMABLE = ("pretrain", "finetune", "benchmark")


class UnforeseenError(CostarError):
    """An error that costar did not foresee."""

    exit_code = ExitCode.FAILURE


class InterruptedRunError(CostarError):
    """Ctrl-C."""

    exit_code = ExitCode.INTERRUPTED


class TerminatedRunError(CostarError):
    """SIGTERM, as `kill`, `timeout` and schedulers send it."""

    exit_code = ExitCode.TERMINATED


class Termination:
    """Lets SIGTERM end a run as Ctrl-C does, and remembers that it came.

    Where somebody handles or ignores SIGTERM already, and outside the main thread, nothing changes.
    """

    def __init__(self) -> None:
        self.came = False
        self._installed = False

    def __enter__(self) -> Self:
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._handle)
            self._installed = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._installed:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _handle(self, number: int, frame: FrameType | None) -> Any:  # noqa: ANN401, ARG002 - the signature of a handler
        self.came = True
        raise KeyboardInterrupt

    def as_error(self, verb: str) -> CostarError:
        """Return the error of a run that a signal ended."""
        fix = "run the same command again; complete files are kept"
        if verb in RESUMABLE:
            fix = "run the same command to continue from the last saved step"
        return TerminatedRunError("terminated", fix=fix) if self.came else InterruptedRunError("interrupted", fix=fix)


def as_costar_error(error: Exception) -> CostarError:
    """Return an error with problem, place and fix."""
    if isinstance(error, CostarError):
        return error
    if isinstance(error, OSError) and error.errno is not None:
        where = str(error.filename) if error.filename is not None else None
        fix = "free some space, or write elsewhere with --workspace or --out"
        return StorageError(f"cannot read or write: {error.strerror}", where=where, fix=fix)
    if type(error).__name__ == "OutOfMemoryError":
        return DeviceError("out of memory on the device", fix="use a smaller --batch-size, or `--device cpu`")
    if isinstance(error, MemoryError):
        return DeviceError("out of memory", fix="use smaller sizes or a smaller --batch-size")
    name = f"{type(error).__name__}: {error}".splitlines()[0][:300]
    if isinstance(error, ImportError):
        return UnforeseenError(f"a package cannot be imported ({name})", fix="`costar doctor` shows what is missing")
    return UnforeseenError(
        f"unexpected error ({name})",
        fix="please report it, with the traceback that `COSTAR_DEBUG=1` shows",
    )
