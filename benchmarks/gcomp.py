"""How far step-by-step g-computation is from known effects, by its learner.

    python -m benchmarks.gcomp [WORLD ...] [--learners auto,ridge,boosting] [--seeds 20] [--n 1000] [--intervals]
        [--states] [--out benchmarks/results/gcomp.csv]

Worlds are those of `tests/effect_worlds.py` that have plans of a model: `linear`, `linear-noise`, `binary`, `overlap`,
`trial`. For each seed the method learns from n subjects, stops trees on n / 4 others, and is asked about the n from
row 0: the mean outcome after the last step, of each regime but the reference as its difference from that. Other methods
go by their names; rules are asked of those that predict step by step. `costar` and `costar-alone` have COSTAR's encoder
(`benchmarks/gcomp_costar.py`). A row has the bias, the root mean square error over seeds, how often the 90 % interval
holds the truth, the error of differences of single subjects against simulations from where they stand, the seconds
of the processor that a fit and its answers take, and the squared error of one step of each variable of n others. In
FILE they take the place of older rows of the same worlds and learners.

`--states` asks instead whether a network knows more of a history than the regressions do: by world and variable, the
squared error of one step in the others, of ridge regressions on the columns of a history with the states of a fitted
G-Net and their products with treatment beside them, over that of the columns alone.
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from benchmarks.comparing import Row, read, replaced, write
from benchmarks.gcomp_costar import ALONE, STATES, one_step_network, pretrained, widened
from benchmarks.machine import commit, machine, machine_slug
from costar_cli.config.models import FinetuneConfig
from costar_cli.data import Dataset, Location, Panel, Part
from costar_cli.methods.base import FittedModel
from costar_cli.methods.gcomp.design import Design
from costar_cli.methods.gcomp.model import GcompModel
from costar_cli.methods.gcomp.settings import GcompConfig
from costar_cli.methods.recurrent.model import RecurrentModel
from costar_cli.methods.shared.course import Scales, along
from costar_cli.methods.shared.doses import dose_table
from costar_cli.plans import parse_plans
from costar_cli.questions import Averager, Cohort, answer_cohort, names_of
from tests.effect_worlds import TRUTH, WORLDS, EffectWorld
from tests.fits import fit_method, model_of

__all__ = ["measure"]

FIELDS = (
    "world", "learner", "regime", "seeds", "truth", "bias", "rmse", "coverage", "subject_rmse", "fit_s",
    "answer_s", "step_mse", "chosen", "machine", "commit",
)  # fmt: skip
ANSWERED = ("linear", "linear-noise", "binary", "overlap", "trial")
COPIES = 400  # of each subject that its own truth is a mean of
SOME = 100  # subjects whose own truths are simulated
GNET, GCOMP = "gnet", "gcomp"
SAMPLES, ASKED = 10, 200  # courses of a prediction, and subjects, where a network sees each course
NETWORKS = {STATES: pretrained, ALONE: one_step_network}
PLAIN = ("auto", "ridge", "boosting")  # learners of the method itself
TRAIN, STOP = Part("source", "train"), Part("source", "val")


class Found(NamedTuple):
    """The estimate of a regime's difference from the reference, its interval, and the error of single subjects."""

    estimate: float
    lower: float
    upper: float
    subject_rmse: float
    answer_s: float


