"""Tables of any length, written in chunks as CSV, Parquet or JSON Lines, whole or not at all."""

import csv
import io
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, cast

from costar_cli.errors import UsageError, storing
from costar_cli.files.atomic import Sink, interrupts_deferred, open_sink, replacing
from costar_cli.files.frames import for_polars, make_frame
from costar_cli.reporting import plain

if TYPE_CHECKING:
    import polars as pl

FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")  # how a cell begins that a spreadsheet may run
_SAFE: ContextVar[bool] = ContextVar("safe", default=False)
TABLE_FORMATS: Final = (".csv", ".parquet", ".jsonl")
QUESTION: Final = "costar.question"  # of a Parquet file's metadata: the fingerprint of what its rows answer
SHARD: Final = "costar.shard"  # likewise: which part of the answers its rows are, such as `2/8`


@contextmanager
def safe_cells(wanted: bool) -> Iterator[None]:  # noqa: FBT001 - a flag of the command line
    """Have CSV files hold nothing that a spreadsheet runs or a terminal obeys, where that is wanted."""
    before = _SAFE.set(wanted)
    try:
        yield
    finally:
        _SAFE.reset(before)


def as_wanted(text: str) -> str:
    """Return the text of a CSV file, its cells made safe where that is wanted; numbers stay numbers."""
    if not _SAFE.get():
        return text
    out = io.StringIO(newline="")
    before = csv.field_size_limit(max(len(text), csv.field_size_limit()))
    try:
        rows = csv.reader(io.StringIO(text, newline=""))
        csv.writer(out, lineterminator="\n").writerows(map(_safe, row) for row in rows)
    finally:
        csv.field_size_limit(before)
    return out.getvalue()


def columns_of_rows(rows: Sequence[Mapping[str, Any]], *, texts: Collection[str]) -> dict[str, Any]:
    """Return rows as the columns of a table, with None or NaN where a row has no such column.

    Args:
        rows: cells by name; of the names of all, in the order in which they come.
        texts: columns of texts, also where nobody has one.
    """
    import numpy as np  # noqa: PLC0415 - nothing else here needs it

    columns: dict[str, Any] = {}
    for name in dict.fromkeys(name for row in rows for name in row):  # a row may have more than another
        cells = [row.get(name) for row in rows]
        whole = all(isinstance(cell, int) for cell in cells)
        some = all(isinstance(cell, int) for cell in cells if cell is not None) and any(c is not None for c in cells)
        kind = object if name in texts or (some and not whole) else type(cells[0]) if whole else float
        columns[name] = np.array(cells, dtype=np.int64 if kind is int else kind)
    return columns


def _safe(cell: str) -> str:
    try:
        float(cell)
    except ValueError:
        return ("'" if cell.startswith(FORMULA) else "") + plain(cell)
    return cell


def check_table_name(path: Path, *, flag: str) -> None:
    """See that the ending of a name says which kind of table to write.

    Raises:
        UsageError: it does not.
    """
    if path.suffix.lower() not in TABLE_FORMATS:
        fix = f"end the name in {', '.join(TABLE_FORMATS)}"
        raise UsageError(f"cannot write a table to `{path.name}`", where=flag, fix=fix)


class TableFile:
    """A table that is being written: `write` adds rows, all chunks with the same columns of the same types."""

    def __init__(self, out: Sink, kind: str, pieces: Path, metadata: Mapping[str, str]) -> None:
        self.rows = 0
        self.kind = kind
        self._sink, self._out = out, cast("IO[bytes]", out)
        self._pieces, self._metadata = pieces, dict(metadata)
        self._files: list[Path] = []

    def write(self, columns: Mapping[str, Any]) -> None:
        """Add rows, given as columns; None and NaN are missing."""
        frame: pl.DataFrame = make_frame(columns, "polars")  # type: ignore[assignment]
        if self.kind == ".csv":
            if _SAFE.get():
                self._out.write(as_wanted(frame.write_csv(include_header=not self._sink.tell())).encode())
            else:
                frame.write_csv(self._out, include_header=not self._sink.tell())
        elif self.kind == ".jsonl":
            frame.write_ndjson(self._out)
        else:
            piece = self._pieces / f"{len(self._files):012}.parquet"
            with open_sink(piece) as out:
                frame.write_parquet(cast("IO[bytes]", out))
            self.take(piece)
        self._sink.check()
        self.rows += frame.height

    def take(self, piece: Path) -> None:
        """Add the rows of a Parquet file behind the others."""
        self._files.append(piece)

    def finish(self) -> None:
        """Put the pieces of a Parquet file together, a few at a time, with a place for a seal beside other metadata."""
        if self.kind == ".parquet":
            write_together(self._files, self._out, self._metadata | ({SEAL: BLANK} if self._metadata else {}))


