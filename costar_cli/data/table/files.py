"""Tables as lazy scans: CSV and Parquet that anybody may have written, bounded and checked, and frames (polars)."""

import csv
import io
import json
import os
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import polars as pl

from costar_cli.data.findings import counted, invalid, raise_errors, shown
from costar_cli.data.table.packed import COMPRESSED, WORKBOOK, Unpacked, ending, is_packed, unpacked
from costar_cli.data.table.scratch import NO_MEMORY, NoRoomError, no_room, require_limits
from costar_cli.data.table.untrusted import scan_parquet
from costar_cli.data.table.written import PLAIN, Written
from costar_cli.errors import CostarError, DataError, refuse_pipe
from costar_cli.files.frames import for_polars

ROW: Final = "__costar_row__"
HEAD_BYTES: Final = 1 << 20
TAIL_BYTES: Final = 1 << 16
CSV_ENDINGS: Final = (".csv", ".tsv", ".txt")
PARQUET_ENDINGS: Final = (".parquet", ".pq")
ARROW_ENDINGS: Final = (".feather", ".arrow", ".ipc")
COMMENTS: Final = ("#", "//", "%")  # that lines above the header of many exports begin with
ARCHIVES: Final = (".zip", ".7z", ".tar", ".tgz", ".rar")  # of several files
READ: Final = (*CSV_ENDINGS, *PARQUET_ENDINGS, *ARROW_ENDINGS, WORKBOOK)
SEPARATORS: Final = ",;\t|"


@dataclass(frozen=True, eq=False)
class TableFile:
    """One file: its scan, whose first column counts rows from 0, and its columns by their stripped names.

    `written` is how its texts are, `held` what must stay for the scan.
    """

    path: Path
    scan: pl.LazyFrame
    columns: dict[str, int]
    types: dict[str, pl.DataType]
    written: Written = PLAIN
    held: Unpacked | None = None

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
    paths: Sequence[Path | TableFile],
    what: str = "the table",
    *,
    names: Collection[str] | None = None,
    written: Written = PLAIN,
) -> list[TableFile]:
    """Open CSV files (`.csv`, `.tsv`, `.txt`, also compressed), Parquet, Arrow (`.feather`) and Excel (`.xlsx`).

    Of CSV files only the head is read. Others are first read by another process, which a damaged one may end.

    Those that are open already are taken as they are; `what` is what messages call them, `names` are the columns that
    will be read, all by default, `written` is how their texts are.

    Raises:
        DataError: a file is missing, empty, of another kind, or has a header that cannot be used; all files at once. Or
            there is no room to read them.
    """
    files, findings = [], []
    for path in paths:
        if isinstance(path, TableFile):
            files.append(replace(path, written=written))
            continue
        try:
            check_path(path)
            held = unpacked(path) if is_packed(path) else None
            source = held.path if held else path
            require_limits(source)
            made = _open_csv(path, source, written) if _is_csv(path) else _open_columns(path, source, names)
            files.append(replace(made, written=written, held=held))
        except NoRoomError:
            raise
        except CostarError as error:
            findings.append(invalid(error.problem, error.where or str(path), error.fix or ""))
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


def _is_csv(path: Path) -> bool:
    return ending(path) in CSV_ENDINGS


def _source(path: Path) -> Path:
    """Return the file in which the text of a CSV file is, which may be a packed one."""
    return unpacked(path).path if is_packed(path) else path


def check_path(path: Path) -> None:
    """Check that there is a file, and that its name says a kind that is read.

    Raises:
        DataError: it is missing, empty, no file, or of another kind.
    """
    if not path.exists():
        raise DataError("the file does not exist", where=str(path), fix="check the path")
    if path.is_dir():
        fix = "give the files of a folder one by one: `FOLDER/*.csv`"
        raise DataError("this is not a file but a folder", where=str(path), fix=fix)
    refuse_pipe(path)
    known = CSV_ENDINGS if path.suffix.lower() in COMPRESSED else READ
    if ending(path) not in known:
        kinds = "a table is CSV, which may be .gz, .zst, .bz2 or .xz, Parquet, Arrow (.feather) or Excel (.xlsx)"
        problem = f"{kinds}, not '{path.suffix}'" if path.suffix else "a table needs a file ending"
        fix = "unpack it" if path.suffix.lower() in ARCHIVES else "save it as .csv or .parquet"
        raise DataError(problem, where=str(path), fix=fix)
    if path.stat().st_size == 0:
        raise DataError("the file is empty", where=str(path), fix="give a header and one row per subject and time")


