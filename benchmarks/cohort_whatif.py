"""What the real `costar whatif --subjects` takes, 10,000 subjects by 10 plans by 6 steps: seconds and peak memory.

    python -m benchmarks.cohort_whatif [--json] [--out FILE] [--quick] [--members 5]

The part has 10,000 subjects, copies of simulated tumour patients with numbers of their own, and each is asked about
40 steps into its series. `mixed` is fitted as it is; COSTAR has the sizes of the default preset and is trained for one
epoch: how long answers take does not depend on what was learnt. Answers go to a Parquet file. A million pairs are 100
plans for each of the 10,000 subjects.
"""

import argparse
import itertools
import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

import costar_cli
from benchmarks.measure import Child, Figure, Measured, run, run_child
from costar_cli.data import Dataset, Part
from costar_cli.data.panel import join_panels

GOAL_S, GOAL_MB = 60.0, 2000.0
SUBJECTS, STEPS, ORIGIN, FIRST = 10_000, 6, 40, 1_000_000
WORLD = {"train": 200, "val": 40, "test": 500, "target_train": 8, "target_val": 8, "target_test": 4}


def copies(dataset: Dataset, subjects: int) -> Dataset:
    """Return the data set with so many target test subjects, whose series go to the origin and beyond."""
    panel = dataset.panel("source", "test")
    long = panel.take(panel.length > ORIGIN)
    many = join_panels([long] * -(-subjects // long.n_subjects)).take(np.arange(subjects))
    panels = {**dataset.panels, Part("target", "test"): replace(many, subject_id=FIRST + np.arange(subjects))}
    return replace(dataset, panels=panels, queries={}, truth={}, digest="")


def write_plans(path: Path, count: int) -> None:
    """Write so many plans, each of six steps."""
    doses = itertools.islice(itertools.product((0, 1), repeat=2 * STEPS), count)
    plans = {
        f"plan {i}": [{"chemotherapy": row[h], "radiotherapy": row[STEPS + h]} for h in range(STEPS)]
        for i, row in enumerate(doses)
    }
    path.write_text(json.dumps({"origin": ORIGIN, "plans": plans}))


def whatif(folder: Path, model: str, threads: int, plans: int) -> Child:
    """Ask about every subject under so many plans."""
    write_plans(folder / f"plans{plans}.json", plans)
    words = [
        "--subjects",
        "target/test",
        "--plan",
        str(folder / f"plans{plans}.json"),
        "--data",
        str(folder / "many.h5"),
    ]
    words += ["--model", str(folder / f"{model}.h5"), "--csv", str(folder / "answers.parquet"), "--overwrite"]
    return run_child("-m", "costar_cli", "whatif", "--json", "--threads", str(threads), *words)


def measure(options: argparse.Namespace) -> Measured:
    subjects = 100 if options.quick else SUBJECTS
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        dataset = costar_cli.simulate("tumor", gamma=10.0, seed=options.seed, **WORLD)
        costar_cli.fit(dataset, "mixed").save(folder / "mixed.h5")
        epoch = {"epochs": 1, "members": options.members, "threads": options.threads, "device": "cpu"}
        costar_cli.fit(dataset, preset="default", pretrain={"epochs": 1}, **epoch).save(folder / "costar.h5")
        copies(dataset, subjects).save(folder / "many.h5")
        figures, answers = {}, {}
        for name, model, plans in (("mixed", "mixed", 10), ("costar", "costar", 10), ("million", "mixed", 100)):
            child = whatif(folder, model, options.threads, plans)
            answers[name] = json.loads(child.stdout)["result"]["answers"]
            what = f"{subjects:,} subjects, {plans} plans of {STEPS} steps, {model}"
            goal_s = None if name == "million" else GOAL_S
            figures[f"{name}_s"] = Figure(what, child.elapsed_s, "s", goal_s, at_most=True)
            figures[f"{name}_rss_mb"] = Figure(f"peak memory, {what}", child.peak_mb, "MB", GOAL_MB, at_most=True)
    return Measured(figures, {"members": options.members, "answers": answers})


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--members", type=int, default=5)


def main(argv: Sequence[str] | None = None) -> None:
    run("cohort_whatif", __doc__, measure, argv, repeats=1, add_options=_add_options)


if __name__ == "__main__":
    main()
