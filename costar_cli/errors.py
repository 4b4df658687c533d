"""One error for bad input, with the problem, the place and the fix; and the exit codes that scripts tell errors by."""

from collections.abc import Sequence
from enum import IntEnum
from typing import ClassVar

__all__ = [
    "ArtifactError",
    "CostarError",
    "CostarWarning",
    "DataError",
    "DeviceError",
    "ExitCode",
    "LockedError",
    "MismatchError",
    "StorageError",
    "TrainingError",
    "UsageError",
]


class ExitCode(IntEnum):
    """What a shell script can tell from `$?`."""

    OK = 0
    FAILURE = 1  # an error that costar did not foresee: a bug worth reporting
    USAGE = 2  # unknown flags, config keys or names; malformed plan
    DATA = 3  # the data themselves are unusable: NaN, duplicated keys, unknown treatments
    ARTIFACT = 4  # an artifact is missing, foreign, damaged, or from a newer costar
    MISMATCH = 5  # two artifacts do not belong together, or existing output would be overwritten
    DEVICE = 6  # the requested device or precision is not available
    LOCKED = 7  # another costar process works in this workspace
    STORAGE = 8  # the disk is full, read-only, or forbidden
    TRAINING = 9  # training diverged: a loss or gradient is not finite
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
