"""Searches: how long it takes to score all plans and to compare the best of them, once a model is loaded.

    python -m benchmarks.search [--json] [--out FILE] [--quick] [--methods mixed,costar] [--members 5]

All 4,096 plans of six steps for each of 100 tumour patients, and the 1,024 of five steps for one: scored, the best
compared by joint draws, with what the data support, as `costar search` does. Methods are fitted before, for one update
on few patients: speed does not depend on what the weights are.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

import costar_cli as costar
from benchmarks.measure import Figure, Measured, interleaved, run
from costar_cli.config.choices import InitName
from costar_cli.data import Dataset, Panel, Part
from costar_cli.data.tumor.settings import TumorConfig
from costar_cli.data.tumor.simulate import simulate_tumor
from costar_cli.methods import METHODS
from costar_cli.methods.base import FittedModel
from costar_cli.questions.search import SearchRequest, search
from costar_cli.reporting import NullReporter

__all__ = ["main"]

GOAL_MANY_S, GOAL_ONE_MS = 5.0, 50.0
REQUEST = SearchRequest(minimise=("tumour_volume at end",), cost=("chemotherapy 0.5", "radiotherapy 0.5"))


def searched(model: FittedModel, panel: Panel, steps: int) -> int:
    """Search the best plan of every subject of a panel; return how many plans were scored."""
    question = replace(REQUEST, steps=steps).question(model, many=panel.n_subjects > 1)
    origin_N = np.minimum(panel.length - 1, 20)
    return sum(best.considered for best in search(model.method, model, panel, origin_N, question))


def fitted(name: str, dataset: Dataset, members: int) -> FittedModel:
    """Return a method after one epoch, without pretraining."""
    if METHODS[name].closed_form:
        return costar.fit(dataset, method=name, preset="quick", progress=NullReporter()).fitted
    init: InitName | None = "scratch" if METHODS[name].pretrained else None
    return costar.fit(
        dataset, method=name, preset="quick", init=init, members=members, updates=1, progress=NullReporter()
    ).fitted


def measure(options: argparse.Namespace) -> Measured:
    """Time the searches of each method."""
    few = {"train": 64, "val": 32, "target_train": 1, "target_val": 1, "target_test": 1}
    subjects, steps = (3, 2) if options.quick else (100, 6)
    config = TumorConfig(gamma=10.0, test=subjects, steps=60, seed=options.seed, **few)
    dataset = simulate_tumor(config, NullReporter())
    panel, figures, details = dataset.panels[Part("source", "test")], dict[str, Figure](), dict[str, Any]()
    one = panel.take(np.array([0]))
    for name in options.methods.split(","):
        model = fitted(name, dataset, options.members)
        runs = {"many": partial(searched, model, panel, steps), "one": partial(searched, model, one, steps - 1)}
        times, goals = interleaved(runs, options.repeats), (None, None) if options.quick else (GOAL_MANY_S, GOAL_ONE_MS)
        many, single = (
            f"{subjects} subjects, all plans of {steps} steps",
            f"one subject, all plans of {steps - 1} steps",
        )
        figures[f"{name}_many"] = Figure(f"{name}: {many}", times["many"].median_s, "s", goals[0], at_most=True)
        figures[f"{name}_one"] = Figure(
            f"{name}: {single}", 1_000 * times["one"].median_s, "ms", goals[1], at_most=True
        )
        details[name] = {"members": model.members, "plans": {key: call() for key, call in runs.items()}}
    return Measured(figures, details)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what only this benchmark has."""
    parser.add_argument("--methods", default="mixed,costar")
    parser.add_argument("--members", type=int, default=5)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    run("search", __doc__, measure, argv, repeats=3, add_options=add_options)


if __name__ == "__main__":
    main()
