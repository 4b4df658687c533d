"""What the real `costar evaluate` takes at paper size: seconds, peak memory, and the size of the data set's file.

    python -m benchmarks.evaluate_memory [--json] [--out FILE] [--quick] [--members 5]

`costar simulate tumor --preset paper` makes the data (10,000/1,000/1,000 source and 100/1,000/1,000 target patients).
The models are trained for one epoch on a cohort of 64 patients, which is enough to score: an encoder, a source model
and a target model of five members, so that all three set-ups apply. `costar evaluate` then scores them on the data of
paper size, with bootstrap and plots, in a process of its own (it warns of another data set, which is as it should be).
"""

import argparse
import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measure import Child, Figure, Measured, run, run_child

__all__ = ["main"]

GOAL_MB, GOAL_FILE_MB = 2000.0, 60.0
TINY = ("--train", "64", "--val", "8", "--test", "4", "--target-train", "8", "--target-val", "8", "--target-test", "4")


def costar(*arguments: str) -> Child:
    """Run a verb in a process of its own."""
    return run_child("-m", "costar_cli", *arguments, "--json")


def train_models(options: argparse.Namespace, tiny: Path, folder: Path) -> None:
    """Train an encoder and models for one epoch on a tiny cohort."""
    shape = ("--steps", "20") if options.quick else ()
    costar("simulate", "tumor", "--workspace", str(tiny.parent), *TINY, *shape)
    machine = ("--device", "cpu", "--threads", str(options.threads))
    training = ("-w", str(folder), "--data", str(tiny), "--epochs", "1", "--members", str(options.members), *machine)
    if options.quick:
        costar("finetune", "--from", "scratch", *training)
        return
    costar("pretrain", *training)
    costar("finetune", *training)
    costar("finetune", "--domain", "target", *training)


def measure(options: argparse.Namespace) -> Measured:
    if options.quick:
        options.members = min(options.members, 2)
    with tempfile.TemporaryDirectory() as temporary:
        folder, tiny = Path(temporary) / "paper", Path(temporary) / "tiny" / "data.h5"
        folder.mkdir()
        tiny.parent.mkdir()
        train_models(options, tiny, folder)
        data, place = folder / "data.h5", ("-w", str(folder))
        runs: dict[str, Child] = {}
        if options.quick:
            shutil.copy(tiny, data)
        else:
            runs["simulate"] = costar("simulate", "tumor", "--preset", "paper", *place, "--seed", str(options.seed))
        flags = (*place, "--device", "cpu", "--threads", str(options.threads))
        if not options.quick:
            runs["evaluate"] = costar("evaluate", *flags)
            runs["again"] = costar("evaluate", *flags)
        runs["scoring"] = costar("evaluate", *flags, "--no-plots", "--seed", "1", "--overwrite")
        runs["inspect"] = costar("inspect", str(data))
        file_mb = data.stat().st_size / 1e6
    whole = runs.get("evaluate", runs["scoring"])
    figures = {
        "evaluate_rss_mb": Figure("peak memory of `costar evaluate`", whole.peak_mb, "MB", GOAL_MB, at_most=True),
        "data_mb": Figure("data set on disk", file_mb, "MB", GOAL_FILE_MB, at_most=True),
        "evaluate_s": Figure("`costar evaluate`", whole.elapsed_s, "s"),
    }
    more = {
        "scoring": "`costar evaluate --no-plots`",
        "again": "`costar evaluate` again (up to date)",
        "simulate": "`costar simulate tumor --preset paper`",
        "inspect": "`costar inspect data.h5`",
    }
    for key, label in more.items():
        if key in runs:
            figures[f"{key}_s"] = Figure(label, runs[key].elapsed_s, "s")
            figures[f"{key}_rss_mb"] = Figure(f"peak memory of {label}", runs[key].peak_mb, "MB")
    result = json.loads(whole.stdout)
    rows = result["result"]["rows"]
    details = {
        "members": options.members,
        "setups": sorted({row["setup"] for row in rows}),
        "rows": len(rows),
        "warnings": result["warnings"],
    }
    return Measured(figures, details)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--members", type=int, default=5)


def main(argv: Sequence[str] | None = None) -> None:
    run("evaluate_memory", __doc__, measure, argv, repeats=1, add_options=_add_options)


if __name__ == "__main__":
    main()
