"""Read a Parquet or Arrow file once, in a process of its own: some damaged files end the process that reads them.

python -P probe_parquet.py FILE [KIND] < names.json

Run as a script by `costar_cli.data.table.files`; it imports polars alone. `names` lists the columns to read, null
for all. Exit code 0 says that the file can be read; otherwise stdout says why, where there was time to say it.
"""

import json
import sys
from pathlib import Path
from typing import IO

import polars as pl

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


if __name__ == "__main__":
    names = json.load(sys.stdin)
    path = sys.argv[1]
    source = path if path.isprintable() else open(path, "rb")  # noqa: SIM115 - polars refuses names that are no UTF-8
    try:
        if sys.argv[2:] == ["Arrow"]:
            scan = pl.scan_ipc(source, glob=False, hive_partitioning=False)
        else:
            scan = scan_parquet(source)
        columns = list(scan.collect_schema().items())
        found = [i for i, (name, _) in enumerate(columns) if names is None or name.strip() in names]
        scan.select(pl.nth(found)).collect(engine="streaming")
        for i in found:
            name, kind = columns[i]
            if kind in (pl.Date, pl.Datetime):  # other dates end polars, and Python has none
                unit = UNITS_PER_DAY[getattr(kind, "time_unit", "day")]
                inside = (pl.nth(i).to_physical() // unit).is_between(FIRST_DAY, LAST_DAY)
                if not scan.select(inside.all()).collect(engine="streaming").item():
                    sys.stdout.write(f"column '{name}' has dates outside the years 1 to 9999")
                    sys.exit(1)
    except pl.exceptions.PolarsError as error:
        sys.stdout.write(str(error))
        sys.exit(1)