def dataset_of(world: EffectWorld, n: int, seed: int) -> Dataset:
    """Return n training subjects and n / 4 others to stop on."""
    whole, others = world.dataset(n, seed), world.dataset(n // 4, 10_000 + seed).panels[TRAIN]
    others = replace(others, subject_id=n + others.subject_id)
    return Dataset("effects", whole.schema, whole.horizon, {TRAIN: whole.panels[TRAIN], STOP: others})


def own_truths(world: EffectWorld, regime: str, n: int, seed: int) -> NDArray[np.float64]:
    """Return the mean last outcome `[N]` of the first subjects of a draw, from where each began."""
    x_NX, y_N = world.start(n, np.random.default_rng([seed, 32]))
    x, y = np.repeat(x_NX[:SOME], COPIES, axis=0), np.repeat(y_N[:SOME], COPIES)
    rng, natural = np.random.default_rng(seed), np.zeros((len(y), len(world.treatments)))
    for _ in range(world.steps):  # the same chance under all regimes
        x, y = world.update(x, y, world.regimes[regime].decide(x, y, natural), rng)
    return np.asarray(y.reshape(-1, COPIES).mean(axis=1))


def ask(
    world: EffectWorld, model: FittedModel, panel: Panel, seed: int, *, asked: int, intervals: bool
) -> dict[str, Found]:
    """Return what a model says of each regime but the reference; intervals take longer than all the rest."""
    regimes = {name: world.regimes[name] for name in dict.fromkeys([world.reference, *world.regimes])}
    plans = {name: regime.steps(world.steps) for name, regime in regimes.items()
             if model.stepwise or "repeat" in regime.plan}  # fmt: skip
    request = parse_plans(json.dumps({"plans": plans}), model.schema, horizon=world.steps)
    some = panel.take(np.arange(asked))
    cohort = Cohort.of(some, names_of(some), [Location(TRAIN, row) for row in range(asked)], origin=0)
    averager, single = Averager(cohort, request, ("all",), np.ones((1, len(cohort)), dtype=bool)), []
    began = time.process_time()
    for answers in answer_cohort(GCOMP, model, cohort, request):
        averager.add(answers, None)
        single.append(answers.estimates.mean_QHY[:, -1, 0])
    answer_s = time.process_time() - began
    rows = averager.finish(GCOMP, model, (0.9,)).to_rows() if intervals else []
    last = {row["plan"]: row for row in rows if row["step"] == world.steps and row["quantity"] == "difference"}
    names = [plan.name for plan in request.plans]
    by_plan_NP = np.concatenate(single).reshape(-1, len(names))
    reference, found = names.index(world.reference), {}
    for name in (name for name in names if name != world.reference):
        own, usual = (own_truths(world, one, panel.n_subjects, seed) for one in (name, world.reference))
        apart_N = by_plan_NP[:, names.index(name)] - by_plan_NP[:, reference]
        limits = (last.get(name, {}).get(key) for key in ("lower", "upper"))
        lower, upper = (float("nan") if limit is None else float(limit) for limit in limits)
        error = float(np.sqrt(((apart_N[:SOME] - (own - usual)) ** 2).mean()))
        found[name] = Found(float(apart_N.mean()), lower, upper, error, answer_s)
    return found


def step_errors(model: GcompModel, panel: Panel) -> NDArray[np.float64]:
    """Return the mean squared error `[E]` of one step of each variable of a panel, of binary ones that of chances."""
    dose_NTL = panel.treatments.astype(np.float64) @ dose_table(model.schema.treatments)
    course, rows = along(panel, model.scales, model.lags, dose_NTL), panel.n_subjects * (panel.n_steps - 1)
    before, dose_ML = course.take(slice(rows)), dose_NTL.swapaxes(0, 1).reshape(-1, dose_NTL.shape[2])[:rows]
    response_ME = model.responses(before, dose_ML, None)  # answers have no covariates
    change_ME = before.now_ME + before.unit(model.scales) * response_ME
    expected_ME = np.where(model.scales.having("binary"), expit(response_ME), change_ME)
    return np.asarray(((expected_ME - course.now_ME[panel.n_subjects :]) ** 2).mean(axis=0))


def measure(name: str, learner: str, *, n: int, seeds: int, intervals: bool = False) -> list[Row]:
    """Return the rows of a world and a learner."""
    world, found, took, chosen = WORLDS[name], list[Mapping[str, Found]](), 0.0, dict[str, int]()
    steps = list[NDArray[np.float64]]()
    for seed in range(seeds):
        dataset, began = dataset_of(world, n, seed), time.process_time()
        with ExitStack() as stack:
            settings = GcompConfig(learner=learner) if learner in PLAIN else None
            if learner in NETWORKS:
                stack.enter_context(widened(NETWORKS[learner](dataset)))
                settings = GcompConfig(samples=SAMPLES)
            method = learner if settings is None else GCOMP
            trained = fit_method(dataset, method, settings, FinetuneConfig(members=1))
            took += time.process_time() - began
            for one in trained.meta.get("learners", [method]):
                chosen[one] = chosen.get(one, 0) + 1
            model = model_of(trained)
            asked = min(n, ASKED) if learner in NETWORKS else n
            found.append(ask(world, model, dataset.panels[TRAIN], seed, asked=asked, intervals=intervals))
            if isinstance(model, GcompModel):
                steps.append(step_errors(model, world.dataset(n, 20_000 + seed).panels[TRAIN]))
    made = {"machine": machine_slug(machine()), "commit": commit()}
    made["chosen"] = " ".join(f"{one} {count}" for one, count in sorted(chosen.items(), key=lambda item: -item[1]))
    made["step_mse"] = " ".join(f"{error:.5g}" for error in np.mean(steps, axis=0)) if steps else ""
    rows = []
    for regime in found[0]:
        truth = TRUTH[name][regime][0] - TRUTH[name][world.reference][0]
        estimate, lower, upper, subject, answer_s = (
            np.array(values) for values in zip(*(one[regime] for one in found), strict=True)
        )
        error, inside = estimate - truth, (lower <= truth) & (truth <= upper)
        numbers = {
            "truth": truth, "bias": error.mean(), "rmse": np.sqrt((error**2).mean()),
            "coverage": inside.mean() if np.isfinite(lower).all() else np.nan,
            "subject_rmse": np.sqrt((subject**2).mean()), "fit_s": took / seeds,
            "answer_s": answer_s.mean(),
        }  # fmt: skip
        shown = {key: f"{value:.3g}" for key, value in numbers.items()}
        rows.append({"world": name, "learner": learner, "regime": regime, "seeds": str(seeds)} | shown | made)
    return rows


def with_states(name: str, *, n: int, seeds: int) -> dict[str, float]:
    """Return, by variable, the error of a step with the states of a network over that without, of other subjects."""
    from sklearn.linear_model import RidgeCV  # noqa: PLC0415

    ratios = []
    for seed in range(seeds):
        dataset = dataset_of(WORLDS[name], n, seed)
        network = model_of(fit_method(dataset, GNET, None, FinetuneConfig(members=1)))
        assert isinstance(network, RecurrentModel)  # noqa: S101 - that is what the method makes
        schema, sides = dataset.schema, []
        scales = Scales.learned(dataset.panels[TRAIN], schema, network.scaler)
        design = Design.of(schema, scales, GcompConfig().lags)
        for part in (TRAIN, STOP):
            panel = dataset.panels[part]
            dose_NTL = panel.treatments.astype(np.float64) @ dose_table(schema.treatments)
            course, rows = along(panel, scales, design.lags, dose_NTL), panel.n_subjects * (panel.n_steps - 1)
            states_NTD = np.asarray(network.encode_series(panel).known_R[0])
            state_MD, dose_ML = (a.swapaxes(0, 1).reshape(-1, a.shape[2])[:rows] for a in (states_NTD, dose_NTL))
            plain_MP = design.columns(course.take(slice(rows)), dose_ML)
            products = [state_MD * dose_M[:, None] for dose_M in dose_ML.T]
            after_ME = course.now_ME[panel.n_subjects :]
            sides.append((plain_MP, np.concatenate([plain_MP, state_MD, *products], axis=1), after_ME))
        errors = []
        for k in range(2):
            mean_P, sd_P = sides[0][k].mean(axis=0), sides[0][k].std(axis=0) + 1e-9
            law = RidgeCV(np.logspace(-2, 4, 13), alpha_per_target=True)
            law.fit((sides[0][k] - mean_P) / sd_P, sides[0][2])
            errors.append(((law.predict((sides[1][k] - mean_P) / sd_P) - sides[1][2]) ** 2).mean(axis=0))
        ratios.append(errors[1] / errors[0])
    names = [variable.name for variable in (*schema.outcomes, *schema.covariates)]
    return dict(zip(names, np.mean(ratios, axis=0).tolist(), strict=True))


def main(arguments: Sequence[str]) -> None:
    """Print the rows, and write them where that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("worlds", nargs="*", default=[*ANSWERED])
    parser.add_argument("--learners", default="auto,ridge,boosting")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--n", type=int, default=1_000)
    parser.add_argument("--intervals", action="store_true")
    parser.add_argument("--states", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    if options.states:
        for world in options.worlds:
            found = with_states(world, n=options.n, seeds=options.seeds)
            print(world, "  ".join(f"{name} {ratio:.3f}" for name, ratio in found.items()), flush=True)
        return
    for world in options.worlds:
        for learner in options.learners.split(","):
            rows = measure(world, learner, n=options.n, seeds=options.seeds, intervals=options.intervals)
            for row in rows:
                print("  ".join(f"{key} {row[key]}" for key in FIELDS[:-2]), flush=True)
            if options.out:
                kept = read(options.out) if options.out.exists() else []
                write(options.out, replaced(kept, rows, "world", "learner"), FIELDS)


if __name__ == "__main__":
    main(sys.argv[1:])
