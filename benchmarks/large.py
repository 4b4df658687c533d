"""100,000 tumour patients from simulation to the answers of all of them: time and memory of each step.

    python -m benchmarks.large [--json] [--out FILE] [--quick] [--folder FOLDER]

The real commands with `--preset quick`, each in a process of its own: `simulate`, `mixed`, COSTAR's pretraining and
fine-tuning, `evaluate`, and `whatif` about every training patient under three plans of six days, by `mixed` and by
COSTAR. The goals are those of all steps together, on two cores.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.measure import Child, Figure, Measured, run, run_child

GOAL_S, GOAL_MB, PATIENTS = 1800.0, 4000.0, 100_000
PLANS = {
    "origin": 20,
    "plans": {
        "watch": {"repeat": {}, "times": 6},
        "chemotherapy": {"repeat": {"chemotherapy": 1}, "times": 6},
        "both": {"repeat": {"chemotherapy": 1, "radiotherapy": 1}, "times": 6},
    },
}
WORDS = {
    "simulate": "simulating",
    "mixed": "fitting mixed",
    "pretrain": "pretraining COSTAR",
    "finetune": "fine-tuning COSTAR",
    "evaluate": "evaluating both",
    "whatif-mixed": "answers of mixed about all training patients",
    "whatif-costar": "answers of COSTAR about all training patients",
}


def commands(folder: Path, patients: int, short: Sequence[str] = ()) -> dict[str, list[str]]:
    """Return the words of each step's command, in order; `short` are those that end training early."""
    some = max(8, patients // 100)
    sizes = {"train": patients, "val": some, "test": some, "target-val": some, "target-test": some}
    ask = ["whatif", "--subjects", "source/train", "--skip-unknown", "--plan", str(folder / "plans.json")]

    def answers(model: str) -> list[str]:
        return [*ask, "--model", str(folder / model), "--csv", str(folder / f"{model}.parquet"), "--overwrite"]

    quick = ["--preset", "quick"]
    return {
        "simulate": ["simulate", "tumor", *quick, "--gamma", "10", *(f"--{k}={n}" for k, n in sizes.items())],
        "mixed": ["finetune", *quick, "--method", "mixed"],
        "pretrain": ["pretrain", *quick, *short],
        "finetune": ["finetune", *quick, *short],
        "evaluate": ["evaluate", "--no-plots"],
        "whatif-mixed": answers("model-mixed.h5"),
        "whatif-costar": answers("model.h5"),
    }


def figures(taken: Iterator[tuple[str, Child]]) -> Iterator[tuple[str, Figure]]:
    """Yield what each step took, and all of them."""
    every = []
    for name, child in taken:
        every.append(child)
        yield f"{name}_cpu_s", Figure(f"{WORDS[name]}, processor time", child.cpu_s, "s")
        yield f"{name}_mb", Figure(f"{WORDS[name]}, peak memory", child.peak_mb, "MB", GOAL_MB, at_most=True)
    elapsed_s, cpu_s = (sum(getattr(child, of) for child in every) for of in ("elapsed_s", "cpu_s"))
    yield "elapsed_s", Figure("all steps, on the clock", elapsed_s, "s", GOAL_S, at_most=True)
    yield "cpu_s", Figure("all steps, processor time", cpu_s, "s")


def measure(options: argparse.Namespace) -> Measured:
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "plans.json").write_text(json.dumps(PLANS))
        place = ["-w", str(folder), "--threads", str(options.threads), "--json"]
        steps = commands(folder, 200, ["--epochs", "1"]) if options.quick else commands(folder, PATIENTS)
        places = {name: place[:2] + place[4:] if name == "simulate" else place for name in steps}
        taken = ((name, run_child("-m", "costar_cli", *step, *places[name])) for name, step in steps.items())
        return Measured(dict(figures(taken)))


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--folder", type=Path, help="where the files are kept: steps that are done are not done again")


def main(argv: Sequence[str] | None = None) -> None:
    run("large", __doc__, measure, argv, repeats=1, add_options=_add_options)


if __name__ == "__main__":
    main()
