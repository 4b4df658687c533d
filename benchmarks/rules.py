"""What rules of treatment are estimated to be worth on average, against simulating them.

    python -m benchmarks.rules DATA.h5 ... [--methods mixed,growth] [--preset quick] [--members 3] [--out FILE.csv]

Each method is fitted to the source of each simulated data set. Rules are asked of its test subjects at the middle step,
over the whole horizon; the truth plays them on the simulator (spec PLAN-5 to 7):

- `threshold`: the first treatment where the first outcome is above its median at the origin;
- `threshold, spaced`: the same, but not at the step after a treatment;
- `coin`: the first treatment with probability 0.3.

A row has the mean over subjects of the last step's outcome, and of its difference from never treating, estimated and
true, with the 90 % interval of the difference. `draws` is how far the means of a model's draws are from its estimates
of the fixed plans, relative: median and 90 % quantile over subjects.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.comparing import Row, fitted, write
from benchmarks.machine import commit, machine, machine_slug
from costar_cli.data import Dataset, Location, Part
from costar_cli.data.store import read_dataset
from costar_cli.methods.base import FittedModel
from costar_cli.plans import PlanRequest, parse_plans
from costar_cli.questions import Averager, Cohort, answer_cohort, names_of, true_answers
from costar_cli.questions.answers import ask_plans

FIELDS = (
    "data", "method", "rule", "subjects", "estimate", "truth", "difference", "true_difference", "lower", "upper",
    "draws", "machine", "commit",
)  # fmt: skip
TEST = Part("source", "test")
DRAWS = 1_000
MOST_DRAWN = 60  # subjects


def request_of(dataset: Dataset, origin: int) -> PlanRequest:
    """Return the rules, after never treating."""
    treatment, outcome = dataset.schema.treatments.names[0], dataset.schema.outcomes[0].name
    panel = dataset.panels[TEST]
    middle = float(np.median(panel.outcomes[panel.length > origin + dataset.horizon, origin, 0]))
    high, end = f"`{treatment}` if `{outcome}` > {middle:.6g}", {"until": "end"}
    plans = {
        "never": {"repeat": {}} | end,
        "threshold": {"rule": high} | end,
        "threshold, spaced": {"rule": f"{high} and `{treatment}` in last 1 < 1"} | end,
        "coin": {"rule": f"`{treatment}`", "with probability": 0.3} | end,
        "always": {"repeat": {treatment: 1}} | end,
    }
    return parse_plans(json.dumps({"plans": plans}), dataset.schema, horizon=dataset.horizon)


def measure(path: Path, method: str, options: argparse.Namespace) -> Iterator[Row]:
    """Yield the rows of a method on a data set."""
    dataset = read_dataset(path, queries=False)
    model = fitted(dataset, method, preset=options.preset, members=options.members)
    panel, horizon = dataset.panels[TEST], dataset.horizon
    origin = panel.n_steps // 2 - 1
    rows = np.flatnonzero(panel.length > origin + horizon)
    some = panel.take(rows)
    cohort = Cohort.of(some, names_of(some), [Location(TEST, int(row)) for row in rows], origin=origin)
    request = request_of(dataset, origin)
    averager = Averager(cohort, request, ("all",), np.ones((1, len(cohort)), dtype=bool))
    for answers in answer_cohort(method, model, cohort, request):
        averager.add(answers, true_answers(dataset, answers))
    found = averager.finish(method, model, (0.9,))
    last = [
        row for row in found.to_rows() if row["step"] == horizon and row["outcome"] == dataset.schema.outcomes[0].name
    ]
    made = {"machine": machine_slug(machine()), "commit": commit(), "draws": draws_off(model, cohort, request)}
    for plan in [plan.name for plan in request.plans][1:]:
        mean, apart = (
            next(r for r in last if (r["plan"], r["quantity"]) == (plan, q)) for q in ("outcome", "difference")
        )
        values = (mean["estimate"], mean["truth"], apart["estimate"], apart["truth"], apart["lower"], apart["upper"])
        numbers = {name: f"{value:.4g}" for name, value in zip(FIELDS[4:10], values, strict=True)}
        yield {"data": path.stem, "method": method, "rule": plan, "subjects": str(len(cohort))} | numbers | made


def draws_off(model: FittedModel, cohort: Cohort, request: PlanRequest) -> str:
    """Return how far means of draws are from estimates, at the last step of plans; empty where there are no draws."""
    if not model.draws_courses:
        return ""
    some = cohort.take(slice(MOST_DRAWN))
    fixed = [plan for plan in request.plans if plan.name in ("never", "always")]
    plans = PlanRequest(tuple(fixed)).fixed
    moment_Q = np.repeat(np.arange(len(some)), len(plans))
    queries = ask_plans(model, some.moments(moment_Q), list(plans) * len(some))
    mean_Q = model.rollout(some.panel, queries)[0, :, -1, 0]
    off_Q = np.abs(model.draw_outcomes(some.panel, queries, DRAWS, 0)[:, :, -1, 0].mean(axis=0) - mean_Q)
    relative_Q = off_Q[mean_Q != 0] / np.abs(mean_Q[mean_Q != 0])
    return f"{np.median(relative_Q):.1e} {np.quantile(relative_Q, 0.9):.1e}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure every data set, write the rows as they come, and print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+", type=Path, help="data sets")
    parser.add_argument("--methods", default="mixed,growth", help="methods, separated by commas")
    parser.add_argument("--preset", default="quick", choices=("quick", "default", "paper"))
    parser.add_argument("--members", type=int, default=3)
    parser.add_argument("--out", type=Path, help="table to write")
    options = parser.parse_args(arguments)
    rows: list[Row] = []
    for path in options.data:
        for method in options.methods.split(","):
            for row in measure(path, method, options):
                rows.append(row)
                print("| " + " | ".join(row[name] for name in FIELDS[:-2]) + " |", flush=True)
            if options.out:
                write(options.out, rows, FIELDS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
