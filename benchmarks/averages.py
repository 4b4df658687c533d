"""How often intervals of average outcomes and effects cover the truth (spec AVERAGE-1 to 4), where it is known.

    python -m benchmarks.averages [--worlds tumor,linear] [--methods mixed] [--runs 16] [--members 3] [--out FILE.csv]
    python -m benchmarks.averages --corrected [--worlds overlap,linear] [--methods ridge,boosting,crn] [--n 1200]

Each run simulates a world of its own, fits each method to 150 source subjects (preset `quick`), and averages over the
100 test subjects under three plans: nothing, the first treatment at every step, and both treatments at the first.
`population` compares the intervals with the true means over 2,000 other subjects of the same population, `group` with
those of the 100 themselves. Methods without a posterior have none of this kind, and are refused; their rows in the
table are of a version that gave them some. Coverage is a share of runs, plans and steps; plans and steps of a run are
not independent, so that `se` is that of the mean over runs. FILE.json beside the table has machine, versions, commit
and seconds of each world and method. A later run replaces the rows of its worlds and methods, and keeps others.

`--corrected` asks how far averages of forecasts are from the truth where treatment reacts to the course, as the model
says them and corrected by followers (spec AVERAGE-6): always less never after the last step, in n subjects of
`tests/effect_worlds.py` whom a model of n others is asked about. Its table is `results/corrected.csv`.
"""

import argparse
import json
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np

import costar_cli
from benchmarks.comparing import Row, fitted, made, provenance, read, replaced, write
from benchmarks.machine import commit, machine, versions
from costar_cli.data import Dataset
from costar_cli.methods.base import FittedModel
from costar_cli.plans import PlanRequest, TreatmentPlan
from costar_cli.questions import (
    AverageEffects,
    Averager,
    Cohort,
    answer_cohort,
    choose_subjects,
    groups_of,
    join_places,
    names_of,
    true_answers,
)
from costar_cli.reporting import NullReporter
from tests.effect_worlds import TRUTH, in_parts
from tests.feedback_worlds import LINEAR

LEVELS: Final = (0.9, 0.5)
OUT: Final = Path(__file__).resolve().parent / "results" / "averages.csv"
ORIGIN: Final = 10
PART: Final = {"target_train": 8, "target_val": 8, "target_test": 4}
SMALL: Final = {"train": 150, "val": 40, "test": 100, **PART}
LARGE: Final = {"train": 2_000, "val": 8, "test": 2, **PART}
CORRECTED: Final = OUT.with_name("corrected.csv")
REACTS: Final = {"overlap": (3, 0), "linear": (2, 1)}  # steps of plans, and the row at which they begin
SETTINGS: Final[dict[str, dict[str, Any]]] = {"tumor": {"gamma": 4.0, "steps": 30}, "linear": {}}


def plans_of(dataset: Dataset) -> PlanRequest:
    """Return three plans as long as the horizon."""
    nothing = np.zeros((dataset.horizon, len(dataset.schema.treatments.names)), dtype=np.int64)
    always, both = nothing.copy(), nothing.copy()
    always[:, 0], both[0] = 1, 1
    named = {"nothing": nothing, "always": always, "both": both}
    return PlanRequest(tuple(TreatmentPlan(name, values) for name, values in named.items()))


def averages(dataset: Dataset, model: FittedModel, part: str) -> AverageEffects:
    """Return averages over the subjects of a part that have the origin."""
    places = choose_subjects(dataset, part)
    panel = join_places(dataset, places)
    cohort = Cohort.of(panel, names_of(panel), places, origin=ORIGIN, skip=True)
    request = plans_of(dataset)
    averager = Averager(cohort, request, *groups_of(cohort, dataset.schema, None))
    for answers in answer_cohort(model.method, model, cohort, request):
        averager.add(answers, true_answers(dataset, answers))
    return averager.finish(model.method, model, LEVELS)


def measure(world: str, method: str, runs: int, members: int) -> Iterator[Row]:
    """Yield a row per quantity, kind of truth and level."""
    large = costar_cli.simulate(world, seed=9_999, **SETTINGS[world], **LARGE)
    population: AverageEffects | None = None
    found: list[AverageEffects] = []
    for run in range(runs):
        dataset = costar_cli.simulate(world, seed=run, **SETTINGS[world], **SMALL)
        model = fitted(dataset, method, preset="quick", members=members)
        population = population or averages(large, model, "source/train")
        found.append(averages(dataset, model, "source/test"))
        sys.stderr.write(f"{world}, {method}: {run + 1} of {runs}\n")
    assert population is not None  # noqa: S101 - there is a run
    if "posterior" not in population.interval_kind:  # corrected ones rest on another estimator
        raise SystemExit(f"{method}: {population.interval_kind}")
    for quantity in ("outcomes", "differences"):
        true, own = getattr(population, quantity).truth_GPHY, [getattr(each, quantity) for each in found]
        for i, level in enumerate(LEVELS):
            for kind in ("population", "group"):
                yield {"world": world, "method": method, "quantity": quantity, "truth": kind, "level": f"{level}",
                       **_coverage(own, true, kind, i, quantity),
                       "interval_kind": found[0].interval_kind, "runs": f"{runs}"}  # fmt: skip


