"""What the mixed-effects model takes: fitting 1,000 subjects, and answering 1.5 million queries.

    python -m benchmarks.mixed [--json] [--out FILE] [--quick] [--threads 2] [--repeats 3] [--patients 1000]

Simulated tumour patients at gamma 10. The fit is a whole one, calibration of bands included. The queries are the
counterfactual test sets, both kinds, of each domain's panel; their time is scaled to 1.5 million. Goals, on the clock
of two cores: 15 s to fit and 3 s to answer.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

import costar_cli as costar
from benchmarks.measure import Figure, Measured, run
from benchmarks.scoring import by_panel, query_sets

__all__ = ["main", "measure"]

Result = TypeVar("Result")
GOAL_FIT_S, GOAL_ANSWER_S, QUERIES = 15.0, 3.0, 1_500_000


def measure(options: argparse.Namespace) -> Measured:
    patients, tests = (60, 4) if options.quick else (options.patients, 700)
    dataset = costar.simulate(
        "tumor", gamma=10.0, seed=options.seed, train=patients, val=max(patients // 3, 30), test=1,
        target_train=1, target_val=30, target_test=tests,
    )  # fmt: skip
    model, fit_s = timed(lambda: costar.fit(dataset, "mixed"), options.repeats)
    asked = [(panel, queries) for panel, sets in by_panel(query_sets(dataset)).values() for queries in sets.values()]
    counted = sum(len(queries) for _, queries in asked)
    _, answer_s = timed(lambda: [model.fitted.rollout(panel, queries) for panel, queries in asked], options.repeats)
    scaled_s = answer_s * QUERIES / counted
    return Measured(
        {
            "fit_s": Figure(f"fitting {patients:,} subjects", fit_s, "s", GOAL_FIT_S, at_most=True),
            "answer_s": Figure("answering 1.5 million queries", scaled_s, "s", GOAL_ANSWER_S, at_most=True),
        },
        {"patients": patients, "queries": counted},
    )


def timed(call: Callable[[], Result], repeats: int) -> tuple[Result, float]:
    """Return what a call returns, and the median of its times on the clock."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = call()
        times.append(time.perf_counter() - start)
    return result, float(np.median(times))


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--patients", type=int, default=1000)


def main(argv: Sequence[str] | None = None) -> None:
    run("mixed", __doc__, measure, argv, repeats=3, add_options=_add_options)


if __name__ == "__main__":
    main()
