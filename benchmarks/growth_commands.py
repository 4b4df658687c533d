"""How the real commands grow, to a million pairs and 100,000 subjects: processor seconds, peak memory, slopes.

    python -m benchmarks.growth_commands [--json] [--out FILE] [--quick] [--threads 1]

`costar whatif --subjects` answers ten plans of six steps with `mixed`, without and with `--average`; `costar evaluate`
scores `ridge` and `last-value`; `costar effect` compares two plans of four steps by regressions. Data are a linear
system of 12 steps, and subjects grow tenfold at a time. Slopes are those of log cost over all sizes, beyond that of
the command on few subjects: 1 is in proportion. `python -m benchmarks.ingest_events` measures reading.
"""

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

import costar_cli
from benchmarks.measure import Child, Figure, Measured, run, run_child

SIZES: Final = (1_000, 10_000, 100_000)
QUICK: Final = (200, 400)
FEW: Final = 60  # subjects, of whom a command answers in no time: what it takes to start
OTHERS: Final = {"train": 500, "val": 200, "target_train": 8, "target_val": 8, "target_test": 8}
PLANS: Final = 10


def write_plans(path: Path, count: int, steps: int) -> None:
    """Write so many plans, each of so many steps."""
    plans = {f"plan {i}": [{"treatment": (i >> h) & 1} for h in range(steps)] for i in range(count)}
    path.write_text(json.dumps({"origin": 4, "plans": plans}))


def commands(folder: Path, subjects: int, seed: int, threads: int) -> dict[str, Child]:
    """Run each command on so many subjects."""
    work = folder / f"{subjects}"
    work.mkdir()
    data = costar_cli.simulate("linear", test=subjects, steps=12, horizon=6, seed=seed, **OTHERS)
    data.save(work / "data.h5")
    for method in ("mixed", "ridge", "last-value"):
        costar_cli.fit(data, method).save(work / f"model-{method}.h5")
    write_plans(work / "many.json", PLANS, 6)
    write_plans(work / "two.json", 2, 4)
    common: tuple[str, ...] = ("-w", str(work), "--json", "--threads", str(threads))
    who = ("--subjects", "source/test")
    whatif = ("whatif", *who, "--plan", str(work / "many.json"), "--model", str(work / "model-mixed.h5"), *common)
    scored = [word for name in ("ridge", "last-value") for word in ("--model", str(work / f"model-{name}.h5"))]
    asked = {
        "whatif": (*whatif, "--csv", str(work / "answers.parquet")),
        "averages": (*whatif, "--average"),
        "evaluate": ("evaluate", "--no-plots", *scored, *common),
        "effect": (
            "effect",
            *who,
            "--plan",
            str(work / "two.json"),
            "--learner",
            "regression",
            "--unsupported",
            *common[:-2],
        ),
    }
    return {name: run_child("-m", "costar_cli", *words) for name, words in asked.items()}


def slope(sizes: Sequence[int], costs: Sequence[float], least: float) -> float:
    """Return the slope of log cost beyond the least, by least squares."""
    beyond = np.maximum(np.asarray(costs) - least, 1e-3)
    return float(np.polyfit(np.log(sizes), np.log(beyond), 1)[0])


def measure(options: argparse.Namespace) -> Measured:
    sizes = QUICK if options.quick else SIZES
    with tempfile.TemporaryDirectory() as temporary:
        made = {n: commands(Path(temporary), n, options.seed, options.threads) for n in (FEW, *sizes)}
    figures: dict[str, Figure] = {}
    points: dict[str, list[Any]] = {}
    for name, start in made[FEW].items():
        children = [made[n][name] for n in sizes]
        points[name] = [[child.cpu_s, child.peak_mb, child.elapsed_s] for child in (start, *children)]
        for what, unit, of in (("cpu", "s", 3), ("memory", "MB", 1)):
            costs = [float(child[of]) for child in children]
            label = f"{name}, {sizes[-1]:,} subjects"
            figures[f"{name}_{what}"] = Figure(f"{what} of {label}", costs[-1], unit)
            grows = slope(sizes, costs, float(start[of]))
            figures[f"{name}_{what}_slope"] = Figure(f"slope of {what} of {label}", grows)
    return Measured(figures, {"sizes": [FEW, *sizes], "points": points, "plans": PLANS})


def main(argv: Sequence[str] | None = None) -> None:
    run("growth_commands", __doc__, measure, argv, repeats=1)


if __name__ == "__main__":
    main()
