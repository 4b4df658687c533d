"""Minutes of the `default` preset, from one measured pass of each training verb over its data.

    python -m benchmarks.default_preset [--json] [--out FILE] [--quick] [--whole]

The verbs run as processes of their own: `costar simulate tumor --preset default` (10,000 training patients), then
`pretrain` and `finetune` of its members for one pass: every mini-batch, validation on 1,000 patients, calibration, run
state. What is reported for the preset is computed: simulating, and as many optimiser steps as the preset says, each
with its share of such a verb. That is the longest it takes: patience may end it. `--whole` runs the three verbs with
the preset instead and times them.
"""

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measure import Child, Figure, Measured, run, run_child
from costar_cli.config.models import FinetuneConfig, PretrainConfig
from costar_cli.settings.resolve import resolve

__all__ = ["main"]

GOAL_MINUTES = 20.0
TOY = ("--train", "64", "--val", "16", "--test", "4", "--target-train", "4", "--target-val", "4", "--target-test", "4")


def costar(*arguments: str) -> Child:
    """Run a verb in a process of its own."""
    return run_child("-m", "costar_cli", *arguments, "--json")


def one_pass(verb: str, folder: Path, options: argparse.Namespace) -> tuple[float, int]:
    """Return the seconds of a verb that trains the preset's members for one pass, and the steps of the pass."""
    training = ("--preset", "default", "--epochs", "1", "--device", "cpu")
    child = costar(verb, "-w", str(folder), *training, "--threads", str(options.threads), "--seed", str(options.seed))
    return child.elapsed_s, int(json.loads(child.stdout)["result"]["members"][0]["updates"])


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
    settings = resolve({}, preset="default", dataset="tumor")
    pretrain, finetune = settings[PretrainConfig], settings[FinetuneConfig]
    updates = {"pretrain": pretrain.updates or 0, "finetune": finetune.updates or 0}
    members = {"pretrain": pretrain.members, "finetune": finetune.members or pretrain.members}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        size = TOY if options.quick else ("--preset", "default")
        simulated = costar("simulate", "tumor", "-w", str(folder), *size, "--seed", str(options.seed))
        passes = {verb: one_pass(verb, folder, options) for verb in updates}
        timed = whole(options, folder / "whole") if options.whole else {}
    seconds = {verb: elapsed_s for verb, (elapsed_s, _) in passes.items()}
    minutes = {verb: updates[verb] / steps * elapsed_s / 60 for verb, (elapsed_s, steps) in passes.items()}
    total = simulated.elapsed_s / 60 + sum(minutes.values())
    figures = {
        "simulate_s": Figure("`costar simulate tumor`", simulated.elapsed_s, "s"),
        "pretrain_epoch_s": Figure("`costar pretrain`, one pass", seconds["pretrain"], "s"),
        "finetune_epoch_s": Figure("`costar finetune`, one pass", seconds["finetune"], "s"),
        **{
            f"{name}_min": Figure(f"{name}: {members[name]} members, {updates[name]} updates", value, "min")
            for name, value in minutes.items()
        },
        "preset_min": Figure("the preset, computed from these", total, "min", GOAL_MINUTES, at_most=True),
        **timed,
    }
    return Measured(figures, {"updates": updates, "members": members})


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--whole", action="store_true", help="run the preset's verbs, too: about an hour")


def main(argv: Sequence[str] | None = None) -> None:
    run("default_preset", __doc__, measure, argv, repeats=1, add_options=_add_options)


if __name__ == "__main__":
    main()
