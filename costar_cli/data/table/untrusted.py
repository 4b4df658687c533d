"""Read a file of somebody's once, or unpack it, in a process of its own: some end or fill the process that does.

python -P untrusted.py read FILE [KIND] < names.json
python -P untrusted.py read-all < asked.json
python -P untrusted.py unpack FILE TARGET MOST_BYTES

Run as a script by `files.py` and `packed.py` beside it; it imports polars alone, and fastexcel for a workbook. `read`
takes Parquet or Arrow; `names` lists the columns, null for all. `unpack` writes what compressed CSV or a workbook holds
as a file that is scanned, with no more bytes than so many and no more memory than `MEMORY_BYTES`. Exit code 0 says that
all went well; otherwise stdout says what did not, where there was time to say it.
"""

import json
import shutil
import signal
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import IO

import polars as pl

OF_PYTHON = {".bz2": "bz2", ".xz": "lzma"}  # by compressions unknown to polars, modules that a Python may lack
MEMORY_BYTES = 4_000_000_000  # of addresses; polars takes 850 MB of these for the smallest file
FIRST_DAY, LAST_DAY = -719_162, 2_932_896  # of the years 1 and 9999, from 1970
UNITS_PER_DAY = {"day": 1, "ms": 86_400_000, "us": 86_400_000_000}


def scan_parquet(source: Path | str | IO[bytes], row_index_name: str | None = None) -> pl.LazyFrame:
    """Return the scan of a Parquet file, with moments in nanoseconds as microseconds.

    Spark writes moments of any year as INT96, which polars otherwise reads as nanoseconds: all that lies outside the
    years 1678 to 2262 would become the last nanosecond of these.
    """
    types = pl.scan_parquet(source, glob=False, hive_partitioning=False).collect_schema()
    exact = {
        name: pl.Datetime("us", kind.time_zone) if isinstance(kind, pl.Datetime) and kind.time_unit == "ns" else kind
        for name, kind in types.items()
    }
    return pl.scan_parquet(
        source, glob=False, hive_partitioning=False, low_memory=True, row_index_name=row_index_name, schema=exact,
        cast_options=pl.ScanCastOptions(datetime_cast="nanosecond-downcast"),
    )  # fmt: skip


def read(path: str, kind: str = "Parquet") -> None:
    """Read the columns of a file that stdin names; some dates end polars, and Python has none.

    Raises:
        PolarsError: the file is damaged.
        ValueError: a column has dates that Python has not.
    """
    names = json.load(sys.stdin)
    source = path if path.isprintable() else open(path, "rb")  # noqa: SIM115 - polars refuses names that are no UTF-8
    scan = pl.scan_ipc(source, glob=False, hive_partitioning=False) if kind == "Arrow" else scan_parquet(source)
    _read_columns(scan, names)


def _read_columns(scan: pl.LazyFrame, names: list[str] | None) -> None:
    columns = list(scan.collect_schema().items())
    found = [i for i, (name, _) in enumerate(columns) if names is None or name.strip() in names]
    scan.select(pl.nth(found)).collect(engine="streaming")
    for i in found:
        name, dtype = columns[i]
        if dtype in (pl.Date, pl.Datetime):
            unit = UNITS_PER_DAY[getattr(dtype, "time_unit", "day")]
            inside = (pl.nth(i).to_physical() // unit).is_between(FIRST_DAY, LAST_DAY)
            if not scan.select(inside.all()).collect(engine="streaming").item():
                raise ValueError(f"column '{name}' has dates outside the years 1 to 9999")


def read_all() -> None:
    """Read columns of several Parquet files, as stdin says them: `names` and `paths`."""
    asked = json.load(sys.stdin)
    for path in asked["paths"]:
        _read_columns(scan_parquet(path), asked["names"])


def unpack(path: str, target: str, most: str) -> None:
    """Write what a packed file holds to `target`, which may take so many bytes."""
    with suppress(ImportError, ValueError, OSError):  # Windows has no such limits
        import resource  # noqa: PLC0415

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(most), int(most)))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # an error that is told instead
    if path.lower().endswith(".xlsx"):
        pl.read_excel(path, sheet_id=1, engine="calamine", infer_schema_length=None).write_ipc(target)
    elif module := OF_PYTHON.get(Path(path).suffix.lower()):
        with import_module(module).open(path) as packed, Path(target).open("wb") as file:
            shutil.copyfileobj(packed, file)
    else:
        lines = pl.scan_lines(path, glob=False)
        lines.sink_csv(target, include_header=False, quote_style="never", compression="uncompressed")


if __name__ == "__main__":
    try:
        if sys.argv[1] == "read":
            read(*sys.argv[2:])
        elif sys.argv[1] == "read-all":
            read_all()
        else:
            unpack(*sys.argv[2:])
    except Exception as error:
        sys.stdout.write(str(error))
        sys.exit(1)
