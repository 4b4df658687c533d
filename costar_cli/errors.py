"""What costar says when it cannot go on: the problem, the place, the fix, and an exit code that scripts can tell."""

import atexit
import errno
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import IntEnum
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, ClassVar, Self

MOST_DETAILS = 20  # problems that one error lists; the rest are counted
RESUMABLE = ("pretrain", "finetune", "benchmark")  # verbs that an interruption only pauses


class ExitCode(IntEnum):
    """What a shell script can tell from `$?`."""

    OK = 0
    FAILURE = 1  # not foreseen, a bug worth reporting; or a benchmark's cells failed in several ways, or a process died
    USAGE = 2  # unknown flags, config keys or names; malformed plan
    DATA = 3  # the data themselves are unusable: NaN, duplicated keys, unknown treatments
    ARTIFACT = 4  # an artifact is missing, foreign, damaged, or from a newer costar
    MISMATCH = 5  # two artifacts do not belong together, or existing output would be overwritten
    DEVICE = 6  # the requested device or precision is not available
    LOCKED = 7  # another costar process works in this workspace
    STORAGE = 8  # the disk is full, read-only, or forbidden
    TRAINING = 9  # training diverged: a loss or gradient is not finite
    GATE = 10  # a gate of `evaluate --fail-if` failed; the evaluation was written
    HUNG_UP = 129  # SIGHUP, when the terminal is closed: likewise
    INTERRUPTED = 130  # Ctrl-C: the same command continues from the last saved step
    TERMINATED = 143  # SIGTERM: likewise


class CostarError(Exception):
    """An error that a user can act on.

    Args:
        problem: what is wrong, one line, no trailing period.
        where: file, group, flag or row.
        fix: what to do about it, preferably a command.
        details: further problems of the same input, one line each, when several are reported at once.
    """

    exit_code: ClassVar[ExitCode] = ExitCode.FAILURE

    def __init__(
        self, problem: str, *, where: str | None = None, fix: str | None = None, details: Sequence[str] = ()
    ) -> None:
        super().__init__(problem)
        self.problem = problem
        self.where = where
        self.fix = fix
        self.details = tuple(details)

    def __str__(self) -> str:
        """Return the whole message, as a traceback shows it; the command line prints its parts."""
        lines = [self.problem, *(f"  - {detail}" for detail in self.details)]
        named = (("where", self.where), ("fix", self.fix))
        return "\n".join([*lines, *(f"  {name}: {text}" for name, text in named if text)])

    @classmethod
    def of(cls, problems: Sequence[str], several: str, *, where: str | None = None, fix: str | None = None) -> Self:
        """Return one error of all problems: a single one is the error itself, more are its details."""
        if len(problems) == 1:
            return cls(problems[0], where=where, fix=fix)
        return cls(several, where=where, fix=fix, details=first_of(problems))

    def to_json(self) -> dict[str, object]:
        """Return the error as the `error` member of a `--json` document."""
        return {
            "type": type(self).__name__,
            "exit_code": int(self.exit_code),
            "problem": self.problem,
            "where": self.where,
            "fix": self.fix,
            "details": list(self.details),
        }


class CostarWarning(UserWarning):
    """Something that may make a result wrong, as the Python API tells it."""


class UsageError(CostarError):
    """A flag, config key, name or plan that costar does not understand."""

    exit_code = ExitCode.USAGE


class DataError(CostarError):
    """Data that cannot be used as they are."""

    exit_code = ExitCode.DATA


class ArtifactError(CostarError):
    """An artifact that is missing, foreign, damaged, or from a newer costar."""

    exit_code = ExitCode.ARTIFACT


class MismatchError(CostarError):
    """Artifacts that do not belong together, or output that would be overwritten."""

    exit_code = ExitCode.MISMATCH


class DeviceError(CostarError):
    """A device or precision that this machine does not have."""

    exit_code = ExitCode.DEVICE


class LockedError(CostarError):
    """A workspace that another costar process is using."""

    exit_code = ExitCode.LOCKED


class StorageError(CostarError):
    """A disk that is full, read-only or forbidden."""

    exit_code = ExitCode.STORAGE


class TrainingError(CostarError):
    """Training that diverged."""

    exit_code = ExitCode.TRAINING


class GateError(CostarError):
    """An evaluation that does not meet a gate."""

    exit_code = ExitCode.GATE


class UnforeseenError(CostarError):
    """An error that costar did not foresee."""

    exit_code = ExitCode.FAILURE


class InterruptedRunError(CostarError):
    """Ctrl-C."""

    exit_code = ExitCode.INTERRUPTED


class TerminatedRunError(CostarError):
    """SIGTERM, as `kill`, `timeout` and schedulers send it."""

    exit_code = ExitCode.TERMINATED


class HungUpRunError(TerminatedRunError):
    """SIGHUP, as a terminal sends it when it is closed; under `nohup` nothing does."""

    exit_code = ExitCode.HUNG_UP


STOPS = (signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))  # Windows has the first alone


class _TerminationInterrupt(KeyboardInterrupt):
    """What they raise: after a plain KeyboardInterrupt out of C code, Python would end itself by SIGINT."""