def write_together(files: Sequence[Path], out: IO[bytes], metadata: Mapping[str, str]) -> None:
    """Write the rows of Parquet files, all of one folder, as one, with these metadata, a few at a time."""
    import polars as pl  # noqa: PLC0415 - slow to import

    with ExitStack() as opened:
        with interrupts_deferred():  # opening files, polars' Rust code calls Python, and panics where that raises
            named = [opened.enter_context(for_polars(file)) for file in files]
            held = [file for file in named if pl.read_parquet_schema(file)]  # a part may have no rows
            rows = pl.LazyFrame()
            if held:  # all of one folder, so that all are paths or all are open
                rows = pl.scan_parquet(cast("list[Path]", held), glob=False)
        rows.sink_parquet(out, metadata=dict(metadata) or None)


def metadata_of(path: Path) -> dict[str, str]:
    """Return what is noted in a Parquet file, nothing where it cannot be read."""
    import polars as pl  # noqa: PLC0415 - slow to import

    with suppress(OSError, pl.exceptions.PolarsError), for_polars(path) as source:
        return pl.read_parquet_metadata(source)
    return {}


@contextmanager
def table_file(
    path: Path, metadata: Mapping[str, str] | None = None, *, check: Callable[[], object] = bool
) -> Iterator[TableFile]:
    """Yield a table to write to; when the context ends, it takes the place of `path`, whose ending says the kind.

    A Parquet file has the metadata, too, and a seal with these. `check` is called once all is written: what it raises
    leaves `path` as it was.

    Raises:
        StorageError: the folder is missing, read-only or full.
    """
    with storing(path), replacing(path) as file, file.pieces() as pieces:
        out = Sink(file.fd)
        table = TableFile(out, path.suffix.lower(), pieces, metadata or {})
        yield table
        table.finish()
        out.check()
        check()
        if metadata and table.kind == ".parquet":
            with os.fdopen(os.dup(file.fd), "r+b") as whole:
                seal(whole)


SEAL: Final = "costar.seal"  # of a Parquet file's metadata
BLANK: Final = "0" * 64  # in the place of the digest while it is computed
WRITTEN: Final = re.compile(rb"costar\.seal\x18\x40([0-9a-f]{64})")  # as Thrift writes the key and its text
LAST_BYTES: Final = 1 << 20  # of a file: metadata stand at its end
BLOCK_BYTES: Final = 1 << 20


def seal(file: IO[bytes]) -> None:
    """Put the digest of a file that was written with `BLANK` in its place.

    Raises:
        ValueError: the file has no such place.
    """
    if (place := _place(file)) is None:
        raise ValueError("the file has no place for a seal")
    digest = _digest(file, place)
    file.seek(place)
    file.write(digest)


def is_sealed(path: Path) -> bool:
    """Return whether a file is as it was when it was sealed; it is read in blocks.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        if (place := _place(file)) is None:
            return False
        file.seek(place)
        return file.read(len(BLANK)) == _digest(file, place)


def _place(file: IO[bytes]) -> int | None:
    begin = max(file.seek(0, 2) - LAST_BYTES, 0)
    file.seek(begin)
    found = list(WRITTEN.finditer(file.read(LAST_BYTES)))
    return begin + found[-1].start(1) if found else None


def _digest(file: IO[bytes], place: int) -> bytes:
    """Return the digest of a file that has `BLANK` at a place."""
    behind = place + len(BLANK)
    found = sha256()
    for block in chain(_blocks(file, 0, place), [BLANK.encode()], _blocks(file, behind, file.seek(0, 2))):
        found.update(block)
    return found.hexdigest().encode()


def _blocks(file: IO[bytes], begin: int, end: int) -> Iterator[bytes]:
    file.seek(begin)
    while begin < end and (block := file.read(min(BLOCK_BYTES, end - begin))):
        yield block
        begin += len(block)
