"""What `--preset quick` takes on each embedded data set, from simulation to a fitted COSTAR: processor time, memory.

    python -m benchmarks.quick_preset [--json] [--out FILE] [--quick] [--datasets m5,mimic]

Each verb is the real command in a process of its own. Processor seconds depend less on what else the machine does than
those on the clock. Memory is the highest peak of the three verbs.
"""

import argparse
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Final

from benchmarks.measure import Child, Figure, Measured, run, run_child

GOAL_S, GOAL_MB = 180.0, 1000.0
DATASETS: Final = {  # and what pages call them
    "tumor": "tumours",
    "linear": "linear system",
    "m5": "retail",
    "mimic": "ICU",
    "glucose": "glucose",
    "hiv": "HIV",
    "warfarin": "warfarin",
}
IF_INSTALLED: Final = {"sepsis": "icu_sepsis"}  # and the package that has it


def measure(options: argparse.Namespace) -> Measured:
    """Run the verbs on each data set, one after the other."""
    figures, details = dict[str, Figure](), dict[str, object]()
    for dataset in ["linear"] if options.quick else options.datasets.split(","):
        with tempfile.TemporaryDirectory() as folder:
            steps = {verb: _run_verb(verb, dataset, folder, options) for verb in ("simulate", "pretrain", "finetune")}
        cpu_s, peak_mb = sum(one.cpu_s for one in steps.values()), max(one.peak_mb for one in steps.values())
        figures[f"{dataset}_cpu_s"] = Figure(f"{dataset}: all three verbs", cpu_s, "s", GOAL_S, at_most=True)
        figures[f"{dataset}_peak_mb"] = Figure(f"{dataset}: highest peak", peak_mb, "MB", GOAL_MB, at_most=True)
        details[dataset] = {verb: {"cpu_s": one.cpu_s, "peak_mb": one.peak_mb} for verb, one in steps.items()}
    return Measured(figures, details)


def _run_verb(verb: str, dataset: str, folder: str, options: argparse.Namespace) -> Child:
    words = [verb, dataset] if verb == "simulate" else [verb, "--threads", str(options.threads)]
    if options.quick:
        words += ["--train", "20", "--steps", "10"] if verb == "simulate" else ["--members", "1", "--epochs", "1"]
    return run_child("-m", "costar_cli", *words, "--preset", "quick", "--seed", str(options.seed), "-w", folder)


def _add_options(parser: argparse.ArgumentParser) -> None:
    more = [name for name, package in IF_INSTALLED.items() if find_spec(package)]
    parser.add_argument("--datasets", default=",".join([*DATASETS, *more]), help="which, with commas")


def main(argv: Sequence[str] | None = None) -> None:
    run("quick_preset", __doc__, measure, argv, repeats=1, add_options=_add_options)


if __name__ == "__main__":
    main()
