"""Memory of reading a table: that of its rows in the columns that the schema names, not that of the file."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

ROWS, STEPS = 300_000, 50
CHILD = """
import sys, threading, time
from pathlib import Path
import costar_cli
columns = {"subject": {"role": "subject"}, "day": {"role": "time"}, "drug": {"role": "treatment"},
           "y": {"role": "outcome"}, "c0": {"role": "covariate"}}
columns["drug"]["levels"] = ["none", "given"]
schema, peak = {"name": "large", "horizon": 3, "columns": columns}, [0]

def anonymous():
    return int(Path("/proc/self/status").read_text().split("RssAnon:")[1].split()[0]) * 1024

def sample():
    while True:
        peak[0] = max(peak[0], anonymous())
        time.sleep(0.005)

costar_cli.read_table(sys.argv[1], schema=schema)  # what is imported and set up once does not count
before = anonymous()
threading.Thread(target=sample, daemon=True).start()
costar_cli.read_table(sys.argv[2], schema=schema)
print(peak[0] - before)
"""


def write(path: Path, rows: int, covariates: int) -> Path:
    rng = np.random.default_rng(0)
    drug = np.where(rng.random(rows) < 0.3, "given", "none")
    series = {"subject": np.arange(rows) // STEPS, "day": np.arange(rows) % STEPS, "drug": drug}
    numbers = {name: rng.normal(size=rows).round(5) for name in ("y", *(f"c{i}" for i in range(covariates)))}
    pl.DataFrame(series | numbers).write_csv(path)
    return path


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells what memory is a process's own")
def test_columns_that_no_schema_names_are_never_held(tmp_path: Path) -> None:
    small, taken = write(tmp_path / "small.csv", 60 * STEPS, 2), []
    files = [write(tmp_path / f"{n}.csv", ROWS, n) for n in (4, 76)]
    for file in files:
        command = [sys.executable, "-c", CHILD, small, file]
        alone = os.environ | {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, env=alone, capture_output=True, text=True, check=True)
        taken.append(int(done.stdout))
    assert taken[1] - taken[0] < files[1].stat().st_size - files[0].stat().st_size  # the text alone has that many
