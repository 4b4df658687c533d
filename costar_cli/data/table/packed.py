"""Files that are unpacked before they are scanned: compressed CSV and Excel workbooks, whoever made them."""

import importlib.util
import shutil
import tempfile
import weakref
import zipfile
from functools import lru_cache
from pathlib import Path
from typing import Final

from costar_cli.errors import DataError, StorageError

COMPRESSED: Final = (".gz", ".zst", ".bz2", ".xz")
WORKBOOK: Final = ".xlsx"
EXTRA: Final = "fastexcel"  # the package that reads workbooks
FREELY: Final = 200_000_000  # bytes that any file may unpack to
MOST_RATIO: Final = 200  # tables of numbers are packed to a third or a tenth, constant ones to a hundredth
LEFT_FREE: Final = 100_000_000  # bytes of the disk


class Unpacked:
    """What a packed file holds, as a temporary file that is removed once nothing refers to it."""

    def __init__(self, suffix: str) -> None:
        folder = Path(tempfile.mkdtemp(prefix="costar-"))
        self.path = folder / f"unpacked{suffix}"
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)  # at the latest when Python exits


def ending(path: Path) -> str:
    """Return the ending of a file's name, in lower case, without that of a compression."""
    inner = path.with_suffix("") if path.suffix.lower() in COMPRESSED else path
    return inner.suffix.lower()


def is_packed(path: Path) -> bool:
    """Return whether a file is unpacked before it is read, by its name."""
    return path.suffix.lower() in (*COMPRESSED, WORKBOOK)


def unpacked(path: Path) -> Unpacked:
    """Return a file with what a packed one holds: CSV, or Arrow IPC of a workbook's first sheet; made once.

    Raises:
        DataError: the file is damaged, or unpacks to much more than its size; a package is lacking.
        StorageError: the disk has no room.
    """
    found = path.stat()
    return _unpacked(path, (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns))


@lru_cache(maxsize=8)
def _unpacked(path: Path, version: tuple[int, ...]) -> Unpacked:
    from costar_cli.files.sandbox import tried  # noqa: PLC0415 - h5py

    most = max(FREELY, MOST_RATIO * version[2])
    workbook = path.suffix.lower() == WORKBOOK
    if workbook:
        try:
            with zipfile.ZipFile(path) as parts:
                size = sum(part.file_size for part in parts.infolist())
        except (zipfile.BadZipFile, NotImplementedError, ValueError):
            fix = "name it after what it holds, or save it again"
            raise DataError("this is not an Excel workbook", where=str(path), fix=fix) from None
        if size > most:
            raise _too_much(path, most)
        if importlib.util.find_spec(EXTRA) is None:
            fix = "pip install 'costar[excel]', or save the sheet as CSV"
            raise DataError(
                f"Excel workbooks are read by the package {EXTRA}, which is not installed", where=str(path), fix=fix
            )
    made = Unpacked(".arrow" if workbook else ".csv")
    free = shutil.disk_usage(made.path.parent).free - LEFT_FREE
    script = Path(__file__).with_name("untrusted.py")
    problem = tried([str(script), "unpack", str(path), str(made.path), str(min(most, max(free, 1)))])
    if problem is None:
        return made
    written = made.path.stat().st_size if made.path.exists() else 0
    if "File too large" in problem or written >= min(most, free):
        if free < most:
            fix = "free some space, or set TMPDIR to a folder with more"
            raise StorageError(
                f"{path.name} does not fit on the disk once it is unpacked", where=str(made.path), fix=fix
            )
        raise _too_much(path, most)
    if "utf-8" in problem.lower() or "utf8" in problem.lower():
        raise DataError("this is not UTF-8 text", where=str(path), fix="save it as CSV in UTF-8")
    reason = problem.splitlines()[0][:200] if problem else "damaged"
    raise DataError(f"the file cannot be unpacked: {reason}", where=str(path), fix="save it again")


def _too_much(path: Path, most: int) -> DataError:
    problem = f"the file unpacks to more than {most / 1e6:,.0f} MB, {MOST_RATIO} times its size and more"
    return DataError(problem, where=str(path), fix="unpack it yourself if you trust it")
