"""Read a Parquet file once, in a process of its own: some damaged files end the process that reads them.

python -P prove.py FILE < names.json

Run as a script by `costar_cli.datasets.table.files`; it imports polars alone. `names` lists the columns to read, null
for all. Exit code 0 says that the file can be read; otherwise stdout says why, where there was time to say it.
"""

import json
import sys

import polars as pl

if __name__ == "__main__":
    names = json.load(sys.stdin)
    try:
        scan = pl.scan_parquet(sys.argv[1], glob=False, hive_partitioning=False, low_memory=True)
        found = [i for i, name in enumerate(scan.collect_schema()) if names is None or name.strip() in names]
        scan.select(pl.nth(found)).collect(engine="streaming")
    except pl.exceptions.PolarsError as error:
        sys.stdout.write(str(error))
        sys.exit(1)