class SignalHandler:
    """Handles signals that end a run, and remembers which came first.

    A second signal, which may be the first one sent to a process and to its group, counts after `AGAIN_S` seconds.
    """

    AGAIN_S: ClassVar[float] = 1.0

    def __init__(self) -> None:
        self.came: int | None = None
        self._came_at = 0.0

    def _handle(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the signature of a handler
        now = time.monotonic()
        if self.came is None:
            self.came, self._came_at = number, now
            self._first()
        elif now - self._came_at >= self.AGAIN_S:
            self._again(number)

    def _first(self) -> None:
        """Do what the first signal asks for."""

    def _again(self, number: int) -> None:
        """Do what another one asks for."""


class OutOfTimeError(Exception):
    """Work did not end within `Termination.time_limit`; the code that set the limit handles it."""


class Termination(SignalHandler):
    """Lets Ctrl-C, SIGTERM and SIGHUP end a run in order, and remembers which came.

    What a handler raises can be lost: in a callback of C code, in a destructor, in somebody's bare `except`. So long
    work asks `stop_if_signalled` between its steps. A second signal ends the process at once. Once it is
    told how the run ended, a first one changes nothing any more.

    Where somebody handles or ignores a signal already, and outside the main thread, nothing changes; within another
    one it is that one.
    """

    _current: ClassVar["Termination | None"] = None
    _deadline: ClassVar[float | None] = None
    parent: ClassVar[Callable[[int], object] | None] = None  # is told the exit code, by a process that works for it

    def __init__(self) -> None:
        super().__init__()
        self._is_told = False
        self._found: dict[int, Any] = {}
        self._tell_lost = sys.unraisablehook

    def __enter__(self) -> "Termination":
        if Termination._current is not None:
            return Termination._current
        if threading.current_thread() is not threading.main_thread():
            return self
        Termination._current = self
        usual = {signal.SIGINT: signal.default_int_handler, **dict.fromkeys(STOPS, signal.SIG_DFL)}
        self._found = {number: handler for number, handler in usual.items() if signal.getsignal(number) == handler}
        for number in self._found:
            signal.signal(number, self._handle)
        self._tell_lost, sys.unraisablehook = sys.unraisablehook, self._lost
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if Termination._current is not self:
            return
        for number, handler in self._found.items():
            signal.signal(number, handler)
        sys.unraisablehook = self._tell_lost
        Termination._current = None

    @classmethod
    def of_process(cls) -> "Termination":
        """Handle signals from now on until this process has ended; each counts as within `with`.

        Python puts the system's handlers back before it takes its modules apart, which takes a while: a signal
        would then end a process that has told how its run ended. So they are ignored by then.
        """
        termination = cls().__enter__()

        def ignore() -> None:
            for number in termination._found:
                signal.signal(number, signal.SIG_IGN)

        atexit.register(ignore)  # the first one that is registered is called last
        return termination

    def _lost(self, told: Any) -> None:  # noqa: ANN401 - Python has no name for what it hands over
        """Be silent about what a handler raised in vain: `stop_if_signalled` raises it again."""
        if told.exc_type is not _TerminationInterrupt:
            self._tell_lost(told)

    def _first(self) -> None:
        if not self._is_told:
            raise _TerminationInterrupt

    def _again(self, number: int) -> None:
        os._exit(128 + number)

    @classmethod
    @contextmanager
    def time_limit(cls, seconds: float | None) -> Iterator[None]:
        """End what runs within it after so many seconds, at its next step; None for no limit.

        Raises:
            OutOfTimeError: the time has passed.
        """
        before = cls._deadline
        cls._deadline = before if seconds is None else time.monotonic() + seconds
        try:
            yield
        finally:
            cls._deadline = before

    @classmethod
    def stop_if_signalled(cls) -> None:
        """Raise `KeyboardInterrupt` in the main thread where a signal has come; long work calls this at each step.

        Raises:
            OutOfTimeError: a time limit has passed.
        """
        if cls._deadline is not None and time.monotonic() > cls._deadline:
            raise OutOfTimeError("its time is over")
        asked = cls._current is not None and cls._current.came is not None and not cls._current._is_told
        if asked and threading.current_thread() is threading.main_thread():
            raise _TerminationInterrupt

    @classmethod
    def tell(cls) -> None:
        """Let no signal raise any more: how the run ended is told now, once."""
        if cls._current is not None:
            cls._current._is_told = True

    @classmethod
    def told(cls, code: int) -> None:
        """Say that it was told how the run ended: whatever becomes of the process, nobody needs to tell it again."""
        if cls.parent is not None:
            cls.parent(code)

    def as_error(self, verb: str) -> CostarError:
        """Return the error of a run that a signal ended."""
        fix = "run the same command again; complete files are kept"
        if verb in RESUMABLE:
            fix = "run the same command to continue from the last saved step"
        if self.came in {None, signal.SIGINT}:
            return InterruptedRunError("interrupted", fix=fix)
        if self.came == signal.SIGTERM:
            return TerminatedRunError("terminated", fix=fix)
        return HungUpRunError("the terminal was closed", fix=fix)


def storage_error(error: OSError, path: Path, *, elsewhere: str = "write elsewhere") -> StorageError:
    """Return the error for a file or folder that cannot be written."""
    full = ("the disk is full", f"free some space, or {elsewhere}")
    with suppress(OSError, AttributeError):  # Windows has no such call
        there = os.statvfs(next(place for place in (path, *path.parents) if place.exists()))
        if there.f_files > 0 and there.f_favail == 0:  # some systems count none
            full = ("the disk has no room for another file (no inodes are left)", f"remove some files, or {elsewhere}")
    forbidden = ("no permission to write here", f"change the permissions of the folder, or {elsewhere}")
    no_folder = ("a part of the path is a file, not a folder", f"give a path in a folder, or {elsewhere}")
    is_there = ("a file of that name exists", f"move it away, or {elsewhere}")
    reasons = {
        errno.ENOSPC: full,
        errno.EDQUOT: ("the disk quota is used up", f"free some space, or {elsewhere}"),
        errno.EFBIG: ("the file is larger than the system allows", f"raise `ulimit -f`, or {elsewhere}"),
        errno.EROFS: ("the disk is read-only", elsewhere),
        errno.EACCES: forbidden,
        errno.EPERM: forbidden,
        errno.EISDIR: ("a folder of that name exists", "give the path of a file"),
        errno.ENOTDIR: no_folder,
        errno.ENAMETOOLONG: ("a name is too long for the disk", "choose a shorter name"),
        errno.EEXIST: is_there if os.path.lexists(path) else no_folder,  # `mkdir` says so of a parent, too
    }
    fallback = (f"the file cannot be written: {error.strerror or error}", elsewhere)
    problem, fix = reasons.get(error.errno or 0, fallback)
    return StorageError(problem, where=str(path), fix=fix)


def refuse_pipe(path: Path) -> None:
    """See that what data are read from is no pipe and no device: costar reads data several times.

    Raises:
        DataError: it is.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        fix = "save the data in a file: it is read several times"
        raise DataError("this is not a file but a pipe or a device", where=str(path), fix=fix)


@contextmanager
def storing(path: Path, *, elsewhere: str = "write elsewhere") -> Iterator[None]:
    """Have errors of the system, while a file or folder is written, say what is wrong with its disk.

    Raises:
        StorageError: it cannot be written.
    """
    try:
        yield
    except OSError as error:
        raise storage_error(error, path, elsewhere=elsewhere) from error


def as_costar_error(error: BaseException) -> CostarError:
    """Return an error with problem, place and fix."""
    if isinstance(error, CostarError):
        return error
    if isinstance(error, OSError) and error.errno is not None:  # nothing more is known than what the system says
        where = None if error.filename is None else os.fsdecode(error.filename)
        elsewhere = "write elsewhere with --workspace or --out"
        if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.ENAMETOOLONG}:
            found = storage_error(error, Path(where or "."), elsewhere=elsewhere)
            return StorageError(found.problem, where=where, fix=found.fix)
        fix = f"check the path, or {elsewhere}"
        return StorageError(f"cannot read or write: {error.strerror}", where=where, fix=fix)
    if type(error).__name__ == "OutOfMemoryError":
        return DeviceError("out of memory on the device", fix="use a smaller --batch-size, or `--device cpu`")
    if isinstance(error, MemoryError):
        return DeviceError("out of memory", fix="use smaller sizes or a smaller --batch-size")
    name = f"{type(error).__name__}: {error}".splitlines()[0][:300]
    problem, fix = f"unexpected error ({name})", "please report it, with the traceback that `COSTAR_DEBUG=1` shows"
    if isinstance(error, ImportError):
        problem, fix = f"a package cannot be imported ({name})", "`costar doctor` shows what is missing"
    return UnforeseenError(problem, fix=fix)


def first_of(problems: Sequence[str]) -> list[str]:
    """Return the first problems, and how many more there are."""
    more = len(problems) - MOST_DETAILS
    return [*problems[:MOST_DETAILS], f"and {more:,} more"] if more > 1 else list(problems)


def cut(text: str, longest: int) -> str:
    """Return text without its end where it is too long for a message."""
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def cut_bytes(name: str, most: int) -> str:
    """Return as many of a file name's first letters as the system keeps in so many bytes."""
    while len(os.fsencode(name)) > most:
        name = name[:-1]
    return name


def key_path(parts: Iterable[object]) -> str:
    """Return where a key is, as TOML writes it: `columns."heart rate".kind`."""
    return ".".join(part if part.replace("_", "a").replace("-", "a").isalnum() else f'"{part}"'
                    for part in map(str, parts))  # fmt: skip


def complaint(item: Mapping[str, Any]) -> str:
    """Return what pydantic has to say of one value, without its prefix."""
    return str(item["msg"]).removeprefix("Value error, ")


def complaints(items: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return pydantic's errors in a line each, behind the key: `schema.outcomes: at least one outcome`."""
    return [f"{path}: {complaint(item)}" if (path := key_path(item["loc"])) else complaint(item) for item in items]
