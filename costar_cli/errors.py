"""One error for bad input: the problem, the place, the fix."""

from collections.abc import Sequence
from typing import ClassVar

from costar_cli.exit_codes import ExitCode

__all__ = [
    "ArtifactError",
    "CostarError",
    "DataError",
    "DeviceError",
    "LockedError",
    "MismatchError",
    "StorageError",
    "TrainingError",
    "UsageError",
]


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
