"""What the real `costar simulate mimic` takes at paper size: seconds, peak memory, and the size of the data set's file.

    python -m benchmarks.simulate_mimic [--json] [--out FILE] [--quick] [--seed 17]

`costar simulate mimic --preset paper` makes 36,000 ICU stays, of which about 8,000 patients are in the two age groups,
and answers all counterfactual queries about the test patients (about a million one-step ones and a million treatment
sequences of 11 hours). Writing the cohort as a file of MIMIC-Extract, reading such a file, and reading the data set
with its queries are timed in processes of their own.
"""

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measure import Child, Figure, Measured, run, run_child

__all__ = ["main"]

GOAL_S, GOAL_MB = 300.0, 4000.0
READ = """
import sys
from pathlib import Path
from costar_cli.data.store import read_dataset
read_dataset(Path(sys.argv[1]))
"""


def costar(*arguments: str) -> Child:
    """Run a verb in a process of its own."""
    return run_child("-m", "costar_cli", *arguments, "--json")


def measure(options: argparse.Namespace) -> Measured:
    size = ("--preset", "quick", "--stays", "400") if options.quick else ("--preset", "paper")
    shape = (*size, "--seed", str(options.seed))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        extract, data = folder / "all_hourly_data.h5", folder / "data.h5"
        runs = {
            "simulate": costar("simulate", "mimic", *shape, "--out", str(data), "-w", str(folder / "a")),
            "read": run_child("-c", READ, str(data)),
            "export": costar(
                "simulate",
                "mimic",
                *shape,
                "--out",
                str(data),
                "-w",
                str(folder / "b"),
                "--export-extract",
                str(extract),
            ),
        }
        from_file = [word for word in shape if word not in {"--stays", "400"}]
        runs["from_extract"] = costar(
            "simulate", "mimic", *from_file, "--mimic-extract", str(extract), "-w", str(folder / "c")
        )
        data_mb, extract_mb = data.stat().st_size / 1e6, extract.stat().st_size / 1e6
    labels = {
        "simulate": "`costar simulate mimic`",
        "read": "reading the data set",
        "export": "writing the stays as MIMIC-Extract",
        "from_extract": "`costar simulate mimic --mimic-extract`",
    }
    figures = {}
    for key, child in runs.items():
        goals = (GOAL_S, GOAL_MB) if key in {"simulate", "from_extract"} else (None, GOAL_MB)
        figures[f"{key}_s"] = Figure(labels[key], child.elapsed_s, "s", goals[0], at_most=True)
        figures[f"{key}_rss_mb"] = Figure(f"peak memory of {labels[key]}", child.peak_mb, "MB", goals[1], at_most=True)
    figures["data_mb"] = Figure("data set on disk", data_mb, "MB")
    figures["extract_mb"] = Figure("file of MIMIC-Extract on disk", extract_mb, "MB")
    parts = json.loads(runs["simulate"].stdout)["result"]["parts"]
    return Measured(figures, {"parts": parts})


def main(argv: Sequence[str] | None = None) -> None:
    run("simulate_mimic", __doc__, measure, argv, repeats=1)


if __name__ == "__main__":
    main()
