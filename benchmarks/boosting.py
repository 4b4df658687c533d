"""What the trees of `boosting` take beside LightGBM's, on the same rows with the same settings: time and error.

    python -m benchmarks.boosting [--json] [--out FILE] [--quick]

Each data set is fitted once to see the rows of every step (300 tumour patients, the `quick` linear system and retail
panel); rivals then take turns to learn from them on one thread, stopping early on the validation rows, on which the
error is measured, too: LightGBM alone, and `boosting` with either library (`boosting.library`). LightGBM comes by
`pip install 'costar[lightgbm]'`.
"""

import argparse
import os
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final
from unittest.mock import patch

import numpy as np
from threadpoolctl import threadpool_limits

import costar_cli as costar
from benchmarks.measure import Figure, Measured, run
from costar_cli.config.choices import TreeLibrary
from costar_cli.methods.boosting import method
from costar_cli.methods.boosting.settings import BoostingConfig
from costar_cli.methods.shared.cores import LIMIT
from costar_cli.methods.shared.grow import Rows, grow

GOAL_TIME, GOAL_ERROR = 1.5, 1.0
SETTINGS: Final = BoostingConfig()
DATASETS: Final[dict[str, dict[str, Any]]] = {
    "tumor": {"train": 300, "val": 100, "test": 4, "target_train": 1, "target_val": 30, "target_test": 1},
    "linear": {},
    "m5": {},
}
Predictions = np.ndarray[Any, np.dtype[np.float64]]


def measure(options: argparse.Namespace) -> Measured:
    figures, details = dict[str, Figure](), dict[str, object]()
    rivals: dict[str, Callable[[Rows, Rows], Predictions]] = {
        "lightgbm": _lightgbm,
        "scikit-learn": partial(_costar, library="scikit-learn"),
        "costar": partial(_costar, library="lightgbm"),
    }
    for dataset in ["linear"] if options.quick else DATASETS:
        tasks = rows_of(dataset, options.seed)
        cpu_s, errors = dict.fromkeys(rivals, 0.0), {name: list[float]() for name in rivals}
        with threadpool_limits(1), patch.dict(os.environ, {LIMIT: "1"}):  # LightGBM asks for threads by itself
            for train, validation in tasks:
                for name, fit in rivals.items():
                    start = time.process_time()
                    predicted_M = fit(train, validation)
                    cpu_s[name] += time.process_time() - start
                    squared_M = (predicted_M - validation.answer_M) ** 2
                    errors[name].append(float(np.sqrt(np.average(squared_M, weights=validation.weight_M))))
        mean = {name: float(np.mean(of_steps)) for name, of_steps in errors.items()}
        for name, suffix, words in (("scikit-learn", "", ""), ("costar", "_lightgbm", " with LightGBM")):
            times, worse = cpu_s[name] / cpu_s["lightgbm"], mean[name] / mean["lightgbm"]
            for key, ratio, goal in (("time", times, GOAL_TIME), ("error", worse, GOAL_ERROR)):
                label = f"{dataset}{words}: {key} over LightGBM's"
                figures[f"{dataset}{suffix}_{key}"] = Figure(label, ratio, "times", goal, at_most=True)
        shape = [len(tasks[0][0].answer_M), tasks[0][0].columns_MP.shape[1]]
        details[dataset] = {"rows, columns": shape, "cpu_s": cpu_s, "error": errors}
    return Measured(figures, details)


def rows_of(dataset: str, seed: int) -> list[tuple[Rows, Rows]]:
    """Return the rows that the trees of each step learn from and stop on."""
    tasks: list[tuple[Rows, Rows]] = []

    def kept(train: Rows, validation: Rows, *given: Any, **more: Any) -> Any:
        tasks.append((train, validation))
        return grow(train, validation, *given, **more)

    with warnings.catch_warnings(), patch.object(method, "grow", kept):
        warnings.simplefilter("ignore")
        costar.fit(costar.simulate(dataset, preset="quick", seed=seed, **DATASETS[dataset]), "boosting")
    return tasks


def _costar(train: Rows, validation: Rows, library: TreeLibrary) -> Predictions:
    forest, _ = grow(train, validation, SETTINGS, 0, library=library)
    return forest.predict(validation.columns_MP)


def _lightgbm(train: Rows, validation: Rows) -> Predictions:
    import lightgbm  # noqa: PLC0415 - an extra

    learned = lightgbm.Dataset(train.columns_MP, train.answer_M, weight=train.weight_M)
    checked = lightgbm.Dataset(
        validation.columns_MP, validation.answer_M, weight=validation.weight_M, reference=learned
    )
    settings = {
        "objective": "l2", "num_leaves": SETTINGS.leaves, "min_data_in_leaf": SETTINGS.leaf_rows,
        "learning_rate": SETTINGS.learning_rate, "lambda_l2": SETTINGS.penalty, "num_threads": 1, "verbosity": -1,
    }  # fmt: skip
    stop = lightgbm.early_stopping(SETTINGS.patience, verbose=False)
    trees = lightgbm.train(settings, learned, SETTINGS.trees, valid_sets=[checked], callbacks=[stop])
    return np.asarray(trees.predict(validation.columns_MP))


def main(argv: Sequence[str] | None = None) -> None:
    run("boosting", __doc__, measure, argv, repeats=1)


if __name__ == "__main__":
    main()
