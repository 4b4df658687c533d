"""A sound artifact to change, and a system that treats open files as Windows does."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from costar_cli.files import atomic
from tests.artifact.crafting import OLD, write


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a file that holds `OLD`."""
    write(tmp_path / "a.h5", OLD)
    return tmp_path / "a.h5"


@pytest.fixture(params=["posix", "windows"])
def system(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run a test twice: as it is, and where a file that is open can be neither moved nor removed, nor locked."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "windows":
            patch.setattr(atomic, "OPEN_FILES_ARE_BUSY", True)
            for name in ("replace", "unlink"):
                patch.setattr(os, name, _refusing_open_files(getattr(os, name)))
        yield request.param


def _refusing_open_files(call):
    def guarded(path, *arguments, **options):
        if str(Path(path).resolve()) in map(_opened, Path("/proc/self/fd").iterdir()):
            raise PermissionError(errno.EACCES, "The process cannot access the file because it is being used")
        return call(path, *arguments, **options)

    return guarded


def _opened(fd: Path) -> str | None:
    try:
        return str(fd.readlink())
    except FileNotFoundError:  # another thread has closed it meanwhile
        return None
