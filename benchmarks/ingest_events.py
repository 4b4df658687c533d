"""Reading a large log of events: the real `costar ingest meds` on ten million events of ten thousand subjects.

    python -m benchmarks.ingest_events [--json] [--out FILE] [--quick] [--shards N] [--threads 1]

The folder, in the layout of MEDS 0.4, is written first, in a temporary folder: four days in an ICU each, eight signals
every hour, five laboratory values a day, infusions as pairs of starts and stops, and codes that no signal names. Peak
memory includes that of the processes that try the files first.
"""

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.measure import Figure, Measured, run, run_child

__all__ = ["main"]

GOAL_S, GOAL_MB = 60.0, 1500.0
HOURS, VITALS, LABS, OTHERS, INFUSIONS = 96, 8, 5, 165, 24
HOUR = 3_600_000_000  # microseconds
SIGNALS = """
name = "large log"
horizon = 3
[time]
step = "1h"
[anchor]
code = "ICU_ADMISSION//MICU"
after = "96h"
[columns]
vital_0 = { role = "outcome", code = "VITAL//0//unit" }
sex = { role = "static", kind = "categorical", prefix = "GENDER//", value = "code" }
age = { role = "static", code = "MEDS_BIRTH", value = "years" }
[columns.drug]
role = "treatment"
kind = "continuous"
code = "INFUSION_START//1"
stop = { code = "INFUSION_END//1" }
pair = "order_id"
"""


def rows_of(
    subjects: np.ndarray, begin: np.ndarray, hours: np.ndarray, codes: np.ndarray, values: np.ndarray | None = None
) -> pl.DataFrame:
    """Return events `[N,n]` of subjects, so many hours after each one's beginning."""
    columns = {
        "subject_id": np.repeat(subjects, hours.shape[1]),
        "time": (begin[:, None] + hours * HOUR).astype(np.int64).ravel(),
        "code": np.broadcast_to(codes, hours.shape).ravel(),
        "numeric_value": None if values is None else values.ravel(),
    }
    return pl.DataFrame(columns, schema_overrides={"numeric_value": pl.Float32})


def write(folder: Path, subjects: int, shards: int, seed: int) -> int:
    """Write a MEDS folder; return how many events it has."""
    rng, events = np.random.default_rng(seed), 0
    (folder / "data").mkdir(parents=True)
    (folder / "metadata").mkdir()
    other = np.array([f"OTHER//{i}" for i in range(3_000)])
    lab = np.array([f"LAB//{i}//unit" for i in range(LABS)])
    for shard, own in enumerate(np.array_split(np.arange(subjects), shards)):
        begin, n = rng.integers(0, 8_000, len(own)) * HOUR, len(own)
        hour = np.tile(np.arange(HOURS) + 0.1, (n, 1))
        start = rng.uniform(0, HOURS - 4, (n, INFUSIONS))
        stop = start + rng.uniform(0.2, 4, start.shape)
        pairs = pl.Series("order_id", np.arange(start.size))
        random = [rng.uniform(0, HOURS, (n, width)) for width in (LABS * 4, OTHERS)]
        parts = [
            pl.DataFrame({"subject_id": own, "code": np.array(["GENDER//F", "GENDER//M"])[own % 2]}),
            rows_of(own, begin, -24.0 * 365 * rng.uniform(20, 80, (n, 1)), np.array("MEDS_BIRTH")),
            rows_of(own, begin, np.zeros((n, 1)), np.array("ICU_ADMISSION//MICU")),
            *(
                rows_of(own, begin, hour, np.array(f"VITAL//{i}//unit"), rng.normal(80, 5, hour.shape))
                for i in range(VITALS)
            ),
            rows_of(own, begin, random[0], rng.choice(lab, random[0].shape), rng.normal(3, 1, random[0].shape)),
            rows_of(own, begin, random[1], rng.choice(other, random[1].shape)),
            rows_of(own, begin, start, np.array("INFUSION_START//1"), rng.uniform(0, 5, start.shape)).with_columns(
                pairs
            ),
            rows_of(own, begin, stop, np.array("INFUSION_END//1"), rng.uniform(0, 5, start.shape)).with_columns(pairs),
        ]
        frame = pl.concat(parts, how="diagonal").with_columns(pl.col("time").cast(pl.Datetime("us")))
        frame = frame.sort("subject_id", "time", nulls_last=False)
        frame.write_parquet(folder / "data" / f"{shard}.parquet")
        events += frame.height
    named = np.array(["train", "tuning", "held_out"])[np.digitize(np.arange(subjects) % 10, [7, 8])]
    splits = pl.DataFrame({"subject_id": np.arange(subjects), "split": named})
    splits.write_parquet(folder / "metadata" / "subject_splits.parquet")
    return events


def measure(options: argparse.Namespace) -> Measured:
    subjects = 200 if options.quick else options.subjects
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        events = write(folder / "log", subjects, options.shards, options.seed)
        lines = [f'vital_{i} = {{ role = "covariate", code = "VITAL//{i}//unit" }}' for i in range(1, VITALS)]
        lines += [f'lab_{i} = {{ role = "covariate", code = "LAB//{i}//unit" }}' for i in range(LABS)]
        (folder / "signals.toml").write_text(SIGNALS.replace("[columns.drug]", "\n".join([*lines, "[columns.drug]"])))
        words = ["ingest", "meds", str(folder / "log"), "--signals", str(folder / "signals.toml"), "--json"]
        child = run_child("-m", "costar_cli", *words, "-w", str(folder / "workspace"))
        size = sum(path.stat().st_size for path in (folder / "log").rglob("*.parquet"))
    parts = json.loads(child.stdout)["result"]["parts"]
    return Measured({
        "events": Figure("events", events),
        "steps": Figure("steps", sum(part["steps"] for part in parts)),
        "parquet_mb": Figure("Parquet files", size / 1e6, "MB"),
        "ingest_s": Figure("`costar ingest meds`", child.elapsed_s, "s", GOAL_S, at_most=True),
        "cpu_s": Figure("processor time", child.cpu_s, "s"),
        "ingest_rss_mb": Figure("peak memory of `costar ingest meds`", child.peak_mb, "MB", GOAL_MB, at_most=True),
    })  # fmt: skip


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--subjects", type=int, default=10_000)
    parser.add_argument("--shards", type=int, default=10)


def main(argv: Sequence[str] | None = None) -> None:
    run("ingest_events", __doc__, measure, argv, repeats=1, add_options=_add_options)


if __name__ == "__main__":
    main()
