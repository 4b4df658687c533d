"""Reading a large table: `costar ingest table` on a CSV with 40 columns, five in the schema, or many covariates.

    python -m benchmarks.ingest_table [--json] [--out FILE] [--quick] [--rows N] [--covariates N] [--limit-mb N]
                                      [--threads 1]

The file is written first, of subjects with 50 rows each, in a temporary folder. Peak memory is the process's own: pages
of files that the system maps, and may take back, are told apart. A limit is one on memory of its own (`ulimit -d`).
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
import psutil

from benchmarks.measure import MEGABYTE, Figure, Measured, run

STEPS, UNNAMED, PIECE = 50, 35, 250_000
SCHEMA: Final = """
name = "large"
horizon = 3
[columns]
subject = { role = "subject" }
day = { role = "time" }
drug = { role = "treatment", levels = ["none", "given"] }
y = { role = "outcome" }
"""


def write(path: Path, rows: int, covariates: int, seed: int) -> None:
    """Write a table of so many rows, a piece at a time."""
    rng = np.random.default_rng(seed)
    with path.open("wb") as file:
        for begin in range(0, rows, PIECE):
            row = np.arange(begin, min(begin + PIECE, rows))
            drug = np.where(rng.random(len(row)) < 0.3, "given", "none")
            series = {"subject": row // STEPS, "day": row % STEPS, "drug": drug}
            names = ("y", *(f"c{i}" for i in range(UNNAMED + covariates)))
            numbers = {name: rng.normal(size=len(row)).round(5) for name in names}
            pl.DataFrame(series | numbers).write_csv(file, include_header=not begin)


def ingest(words: Sequence[str], limit_mb: int | None) -> tuple[int, int, float]:
    """Run a verb; return the most memory of its own and of files, in bytes, and its processor time.

    Under a limit it runs in a child of the process that is started here.

    Raises:
        CalledProcessError: it failed.
    """
    own, mapped, cpu_s = 0, 0, 0.0
    limit = None if limit_mb is None else partial(_limit, int(limit_mb * MEGABYTE))
    command = [sys.executable, "-m", "costar_cli", *words]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, preexec_fn=limit) as child:  # noqa: PLW1509
        process = psutil.Process(child.pid)
        while child.poll() is None:
            with suppress(psutil.NoSuchProcess):
                family = [process, *process.children()]
                memory, times = [one.memory_info() for one in family], [one.cpu_times() for one in family]
                own = max(own, sum(one.rss - one.shared for one in memory))
                mapped = max(mapped, sum(one.shared for one in memory))
                cpu_s = max(cpu_s, sum(one.user + one.system for one in times))
            time.sleep(0.01)
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, words)
    return own, mapped, cpu_s


def _limit(n_bytes: int) -> None:
    import resource  # noqa: PLC0415 - POSIX has it

    resource.setrlimit(resource.RLIMIT_DATA, (n_bytes, n_bytes))


def measure(options: argparse.Namespace) -> Measured:
    rows = 50_000 if options.quick else options.rows
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write(folder / "large.csv", rows, options.covariates, options.seed)
        named = "".join(f'c{i} = {{ role = "covariate" }}\n' for i in range(options.covariates))
        (folder / "schema.toml").write_text(SCHEMA + named)
        words = ["ingest", "table", str(folder / "large.csv"), "--schema", str(folder / "schema.toml")]
        own, mapped, cpu_s = ingest([*words, "-w", str(folder / "workspace"), "--json"], options.limit_mb)
        size = (folder / "large.csv").stat().st_size
    limit = (
        {} if options.limit_mb is None else {"limit_mb": Figure("limit on memory of its own", options.limit_mb, "MB")}
    )
    return Measured(limit | {
        "rows": Figure("rows", rows),
        "csv_gb": Figure("CSV", size / 1e9, "GB"),
        "peak_mb": Figure("peak memory of its own", own / MEGABYTE, "MB"),
        "mapped_mb": Figure("most pages of files", mapped / MEGABYTE, "MB"),
        "cpu_s": Figure("processor time", cpu_s, "s"),
    })  # fmt: skip


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--covariates", type=int, default=1, help="that the schema names")
    parser.add_argument("--limit-mb", type=int, help="memory of its own that the command may take (`ulimit -d`)")


def main(argv: Sequence[str] | None = None) -> None:
    run("ingest_table", __doc__, measure, argv, repeats=1, add_options=_add_options)


if __name__ == "__main__":
    main()
