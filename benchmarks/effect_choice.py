"""How often held-out subjects pick the method whose effect is best: by forecasts, and by an estimate of the effect.

    python -m benchmarks.effect_choice [--seeds 8] [--subjects 1000] [--methods NAME,NAME] [--out FILE]

In the worlds of `tests/feedback_worlds.py` methods learn from `source/train`. Each has two scores: `forecast`, the
error of factual validation windows by which methods are selected, and `effect`, how far its mean difference of always
and never, three steps after origin 1, on subjects whom it did not learn from is from what `costar effect` says of all,
which asks no method. The best method is the one whose difference is nearest to the truth. A row has, by world, how
often either score picks it, and the mean error of the effect of what each picks, of the best, and of a method drawn by
lot.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import costar_cli as costar
from benchmarks.machine import commit, machine
from costar_cli.api.estimates import validate_on
from tests.feedback_worlds import BINARY, LINEAR, FeedbackWorld

__all__ = ["main"]

WORLDS = {"linear": LINEAR, "binary": BINARY}
STEPS, ORIGIN = 3, 1
METHODS = "ridge,boosting,msm,mixed,gcomp"
PLANS = {"never": [{}] * STEPS, "always": [{"a": 1}] * STEPS}
HELD_OUT = ("val", "test")


def judged(world: FeedbackWorld, n: int, seed: int, methods: Sequence[str]) -> dict[str, list[float]]:
    """Return by method its forecast score, its effect score, and the error of its effect, signs left out."""
    dataset = world.dataset(n=n, rows=ORIGIN + STEPS + 2, horizon=STEPS, seed=seed)
    truth = float((world.mean_under([1.0] * STEPS, origin=ORIGIN) - world.mean_under([0.0] * STEPS, origin=ORIGIN))[-1])
    others = [
        name for part, panel in dataset.panels.items() if part.split in HELD_OUT for name in panel.subject_id.tolist()
    ]
    estimated = costar.estimate_effects(
        dataset, {"plans": PLANS}, origin=ORIGIN, estimator="sdr", learner="regression", unsupported=True
    )
    robust = next(row["estimate"] for row in reversed(estimated.rows) if row["quantity"] == "difference")
    scores = {}
    for method in methods:
        model = costar.fit(dataset, method, preset="quick")
        rows = model.average(dataset, {"plans": PLANS}, subjects=others, origin=ORIGIN, frame="polars").to_dicts()
        row = next(row for row in reversed(rows) if (row["quantity"], row["step"]) == ("difference", STEPS))
        validation = validate_on(dataset, model.fitted, "source")
        assert validation is not None  # noqa: S101 - the worlds have validation subjects
        own = row["model_estimate"]
        scores[method] = [float(np.mean(validation.members)), abs(own - robust), abs(own - truth)]
    return scores


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--subjects", type=int, default=1000)
    parser.add_argument("--methods", default=METHODS)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    methods, worlds = options.methods.split(","), {}
    for name, world in WORLDS.items():
        found = [judged(world, options.subjects, seed, methods) for seed in range(options.seeds)]
        table_SMK = np.array([[scores[method] for method in methods] for scores in found])
        best_S, error_SM = table_SMK[..., 2].argmin(axis=1), table_SMK[..., 2]
        of = {"seeds": options.seeds, "best": float(error_SM.min(axis=1).mean()), "by lot": float(error_SM.mean())}
        for k, rule in enumerate(("forecast", "effect")):
            pick_S = table_SMK[..., k].argmin(axis=1)
            of[f"{rule} picks it"] = float((pick_S == best_S).mean())
            of[f"error of what {rule} picks"] = float(error_SM[np.arange(len(pick_S)), pick_S].mean())
            of[f"{rule} picked"] = {methods[m]: int((pick_S == m).sum()) for m in np.unique(pick_S)}
        worlds[name] = of | {"mean error": dict(zip(methods, error_SM.mean(axis=0).round(4).tolist(), strict=True))}
        print(name, json.dumps(worlds[name], indent=1), flush=True)
    if options.out is not None:
        document = {"machine": machine(), "commit": commit(), "subjects": options.subjects, "worlds": worlds}
        options.out.write_text(json.dumps(document, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
