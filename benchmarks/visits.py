"""What it is worth to know how far visits are apart, on tumours seen on random days, where the truth is known.

    python -m benchmarks.visits [--visits 4] [--seeds 10,101] [--methods mixed,growth] [--patients 300]

The same visits are learned from twice: with the time between them, and counted as even steps. Errors are of
counterfactual plans at the visits of the test patients, of the target (zero-shot) and of the source (supervised): the
RMSE in % of V_max, mean over the steps, of which a few large tumours hold the most, and the typical error, which is
the median over answers in % of the volume, where the tumour is above 1 cm3 at the origin. Of the mixed model it tells
the half-life of chemotherapy, too: the simulator's is one day (spec TUMOR-4), and half a visit is no number of days.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from benchmarks.choice_of_method import test_error
from benchmarks.comparing import fitted
from costar_cli.data import Dataset, Panel, Part, Queries
from costar_cli.data.queries import as_plans
from costar_cli.data.tumor.settings import TumorConfig
from costar_cli.data.tumor.simulate import simulate_tumor
from costar_cli.methods.base import FittedModel
from costar_cli.methods.mixed.model import MixedModel
from costar_cli.reporting import NullReporter

LEAST, SEEN_CM3 = 0.1, 1.0  # of the volume at the origin; at the origin
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


def typical_error(dataset: Dataset, model: FittedModel, part: Part) -> float:
    """Return the median error of treatment sequences in % of the true volume and a tenth of that at the origin."""
    panel, queries = dataset.panels[part], dataset.queries[part]["sequence"]
    assert queries.outcomes is not None  # noqa: S101 - a simulator answered them
    begun_Q, true_QH = panel.outcomes[queries.subject, queries.origin, 0], queries.outcomes[..., 0]
    error_QH = np.abs(model.rollout(panel, queries)[0, ..., 0] - true_QH) / (true_QH + LEAST * begun_Q[:, None])
    return 100 * float(np.median(error_QH[begun_Q > SEEN_CM3]))


def half_life(model: object) -> str:
    """Return after how many steps half of chemotherapy is gone, by the mixed model; nothing of others."""
    if not isinstance(model, MixedModel):
        return ""
    return f"{np.log(0.5) / np.log(model.effects[0].decay[0, 0]):.2f}"


def rows(visits: int, seed: int, patients: int, methods: Sequence[str]) -> None:
    """Print a row per method: errors with the time between visits, without, and their ratios."""
    whole = seen(visits, seed, patients)
    both = whole, counted_as_steps(whole)
    for method in methods:
        models = [fitted(data, method, preset="quick", members=1) for data in both]
        cells = [f"{seed}", method]
        for part in PARTS.values():
            pairs = [*zip(both, models, strict=True)]
            cells += [" / ".join(f"{test_error(data, model, part):.2f}" for data, model in pairs)]
            cells += [" / ".join(f"{typical_error(data, model, part):.1f}" for data, model in pairs)]
        print(f"| {' | '.join([*cells, half_life(models[0])])} |", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--visits", type=int, default=4)
    parser.add_argument("--seeds", default="10,101")
    parser.add_argument("--methods", default="mixed,growth")
    parser.add_argument("--patients", type=int, default=300)
    options = parser.parse_args()
    print("errors with the time between visits / counted as steps")
    heads = [f"{setup}, {which}" for setup in PARTS for which in ("RMSE", "typical")]
    heads = ["seed", "method", *heads, "half-life, days"]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for seed in options.seeds.split(","):
        rows(options.visits, int(seed), options.patients, options.methods.split(","))


if __name__ == "__main__":
    main()
