"""What the mixed-effects model takes, and how often its bands hold where treatments hardly differed.

    python -m benchmarks.mixed [--json] [--out FILE] [--quick] [--threads 2] [--repeats 3] [--patients 1000]
        [--worlds 8]

Simulated tumour patients at gamma 10. The fit is a whole one, calibration of bands included. The queries are the
counterfactual test sets, both kinds, of each domain's panel; their time is scaled to 1.5 million. Goals, on the clock
of two cores: 15 s to fit and 3 s to answer. Mean and spread of 2,000 of the queries take turns with those of the same
model without what training leaves open.

Bands: two treatments were given to 80 subjects over 24 steps always together, apart in 1, 5 or 20 steps (of as many
subjects), or each at random, with half-lives that are the same or not. In each world the mean effects are drawn anew.
100 further subjects, who never had them apart unless at random, are asked about either alone, and about both or none:
how often does the band at 90 % of the parameters, before calibration, hold what the subject's own effects make of it?
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Final, TypeVar

import numpy as np

import costar_cli as costar
from benchmarks.measure import Figure, Measured, interleaved, ratio, run
from benchmarks.scoring import by_panel, query_sets
from costar_cli.data import Dataset, Panel, Part, Queries
from costar_cli.methods.mixed.law import carried
from costar_cli.methods.mixed.model import MixedModel
from tests.methods.mixed_worlds import DECAY, SCHEMA, SPREAD, TEST, TRAIN, fitted, grow, next_level

__all__ = ["main", "measure"]

Result = TypeVar("Result")
GOAL_FIT_S, GOAL_ANSWER_S, QUERIES = 15.0, 3.0, 1_500_000
SUBJECTS, STEPS, ASKED, HORIZON = 80, 24, 100, 4
APART: Final[dict[str, int | None]] = {"always": 0, "1": 1, "5": 5, "20": 20, "random": None}
HALF_LIVES = {"same": (DECAY, DECAY), "different": (DECAY, 0.0)}
ALONE, OTHERS = (1, 2), (0, 3)  # classes
NINETY = 1.645


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
    assert isinstance(model.fitted, MixedModel)  # noqa: S101 - the method says so
    figures = {
        "fit_s": Figure(f"fitting {patients:,} subjects", fit_s, "s", GOAL_FIT_S, at_most=True),
        "answer_s": Figure(
            "answering 1.5 million queries", answer_s * QUERIES / counted, "s", GOAL_ANSWER_S, at_most=True
        ),
        "spread_ratio": spread_ratio(model.fitted, *asked[-1]),
    }
    worlds, details = (1 if options.quick else options.worlds), dict[str, object]()
    for half_lives, apart in [("same", "1")] if options.quick else product(HALF_LIVES, APART):
        found = [covered(apart, half_lives, seed) for seed in range(worlds)]
        for what, column in (("alone", 0), ("others", 1)):
            name = f"{what}_{apart}_{half_lives}"
            label = f"{_words(apart)}, half-lives {half_lives}: 90 % band of {_WHAT[what]} holds"
            figures[f"covers_{name}"] = Figure(label, 100 * float(np.mean([one[column] for one in found])), "%")
            details[f"covers_{name}"] = [round(100 * float(one[column])) for one in found]
        details[f"error_alone_{apart}_{half_lives}"] = float(np.mean([one[2] for one in found]))
    return Measured(figures, {"patients": patients, "queries": counted, "worlds": worlds, **details})


_WHAT = {"alone": "either alone", "others": "both or none"}


def _words(apart: str) -> str:
    told = {"always": "always together", "random": "each at random"}
    return told.get(apart, f"apart in {apart} step{'' if apart == '1' else 's'}")


def spread_ratio(model: MixedModel, panel: Panel, queries: Queries) -> Figure:
    """Return how much longer mean and spread take than without what training leaves open."""
    some = queries.take(np.linspace(0, len(queries) - 1, min(2_000, len(queries))).astype(int))
    plain = replace(model, params={name: value for name, value in model.params.items() if not name.endswith(".open")})
    runs = {name: partial(one.predict_distribution, panel, some) for name, one in (("with", model), ("without", plain))}
    label = "mean and spread of 2,000 queries, over those without what training leaves open"
    return Figure(label, ratio(interleaved(runs, 15), "with", "without"), "times", 1.1, at_most=True)


def covered(apart: str, half_lives: str, seed: int) -> tuple[float, float, float]:
    """Return how often bands of a world hold of either alone, and of others, and the error of the former.

    That is relative, a median over subjects and steps.
    """
    rng = np.random.default_rng([seed, 1])
    means_4 = np.array([0.05, -0.06, *rng.normal(scale=0.1, size=2)])
    steps_apart, decays = APART[apart], HALF_LIVES[half_lives]
    sizes = {part: SUBJECTS if part == TRAIN else 20 for part in Part.all()} | {TEST: ASKED}
    panels, effects_N4, dose_NT2 = {}, np.empty(0), np.empty(0)
    for i, (part, n) in enumerate(sizes.items()):
        dose_NT2 = rng.integers(2, size=(n, STEPS, 2)).astype(float)
        if steps_apart is not None:
            dose_NT2[..., 1] = dose_NT2[..., 0]
        if part == TRAIN and steps_apart:
            dose_NT2[np.arange(steps_apart), rng.integers(2, STEPS - 2, size=steps_apart)] = [1, 0]
        effects_N4 = means_4 + SPREAD * rng.normal(size=(n, 4)) * [1, 0.5, 1, 1]
        panels[part] = grow(dose_NT2, effects_N4, rng, relative=True, seed=100 * seed + i, decays=decays)
        if part == TEST:
            truth = effects_N4, dose_NT2
    model = fitted(Dataset("grown", SCHEMA, HORIZON, panels))
    return _held(model, panels[TEST], *truth, np.array(decays))


def _held(
    model: MixedModel, panel: Panel, effects_N4: np.ndarray, dose_NT2: np.ndarray, decay_2: np.ndarray
) -> tuple[float, float, float]:
    """Return what `covered` does, of a model."""
    origin, held, errors = STEPS - HORIZON - 1, {}, []
    left_N2 = carried(dose_NT2, decay_2[None])[:, origin - 1] * decay_2
    for given in (*ALONE, *OTHERS):
        plan = np.tile(np.eye(4, dtype=np.uint8)[given], (ASKED, HORIZON, 1))
        predicted = model.predict_distribution(
            panel, Queries(np.arange(ASKED, dtype=np.int32), np.full(ASKED, origin, np.int16), plan)
        )
        y_N, exposure_N2, true_NH = panel.outcomes[:, origin, 0].astype(float), left_N2, np.empty((ASKED, HORIZON))
        for h in range(HORIZON):
            exposure_N2 = exposure_N2 + np.array([given & 1, given >> 1])
            true_NH[:, h] = y_N = next_level(y_N, exposure_N2, effects_N4, np.zeros(ASKED), relative=True)
            exposure_N2 = exposure_N2 * decay_2
        away_NH = np.abs(true_NH - predicted.mean[0, ..., 0])
        held[given] = float((away_NH < NINETY * predicted.sd_parameter[0, ..., 0]).mean())
        if given in ALONE:
            errors.append(float(np.median(away_NH / true_NH)))
    alone, others = (float(np.mean([held[given] for given in some])) for some in (ALONE, OTHERS))
    return alone, others, float(np.mean(errors))


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
    parser.add_argument("--worlds", type=int, default=8)


def main(argv: Sequence[str] | None = None) -> None:
    run("mixed", __doc__, measure, argv, repeats=3, add_options=_add_options)


if __name__ == "__main__":
    main()
