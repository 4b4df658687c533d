"""How the reader says what is wrong with a file: problem, file and group, fix."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from costar_cli.artifact.spec import KINDS, a_kind
from costar_cli.errors import ArtifactError, CostarError


def place(path: Path, name: str = "") -> str:
    """Return a file, or a file and a group in it, as text."""
    return f"{path}: /{name}" if name else str(path)


def damaged(
    problem: str, path: Path, name: str = "", *, kind: str | None = None, details: Sequence[str] = ()
) -> ArtifactError:
    """Return the error for a file that is not what costar wrote."""
    again = f"make it again with `{KINDS[kind].made_by}`" if kind else "make it again"
    return ArtifactError(problem, where=place(path, name), fix=f"restore an intact copy, or {again}", details=details)


def foreign(problem: str, path: Path) -> ArtifactError:
    """Return the error for a file that costar did not write."""
    return ArtifactError(problem, where=str(path), fix="give the path of a file that costar wrote")


def wrong_kind(found: str, wanted: str, path: Path) -> ArtifactError:
    """Return the error for an artifact of another kind."""
    return ArtifactError(
        f"the file holds {a_kind(found)}, not {a_kind(wanted)}",
        where=str(path),
        fix=f"`{KINDS[wanted].made_by}` makes {a_kind(wanted)}",
    )


@contextmanager
def reading(path: Path, name: str = "", *, kind: str | None = None) -> Iterator[None]:
    """Turn whatever the operating system, h5py or numpy raise about a file into an ArtifactError."""
    try:
        yield
    except CostarError:
        raise
    except OSError as error:
        if known := _file_error(error, path, kind):
            raise known from error
        raise damaged("the file is damaged", path, name, kind=kind, details=[_brief(error)]) from error
    except MemoryError as error:
        raise ArtifactError("not enough memory to read the artifact", where=place(path, name)) from error
    except (RuntimeError, LookupError, ValueError, TypeError, OverflowError) as error:
        raise damaged("the file is damaged", path, name, kind=kind, details=[_brief(error)]) from error


def _file_error(error: OSError, path: Path, kind: str | None) -> ArtifactError | None:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        what = a_kind(kind) if kind else "artifact"
        fix = f"`{KINDS[kind].made_by}` creates it" if kind else "check the path"
        return ArtifactError(
            f"there is no {what.removeprefix('a ').removeprefix('an ')} here", where=str(path), fix=fix
        )
    if isinstance(error, IsADirectoryError):
        return ArtifactError("a folder, not a file", where=str(path), fix="give the path of the file in it")
    if isinstance(error, PermissionError):
        return ArtifactError("no permission to read the file", where=str(path), fix=f"`chmod u+r {path}`")
    if error.filename is not None:  # from the system, not from HDF5
        return ArtifactError(f"the file cannot be read: {error.strerror}", where=str(path), fix="check the path")
    return None


def _brief(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
