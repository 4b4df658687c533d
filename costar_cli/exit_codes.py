"""Exit codes of the `costar` command, documented in docs/cli.md and tested through real processes."""

from enum import IntEnum

__all__ = ["ExitCode"]


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
