"""What the real `costar ingest m5` takes on files of M5's full size: seconds, peak memory, and the data set's file.

    python -m benchmarks.ingest_m5 [--json] [--out FILE] [--quick]

`costar simulate m5 --preset paper --export DIR` writes the files: 30,490 items in stores by 1,941 days, and 6.1 million
prices (M5 has 6.8 million). Both verbs run in processes of their own, without limits on items, so that they make about
85,000 yearly sequences; the simulating verb answers its counterfactual queries, too.
"""

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measure import Child, Figure, Measured, run, run_child

__all__ = ["main"]

GOAL_S, GOAL_MB = 180.0, 6000.0


def costar(*arguments: str) -> Child:
    """Run a verb in a process of its own."""
    return run_child("-m", "costar_cli", *arguments, "--json")


def measure(options: argparse.Namespace) -> Measured:
    size = ("--preset", "quick") if options.quick else ("--preset", "paper")
    with tempfile.TemporaryDirectory() as temporary:
        folder, files = Path(temporary), Path(temporary) / "files"
        place = ("--seed", str(options.seed), "--workspace")
        simulated = costar("simulate", "m5", *size, "--export", str(files), *place, str(folder / "simulated"))
        ingested = costar("ingest", "m5", str(files), *size, *place, str(folder / "ingested"))
        again = costar("ingest", "m5", str(files), *size, *place, str(folder / "ingested"))
        files_mb = sum(path.stat().st_size for path in files.iterdir()) / 1e6
        data_mb, simulated_mb = ((folder / name / "data.h5").stat().st_size / 1e6 for name in ("ingested", "simulated"))
    figures = {
        "ingest_s": Figure("`costar ingest m5` at full size", ingested.elapsed_s, "s", GOAL_S, at_most=True),
        "ingest_rss_mb": Figure("peak memory of `costar ingest m5`", ingested.peak_mb, "MB", GOAL_MB, at_most=True),
        "again_s": Figure("`costar ingest m5` again (up to date)", again.elapsed_s, "s"),
        "simulate_s": Figure("`costar simulate m5 --export` at full size", simulated.elapsed_s, "s"),
        "simulate_rss_mb": Figure("peak memory of `costar simulate m5 --export`", simulated.peak_mb, "MB"),
        "files_mb": Figure("CSV files", files_mb, "MB"),
        "data_mb": Figure("data set on disk, factual queries", data_mb, "MB"),
        "simulated_mb": Figure("data set on disk, with counterfactual queries", simulated_mb, "MB"),
    }
    parts = {name: json.loads(child.stdout)["result"]["parts"] for name, child in
             (("ingested", ingested), ("simulated", simulated))}  # fmt: skip
    return Measured(figures, {"parts": parts})


def main(argv: Sequence[str] | None = None) -> None:
    run("ingest_m5", __doc__, measure, argv, repeats=1)


if __name__ == "__main__":
    main()
