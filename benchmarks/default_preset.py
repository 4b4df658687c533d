"""Minutes of the `default` preset, from one measured pass of each training stage over its data.

    python -m benchmarks.default_preset [--json] [--out FILE] [--quick] [--whole]

`costar simulate tumor --preset default` runs as a process of its own (10,000 training patients). One member is then
trained for one pass in each stage, as the verbs do it: every mini-batch, validation on 1,000 patients, run state. What
is reported for the preset is computed: simulating, and for each member as many optimiser steps as the preset says, each
with its share of a pass. That is the longest it takes: patience may end it. Loading the programs adds some seconds to
each verb. `--whole` runs the three verbs with the preset instead and times them.
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import Child, Figure, Measured, run, run_child
from costar_cli.config.models import EncoderConfig, FinetuneConfig, PretrainConfig, RuntimeConfig
from costar_cli.methods.base import Stage
from costar_cli.methods.costar.pretraining import PretrainStage
from costar_cli.methods.costar.supervised import SupervisedStage
from costar_cli.methods.shared.stage import Pace
from costar_cli.panel import Dataset, Scaler
from costar_cli.panel.store import read_dataset
from costar_cli.panel.tensors import PanelTensors
from costar_cli.reporting import NullReporter
from costar_cli.settings.presets import PRESETS
from costar_cli.train.checkpoint import Checkpoint
from costar_cli.train.identity import RunIdentity
from costar_cli.train.loop import train_members
from costar_cli.train.runtime import Runtime

__all__ = ["main"]

GOAL_MINUTES = 20.0
TOY = ("--train", "64", "--val", "16", "--test", "4", "--target-train", "4", "--target-val", "4", "--target-test", "4")


def costar(*arguments: str) -> Child:
    """Run a verb in a process of its own."""
    return run_child("-m", "costar_cli", *arguments, "--json")


def stages(dataset: Dataset, runtime: Runtime, seed: int) -> dict[str, Stage]:
    """Return both training stages on the source, for one pass, the second from random weights."""
    scaler = Scaler.fit(dataset.panel("source", "train"), dataset.schema)
    train, validation = (
        PanelTensors.from_panel(dataset.panel("source", split), scaler, device=runtime.device, dtype=runtime.dtype)
        for split in ("train", "val")
    )
    supervised = FinetuneConfig(epochs=1, seed=seed)
    return {
        "pretrain": PretrainStage(dataset.schema.dims, PretrainConfig(epochs=1, seed=seed), train, validation),
        "finetune": SupervisedStage(
            dataset.schema.dims, dataset.horizon, supervised, EncoderConfig(), train=train, validation=validation
        ),
    }


def pass_s(stage: Stage, runtime: Runtime, folder: Path) -> float:
    """Return the seconds of one pass of one member."""
    run_state = Checkpoint(folder / f"{stage.name}.h5", RunIdentity("benchmark"), reporter=NullReporter())
    start = time.perf_counter()
    train_members(stage, 1, runtime, run_state, NullReporter())
    return time.perf_counter() - start


def steps_of(stage: Stage) -> int:
    """Return the optimiser steps of a pass."""
    return Pace.of(stage.config, stage.n_train, drop_last=stage.drop_last).steps


def whole(options: argparse.Namespace, folder: Path) -> dict[str, Figure]:
    """Return the minutes of the verbs themselves."""
    preset = ("--preset", "quick" if options.quick else "default")
    training = ("-w", str(folder), *preset, "--device", "cpu", "--threads", str(options.threads))
    verbs = {
        "simulate": costar("simulate", "tumor", "-w", str(folder), *preset, "--seed", str(options.seed)),
        "pretrain": costar("pretrain", *training),
        "finetune": costar("finetune", *training),
    }
    minutes = {name: child.elapsed_s / 60 for name, child in verbs.items()}
    figures = {f"whole_{name}_min": Figure(f"timed: `costar {name}`", value, "min") for name, value in minutes.items()}
    figures["whole_min"] = Figure("timed: the three verbs", sum(minutes.values()), "min", GOAL_MINUTES, at_most=True)
    return figures


def measure(options: argparse.Namespace) -> Measured:
    settings: dict[str, Any] = {**PRESETS["default"]}
    runtime = Runtime.resolve(RuntimeConfig(device="cpu", threads=options.threads))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        size = TOY if options.quick else ("--preset", "default")
        simulated = costar("simulate", "tumor", "-w", str(folder), *size, "--seed", str(options.seed))
        dataset = read_dataset(folder / "data.h5")
        trained = stages(dataset, runtime, options.seed)
        seconds = {name: pass_s(stage, runtime, folder) for name, stage in trained.items()}
        timed = whole(options, folder / "whole") if options.whole else {}
    updates = {name: int(settings[f"{name}.updates"]) for name in seconds}
    members = {name: int(settings[f"{name}.members"]) for name in seconds}
    minutes = {
        name: members[name] * updates[name] / steps_of(trained[name]) * value / 60 for name, value in seconds.items()
    }
    total = simulated.elapsed_s / 60 + sum(minutes.values())
    figures = {
        "simulate_s": Figure("`costar simulate tumor`", simulated.elapsed_s, "s"),
        "pretrain_epoch_s": Figure("pretraining, one pass of one member", seconds["pretrain"], "s"),
        "finetune_epoch_s": Figure("fine-tuning, one pass of one member", seconds["finetune"], "s"),
        **{
            f"{name}_min": Figure(f"{name}: {members[name]} members, {updates[name]} updates", value, "min")
            for name, value in minutes.items()
        },
        "preset_min": Figure("the preset, computed from these", total, "min", GOAL_MINUTES, at_most=True),
        **timed,
    }
    subjects = {str(part): panel.n_subjects for part, panel in dataset.panels.items()}
    return Measured(figures, {"subjects": subjects, "updates": updates, "members": members})


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--whole", action="store_true", help="run the preset's verbs, too: about 20 minutes")


def main(argv: Sequence[str] | None = None) -> None:
    run("default_preset", __doc__, measure, argv, repeats=1, add_options=_add_options)


if __name__ == "__main__":
    main()