def _open_columns(path: Path, source: Path, names: Collection[str] | None) -> TableFile:
    """Open a file that has types, Parquet or Arrow, in `source`."""
    kind = "Parquet" if ending(path) in PARQUET_ENDINGS else "Arrow"
    with source.open("rb") as file:
        if not file.read(6).startswith(b"PAR1" if kind == "Parquet" else b"ARROW1"):
            fix = "name it after what it holds, or save it again" + " (Feather: version 2)" * (kind == "Arrow")
            raise DataError(f"this is not {'a' if kind == 'Parquet' else 'an'} {kind} file", where=str(path), fix=fix)
    from costar_cli.files.sandbox import tried  # noqa: PLC0415 - h5py

    asked = json.dumps(None if names is None else list(names))
    if problem := tried([str(Path(__file__).with_name("untrusted.py")), "read", str(source), kind], asked=asked):
        raise _unreadable(path, problem)
    with collected(path), for_polars(source) as scanned:
        if kind == "Parquet":
            scan = scan_parquet(scanned, ROW)
        else:
            scan = pl.scan_ipc(scanned, glob=False, hive_partitioning=False, row_index_name=ROW)
        types = scan.collect_schema()
    return _with_names(path, scan, list(types)[1:], list(types.values())[1:])


def _open_csv(path: Path, source: Path, written: Written) -> TableFile:
    """Open a CSV file, whose text is in `source`."""
    text = _without_comments(_head(path, source), written.comment)
    if mark := _mark_of_comments(text):
        fix = f'give `comment = "{mark}"` in the schema, or remove such lines'
        raise DataError(f"the file begins with comments, lines that start with {mark!r}", where=str(path), fix=fix)
    first = io.StringIO(text.lstrip("\r\n"), newline="").readline()  # str.splitlines also cuts at form feeds
    if not first.strip():
        raise DataError("the file has no header", where=str(path), fix="name the columns in the first line")
    separator = max(SEPARATORS, key=first.count)
    try:
        header = next(csv.reader(io.StringIO(text.lstrip("\r\n"), newline=""), delimiter=separator, strict=True))
    except (csv.Error, StopIteration) as error:
        raise DataError(
            f"the header is not valid CSV: {error}", where=str(path), fix="save it as CSV in UTF-8"
        ) from None
    with collected(path), for_polars(source) as scanned:
        scan = pl.scan_csv(
            scanned,
            separator=separator,
            comment_prefix=written.comment or None,
            infer_schema=False,
            glob=False,
            row_index_name=ROW,
            low_memory=True,
        )
        types = scan.collect_schema()
    if len(types) != len(header) + 1:
        raise DataError("the header is not valid CSV", where=str(path), fix="save it as CSV in UTF-8")
    # A last row that alone has fewer fields than the header was cut off, which polars takes for missing values. Other
    # short rows near the end say that the file leaves out its last blanks.
    with source.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
        lines = file.read().decode("utf-8", "replace").rstrip("\r\n").split("\n")[1:]  # the first is cut, or the header
    rows = [line for line in lines if line.strip() and not (written.comment and line.startswith(written.comment))]
    fields: list[int] = []
    if rows and rows[-1].count('"') % 2 == 0:  # else it ends a field of several lines
        with suppress(csv.Error):  # a carriage return within a row
            fields = [len(next(csv.reader([row], delimiter=separator))) for row in rows if row.count('"') % 2 == 0]
    if fields and fields[-1] < len(header) <= min(fields[:-1], default=len(header)):
        problem = f"a row with {counted(fields[-1], 'field')} under a header of {len(header)}"
        fix = "the file may be cut off: save it again, or give the row all its fields"
        raise DataError(problem, where=f"last row of {path.name}", fix=fix)
    return _with_names(path, scan, header, list(types.values())[1:])


def separator_of(path: Path, comment: str = "") -> str:
    """Return what separates the columns of a CSV file, a comma for other files."""
    if not _is_csv(path):
        return ","
    text = _without_comments(_head(path, _source(path)), comment)
    return max(SEPARATORS, key=text.lstrip("\r\n").partition("\n")[0].count)


def leading_comment(path: Path) -> str:
    """Return what the first lines of a CSV file begin with, where they are comments above its header; else nothing."""
    return _mark_of_comments(_head(path, _source(path))) if _is_csv(path) else ""


