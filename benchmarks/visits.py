"""What it is worth to know how far visits are apart, on tumours seen on random days, where the truth is known.

    python -m benchmarks.visits [--visits 4] [--seeds 10,101] [--methods mixed,growth,boosting] [--patients 300]

The same visits are learned from twice: with the time between them, and counted as even steps. Errors are of
counterfactual plans at the visits of the test patients, RMSE in % of V_max, mean over the steps, of the target
(zero-shot) and of the source (supervised). Of the mixed model it tells the half-life of chemotherapy, too: the
simulator's is one day (spec TUMOR-4), and half a visit is no number of days.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from benchmarks.choice_of_method import test_error
from benchmarks.comparing import fitted
from costar_cli.datasets.tumor.settings import TumorConfig
from costar_cli.datasets.tumor.simulate import simulate_tumor
from costar_cli.methods.mixed.model import MixedModel
from costar_cli.panel import Dataset, Panel, Part, Queries
from costar_cli.panel.queries import as_plans
from costar_cli.reporting import NullReporter

PARTS = {"zero-shot": Part("target", "test"), "supervised": Part("source", "test")}


def counted_as_steps(dataset: Dataset) -> Dataset:
    """Return visits as even steps: the same data without the time between them."""
    encoding = dataset.schema.treatments
    width, levels = encoding.level_width, encoding.model_copy(update={"doses": ()})

    def asked(queries: Queries) -> Queries:
        return replace(queries, plan=as_plans(queries.plan[..., :width]))

    def panel(whole: Panel) -> Panel:
        return replace(whole, treatments=whole.treatments[..., :width], calendar=None)

    return replace(
        dataset,
        schema=dataset.schema.model_copy(update={"treatments": levels, "step": "day"}),
        panels={part: panel(whole) for part, whole in dataset.panels.items()},
        queries={part: {name: asked(one) for name, one in sets.items()} for part, sets in dataset.queries.items()},
    )


def seen(visits: int, seed: int, patients: int) -> Dataset:
    """Return tumours seen so many days apart on average."""
    few = {"train": patients, "val": patients // 3, "test": patients // 3, "target_train": 20}
    few |= {"target_val": patients // 3, "target_test": patients // 3}
    return simulate_tumor(TumorConfig(visits=visits, seed=seed, **few), NullReporter())


def half_life(model: object) -> str:
    """Return after how many steps half of chemotherapy is gone, by the mixed model; nothing of others."""
    if not isinstance(model, MixedModel):
        return ""
    return f"{np.log(0.5) / np.log(model.effects[0].decay[0, 0]):.2f}"


def rows(visits: int, seed: int, patients: int, methods: Sequence[str]) -> None:
    """Print a row per method: errors with the time between visits, without, and their ratios."""
    dataset = seen(visits, seed, patients)
    for method in methods:
        both = [fitted(data, method, preset="quick", members=1) for data in (dataset, counted_as_steps(dataset))]
        cells = [f"{seed}", method]
        for part in PARTS.values():
            known, counted = test_error(dataset, both[0], part), test_error(counted_as_steps(dataset), both[1], part)
            cells += [f"{known:.3f}", f"{counted:.3f}", f"{known / counted:.2f}"]
        print(f"| {' | '.join([*cells, half_life(both[0])])} |", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--visits", type=int, default=4)
    parser.add_argument("--seeds", default="10,101")
    parser.add_argument("--methods", default="mixed,growth,boosting")
    parser.add_argument("--patients", type=int, default=300)
    options = parser.parse_args()
    heads = [f"{setup}, {which}" for setup in PARTS for which in ("gaps known", "as steps", "ratio")]
    heads = ["seed", "method", *heads, "half-life of chemotherapy, days"]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for seed in options.seeds.split(","):
        rows(options.visits, int(seed), options.patients, options.methods.split(","))


if __name__ == "__main__":
    main()
