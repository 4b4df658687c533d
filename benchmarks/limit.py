"""The best possible prediction on simulated data sets: RMSE per step, and the processor time that it takes.

python -m benchmarks.limit [FILE...]    # without files: tumours of paper size, 10,000/1,000/1,000 patients per domain

Each line is a test part, in the unit of the data set (docs/spec/limit.md).
"""

import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from costar_cli.data import Dataset, Part, Scaler
from costar_cli.data.store import read_dataset
from costar_cli.data.tumor.settings import TumorConfig
from costar_cli.data.tumor.simulate import simulate_tumor
from costar_cli.evaluation.limit import known_limit, score_limit
from costar_cli.evaluation.metrics import average_over_steps
from costar_cli.evaluation.score import TestPart
from costar_cli.reporting import NullReporter

BATCH = 65_536


def lines(dataset: Dataset) -> Iterator[str]:
    """Yield the bound on each test part, with the seconds of processor time that it took."""
    unit = dataset.schema.error_unit
    denominator_Y = Scaler.fit(dataset.panel("source", "train"), dataset.schema).error_scale(dataset.schema)
    for place in (part for part in Part.all() if dataset.queries.get(part)):
        limit = known_limit(dataset, place)
        if limit is None:
            yield f"{place}: no bound"
            continue
        part = TestPart.of(dataset.panels[place], dataset.queries[place], dataset.horizon)
        begun, reporter = time.process_time(), NullReporter()
        with reporter.task("limit") as task:
            scored, _ = score_limit(
                dataset, limit, place, part, denominator_Y=denominator_Y, batch_size=BATCH, task=task, reporter=reporter
            )
        took_s = time.process_time() - begun
        for truth, errors in scored.items():
            rmse_H = unit.factor * errors.rmse()[0]
            steps = "  ".join(f"{value:.3f}" for value in (*rmse_H, average_over_steps(rmse_H)))
            yield f"{place}, {truth}, {part.panel.n_subjects:,} subjects: {steps} (average)  {took_s:.1f} s"


def main(files: list[str]) -> None:
    """Print the bound of files, or of tumours of paper size."""
    named = ((file, read_dataset(Path(file))) for file in files)
    paper = (("tumour, paper size, seed 10", simulate_tumor(TumorConfig(), NullReporter())) for _ in range(not files))
    for name, dataset in (*named, *paper):
        print(name)
        for line in lines(replace(dataset, digest="")):
            print(f"  {line}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
