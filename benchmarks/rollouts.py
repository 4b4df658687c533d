"""Queries per second of every method: each history encoded once, or again for each query.

    python -m benchmarks.rollouts [--json] [--out FILE] [--quick] [--patients 30] [--sample 512]

The test part of a tumour cohort of 60 days (gamma 10) with its one-step and treatment-sequence queries, every method
of the registry with the paper's sizes, one member, float32, trained for one epoch on few patients: speed does not
depend on what the weights are. *Once* is what `costar evaluate` does: encode every patient, answer all queries from
that (`encode` and `answer` where a method offers them, else `rollout`). *Again* is the same method asked with one row
per query, its series cut off at its origin, 256 rows at a time; it is timed on a random sample of each query set and
scaled. The predictions of both are compared.

How much encoding once brings is bounded by what a method does per query anyway: G-Net simulates 50 futures of each,
autoregressive decoders take a step for each step of the plan, COSTAR and the linear methods read the plan at once.
Rates are per query, whatever the number of steps; a sequence query has six.
"""

import argparse
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import Figure, Measured, interleaved, run
from costar_cli.config.models import FinetuneConfig, RuntimeConfig
from costar_cli.data import Dataset, Panel, Part, Queries
from costar_cli.data.tumor.settings import TumorConfig
from costar_cli.data.tumor.simulate import simulate_tumor
from costar_cli.files import Artifact
from costar_cli.methods import METHODS
from costar_cli.methods.base import FittedModel
from costar_cli.reporting import NullReporter
from costar_cli.training import RunIdentity, finetune

__all__ = ["answer_all", "cut_off", "fitted", "main"]

ROWS = 256  # of a batch that is encoded again
TEST = Part("source", "test")
OF_EACH_KIND = ("costar", "msm", "crn-erm", "ct-erm", "last-value")  # what a quick run does: not all methods


def cohort(options: argparse.Namespace) -> Dataset:
    """Simulate patients to train on briefly, and those that are asked about."""
    patients, days = (4, 14) if options.quick else (options.patients, 60)
    few = {"train": 64, "val": 16, "target_train": 1, "target_val": 1, "target_test": 1}
    return simulate_tumor(TumorConfig(gamma=10.0, test=patients, steps=days, seed=options.seed, **few), NullReporter())


def fitted(name: str, dataset: Dataset) -> FittedModel:
    """Return a method after one epoch, of one member."""
    with tempfile.TemporaryDirectory() as folder:
        trained = finetune(
            dataset,
            FinetuneConfig(epochs=1, members=1),
            RuntimeConfig(device="cpu"),
            domain="source",
            start=None,
            checkpoint=Path(folder) / "run.h5",
            identity=RunIdentity(""),
            reporter=NullReporter(),
            method=METHODS[name],
            settings=METHODS[name].default_settings(),
        )
    return METHODS[name].load(Artifact("model", trained.arrays, trained.meta, trained.parents))


def answer_all(model: FittedModel, panel: Panel, sets: Sequence[Queries]) -> list[NDArray[np.float32]]:
    """Answer query sets about one panel, which is encoded once."""
    states = model.encode(panel)
    return [model.answer(states, queries) for queries in sets]


def cut_off(panel: Panel, queries: Queries) -> tuple[Panel, Queries]:
    """Return a panel with a row of its own for each query, in which nothing is known after its origin."""
    own = panel.take(queries.subject.astype(np.int64))
    length = queries.origin.astype(np.int64) + 1
    known_QT1 = (np.arange(panel.n_steps) < length[:, None])[..., None]
    before_QT1 = (np.arange(panel.n_steps) < length[:, None] - 1)[..., None]
    own = replace(
        own,
        covariates=own.covariates * known_QT1,
        outcomes=own.outcomes * known_QT1,
        treatments=own.treatments * before_QT1,
        length=length,
    )
    return own, replace(queries, subject=np.arange(len(queries), dtype=np.int32))


def answer_again(model: FittedModel, panel: Panel, sets: Sequence[Queries]) -> list[NDArray[np.float32]]:
    """Answer query sets with every query's history encoded for itself."""
    answers = []
    for queries in sets:
        batches = [queries.take(slice(first, first + ROWS)) for first in range(0, len(queries), ROWS)]
        answers.append(np.concatenate([model.rollout(*cut_off(panel, batch)) for batch in batches], axis=1))
    return answers


def measure(options: argparse.Namespace) -> Measured:
    dataset = cohort(options)
    panel = dataset.panels[TEST]
    sets = [replace(q, outcomes=None, scored=None) for q in dataset.queries[TEST].values()]
    rng = np.random.default_rng(options.seed)
    size = 32 if options.quick else options.sample
    samples = [q.take(rng.choice(len(q), size=min(size, len(q)), replace=False)) for q in sets]
    total, sampled = (sum(len(q) for q in asked) for asked in (sets, samples))
    figures = {"queries": Figure(f"queries about {panel.n_subjects} patients", total)}
    details: dict[str, object] = {"queries": dict(zip(dataset.queries[TEST], map(len, sets), strict=True))}
    for name in OF_EACH_KIND if options.quick else [name for name in METHODS if not METHODS[name].needs]:
        model = fitted(name, dataset)
        ways: dict[str, Callable[[], object]] = {
            "once": partial(answer_all, model, panel, sets),
            "again": partial(answer_again, model, panel, samples),
        }
        timings = interleaved(ways, options.repeats)
        once, again = total / timings["once"].median_s, sampled / timings["again"].median_s
        key, label = METHODS[name].section, METHODS[name].label
        figures[f"queries_per_s_{key}"] = Figure(f"{label}: each history encoded once", once, "queries/s")
        figures[f"ratio_{key}"] = Figure(f"{label}: times the rate of encoding it for each query", once / again, "x")
        figures[f"difference_{key}"] = Figure(f"{label}: largest difference", _difference(model, panel, samples), "sd")
        details[name] = {way: vars(timing) for way, timing in timings.items()}
    return Measured(figures, details)


def _difference(model: FittedModel, panel: Panel, samples: Sequence[Queries]) -> float:
    """Return by how much the two ways differ at most, in standard deviations of the outcome."""
    pairs = zip(answer_all(model, panel, samples), answer_again(model, panel, samples), strict=True)
    return max(float(np.abs(once - again).max()) for once, again in pairs) / float(model.scaler.outcomes[1][0])


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--patients", type=int, default=30, help="test patients")
    parser.add_argument("--sample", type=int, default=512, help="queries per set whose histories are encoded again")


def main(argv: Sequence[str] | None = None) -> None:
    run("rollouts", __doc__, measure, argv, repeats=3, add_options=_add_options)


if __name__ == "__main__":
    main()