def _mark_of_comments(text: str) -> str:
    """Return what comments at the beginning of a text begin with; a header has as many columns as the line after it."""
    lines = [line for line in text.splitlines() if line.strip()]
    mark = next((mark for mark in COMMENTS if lines and lines[0].startswith(mark)), "")
    header = next((line for line in lines if not line.startswith(mark)), "") if mark else ""
    separator = max(SEPARATORS, key=header.count)
    return mark if header.count(separator) > (lines[0].count(separator) if lines else 0) else ""


def _without_comments(text: str, comment: str) -> str:
    """Return a text from its first line on that is no comment."""
    while comment and text.lstrip("\r\n").startswith(comment):
        text = text.lstrip("\r\n").partition("\n")[2]
    return text


def _head(path: Path, source: Path) -> str:
    """Return how the text of a CSV file begins.

    Raises:
        DataError: it is no text in UTF-8.
    """
    with source.open("rb") as file:
        head = file.read(HEAD_BYTES)
    if b"\0" in head:
        raise DataError(
            "this is not a CSV file: it contains null bytes", where=str(path), fix="save it as CSV in UTF-8"
        )
    try:
        return head.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 4 or len(head) < HEAD_BYTES:
            raise _not_utf8(path) from None
        return head[: error.start].decode("utf-8-sig")


def _with_names(path: Path, scan: pl.LazyFrame, header: list[str], types: list[pl.DataType]) -> TableFile:
    names = [name.strip().removeprefix("\ufeff") for name in header]
    if twice := sorted(name for name, count in Counter(names).items() if count > 1 and name):
        raise DataError(f"the header names {shown(twice)} more than once", where=str(path), fix="rename the columns")
    columns = {name: i for i, name in enumerate(names) if name}
    return TableFile(path, scan, columns, {name: types[i] for name, i in columns.items()})


def _unreadable(path: Path, problem: str) -> DataError:
    if not path.exists():
        return DataError(f"the frame cannot be read: {problem.splitlines()[0][:200]}", where=path.name)
    if path.is_dir():
        return DataError(f"its files cannot be read: {problem.splitlines()[0][:200]}", where=str(path))
    if not _is_csv(path):
        kind = "Parquet" if ending(path) in PARQUET_ENDINGS else "Arrow" if ending(path) in ARROW_ENDINGS else "Excel"
        reason = problem.splitlines()[0][:200] if problem else "damaged"
        of_column = "correct its values, or leave the column out of the table"
        fix = of_column if reason.startswith("column '") else "save it again"
        return DataError(f"the {kind} file cannot be read: {reason}", where=str(path), fix=fix)
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
    hidden = _never_closed(path) if _is_csv(path) and path.is_file() else None
    return hidden or DataError("the table has no rows", where=str(path), fix=f"give at least one {row}")


def _never_closed(path: Path) -> DataError | None:
    """Find the line of a quote that is never closed; some versions of polars read no rows then, some give up."""
    with _source(path).open("rb") as file:
        lines = file.read(HEAD_BYTES).split(b"\n")
        file.seek(0)
        count = sum(block.count(b'"') for block in iter(lambda: file.read(HEAD_BYTES), b""))
    quoted = next((number for number, line in enumerate(lines, start=1) if line.count(b'"') % 2), None)
    if quoted is None or count % 2 == 0:
        return None
    problem = "the table has no rows: a quote is never closed, so that the rest of the file is one field"
    return DataError(problem, where=f"{path}, line {quoted}", fix="close the quote, or remove it")


def _not_utf8(path: Path) -> DataError:
    with _source(path).open("rb") as file:
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
    mark = leading_comment(path)
    separator = separator_of(path, mark)
    with _source(path).open(encoding="utf-8-sig", newline="") as file:
        lines = (line for line in file if not (mark and line.startswith(mark)))
        try:
            rows = csv.reader(lines, delimiter=separator)
            width = next(len(row) for row in rows if row)
            for number, row in enumerate(rows, start=1):
                if len(row) > width:
                    problem = f"a row with {counted(len(row), 'field')} under a header of {width}"
                    fix = "put fields that hold the separator in quotes"
                    return DataError(problem, where=f"row {number} of {path.name}", fix=fix)
        except (csv.Error, UnicodeDecodeError, StopIteration):
            return None
    return None
