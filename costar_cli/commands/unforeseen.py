"""Errors that costar did not raise itself, in its own words."""

from costar_cli.errors import CostarError, DeviceError, StorageError
from costar_cli.exit_codes import ExitCode

__all__ = ["UnforeseenError", "as_costar_error"]


class UnforeseenError(CostarError):
    """An error that costar did not foresee."""

    exit_code = ExitCode.FAILURE


def as_costar_error(error: Exception) -> CostarError:
    """Return an error with problem, place and fix."""
    if isinstance(error, CostarError):
        return error
    if isinstance(error, OSError) and error.errno is not None:
        where = str(error.filename) if error.filename is not None else None
        fix = "free some space, or write elsewhere with --workspace or --out"
        return StorageError(f"cannot read or write: {error.strerror}", where=where, fix=fix)
    if type(error).__name__ == "OutOfMemoryError":
        return DeviceError("the device has not enough memory", fix="give a smaller --batch-size, or use `--device cpu`")
    if isinstance(error, MemoryError):
        return DeviceError("the machine has not enough memory", fix="give smaller sizes or a smaller --batch-size")
    name = f"{type(error).__name__}: {error}".splitlines()[0][:300]
    if isinstance(error, ImportError):
        return UnforeseenError(f"a package cannot be imported ({name})", fix="`costar doctor` says what is missing")
    return UnforeseenError(
        f"costar failed in a way that it did not foresee ({name})",
        fix="`COSTAR_DEBUG=1` shows where; please report it with that text",
    )
