"""Tables as lazy scans: CSV and Parquet that anybody may have written, bounded and checked, and frames (polars)."""

import csv
import io
import json
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import polars as pl

from costar_cli.datasets.table.prove import scan_parquet
from costar_cli.datasets.table.scratch import NO_MEMORY, NoRoomError, no_room, require_limits
from costar_cli.errors import CostarError, DataError, refuse_pipe
from costar_cli.frames import for_polars
from costar_cli.panel.findings import Finding, counted, raise_errors, shown

ROW: Final = "__costar_row__"
HEAD_BYTES: Final = 1 << 20
CSV_ENDINGS: Final = (".csv", ".tsv", ".txt")
PARQUET_ENDINGS: Final = (".parquet", ".pq")
SEPARATORS: Final = ",;\t|"


@dataclass(frozen=True, eq=False)
class TableFile:
    """One file: its scan, whose first column counts rows from 0, and its columns by their stripped names."""

    path: Path
    scan: pl.LazyFrame
    columns: dict[str, int]
    types: dict[str, pl.DataType]

    @property
    def name(self) -> str:
        """Return what messages call the file."""
        return self.path.name

    def column(self, name: str) -> pl.Expr:
        """Return a column by name; names such as `*` are nothing special."""
        return pl.nth(self.columns[name] + 1)

    def cells(self, asked: Sequence[tuple[str, int]]) -> list[object]:
        """Return values, by column and row, as the file has them."""
        with collected(self.path):
            found = self.scan.select(
                self.column(name).slice(row, 1).alias(str(i)) for i, (name, row) in enumerate(asked)
            ).collect()
        return list(found.row(0)) if found.height else [None] * len(asked)


def frame_as_file(frame: pl.DataFrame, name: str) -> TableFile:
    """Return a frame as a file of that name would be opened.

    Raises:
        DataError: two columns are called alike but for the space around them.
    """
    return _with_names(Path(name), frame.with_row_index(ROW).lazy(), frame.columns, frame.dtypes)


def open_files(
    paths: Sequence[Path | TableFile], what: str = "the table", *, names: Collection[str] | None = None
) -> list[TableFile]:
    """Open CSV files (`.csv`, `.tsv`, `.txt`) and Parquet files (`.parquet`, `.pq`).

    Of CSV files only the head is read. Parquet files are first read by another process, which a damaged one may end.

    Those that are open already are taken as they are; `what` is what messages call them, `names` are the columns that
    will be read, all by default.

    Raises:
        DataError: a file is missing, empty, of another kind, or has a header that cannot be used; all files at once. Or
            there is no room to read them.
    """
    files, findings = [], []
    for path in paths:
        if isinstance(path, TableFile):
            files.append(path)
            continue
        try:
            check_path(path)
            require_limits(path)
            files.append(_open_parquet(path, names) if _is_parquet(path) else _open_csv(path))
        except NoRoomError:
            raise
        except CostarError as error:
            findings.append(Finding("error", error.problem, error.where or str(path), error.fix or ""))
    raise_errors(findings, what=what)
    return files


@contextmanager
def collected(path: Path) -> Iterator[None]:
    """Turn what polars finds wrong with a file while it reads it into an error that names the file."""
    try:
        yield
    except CostarError:
        raise
    except MemoryError as error:
        raise no_room() from error
    except BaseException as error:
        of_polars = isinstance(error, pl.exceptions.PolarsError) or type(error).__name__ == "PanicException"
        if (of_polars or isinstance(error, OSError)) and NO_MEMORY.match(str(error)):
            raise no_room() from error
        if not of_polars:
            raise  # the latter is polars' own crash, and no subclass of Exception
        raise _unreadable(path, str(error)) from None


def _is_parquet(path: Path) -> bool:
    return path.suffix.lower() in PARQUET_ENDINGS


def check_path(path: Path) -> None:
    """Check that there is a file, and that it is called CSV or Parquet.

    Raises:
        DataError: it is missing, empty, no file, or of another kind.
    """
    ending = path.suffix.lower()
    if not path.exists():
        raise DataError("the file does not exist", where=str(path), fix="check the path")
    if path.is_dir():
        fix = "give the files of a folder one by one: `FOLDER/*.csv`"
        raise DataError("this is not a file but a folder", where=str(path), fix=fix)
    refuse_pipe(path)
    if ending not in (*CSV_ENDINGS, *PARQUET_ENDINGS):
        problem = f"a table is CSV or Parquet, not '{path.suffix}'" if ending else "a table needs a file ending"
        raise DataError(problem, where=str(path), fix="save it as .csv or .parquet")
    if path.stat().st_size == 0:
        raise DataError("the file is empty", where=str(path), fix="give a header and one row per subject and time")


