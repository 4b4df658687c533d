"""`python -m costar_cli`, and the `costar` command: signals and a lack of memory are told from the first import on."""

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

from costar_cli.config.memory import GB, Memory, own_limits
from costar_cli.errors import STOPS, CostarError, DataError, DeviceError, Termination

KILLED_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux
MOST_TOLD = 64  # exit codes of one byte; there are one or two
ROOM_FOR_THREADS = GB // 2  # of a processor: OpenBLAS and polars begin a thread for each
ONE_THREAD = {
    "OPENBLAS_NUM_THREADS": "1",  # which NumPy and SciPy bring; it sends its process SIGINT where it gets no thread
    "POLARS_MAX_THREADS": "1",  # it panics, or waits for ever
}
SIGNALLED = 128  # plus the number of the signal that ended a command is its exit code
OF_POLARS = {
    "RUST_BACKTRACE": "0",  # polars 2.1 waits for ever where memory runs out while it traces why a thread got none
    "_RJEM_MALLOC_CONF": "retain:false",  # what it frees would count against the limit
}


def run() -> int:
    """Run the command line and return its exit code.

    Under a limit on the memory of a process (`ulimit -v`, `ulimit -d`), libraries end the process that gets none,
    without a word. So the command runs in a child then, and the process that was started tells how it ended.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # the shell has closed it: no file must get its number
            nowhere = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
            setattr(sys, name, os.fdopen(nowhere, "r" if name == "stdin" else "w", encoding="utf-8"))
    # Not without a limit: a second process would stand between users and their signals. Not a child that reads the
    # table first: it would read everything twice and not see what runs out later.
    limits = [limit for limit, _ in own_limits()]
    return _in_child(run_here, min(limits)) if limits else run_here()


def run_here() -> int:
    """Run the command line in this process, which ends with it, and return its exit code."""
    termination = Termination.of_process()
    try:
        from costar_cli.cli.app import main  # noqa: PLC0415 - it takes a second, in which a signal may come

        termination.stop_if_signalled()
        return main()
    except SystemExit:
        raise
    except BaseException as error:
        if termination.came is None and not isinstance(error, KeyboardInterrupt):
            raise
        return _tell(termination.as_error(""))  # libraries wrap what a signal's handler raises


def _in_child(work: Callable[[], int], limit: Memory) -> int:
    """Do the work in a child, which is sent what signals come here, and return its exit code.

    The child says when it has told how it went; where it does not, that is told here, unless a signal ended it.
    """
    said, say = os.pipe()
    stops = {number for number in (signal.SIGINT, *STOPS) if signal.getsignal(number) != signal.SIG_IGN}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, stops)
    parent, child = os.getpid(), os.fork()  # nothing is loaded yet, and there are no other threads
    if not child:
        _end_with(parent)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.environ.update(OF_POLARS)
        if limit.n_bytes < ROOM_FOR_THREADS * (os.cpu_count() or 1):
            os.environ.update(ONE_THREAD | os.environ)
        Termination.parent = lambda code: os.write(say, bytes([code]))
        code = work()
        Termination.told(code)
        return code

    passed: list[int] = []

    def pass_on(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a handler
        passed.append(number)
        with suppress(ProcessLookupError):
            os.kill(child, number)

    for number in stops:
        signal.signal(number, pass_on)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    os.close(say)
    _, status = os.waitpid(child, 0)
    for number in stops:
        signal.signal(number, signal.SIG_IGN)  # one that comes now finds nothing to end
    os.set_blocking(said, False)  # a process that the child left behind may hold the other end
    with suppress(BlockingIOError):
        if told := os.read(said, MOST_TOLD):
            return told[-1]
    code = os.waitstatus_to_exitcode(status)
    ended_by = -code if code < 0 else code - SIGNALLED
    if passed or ended_by in (signal.SIGINT, *STOPS):  # a second signal ends a run without a document
        return SIGNALLED + ended_by if code < 0 else code
    names = {int(number): number.name for number in signal.Signals}  # most of those of real time have none
    how = f"exit code {code}" if code >= 0 else names.get(-code, f"signal {-code}")
    problem = f"the command ended without saying why ({how}): most likely it got no more memory"
    fix = f"raise the limit, or use less data; it is {limit.n_bytes / GB:.1f} GB"
    verb = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    return _tell((DataError if verb == "ingest" else DeviceError)(problem, where=limit.of, fix=fix))


def _end_with(parent: int) -> None:
    """Have the system kill this process when its parent ends; only Linux does."""
    import ctypes  # noqa: PLC0415 - only a command under a limit needs it

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(KILLED_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the system was asked
        os._exit(SIGNALLED + signal.SIGKILL)


def _tell(error: CostarError) -> int:
    from costar_cli.reporting.output import Output, tell_failure  # noqa: PLC0415

    return tell_failure(Output(json="--json" in sys.argv), error)


if __name__ == "__main__":
    sys.exit(run())