def _coverage(own: Sequence[Any], population: Any, kind: str, i: int, quantity: str) -> Row:
    plans = slice(1 if quantity == "differences" else 0, None)
    shares, widths = [], []
    for each in own:
        true = population if kind == "population" else each.truth_GPHY
        apart = np.abs(each.mean_GPHY - true)[0, plans]
        shares.append(float((apart <= each.half_LGPHY[i, 0, plans]).mean()))
        widths.append(float((2 * each.half_LGPHY[i, 0, plans]).mean()))
    se = float(np.std(shares, ddof=1) / np.sqrt(len(shares))) if len(shares) > 1 else float("nan")
    values = {"coverage": (np.mean(shares), 3), "se": (se, 3), "width": (np.mean(widths), 4)}
    return {name: f"{round(float(value), digits)}" for name, (value, digits) in values.items()}


def corrected(world: str, method: str, runs: int, n: int) -> Row:
    """Return errors of the effect that a method says, of the corrected one, and how often its interval holds."""
    steps, origin = REACTS[world]
    if world == "overlap":
        truth = TRUTH[world]["always"][0] - TRUTH[world]["never"][0]
    else:
        always, never = (LINEAR.mean_under([a] * steps, origin=origin)[-1] for a in (1.0, 0.0))
        truth = float(always - never)
    plans: dict[str, Any] = {"never": {"repeat": {}, "times": steps}, "always": {"repeat": {"a": 1}, "times": steps}}
    errors, found, inside = list[float](), list[float](), list[bool]()
    for run in range(runs):
        dataset = replace(in_parts(world, n, run), horizon=steps)
        model = made(dataset, method, preset="quick", members=1)
        ask: dict[str, Any] = {"part": "source/test", "origin": origin, "progress": NullReporter()}
        rows = model.average(dataset, {"plans": plans}, frame="polars", **ask).to_dicts()
        last = next(row for row in rows if (row["quantity"], row["group"], row["step"]) == ("difference", "all", steps))
        errors.append(last["model_estimate"] - truth)
        if last["estimator"] == "tmle":
            found.append(last["estimate"] - truth)
            inside.append(last["lower"] <= truth <= last["upper"])
        sys.stderr.write(f"{world}, {method}: {run + 1} of {runs}\n")
    return {
        "world": world, "method": method, "n": f"{n}", "steps": f"{steps}", "truth": f"{truth:.3f}", "runs": f"{runs}",
        "rmse": f"{np.sqrt(np.mean(np.square(errors))):.4f}", "corrected": f"{len(found)}",
        "corrected_rmse": f"{np.sqrt(np.mean(np.square(found))):.4f}", "coverage": f"{np.mean(inside):.3f}",
    } | provenance()  # fmt: skip


def keep(path: Path, world: str, method: str, rows: Sequence[Row], seconds: float) -> None:
    """Put the rows of a method into a table in the place of older ones, and beside it how they were made."""
    rows = replaced(read(path) if path.exists() else [], rows, "world", "method")
    order = list(SETTINGS)
    write(path, sorted(rows, key=lambda row: (order.index(row["world"]), row["method"] != "mixed")), list(rows[0]))
    beside = path.with_suffix(".json")
    about: dict[str, Any] = json.loads(beside.read_text("utf-8")) if beside.exists() else {}
    about[f"{world} {method}"] = {"machine": machine(), "versions": versions(), "commit": commit(), "seconds": seconds}
    beside.write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds")
    parser.add_argument("--methods")
    parser.add_argument("--runs", type=int, default=16)
    parser.add_argument("--members", type=int, default=3)
    parser.add_argument("--corrected", action="store_true")
    parser.add_argument("--n", type=int, default=1_200, help="subjects, with --corrected")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore", costar_cli.CostarWarning)
    worlds, methods = ("overlap,linear", "ridge,boosting,crn") if options.corrected else ("tumor,linear", "mixed")
    for world, method in product((options.worlds or worlds).split(","), (options.methods or methods).split(",")):
        start = time.perf_counter()
        if options.corrected:
            path, rows = options.out or CORRECTED, [corrected(world, method, options.runs, options.n)]
            write(path, replaced(read(path) if path.exists() else [], rows, "world", "method"), list(rows[0]))
        else:
            rows = list(measure(world, method, options.runs, options.members))
            keep(options.out or OUT, world, method, rows, time.perf_counter() - start)
        sys.stdout.write("".join(f"{row}\n" for row in rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
