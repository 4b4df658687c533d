"""What bands and ratings cost a what-if question: the time of an answer with them over that without.

    python -m benchmarks.whatif [--json] [--out FILE] [--quick] [--patients 300]

A tumour cohort (gamma 10), and of it the mixed model, the growth GRU and COSTAR (three members, from random weights,
trained for few updates: speed does not depend on what the weights are). Each is asked about one patient under three
plans of six days: by `costar_cli.questions.estimate_outcomes` in one process, with rows and facts as they are printed,
and by the command `costar whatif --json`, a process for each answer. *Without* is the same model whose file has no
calibration and no practice.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.comparing import made
from benchmarks.evaluate_memory import costar
from benchmarks.measure import Figure, Measured, interleaved, ratio, run
from costar_cli.data import Dataset
from costar_cli.data.store import write_dataset
from costar_cli.data.tumor.settings import TumorConfig
from costar_cli.data.tumor.simulate import simulate_tumor
from costar_cli.files import Artifact, write_artifact
from costar_cli.methods.base import FittedModel
from costar_cli.methods.registry import METHODS
from costar_cli.methods.stored import model_of
from costar_cli.plans import parse_plans
from costar_cli.questions import estimate_outcomes
from costar_cli.reporting import NullReporter

PLANS = '{"plans": {"watch": [{}, {}, {}, {}, {}, {}], "chemo": %s, "both": %s}}'
COMMANDS = 7  # answers of the command that are timed
GIVEN = '[{"chemotherapy": 1}, {"chemotherapy": 1}, {}, {}, {}, {}]', '[{"radiotherapy": 1}, {}, {}, {}, {}, {}]'


def without(artifact: Artifact) -> Artifact:
    """Return a model that knows neither bands nor lights."""
    arrays = {k: v for k, v in artifact.arrays.items() if not k.startswith(("calibration/", "practice/"))}
    meta = {k: v for k, v in artifact.meta.items() if k not in ("calibration", "practice")}
    return replace(artifact, arrays=arrays, meta=meta)


def answer(dataset: Dataset, model: FittedModel, subject: int) -> None:
    """Answer the question, with all that is told of it."""
    request = parse_plans(PLANS % GIVEN, dataset.schema.treatments, horizon=6)
    report = estimate_outcomes(dataset, {"model": model}, request, subject=subject)
    report.to_rows(), report.model_facts()


def measure(options: argparse.Namespace) -> Measured:
    sizes = {"train": options.patients, "val": options.patients, "test": 8}
    few = {"target_train": 1, "target_val": 1, "target_test": 1}
    steps = 30 if options.quick else 60
    dataset = simulate_tumor(TumorConfig(gamma=10.0, steps=steps, seed=options.seed, **sizes, **few), NullReporter())
    panel = dataset.panel("source", "test")
    subject = int(panel.subject_id[panel.length.argmax()])
    figures: dict[str, Figure] = {}
    details: dict[str, object] = {}
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_dataset(folder / "data.h5", dataset)
        (folder / "plans.json").write_text(PLANS % GIVEN, encoding="utf-8")
        for name in ("mixed",) if options.quick else ("mixed", "growth", "costar"):
            short = {} if METHODS[name].closed_form else {"updates": 20}
            artifact, label = made(dataset, name, preset="quick", members=3, **short).artifact, METHODS[name].label
            inside: dict[str, Callable[[], object]] = {}
            command: dict[str, Callable[[], object]] = {}
            for way, of in (("with", artifact), ("without", without(artifact))):
                file = folder / f"{name}-{way}.h5"
                write_artifact(file, kind=of.kind, arrays=of.arrays, meta=of.meta, parents=of.parents)
                inside[way] = partial(answer, dataset, model_of(of), subject)
                words = ("whatif", "--data", str(folder / "data.h5"), "--model", str(file), "--subject", str(subject))
                command[way] = partial(costar, *words, "--plan", str(folder / "plans.json"), "--json")
            for how, ways, repeats in (("in one process", inside, options.repeats), ("the command", command, COMMANDS)):
                timings = interleaved(ways, min(repeats, options.repeats))
                key = f"{name}_{how.split()[-1]}"
                figures[f"ratio_{key}"] = Figure(
                    f"{label}, {how}: with bands and lights", ratio(timings, "with", "without"), "x", 1.2, at_most=True
                )
                figures[f"without_ms_{key}"] = Figure(
                    f"{label}, {how}: without", 1_000 * timings["without"].median_s, "ms"
                )
                details[key] = {way: vars(timing) for way, timing in timings.items()}
    return Measured(figures, details)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--patients", type=int, default=300, help="of training and of validation")


def main(argv: Sequence[str] | None = None) -> None:
    run("whatif", __doc__, measure, argv, repeats=30, add_options=_add_options)


if __name__ == "__main__":
    main()
