"""Retail prices as classes and as a dose: how much of the true effect of a price each recovers.

    python -m benchmarks.prices [--seeds 10,101] [--methods mixed,boosting]
    python -m benchmarks.prices --table

Writes benchmarks/results/prices.csv. Both data sets have the same sales and ask the same questions: what is sold next
week at five other prices (`one_step`). An effect is the difference from keeping the first week's price, in units per
week; the true one is that of expected sales (spec LIMIT-6). `recovered` is the slope of the line through the origin of
estimated on true effects, `effect_error` their root mean square difference, `rmse` that of the estimates themselves,
`rises` at how many of the 20 steps between the 21 prices of classes, from the lowest to the highest, mean estimated
sales rise.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.calibration import SIZES
from benchmarks.comparing import Row, fitted, provenance, read, write
from costar_cli.config.models import Config
from costar_cli.data import Dataset, Part, Queries, as_plans
from costar_cli.data.registry import sources
from costar_cli.data.retail.truth import m5_limit
from costar_cli.methods.base import FittedModel
from costar_cli.reporting import NullReporter
from costar_cli.settings.resolve import resolve

RESULTS: Final = Path(__file__).parent / "results" / "prices.csv"
NUMBERS: Final = ("recovered", "effect_error", "true_effect", "rmse", "rises")
FIELDS: Final = ("seed", "price", "method", "part", "queries", *NUMBERS, "machine", "versions", "commit")
PRICES: Final = ("classes", "dose")

Floats = NDArray[np.float64]


def simulated(seed: int, price: str) -> Dataset:
    """Return the retail data of the quick preset, with as many items as `benchmarks.calibration` takes."""
    source = sources()["m5"]
    flags: dict[type[Config], dict[str, object]] = {source.settings: {"seed": seed, "price": price, **SIZES["m5"]}}
    return source.simulate(resolve(flags, preset="quick", dataset="m5")[source.settings], NullReporter())


def measured(dataset: Dataset, model: FittedModel, part: Part) -> dict[str, float]:
    """Return what a model says of prices on a test part, beside the truth."""
    panel, asked, encoding = dataset.panels[part], dataset.queries[part]["one_step"], dataset.schema.treatments
    kept = replace(asked, plan=as_plans(encoding.encode(np.zeros((len(asked), 1, 1), dtype=encoding.value_type))))

    def both(queries: Queries) -> tuple[Floats, Floats]:
        plan = encoding.decode(queries.plan)
        true = np.reshape(m5_limit(dataset, part, queries.subject, queries.origin, plan), len(queries))
        return model.rollout(panel, queries)[:, :, 0, 0].mean(axis=0).astype(np.float64), true

    (found, true), (found_kept, true_kept) = both(asked), both(kept)
    effect, true_effect = found - found_kept, true - true_kept
    assert asked.outcomes is not None  # noqa: S101 - the simulator answered
    return {
        "recovered": float(effect @ true_effect / (true_effect @ true_effect)),
        "effect_error": float(np.sqrt(np.mean((effect - true_effect) ** 2))),
        "true_effect": float(np.sqrt(np.mean(true_effect**2))),
        "rmse": float(np.sqrt(np.mean((found - asked.outcomes[:, 0, 0]) ** 2))),
        "rises": rises(dataset, model, part),
    }


def rises(dataset: Dataset, model: FittedModel, part: Part) -> int:
    """Return how often the mean of estimated sales rises with the price, along the prices that classes stand for."""
    panel, encoding, change = dataset.panels[part], dataset.schema.treatments, dataset.config["world"]["change"]
    row, middle = np.arange(panel.n_subjects, dtype=np.int32), (panel.length // 2).astype(np.int16)
    means = []
    for k in np.argsort(change).tolist():
        given = np.full((len(row), 1, 1), change[k] if encoding.doses else k, dtype=encoding.value_type)
        queries = Queries(row, middle, as_plans(encoding.encode(given)))
        means.append(float(model.rollout(panel, queries)[:, :, 0, 0].mean()))
    return int((np.diff(means) > 0).sum())


def rows(seeds: Sequence[int], methods: Sequence[str]) -> Iterator[Row]:
    """Yield a row per seed, encoding, method and test part."""
    for seed, price in product(seeds, PRICES):
        dataset = simulated(seed, price)
        for method in methods:
            model = fitted(dataset, method, preset="quick", members=3)
            for part in (Part("source", "test"), Part("target", "test")):
                numbers = {name: f"{value:.4g}" for name, value in measured(dataset, model, part).items()}
                facts = {"seed": str(seed), "price": price, "method": method, "part": str(part)}
                yield facts | {"queries": str(len(dataset.queries[part]["one_step"]))} | numbers


def table(stored: Sequence[Row]) -> Iterator[str]:
    """Yield a line per part, method and encoding: means over seeds."""
    yield "| part | method | price | share of the effect | error of the effect | rises of 20 | RMSE |"
    yield "|---|---|---|---:|---:|---:|---:|"
    for part, method, price in sorted({(row["part"], row["method"], row["price"]) for row in stored}):
        of = [row for row in stored if (row["part"], row["method"], row["price"]) == (part, method, price)]
        mean = {name: np.mean([float(row[name]) for row in of]) for name in NUMBERS}
        yield (
            f"| {part} | `{method}` | {price} | {mean['recovered']:.2f} | {mean['effect_error']:.2f} of "
            f"{mean['true_effect']:.2f} | {mean['rises']:.1f} | {mean['rmse']:.2f} |"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, store the rows, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="10,101")
    parser.add_argument("--methods", default="mixed,boosting")
    parser.add_argument("--table", action="store_true", help="only print the table of stored rows")
    options = parser.parse_args(arguments)
    if not options.table:
        made, seeds = provenance(), [int(seed) for seed in options.seeds.split(",")]
        stored = [row | made for row in rows(seeds, options.methods.split(","))]
        write(RESULTS, stored, FIELDS)
    sys.stdout.write("\n".join(table(read(RESULTS))) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
