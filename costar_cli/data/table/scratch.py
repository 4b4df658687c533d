"""Large tables on their way to a panel: rows wait in a file beside the data set, and columns are read one by one."""

import re
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import polars as pl

from costar_cli.config.memory import GB, free_memory, free_under_own_limits
from costar_cli.errors import DataError, StorageError, storage_error
from costar_cli.files.frames import for_polars

MOST_VALUES_HELD: Final = 8_000_000  # in memory: some 100 MB while they are read
ROW_BYTES, VALUE_BYTES = 50, 7  # of memory, at least: numbers, and series of one length (docs/scale.md)
COLUMN_BYTES: Final = 40_000  # at least, however few the rows: polars' own plan and buffers for each
MANY_COLUMNS: Final = 2_500  # some 100 MB

PIECES, PIECE_BYTES = 3, 100_000_000  # of a file that polars 2.1 holds at once, while it reads on
THREAD_BYTES, THREAD_ADDRESSES = 32_000_000, 256_000_000  # for each thread of polars, and one more
MOST_THREADS: Final = 4  # with more they were not measured
SMALL_FILE: Final = 1_000_000  # bytes
LEAST_ADDRESSES: Final = 850_000_000  # with 800 MB free, polars ended or hung in 4 of 6 runs with a file of 5 kB
SMALLER: Final = "leave out columns, split the subjects over several data sets, or give costar more memory"
NO_MEMORY: Final = re.compile(  # polars, of maps and stacks; its other messages quote cells and columns
    r"(called `Result::unwrap\(\)` on an `Err` value: |failed to spawn thread: )*"
    r"(\[Errno 12\]|Cannot allocate memory|OS can't spawn|failed to spawn|OutOfMemory|Os \{ code: 1[12], "
    r"|(Custom \{ )?kind: OutOfMemory)"
)


class NoRoomError(DataError):
    """A table that memory has no room for."""


def no_room() -> NoRoomError:
    """Return the error of a table for which memory ran out while it was read."""
    return NoRoomError("there is too little memory to read the table", where=str(free_memory()), fix=SMALLER)


@contextmanager
def told_of_memory() -> Iterator[None]:
    """Turn that memory runs out within the context into an error that says what to do.

    Raises:
        NoRoomError: it ran out.
    """
    try:
        yield
    except MemoryError as error:
        raise no_room() from error


def require_limits(file: Path) -> None:
    """See that limits of this process leave polars room to read a file: it may end or hang where they do not.

    Raises:
        NoRoomError: one does not.
    """
    for free, is_of_addresses in free_under_own_limits():
        size, threads = file.stat().st_size, 1 + min(pl.thread_pool_size(), MOST_THREADS)
        pieces = PIECES * min(size, PIECE_BYTES)
        addresses = max(LEAST_ADDRESSES, THREAD_ADDRESSES * threads * (size >= SMALL_FILE))
        needed = size + pieces + addresses if is_of_addresses else pieces + THREAD_BYTES * threads
        if needed > free.n_bytes:
            problem = f"polars may take {needed / GB:.1f} GB to read {file.name}"
            fix = "raise the limit, split the table, or set POLARS_MAX_THREADS=1"
            if is_of_addresses and addresses == LEAST_ADDRESSES:
                fix = "raise the limit"
            raise NoRoomError(problem, where=str(free), fix=fix)


def require_memory(needed: int, what: str, why: str, fix: str = SMALLER) -> None:
    """See that so many bytes are free: `what` takes them `why`.

    Raises:
        NoRoomError: they are not.
    """
    free = free_memory()
    if needed > free.n_bytes:
        raise NoRoomError(f"{what} {needed / GB:.1f} GB of memory {why}", where=str(free), fix=fix)


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
            NoRoomError: there is too little; saying how much there is.
        """
        if rows * columns > MOST_VALUES_HELD or columns > MANY_COLUMNS:
            needed = rows * (ROW_BYTES + VALUE_BYTES * columns) + COLUMN_BYTES * columns
            require_memory(needed, f"{rows:,} rows of {columns:,} columns take at least", "to read")

    def hold(self, rows: pl.LazyFrame, values: int) -> pl.DataFrame | pl.LazyFrame:
        """Return rows of about so many values, read once: in memory, or lazily from a file if they are too many.

        Raises:
            StorageError: the disk is full, read-only or forbidden.
        """
        if values <= MOST_VALUES_HELD:
            return rows.collect(engine="streaming")
        from costar_cli.files.atomic import scratch_file  # noqa: PLC0415 - h5py

        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            path = self._files.enter_context(scratch_file(self._folder, "table"))
            with for_polars(path, "wb") as target:
                rows.sink_ipc(target, compression="lz4")
        except OSError as error:
            found = storage_error(error, self._folder, elsewhere="write the data set elsewhere")
            fix = f"costar keeps the rows of a large table there while it reads them: {found.fix}"
            raise StorageError(found.problem, where=found.where, fix=fix) from error
        with for_polars(path) as source:
            # Mapping the file instead saves nothing: polars 2.1 copies what it maps. Encoding in batches of subjects
            # would read each column twice, as means, levels and messages are about all rows.
            return pl.scan_ipc(source)
