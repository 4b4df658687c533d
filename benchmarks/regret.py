"""How much following a model's best plan loses against the best plan that the simulator knows.

    python -m benchmarks.regret [--worlds tumor,linear,m5,mimic] [--seeds 10,101,1010] [--methods mixed,growth]
    python -m benchmarks.regret --table FILE.csv
    python -m benchmarks.regret --effects [--worlds m5] [--seeds 10] [--methods mixed]

Each method is fitted to the source, as `calibration` simulates and fits it, and searches the plans of 100 test subjects
of each domain, as `costar evaluate --search` does (spec SEARCH-8); beside it are policies that need no model. `--out`
keeps the rows of other worlds, seeds and methods. `--effects` prints how often each treatment was given to training
subjects, and its mean effect on the first outcome of a source test subject a step later: estimated, and true.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, product
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.calibration import LABELS, simulated
from benchmarks.comparing import Row, fitted, provenance, read, replaced, write
from costar_cli.data import Dataset, Part, Queries
from costar_cli.data.registry import truth_of
from costar_cli.methods.base import FittedModel
from costar_cli.questions.search import SearchRequest
from costar_cli.questions.search.regret import regrets

QUESTIONS: Final[Mapping[str, SearchRequest]] = {
    "tumor": SearchRequest(minimise=("tumour_volume at end",), cost=("chemotherapy 0.5", "radiotherapy 0.5")),
    "linear": SearchRequest(minimise=("outcome at end",), cost=("treatment 0.5",)),
    "m5": SearchRequest(maximise=("sales mean",), cost=("price_change 0.5",)),
    "mimic": SearchRequest(minimise=("y1 at end",), cost=("t1 0.1", "t2 0.1", "t3 0.1")),
}
POLICIES: Final = ("best single plan", "random", "last treatment", "always", "never")
NUMBERS: Final = ("mean", "error", "relative", "best", "covered")
FIELDS: Final = (
    "world", "seed", "method", "part", "policy", "subjects", "plans", "steps", *NUMBERS,
    "seconds", "machine", "versions", "commit",
)  # fmt: skip


def measured(world: str, seed: int, method: str, preset: str) -> Iterator[Row]:
    """Yield the regret of a method's plans and of simple policies, by domain."""
    dataset, began = simulated(world, seed), time.process_time()
    model = fitted(dataset, method, preset=preset, members=3)
    for found in regrets({method: model}, dataset, QUESTIONS[world]):
        told = {name: "" if value is None else str(value) for name, value in found.to_json().items()}
        numbers = {name: f"{float(told[name]):.5g}" for name in NUMBERS if told[name]}
        seconds = f"{time.process_time() - began:.0f}"
        yield {"world": world, "seed": str(seed), "method": method, "seconds": seconds, **told, **numbers}


def effects(dataset: Dataset, model: FittedModel) -> Iterator[str]:
    """Yield a line per treatment of a step that training subjects had, from the middle of the test subjects' series."""
    train, part, answer = dataset.panel("source", "train"), Part("source", "test"), truth_of(dataset.name)
    assert answer is not None  # noqa: S101 - these worlds are simulated
    encoding, panel = dataset.schema.treatments, dataset.panels[part]
    seen_KA, count_K = np.unique(encoding.decode(train.treatments[train.observed]), axis=0, return_counts=True)
    row_N, origin_N = np.arange(panel.n_subjects), panel.length // 2
    found_2KN = np.empty((2, len(seen_KA), len(row_N)))
    for k, values_A in enumerate(seen_KA):
        plan_N1A = np.tile(values_A, (len(row_N), 1, 1))
        plan = encoding.encode(plan_N1A).astype(np.uint8)
        queries = Queries(row_N.astype(np.int32), origin_N.astype(np.int16), plan)
        found_2KN[0, k] = model.rollout(panel, queries)[:, :, 0, 0].mean(axis=0)
        found_2KN[1, k] = np.reshape(answer(dataset, part, row_N, origin_N, plan_N1A), (len(row_N), -1))[:, 0]
    mean_2K = (found_2KN - found_2KN[:, :1]).mean(axis=2)
    for values_A, count, estimate, truth in zip(seen_KA, count_K, *mean_2K, strict=True):
        yield f"{encoding.describe(values_A)}: given {count:,} times, effect {estimate:.2f}, true {truth:.2f}"


def table(stored: Sequence[Row]) -> Iterator[str]:
    """Yield relative regrets in percent, the mean over seeds and their range, a line per world, domain and policy."""
    yield "| data | plans | policy | source | target | best found | covered | commit |"
    yield "|---|---:|---|---:|---:|---:|---:|---|"
    order = list(QUESTIONS)
    rows = sorted(stored, key=lambda row: (order.index(row["world"]), policy_rank(row), row["part"]))
    told = ""
    for (world, policy), group in groupby(rows, key=lambda row: (row["world"], policy_of(row))):
        of = list(group)
        first = (LABELS[world], f"{int(of[0]['plans']):,} of {of[0]['steps']}") if world != told else ("", "")
        cells = [cell(of, "relative", f"{domain}/test") for domain in ("source", "target")]
        made_at = ", ".join(dict.fromkeys(row["commit"] for row in of))
        yield f"| {' | '.join([*first, policy, *cells, cell(of, 'best'), cell(of, 'covered'), made_at])} |"
        told = world


def policy_of(row: Row) -> str:
    """Return what a policy is called in the table."""
    return row["policy"] if row["policy"] not in POLICIES else f"*{row['policy']}*"


def policy_rank(row: Row) -> tuple[int, str]:
    """Return where a policy stands: those of models first."""
    return (POLICIES.index(row["policy"]) if row["policy"] in POLICIES else -1), row["policy"]


def cell(rows: Sequence[Row], name: str, part: str = "") -> str:
    """Return a share in percent: the mean over seeds (and domains), with the range over seeds of one domain."""
    values = [100 * float(row[name]) for row in rows if row[name] and part in ("", row["part"])]
    if not values:
        return ""
    low, high = f"{min(values):.0f}", f"{max(values):.0f}"
    return f"{np.mean(values):.0f} %" if not part or low == high else f"{np.mean(values):.0f} % ({low} to {high})"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, store rows as they come, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", default=",".join(QUESTIONS))
    parser.add_argument("--seeds", default="10,101,1010")
    parser.add_argument("--methods", default="mixed")
    parser.add_argument("--preset", default="quick")
    parser.add_argument("--out", type=Path, help="table to write; rows of other worlds, seeds and methods are kept")
    parser.add_argument("--effects", action="store_true", help="print mean effects of treatments, and the true ones")
    parser.add_argument("--table", type=Path, help="only print the table of stored rows")
    options = parser.parse_args(arguments)
    if options.table:
        sys.stdout.write("\n".join(table(read(options.table))) + "\n")
        return 0
    asked = list(product(options.worlds.split(","), map(int, options.seeds.split(",")), options.methods.split(",")))
    if options.effects:
        for world, seed, method in asked:
            dataset = simulated(world, seed)
            model = fitted(dataset, method, preset=options.preset, members=3)
            sys.stdout.writelines(f"{world} {seed} {method} {line}\n" for line in effects(dataset, model))
        return 0
    stored = read(options.out) if options.out and options.out.exists() else []
    made = provenance()
    for world, seed, method in asked:
        new = [row | made for row in measured(world, seed, method, options.preset)]
        stored = replaced(stored, new, "world", "seed", "part", "policy")
        if options.out:
            write(options.out, stored, FIELDS)
    sys.stdout.write("\n".join(table(stored)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
