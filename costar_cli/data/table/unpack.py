"""Write what a compressed CSV file or an Excel workbook holds as a file that is scanned, in a process of its own.

python -P unpack.py FILE TARGET MOST_BYTES

Run as a script by `costar_cli.data.table.packed`; it imports polars alone, and fastexcel for a workbook. No more
than so many bytes are written, and no more memory is taken than `MEMORY_BYTES`: the file may be made to fill both. Exit
code 0 says that the target is whole; otherwise stdout says why it is not, where there was time to say it.
"""

import shutil
import signal
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import polars as pl

OF_PYTHON = {".bz2": "bz2", ".xz": "lzma"}  # by compressions unknown to polars, modules that a Python may lack
MEMORY_BYTES = 4_000_000_000  # of addresses; polars takes 850 MB of these for the smallest file

if __name__ == "__main__":
    path, target, most = sys.argv[1], sys.argv[2], int(sys.argv[3])
    with suppress(ImportError, ValueError, OSError):  # Windows has no such limits
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # an error that is told instead
    try:
        if path.lower().endswith(".xlsx"):
            pl.read_excel(path, sheet_id=1, engine="calamine", infer_schema_length=None).write_ipc(target)
        elif module := OF_PYTHON.get(Path(path).suffix.lower()):
            with import_module(module).open(path) as packed, Path(target).open("wb") as file:
                shutil.copyfileobj(packed, file)
        else:
            lines = pl.scan_lines(path, glob=False)
            lines.sink_csv(target, include_header=False, quote_style="never", compression="uncompressed")
    except Exception as error:
        sys.stdout.write(str(error))
        sys.exit(1)
