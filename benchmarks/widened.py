"""Coverage of 90 % bands with and without `--widen`, on counterfactual questions about a source's test subjects.

    python -m benchmarks.widened DATA.h5 [--methods ridge,boosting] [--preset quick]

Rows are scored as `python -m benchmarks.calibration` scores them. Questions whose weights leave fewer subjects than
`costar whatif` asks for are scored all the same, and the smallest number that is left at each step is printed.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.calibration import scored
from costar_cli.api.fitting import plan_fit
from costar_cli.config.models import Config, FinetuneConfig, RuntimeConfig
from costar_cli.data import Dataset, Part
from costar_cli.data.store import read_dataset
from costar_cli.files import Artifact
from costar_cli.inference import calibration_of
from costar_cli.methods.base import FittedModel
from costar_cli.methods.registry import METHODS
from costar_cli.methods.stored import model_of
from costar_cli.reporting import NullReporter
from costar_cli.settings.resolve import resolve


def fitted(dataset: Dataset, method: str, preset: str) -> FittedModel:
    """Return a method fitted to the source."""
    flags: dict[type[Config], dict[str, object]] = {FinetuneConfig: {"members": 3}, RuntimeConfig: {"device": "cpu"}}
    if METHODS[method].closed_form:
        del flags[FinetuneConfig]
    settings = resolve(flags, preset=preset, dataset=dataset.name)
    plan = plan_fit(settings, method, "source", dataset=dataset.digest, start=None)
    with tempfile.TemporaryDirectory() as folder:
        trained = plan.run(dataset, None, checkpoint=Path(folder) / "run.h5", reporter=NullReporter())
    return model_of(Artifact("model", trained.arrays, trained.meta, trained.parents))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line per method, kind of question and band."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--methods", default="ridge,boosting")
    parser.add_argument("--preset", default="quick", choices=("quick", "default", "paper"))
    options = parser.parse_args(arguments)
    dataset = read_dataset(options.data)
    for method in options.methods.split(","):
        model = fitted(dataset, method, options.preset)
        calibration = calibration_of(model)
        if calibration is None or calibration.plans is None:
            raise SystemExit(f"{method} has no band to widen")
        left = calibration.plans.effective_HYB.min(axis=(1, 2)).round().astype(int).tolist()
        sys.stdout.write(f"{method}: {calibration.subjects} subjects, by step {left}\n")
        for name, radius in (("plain", calibration.radius_LHYB), ("widened", calibration.plans.radius_LHYB)):
            own = replace(calibration, radius_LHYB=radius)
            for kind, (_, found) in scored(dataset, model, own, Part("source", "test")).items():
                level = found.calibration["0.9"]
                steps = [None if value is None else round(100 * value, 1) for value in level.coverage.steps]
                average, width = level.coverage.average, level.width.average
                sys.stdout.write(f"  {kind}, {name}: {average}, width {width}, by step {steps}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
