"""What pretraining brings: the five verbs at paper data size, with and without it.

`python -m benchmarks.pretraining` takes about half an hour on two cores with its defaults; `--folder` keeps the
workspace, and running it again continues where it stopped. Writes the evaluation's CSV and the minutes of each verb.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from benchmarks.machine import commit, machine, versions
from costar_cli.evaluate import paired_difference, read_evaluation

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the verbs and write their results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pretrain-epochs", type=int, default=6)
    parser.add_argument("--finetune-epochs", type=int, default=30)
    parser.add_argument("--members", type=int, default=1)
    parser.add_argument("--sizes", nargs=argparse.REMAINDER, default=[], help="flags of `costar simulate tumor`, last")
    parser.add_argument("--folder", type=Path, default=Path("pretraining-workspace"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/pretraining"))
    given = sys.argv[1:] if argv is None else list(argv)
    args = parser.parse_args(given)
    members, finetune = ["--members", str(args.members)], ["finetune", "--epochs", str(args.finetune_epochs)]
    verbs = [
        ["simulate", "tumor", *args.sizes],
        ["pretrain", "--epochs", str(args.pretrain_epochs), *members],
        [*finetune, *members],
        [*finetune, *members, "--domain", "target"],
        [*finetune, *members, "--from", "scratch"],
        [*finetune, *members, "--from", "scratch", "--domain", "target"],
        ["evaluate", "--overwrite"],
    ]
    load_before = psutil.getloadavg()[0]
    minutes = {" ".join(verb): run_verb(verb, args.folder) for verb in verbs}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.with_suffix(".csv").write_bytes((args.folder / "evaluation.csv").read_bytes())
    result: dict[str, object] = {"command": " ".join(["python -m benchmarks.pretraining", *given])}
    result |= {"commit": commit(), "machine": machine(), "versions": versions()}
    result |= {"load": {"before": round(load_before, 2), "after": round(psutil.getloadavg()[0], 2)}}
    result |= {"minutes": minutes, "pretrained minus scratch": differences(args.folder / "evaluation.h5")}
    args.out.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    return 0


def differences(evaluation: Path) -> dict[str, dict[str, float]]:
    """Return the difference of the average RMSE per set-up, paired over patients, in the report's unit."""
    report = read_evaluation(evaluation)
    table = {}
    for setup in ("zero-shot", "few-shot", "supervised"):
        pair = (report.errors_of(setup, "COSTAR"), report.errors_of(setup, "COSTAR (scratch)"))
        found = paired_difference(*pair, level=0.95, replicates=2000, seed=0)
        if found is not None:
            values = (found.average, *found.interval.average)
            rounded = [round(float(value) * report.unit.factor, 4) for value in values]
            table[setup] = dict(zip(("difference", "lower", "upper"), rounded, strict=True))
    return table


def run_verb(verb: list[str], folder: Path) -> float:
    """Run one verb in the workspace; return its minutes."""
    started = time.monotonic()
    command = [sys.executable, "-m", "costar_cli", *verb, "--workspace", str(folder)]
    subprocess.run(command, check=True, env={**os.environ, "COSTAR_PRESET": "default"})
    return round((time.monotonic() - started) / 60, 2)


if __name__ == "__main__":
    raise SystemExit(main())
