"""How often held-out subjects pick the method whose effect is best: by forecasts, by an estimate of it, by `auto`.

    python -m benchmarks.effect_choice [--seeds 8] [--subjects 1000] [--methods NAME,NAME] [--out FILE.csv]

In the worlds of `tests/feedback_worlds.py` methods learn from `source/train`. Each has two scores: `forecast`, the
error of factual validation windows, and `effect`, how far its mean difference of always and never, three steps after
origin 1, on subjects whom it did not learn from is from what `costar effect` says of all, which asks no method. The
best method is the one whose difference is nearest to the truth. `auto` is the stack of all of them, which mostly gives
one all the weight, and `auto, unchecked` the same without the comparison with a doubly robust estimate (STACK-10). A
row has, by world, how often each picks the best method (of a stack the part with the most weight), and the mean error
of the effect of what it picks, of the best, and of a method drawn by lot. In FILE, by default
`benchmarks/results/effect_choice.csv`, rows take the place of older ones of the same methods, subjects and world.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import numpy as np

import costar_cli as costar
from benchmarks.comparing import Row, provenance, read, replaced, write
from costar_cli.api.estimates import validate_on
from costar_cli.data import Panel
from costar_cli.data.panel import join_panels
from costar_cli.methods.base import FittedModel
from costar_cli.plans import IndexTimes
from tests.feedback_worlds import BINARY, LINEAR, FeedbackWorld

__all__ = ["main"]

WORLDS = {"linear": LINEAR, "binary": BINARY}
STEPS, ORIGIN = 3, 1
METHODS = "ridge,boosting,msm,mixed,gcomp"
PLANS = {"never": [{}] * STEPS, "always": [{"a": 1}] * STEPS}
HELD_OUT = ("val", "test")
AUTO = ("auto", "auto, unchecked")
RULES = ("forecast", "effect", *AUTO)
OUT = Path(__file__).resolve().parent / "results" / "effect_choice.csv"


def own_effect(model: FittedModel, panel: Panel) -> float:
    """Return a model's mean difference of always and never after the last step."""
    moments = IndexTimes.of(panel, ORIGIN)
    never, always = (
        model.rollout(panel, moments.queries(np.full((len(moments), STEPS, 1), given))).mean(axis=(0, 1), dtype=float)
        for given in (0, 1)
    )
    return float((always - never)[-1, 0])


def judged(world: FeedbackWorld, n: int, seed: int, methods: Sequence[str]) -> dict[str, list[float]]:
    """Return by method its forecast score, its effect score, the error of its effect, and its weight in both stacks.

    Errors have no sign. `auto` and `auto, unchecked` have the error alone.
    """
    dataset = world.dataset(n=n, rows=ORIGIN + STEPS + 2, horizon=STEPS, seed=seed)
    truth = float((world.mean_under([1.0] * STEPS, origin=ORIGIN) - world.mean_under([0.0] * STEPS, origin=ORIGIN))[-1])
    held_out = join_panels([panel for part, panel in dataset.panels.items() if part.split in HELD_OUT])
    estimated = costar.estimate_effects(
        dataset, {"plans": PLANS}, origin=ORIGIN, estimator="sdr", learner="regression", unsupported=True
    )
    robust = next(row["estimate"] for row in reversed(estimated.rows) if row["quantity"] == "difference")
    parts = ",".join(methods)
    stacks = [costar.fit(dataset, "stack", preset="quick", parts=parts).fitted]
    with patch("costar_cli.training.fit.effect_check", return_value=None):
        stacks.append(costar.fit(dataset, "stack", preset="quick", parts=parts).fitted)
    weights = [{row["method"]: row["weight"] for row in stack.record.leaderboard or ()} for stack in stacks]
    scores = {name: [abs(own_effect(stack, held_out) - truth)] for name, stack in zip(AUTO, stacks, strict=True)}
    for method in methods:
        model = stacks[0].parts[method]
        validation = validate_on(dataset, model, "source")
        assert validation is not None  # noqa: S101 - the worlds have validation subjects
        own = own_effect(model, held_out)
        forecast = float(np.mean(validation.members))
        scores[method] = [forecast, abs(own - robust), abs(own - truth), *(weight[method] for weight in weights)]
    return scores


def measure(name: str, methods: Sequence[str], subjects: int, seeds: int) -> Row:
    """Return the row of a world."""
    found = [judged(WORLDS[name], subjects, seed, methods) for seed in range(seeds)]
    table_SMK = np.array([[scores[method] for method in methods] for scores in found])
    best_S, error_SM = table_SMK[..., 2].argmin(axis=1), table_SMK[..., 2]
    row = {"methods": " ".join(methods), "subjects": f"{subjects}", "world": name, "seeds": f"{seeds}"}
    row |= {"best": f"{error_SM.min(axis=1).mean():.4f}", "by lot": f"{error_SM.mean():.4f}"}
    picks = {rule: table_SMK[..., k].argmin(axis=1) for k, rule in enumerate(RULES[:2])}
    picks |= {rule: table_SMK[..., 3 + k].argmax(axis=1) for k, rule in enumerate(AUTO)}
    for rule, pick_S in picks.items():
        of_S = [scores[rule][0] for scores in found] if rule in AUTO else error_SM[np.arange(seeds), pick_S]
        row |= {rule: f"{np.mean(of_S):.4f}", f"{rule} picks it": f"{(pick_S == best_S).sum()}"}
    each = " ".join(f"{method} {error:.4f}" for method, error in zip(methods, error_SM.mean(axis=0), strict=True))
    return row | {"error of each": each} | provenance()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--subjects", type=int, default=1000)
    parser.add_argument("--methods", default=METHODS)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(arguments)
    for name in WORLDS:
        row = measure(name, options.methods.split(","), options.subjects, options.seeds)
        print(row, flush=True)
        kept = read(options.out) if options.out.exists() else []
        write(options.out, replaced(kept, [row], "methods", "subjects", "world"), list(row))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
