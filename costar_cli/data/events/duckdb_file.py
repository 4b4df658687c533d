"""Tables of a DuckDB file, which anybody may have written: read once in a process of its own, then here (duckdb)."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from costar_cli.errors import DataError

Wanted = Mapping[str, Sequence[str]]  # columns by table


def open_duckdb(path: Path, wanted: Wanted) -> dict[str, pl.DataFrame]:
    """Return the tables that a file has of those that are wanted, with the columns that each has, all in small letters.

    Raises:
        DataError: DuckDB is not installed, or the file is none of its, damaged, or of a newer version.
    """
    try:
        import duckdb  # noqa: F401, PLC0415 - optional
    except ImportError:
        fix = "pip install 'costar[duckdb]', or give a folder of CSV or Parquet files"
        raise DataError("a DuckDB file needs the package duckdb", where=str(path), fix=fix) from None
    from costar_cli.files.sandbox import tried_by  # noqa: PLC0415 - h5py

    if problem := tried_by(__name__, str(path), asked=json.dumps({name: list(own) for name, own in wanted.items()})):
        reason = problem.strip().splitlines()[-1][:200]
        fix = "check that it is a DuckDB file, and of no newer version of DuckDB"
        raise DataError(f"the file cannot be read: {reason}", where=str(path), fix=fix)
    return _read(path, wanted)


def _read(path: Path, wanted: Wanted) -> dict[str, pl.DataFrame]:
    import duckdb  # noqa: PLC0415 - optional

    # A view may call anything: files, the network and extensions are out of its reach
    closed: dict[str, str | bool | int | float | list[str]] = {
        "enable_external_access": "false",
        "autoload_known_extensions": "false",
        "lock_configuration": "true",
    }
    with duckdb.connect(str(path), read_only=True, config=closed) as connection:
        query = "SELECT schema_name, table_name, column_name FROM duckdb_columns() WHERE NOT internal"
        found: dict[str, tuple[str, dict[str, str]]] = {}
        for schema, table, column in connection.execute(query).fetchall():
            place, columns = found.setdefault(table.lower(), (f"{_quoted(schema)}.{_quoted(table)}", {}))
            if place == f"{_quoted(schema)}.{_quoted(table)}":
                columns[column.lower()] = column
        tables = {}
        for name in wanted:
            if name not in found:
                continue
            place, columns = found[name]
            own = [f"{_quoted(columns[key])} AS {_quoted(key)}" for key in wanted[name] if key in columns]
            tables[name] = pl.DataFrame(connection.sql(f"SELECT {', '.join(own) or '1 AS nothing'} FROM {place}"))  # noqa: S608
        return tables


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def main() -> int:
    """Read the tables once, and tell why that fails."""
    try:
        _read(Path(sys.argv[2]), json.load(sys.stdin))
    except Exception as error:
        sys.stdout.write(str(error))
        return 1
    return 0
