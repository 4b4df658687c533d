"""What pretraining brings: COSTAR from encoders of several pretexts, beside COSTAR from scratch, on several data seeds.

`python -m benchmarks.pretraining` runs the verbs in a folder per data set and seed that it keeps (`--folder`): running
it again continues where it stopped. Members are training seeds: member by member, both models begin their fine-tuning
from the same random numbers and see the same batches, with another encoder to start from. Writes a CSV with a row per
data set, seed, pretext, set-up and member, and a JSON with means, machine and minutes: the error over scratch's, and
how many of the pairs are better. The interval is that of the mean log ratio over pairs (Student's t), as if data sets
and members were all drawn alike: it knows of training seeds what intervals over test subjects do not.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import psutil
from scipy import stats

import costar_cli as costar
from benchmarks.machine import commit, machine, versions
from costar_cli.evaluation import EvaluationReport
from costar_cli.evaluation.metrics import Floats, average_over_steps

SCRATCH, TARGET = "scratch", ",target"
PRETEXTS = ("contrastive", "masked", "next_step", "contrastive+next_step", "masked,target", "next_step,target")
SIZES = {"tumor": ["--train=1000", "--val=300", "--test=500", "--target-val=300", "--target-test=500"]}


@dataclass(frozen=True)
class Row:
    """What one pretext did for one member in one set-up: the error in the report's unit."""

    data: str
    data_seed: int
    pretext: str
    setup: str
    member: int
    rmse: float


def main(argv: Sequence[str] | None = None) -> int:
    """Run the verbs and write their results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="+", default=["tumor", "linear"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[10, 101, 1010])
    parser.add_argument("--pretexts", nargs="+", default=list(PRETEXTS), help=f"`{TARGET}` adds target histories")
    parser.add_argument("--preset", default="quick")
    parser.add_argument("--members", type=int, default=3, help="training seeds of each model")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--pretrain-updates", type=int, help="optimiser steps of pretraining (default: the preset's)")
    parser.add_argument("--finetune-updates", type=int, help="likewise of fine-tuning")
    parser.add_argument("--sizes", nargs=argparse.REMAINDER, help="flags of `costar simulate`, last")
    parser.add_argument("--folder", type=Path, default=Path("pretraining-workspace"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/pretexts"))
    given = sys.argv[1:] if argv is None else list(argv)
    args = parser.parse_args(given)
    load_before, started, rows = psutil.getloadavg()[0], time.monotonic(), list[Row]()
    for data in args.data:
        for seed in args.seeds:
            rows += rows_of(data, seed, args)
            write(args.out, rows, " ".join(["python -m benchmarks.pretraining", *given]), load_before, started)
    return 0


def rows_of(data: str, seed: int, args: argparse.Namespace) -> Iterator[Row]:
    """Train and score every pretext on one data set."""
    folder = args.folder / f"{data}-{seed}"
    updates = {"PRETRAIN": args.pretrain_updates, "FINETUNE": args.finetune_updates}
    env = {"COSTAR_PRESET": args.preset, "COSTAR_RUNTIME_THREADS": str(args.threads)}
    env |= {f"COSTAR_{stage}_MEMBERS": str(args.members) for stage in updates}
    env |= {f"COSTAR_{stage}_UPDATES": str(count) for stage, count in updates.items() if count}
    run(folder, env, "simulate", data, f"--seed={seed}", *(SIZES.get(data, []) if args.sizes is None else args.sizes))
    made = {SCRATCH: run(folder, env, "finetune", "--from=scratch", f"--out={folder / 'scratch.h5'}")}
    for name in args.pretexts:
        pretext, target, _ = name.partition(TARGET)
        own = {"COSTAR_PRETRAIN_PRETEXT": pretext, "COSTAR_PRETRAIN_UNLABELLED_TARGET": "true" if target else "false"}
        encoder, model = (folder / f"{kind}-{name.replace(',', '-')}.h5" for kind in ("encoder", "model"))
        run(folder, env | own, "pretrain", f"--out={encoder}")
        made[name] = run(folder, env | own, "finetune", f"--start={encoder}", f"--out={model}")
    models = {name: costar.load_model(path) for name, path in made.items()}
    report = costar.evaluate_models(models, costar.read_dataset(folder / "data.h5"), bootstrap=0)
    yield from compared(report, data, seed, dict(zip(made, labels_of(report), strict=True)))


def labels_of(report: EvaluationReport) -> list[str]:
    """Return what the report calls the models, in their order."""
    return list(dict.fromkeys(row.label for row in report.rows if row.basis == "ours"))


def compared(report: EvaluationReport, data: str, seed: int, labels: dict[str, str]) -> Iterator[Row]:
    """Yield a row per set-up, model and member."""
    for setup in dict.fromkeys(row.setup for row in report.rows if row.basis == "ours"):
        for name, label in labels.items():
            errors_R = average_over_steps(report.errors_of(setup, label).rmse()) * report.unit.factor
            for member, rmse in enumerate(errors_R.tolist()):
                yield Row(data, seed, name, setup, member, rmse)


def run(folder: Path, env: dict[str, str], *verb: str) -> Path:
    """Run one verb in the workspace; return the file that `--out` names."""
    command = [sys.executable, "-m", "costar_cli", *verb, "--workspace", str(folder)]
    subprocess.run(command, check=True, env={**os.environ, **env}, stdout=subprocess.DEVNULL)
    return Path(next((flag.removeprefix("--out=") for flag in verb if flag.startswith("--out=")), folder))


def write(out: Path, rows: Sequence[Row], command: str, load_before: float, started: float) -> None:
    """Write all rows so far, and their means over data seeds."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.with_suffix(".csv").open("w", newline="", encoding="utf-8") as file:
        lines = csv.DictWriter(file, list(asdict(rows[0])), lineterminator="\n")
        lines.writeheader()
        shown = ({k: round(v, 4) if isinstance(v, float) else v for k, v in asdict(row).items()} for row in rows)
        lines.writerows(shown)
    result: dict[str, object] = {"command": command, "commit": commit(), "machine": machine(), "versions": versions()}
    result |= {"load": {"before": round(load_before, 2), "after": round(psutil.getloadavg()[0], 2)}}
    result |= {"minutes": round((time.monotonic() - started) / 60, 1), "against scratch": list(means(rows))}
    out.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")


