"""Large tables on their way to a panel: rows wait in a file beside the data set, and columns are read one by one."""

import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import polars as pl
import psutil

from costar_cli.errors import DataError, StorageError, storage_error
from costar_cli.frames import for_polars

MOST_HELD: Final = 8_000_000  # values that stay in memory: some 100 MB while they are read
ROW_BYTES, VALUE_BYTES = 50, 7  # of memory, at least: numbers, and series of one length (docs/scale.md)


class Scratch:
    """Where rows wait that are more than memory should hold; a context manager that removes their files at the end.

    Args:
        folder: where the files are; that of the system for temporary files by default.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder, self._files = folder or Path(tempfile.gettempdir()), ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.close()

    def require_memory(self, rows: int, columns: int) -> None:
        """See that there is memory for what becomes of so many rows at least.

        Raises:
            DataError: there is too little; saying how much there is.
        """
        needed, free = rows * (ROW_BYTES + VALUE_BYTES * columns), _free_bytes()
        if rows * columns > MOST_HELD and needed > free:
            problem = f"{rows:,} rows of {columns} columns take at least {needed / 1e9:.1f} GB of memory to read"
            fix = "leave columns out of the schema, split the subjects over several data sets, or use a larger machine"
            raise DataError(problem, where=f"this machine, with {free / 1e9:.1f} GB free", fix=fix)

    def hold(self, rows: pl.LazyFrame, values: int) -> pl.LazyFrame:
        """Return rows of about so many values, read once: in memory, or in a file if they are too many.

        Raises:
            StorageError: the disk is full, read-only or forbidden.
        """
        if values <= MOST_HELD:
            return rows.collect(engine="streaming").lazy()
        from costar_cli.artifact.atomic import scratch_file  # noqa: PLC0415 - h5py

        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            path = self._files.enter_context(scratch_file(self._folder, "table"))
            with for_polars(path, "wb") as target:
                rows.sink_ipc(target, compression="lz4")
        except OSError as error:
            raise self._refusal(error) from error
        with for_polars(path) as source:
            return pl.scan_ipc(source)

    def _refusal(self, error: OSError) -> StorageError:
        found = storage_error(error, self._folder, elsewhere="write the data set elsewhere")
        fix = f"costar keeps the rows of a large table there while it reads them: {found.fix}"
        return StorageError(found.problem, where=found.where, fix=fix)


def _free_bytes() -> int:
    """Return how much memory this process may still take: of the machine, and under its own limits."""
    used, free = psutil.Process().memory_info(), [int(psutil.virtual_memory().available)]
    with suppress(ImportError, AttributeError):  # of POSIX, and some limits of Linux alone
        import resource  # noqa: PLC0415

        for limit, taken in ((resource.RLIMIT_AS, used.vms), (resource.RLIMIT_DATA, used.data)):
            most = resource.getrlimit(limit)[0]
            free += [] if most == resource.RLIM_INFINITY else [max(most - taken, 0)]
    return min(free)