def _open_parquet(path: Path, names: Collection[str] | None) -> TableFile:
    with path.open("rb") as file:
        if file.read(4) != b"PAR1":
            raise DataError(
                "this is not a Parquet file", where=str(path), fix="name it after what it holds, or save it again"
            )
    from costar_cli.artifact.trial import tried  # noqa: PLC0415 - h5py

    asked = json.dumps(None if names is None else list(names))
    if problem := tried([str(Path(__file__).with_name("prove.py")), str(path)], asked=asked):
        raise _unreadable(path, problem)
    with collected(path), for_polars(path) as source:
        scan = scan_parquet(source, ROW)
        types = scan.collect_schema()
    return _with_names(path, scan, list(types)[1:], list(types.values())[1:])


def _open_csv(path: Path) -> TableFile:
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    if b"\0" in head:
        raise DataError(
            "this is not a CSV file: it contains null bytes", where=str(path), fix="save it as CSV in UTF-8"
        )
    try:
        text = head.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 4 or len(head) < HEAD_BYTES:
            raise _not_utf8(path) from None
        text = head[: error.start].decode("utf-8-sig")
    first = io.StringIO(text.lstrip("\r\n"), newline="").readline()  # str.splitlines also cuts at form feeds
    if not first.strip():
        raise DataError("the file has no header", where=str(path), fix="name the columns in the first line")
    separator = max(SEPARATORS, key=first.count)
    try:
        header = next(csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True))
    except (csv.Error, StopIteration) as error:
        raise DataError(
            f"the header is not valid CSV: {error}", where=str(path), fix="save it as CSV in UTF-8"
        ) from None
    with collected(path), for_polars(path) as source:
        scan = pl.scan_csv(
            source, separator=separator, infer_schema=False, glob=False, row_index_name=ROW, low_memory=True
        )
        types = scan.collect_schema()
    if len(types) != len(header) + 1:
        raise DataError("the header is not valid CSV", where=str(path), fix="save it as CSV in UTF-8")
    return _with_names(path, scan, header, list(types.values())[1:])


def _with_names(path: Path, scan: pl.LazyFrame, header: list[str], types: list[pl.DataType]) -> TableFile:
    names = [name.strip().removeprefix("\ufeff") for name in header]
    if twice := sorted(name for name, count in Counter(names).items() if count > 1 and name):
        raise DataError(f"the header names {shown(twice)} more than once", where=str(path), fix="rename the columns")
    columns = {name: i for i, name in enumerate(names) if name}
    return TableFile(path, scan, columns, {name: types[i] for name, i in columns.items()})


def _unreadable(path: Path, problem: str) -> DataError:
    if not path.exists():
        return DataError(f"the frame cannot be read: {problem.splitlines()[0][:200]}", where=path.name)
    if _is_parquet(path):
        reason = problem.splitlines()[0][:200] if problem else "damaged"
        of_column = "correct its values, or leave the column out of the table"
        fix = of_column if reason.startswith("column '") else "save it again"
        return DataError(f"the Parquet file cannot be read: {reason}", where=str(path), fix=fix)
    if "utf-8" in problem.lower() or "utf8" in problem.lower():
        return _not_utf8(path)
    return (
        _ragged(path)
        or _never_closed(path)
        or DataError(
            f"the CSV file cannot be read: {problem.splitlines()[0][:200]}",
            where=str(path),
            fix="save it as CSV in UTF-8",
        )
    )


def without_rows(path: Path, row: str) -> DataError:
    """Return the error of a table that has none of its rows; of CSV, a quote may hide them all."""
    hidden = None if _is_parquet(path) or not path.is_file() else _never_closed(path)
    return hidden or DataError("the table has no rows", where=str(path), fix=f"give at least one {row}")


def _never_closed(path: Path) -> DataError | None:
    """Find the line of a quote that is never closed; some versions of polars read no rows then, some give up."""
    with path.open("rb") as file:
        lines = file.read(HEAD_BYTES).split(b"\n")
        file.seek(0)
        count = sum(block.count(b'"') for block in iter(lambda: file.read(HEAD_BYTES), b""))
    quoted = next((number for number, line in enumerate(lines, start=1) if line.count(b'"') % 2), None)
    if quoted is None or count % 2 == 0:
        return None
    problem = "the table has no rows: a quote is never closed, so that the rest of the file is one field"
    return DataError(problem, where=f"{path}, line {quoted}", fix="close the quote, or remove it")


def _not_utf8(path: Path) -> DataError:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                odd = line[error.start : error.start + 1]
                where = f"{path}, line {number}"
                return DataError(f"this is not UTF-8 text: byte {odd!r}", where=where, fix="save it as CSV in UTF-8")
    return DataError("this is not UTF-8 text", where=str(path), fix="save it as CSV in UTF-8")


def _ragged(path: Path) -> DataError | None:
    """Find the first row with more fields than the header; read only once polars has given up."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        separator = max(SEPARATORS, key=file.readline().count)
        file.seek(0)
        try:
            rows = csv.reader(file, delimiter=separator)
            width = len(next(rows))
            for number, row in enumerate(rows, start=1):
                if len(row) > width:
                    problem = f"a row with {counted(len(row), 'field')} under a header of {width}"
                    fix = "put fields that hold the separator in quotes"
                    return DataError(problem, where=f"row {number} of {path.name}", fix=fix)
        except (csv.Error, UnicodeDecodeError, StopIteration):
            return None
    return None
