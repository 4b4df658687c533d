"""Training R members together, in one step over stacked parameters, against one after another.

    python -m benchmarks.members [--json] [--out FILE] [--quick] [--device auto] [--members 5] [--precision float32]
    python -m benchmarks.members --protocol [--protocol-epochs N]
    python -m benchmarks.members --device cuda --graphs --protocol --out benchmarks/results/gpu/members-5.json

A pretraining step (batch 64 per member) and a fine-tuning step (batch 32 per member, from scratch) on simulated tumour
patients, T = 59: one step of a group of R members against R steps of one member each, in turns, on the device at hand.
A GPU is waited for before each clock reading.

Steps are taken without CUDA graphs; `--graphs` adds steps that are replayed (setting `runtime.graphs`), of the group
and of one member, and sets it for the verbs of `--protocol`, too. Goals on a GPU, for five members: a step of the group
in less than 1.5 times the time of one member's, and the whole protocol in less than ten minutes. An H200 meets the
first for fine-tuning without graphs and misses the others (docs/scale.md). `python -m pytest tests/train -m gpu` there
shows first that graphs give the same weights.

`--protocol` runs the verbs of the paper's protocol for R members by the real command line (`--preset paper`: simulate,
pretrain, finetune, finetune --domain target, evaluate), each in its own process, and times them. With
`--protocol-epochs N` the training stages stop after N epochs; their time is reported as it is and scaled to the 200
epochs of the protocol, which early stopping may cut short.
"""

import argparse
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.cohort import Steps, finetune_stage, pretrain_stage, training_data
from benchmarks.measure import Figure, Measured, Timing, interleaved, ratio, run, run_child
from costar_cli.config.models import FinetuneConfig, PretrainConfig, RuntimeConfig
from costar_cli.methods.base import Stage
from costar_cli.training.runtime import Runtime

__all__ = ["main"]

PAPER_EPOCHS = 200
MOST_TIMES_ONE, MOST_PROTOCOL_S = 1.5, 600.0  # goals on a GPU


def measure(options: argparse.Namespace) -> Measured:
    runtime = Runtime.resolve(
        RuntimeConfig(device=options.device, precision=options.precision, threads=options.threads, graphs=False)
    )
    cuda = runtime.device.type == "cuda"
    if options.graphs and not cuda:
        raise SystemExit("--graphs needs a CUDA device")
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
        calls: dict[str, Callable[[], object]] = {"together": together, "apart": _in_turn(apart), "one": apart[0]}
        if options.graphs:
            replayed = replace(runtime, graphs=True)
            calls["together, replayed"] = Steps(stage, list(range(options.members)), replayed)
            calls["one, replayed"] = Steps(stage, [0], replayed)
        timings = interleaved(calls, options.repeats, warmup=1 if options.quick else 3, synchronize=sync)
        figures |= {
            f"{name}_ratio": Figure(f"{name}: times faster together", ratio(timings, "apart", "together"), "x"),
            f"{name}_together_s": Figure(
                f"{name}: {options.members} members, one step", timings["together"].median_s, "s"
            ),
            f"{name}_apart_s": Figure(f"{name}: {options.members} steps of one member", timings["apart"].median_s, "s"),
            **_times_one(name, timings, options.members, cuda=cuda),
        }
        details["timings"][name] = {way: vars(timing) for way, timing in timings.items()}
    if cuda:
        peak_mb = torch.cuda.max_memory_allocated() / 1e6
        figures["gpu_memory_mb"] = Figure("peak memory allocated on the GPU", peak_mb, "MB")
    if options.protocol:
        timed, details["protocol"] = protocol(options, runtime.device.type)
        figures |= timed
    return Measured(figures, details)


def _times_one(name: str, timings: Mapping[str, Timing], members: int, *, cuda: bool) -> dict[str, Figure]:
    """Return what a group's step costs in steps of one member; and, where steps are replayed, what that gains."""
    goal = MOST_TIMES_ONE if cuda and members == 5 else None
    label, figures = f"{name}: a step of all over one member's", {}
    figures[f"{name}_times_one"] = Figure(label, ratio(timings, "together", "one"), "x", goal, at_most=True)
    if "one, replayed" in timings:
        group, one = "together, replayed", "one, replayed"
        figures |= {
            f"{name}_replayed_times_one": Figure(
                f"{label}, replayed", ratio(timings, group, one), "x", goal, at_most=True
            ),
            f"{name}_replayed_s": Figure(
                f"{name}: {members} members, one step, replayed", timings[group].median_s, "s"
            ),
            f"{name}_replayed_ratio": Figure(f"{name}: times faster replayed", ratio(timings, "together", group), "x"),
            f"{name}_replayed_ratio_one": Figure(
                f"{name}: times faster replayed, one member", ratio(timings, "one", one), "x"
            ),
        }
    return figures


def _in_turn(steps: Sequence[Steps]) -> Callable[[], object]:
    return lambda: [step() for step in steps]


def protocol(options: argparse.Namespace, device: str) -> tuple[dict[str, Figure], dict[str, Any]]:
    """Run and time the verbs of the paper's protocol; return figures and what the verbs said."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder) / "settings.toml"
        settings.write_text(f"[runtime]\ngraphs = {str(options.graphs).lower()}\n")
        return _timed_verbs(options, device, folder, ["--config", str(settings)])


def _timed_verbs(
    options: argparse.Namespace, device: str, folder: str, settings: list[str]
) -> tuple[dict[str, Figure], dict[str, Any]]:
    sizes = ["--preset", "quick"] if options.quick else ["--preset", "paper"]
    epochs = ["--epochs", str(options.protocol_epochs)] if options.protocol_epochs else []
    training = [*sizes, *epochs, *settings, "--device", device, "--precision", options.precision]
    training += ["--members", str(options.members), "--threads", str(options.threads)]
    verbs = {
        "simulate": ["simulate", "tumor", *sizes],
        "pretrain": ["pretrain", *training],
        "finetune": ["finetune", *training],
        "target": ["finetune", "--domain", "target", *training],
        "evaluate": ["evaluate", "--device", device, "--threads", str(options.threads)],
    }
    elapsed_s: dict[str, float] = {}
    said: dict[str, Any] = {}
    for name, arguments in verbs.items():
        child = run_child("-m", "costar_cli", *arguments, "--workspace", f"{folder}/workspace", "--json")
        elapsed_s[name], said[name] = child.elapsed_s, json.loads(child.stdout)["result"]
    epochs_run = {name: max(m["epochs"] for m in said[name]["members"]) for name in ("pretrain", "finetune", "target")}
    figures = {f"protocol_{name}_s": Figure(f"protocol: {name}", value, "s") for name, value in elapsed_s.items()}
    whole_run = device == "cuda" and options.members == 5 and not (options.quick or options.protocol_epochs)
    goal = MOST_PROTOCOL_S if whole_run else None
    label = f"protocol: all verbs, {options.members} members"
    figures["protocol_s"] = Figure(label, sum(elapsed_s.values()), "s", goal, at_most=True)
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
    parser.add_argument("--graphs", action="store_true", help="replay steps as CUDA graphs, too")
    parser.add_argument("--protocol", action="store_true", help="time the verbs of the paper's protocol, too")
    parser.add_argument("--protocol-epochs", type=int, help="stop each training stage after this many epochs")


def main(argv: Sequence[str] | None = None) -> None:
    run("members", __doc__, measure, argv, repeats=7, add_options=_add_options)


if __name__ == "__main__":
    main()
