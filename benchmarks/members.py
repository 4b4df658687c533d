"""Training R members together, in one step over stacked parameters, against one after another.

    python -m benchmarks.members [--json] [--out FILE] [--quick] [--device auto] [--members 5] [--precision float32]
    python -m benchmarks.members --protocol [--protocol-epochs N]

A pretraining step (batch 64 per member) and a fine-tuning step (batch 32 per member, from scratch) on simulated tumour
patients, T = 59: one step of a group of R members against R steps of one member each, in turns, on the device at hand.
A GPU is waited for before each clock reading.

`--protocol` runs the verbs of the paper's protocol for R members by the real command line (`--preset paper`: simulate,
pretrain, finetune, finetune --domain target, evaluate), each in its own process, and times them. With
`--protocol-epochs N` the training stages stop after N epochs; their time is reported as it is and scaled to the 200
epochs of the protocol, which early stopping may cut short.
"""

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import torch

from benchmarks.cohort import Steps, finetune_stage, pretrain_stage, training_data
from benchmarks.measure import Figure, Measured, interleaved, ratio, run, run_child
from costar_cli.config.models import FinetuneConfig, PretrainConfig, RuntimeConfig
from costar_cli.methods.base import Stage
from costar_cli.train.runtime import Runtime

__all__ = ["main"]

PAPER_EPOCHS = 200


def measure(options: argparse.Namespace) -> Measured:
    runtime = Runtime.resolve(
        RuntimeConfig(device=options.device, precision=options.precision, threads=options.threads)
    )
    cuda = runtime.device.type == "cuda"
    patients, days, batches = (40, 20, (8, 8)) if options.quick else (1000, 60, (64, 32))
    dataset = training_data(patients, steps=days, seed=options.seed)
    stages: dict[str, Stage] = {
        "pretrain": pretrain_stage(dataset, PretrainConfig(batch_size=batches[0], seed=options.seed), runtime),
        "finetune": finetune_stage(dataset, FinetuneConfig(batch_size=batches[1], seed=options.seed), runtime),
    }
    figures: dict[str, Figure] = {}
    details: dict[str, Any] = {"device": runtime.device.type, "members": options.members, "timings": {}}
    sync: Callable[[], object] = torch.cuda.synchronize if cuda else lambda: None
    for name, stage in stages.items():
        together = Steps(stage, list(range(options.members)), runtime)
        apart = [Steps(stage, [member], runtime) for member in range(options.members)]
        calls: dict[str, Callable[[], object]] = {"together": together, "apart": _in_turn(apart)}
        timings = interleaved(calls, options.repeats, warmup=1 if options.quick else 2, synchronize=sync)
        figures |= {
            f"{name}_ratio": Figure(f"{name}: times faster together", ratio(timings, "apart", "together"), "x"),
            f"{name}_together_s": Figure(
                f"{name}: {options.members} members, one step", timings["together"].median_s, "s"
            ),
            f"{name}_apart_s": Figure(f"{name}: {options.members} steps of one member", timings["apart"].median_s, "s"),
        }
        details["timings"][name] = {way: vars(timing) for way, timing in timings.items()}
    if cuda:
        peak_mb = torch.cuda.max_memory_allocated() / 1e6
        figures["gpu_memory_mb"] = Figure("peak memory allocated on the GPU", peak_mb, "MB")
    if options.protocol:
        timed, details["protocol"] = protocol(options, runtime.device.type)
        figures |= timed
    return Measured(figures, details)


def _in_turn(steps: Sequence[Steps]) -> Callable[[], object]:
    return lambda: [step() for step in steps]


def protocol(options: argparse.Namespace, device: str) -> tuple[dict[str, Figure], dict[str, Any]]:
    """Run and time the verbs of the paper's protocol; return figures and what the verbs said."""
    sizes = ["--preset", "quick"] if options.quick else ["--preset", "paper"]
    epochs = ["--epochs", str(options.protocol_epochs)] if options.protocol_epochs else []
    training = [*sizes, *epochs, "--device", device, "--precision", options.precision]
    training += ["--members", str(options.members), "--threads", str(options.threads)]
    verbs = {
        "simulate": ["simulate", "tumor", *sizes],
        "pretrain": ["pretrain", *training],
        "finetune": ["finetune", *training],
        "target": ["finetune", "--domain", "target", *training],
        "evaluate": ["evaluate", "--device", device],
    }
    elapsed_s: dict[str, float] = {}
    said: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, arguments in verbs.items():
            child = run_child("-m", "costar_cli", *arguments, "--workspace", folder, "--json")
            elapsed_s[name], said[name] = child.elapsed_s, json.loads(child.stdout)["result"]
    epochs_run = {name: max(m["epochs"] for m in said[name]["members"]) for name in ("pretrain", "finetune", "target")}
    figures = {f"protocol_{name}_s": Figure(f"protocol: {name}", value, "s") for name, value in elapsed_s.items()}
    figures["protocol_s"] = Figure(f"protocol: all verbs, {options.members} members", sum(elapsed_s.values()), "s")
    if options.protocol_epochs:
        whole = sum(v * PAPER_EPOCHS / epochs_run[n] if n in epochs_run else v for n, v in elapsed_s.items())
        figures["protocol_scaled_s"] = Figure(f"protocol: scaled to {PAPER_EPOCHS} epochs", whole, "s")
    averages = [
        {key: row[key] for key in ("setup", "label", "basis")} | {"average": row["mean"]["average"]}
        for row in said["evaluate"]["rows"]
    ]
    return figures, {"epochs": epochs_run, "averages": averages}


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--members", type=int, default=5)
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--precision", choices=["float32", "tf32", "bf16"], default="float32")
    parser.add_argument("--protocol", action="store_true", help="time the verbs of the paper's protocol, too")
    parser.add_argument("--protocol-epochs", type=int, help="stop each training stage after this many epochs")


def main(argv: Sequence[str] | None = None) -> None:
    run("members", __doc__, measure, argv, repeats=7, add_options=_add_options)


if __name__ == "__main__":
    main()