def means(rows: Sequence[Row]) -> Iterator[dict[str, object]]:
    """Yield for each data set, set-up and pretext its error over scratch's, pair by pair."""
    base = {(row.data, row.data_seed, row.setup, row.member): row.rmse for row in rows if row.pretext == SCRATCH}
    for data, setup, pretext in dict.fromkeys((row.data, row.setup, row.pretext) for row in rows):
        own = [row for row in rows if (row.data, row.setup, row.pretext) == (data, setup, pretext)]
        ratio = np.array([row.rmse / base[data, row.data_seed, setup, row.member] for row in own])
        lower, upper = interval(ratio)
        yield {
            "data": data, "setup": setup, "pretext": pretext, "pairs": len(own),
            "data_seeds": len({row.data_seed for row in own}), "rmse": round(float(np.mean([r.rmse for r in own])), 4),
            "ratio": round(float(np.exp(np.log(ratio).mean())), 4), "lower": lower, "upper": upper,
            "better": int((ratio < 1).sum()),
        }  # fmt: skip


def interval(ratio: Floats, level: float = 0.95) -> tuple[float | None, float | None]:
    """Return the limits of the mean ratio, on the log scale; none of a single pair, or of scratch with itself."""
    logs = np.log(ratio)
    error = logs.std(ddof=1) / np.sqrt(len(logs)) if len(logs) > 1 else 0.0
    if error == 0:
        return None, None
    reach = stats.t.ppf((1 + level) / 2, len(logs) - 1) * error
    return round(float(np.exp(logs.mean() - reach)), 4), round(float(np.exp(logs.mean() + reach)), 4)


if __name__ == "__main__":
    raise SystemExit(main())
