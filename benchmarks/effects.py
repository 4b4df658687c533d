"""How near effects come to the truth, how often their intervals hold it, and what they cost.

    python -m benchmarks.effects [--world linear,overlap] [--repetitions 200] [--workers 2] [--out FOLDER]
    python -m benchmarks.effects --econml PYTHON      # DynamicDML beside, of an environment with econml
    python -m benchmarks.effects --pygformula FOLDER [--with PYTHON]    # the sample data of a checkout of pygformula
    python -m benchmarks.effects --learner super-learner --estimator gformula --out FOLDER    # of outcomes, not auto
    python -m benchmarks.effects --timing
    python -m benchmarks.effects --table [--out FOLDER]

A repetition draws 1,000 subjects of a world of `tests/effect_worlds.py`, or of `tests/mortal_world.py` (`ends`), asks
`estimate_effects` for every plan by every estimator, and `benchmarks/effects_yardstick.py`, which knows the law of the
world. FOLDER/WORLD.jsonl has a line per repetition; a run that is started again goes on after the last, one that asks
for more adds to them. FOLDER/summary.json has errors, bias and coverage of each world, estimator and quantity at
the last step, with machine, versions and commit; the table of docs/measured.md is made of it.

The sample data of pygformula are in its repository: `git clone https://github.com/CausalInference/pygformula`.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, get_args
from unittest import mock

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchmarks.effects_samples import DOCUMENTED, samples
from benchmarks.effects_yardstick import ESTIMATORS, Course, estimate, estimate_ends
from benchmarks.machine import ROOT, commit, machine, versions
from costar_cli.config.choices import LearnerName
from costar_cli.data import Dataset, Part
from tests.effect_worlds import TRUTH, WORLDS, EffectWorld
from tests.mortal_world import MORTAL, REGIMES, TRUE_ENDS, mortal_panel

OUT: Final = ROOT / "benchmarks" / "results" / "effects"
ENGINE: Final = ("sdr", "tmle", "gformula", "ipw")
MEASURED: Final = {"mean": "mean", "difference": "difference", "risk": "mean", "risk difference": "difference",
                   "rmst": "mean", "rmst difference": "difference"}  # fmt: skip
STEPS: Final = 5  # of plans in the world of ends
FEW: Final = 50.0  # effective followers
Z: Final = 1.6449
FIELDS: Final = ("estimator", "kind", "plan", "outcome", "estimate", "lower", "upper", "effective")
LEARNER: Final = "costar_cli.effects.effects.chosen_learner"
Floats = NDArray[np.float64]
Row = tuple[str, str, str, str, float, float | None, float | None, float | None]


@dataclass(frozen=True)
class Case:
    """A world as the engine meets it.

    Attributes:
        plans: what a plan file has.
        reference: the plan that others are compared with.
        truth: by plan and outcome.
        estimators: of the engine.
        known: the probability of each treatment, by column, where it is known.
        blind: regressions of outcomes see the treatment alone: wrong on purpose.
    """

    plans: Mapping[str, object]
    reference: str
    truth: Mapping[tuple[str, str], float]
    estimators: Sequence[str] = ENGINE
    known: Mapping[str, str] | None = None
    blind: bool = False


def _cases() -> dict[str, Case]:
    cases = {}
    for name, world in WORLDS.items():
        cases[name] = Case(
            {regime: how.steps(world.steps) for regime, how in world.regimes.items()}, world.reference,
            {(regime, "y"): mean for regime, (mean, _) in TRUTH[name].items()},
            # No weight says what a fixed dose of a continuous law would do
            ("gformula",) if name == "panel" else ENGINE,
            {"a": world.probability} if world.probability else None,
        )  # fmt: skip
    cases["overlap-outcome-wrong"] = replace(cases["overlap"], blind=True)
    truth: dict[tuple[str, str], float] = {}
    for regime, (death, recovery) in TRUE_ENDS.items():
        truth |= {(regime, "death"): death[-1], (regime, "recovery"): recovery[-1]}
        # The mean number of steps without an event
        truth[regime, "any event"] = STEPS - sum(death[:-1]) - sum(recovery[:-1])
    plans = {regime: {**words, "times": STEPS} for regime, (words, _) in REGIMES.items()}
    return cases | {"ends": Case(plans, "never", truth)}


CASES: Final = _cases()


def world_of(name: str) -> EffectWorld:
    """Return the world of a case."""
    return WORLDS[name.removesuffix("-outcome-wrong")]


def drawn(name: str, n: int, seed: int) -> Dataset:
    """Return n subjects of a world."""
    if name != "ends":
        return world_of(name).dataset(n, seed)
    panel = mortal_panel(n, seed, rows=STEPS + 1, losing=True)
    return Dataset("ends", MORTAL, STEPS, {Part("source", "train"): panel})


@dataclass(frozen=True)
class _Blind:
    """A learner that is shown no history, and its regressions."""

    sees: Any
    name: str = "none"

    @property
    def weights(self) -> Mapping[str, float]:
        return self.sees.weights

    def fit(self, history_MP: Floats, *rest: Any) -> "_Blind":
        return _Blind(self.sees.fit(np.zeros_like(history_MP), *rest))

    def predict(self, history_MP: Floats, given_MA: Floats) -> Floats:
        return np.asarray(self.sees.predict(np.zeros_like(history_MP), given_MA))


def _blind(*arguments: Any) -> _Blind:
    from costar_cli.effects.learners import chosen_learner  # noqa: PLC0415 - the one that is not replaced

    return _Blind(chosen_learner(*arguments))


def engine(dataset: Dataset, case: Case, estimators: Sequence[str], learner: LearnerName = "auto") -> Iterator[Row]:
    """Yield what costar says at the last step of each plan."""
    import costar_cli  # noqa: PLC0415 - workers load it once each

    with mock.patch(LEARNER, _blind) if case.blind else nullcontext(), warnings.catch_warnings():
        warnings.simplefilter("ignore", costar_cli.CostarWarning)  # of few followers
        answers = costar_cli.estimate_effects(
            dataset, {"plans": case.plans}, origin=0, reference=case.reference, estimator=list(estimators),
            probability=case.known, learner=learner, unsupported=True,
        )  # fmt: skip
    steps = {plan.name: len(plan) for plan in answers.effects.plans}
    for row in answers.rows:
        quantity, outcome = row["quantity"], row["outcome"]
        if row["step"] < steps[row["plan"]] or quantity not in MEASURED:
            continue
        if (row["plan"], outcome) in case.truth and ("rmst" in quantity) == (outcome == "any event"):
            limits = (row["lower"], row["upper"], row["effective"])
            yield row["estimator"], MEASURED[quantity], row["plan"], outcome, row["estimate"], *limits


def yardsticks(name: str, n: int, seed: int) -> Iterator[Row]:
    """Yield what estimators say that know the law of the world."""
    for estimator in ESTIMATORS:
        if name == "jumps" or (name == "panel" and estimator != "g-formula"):  # none has jumps
            continue
        if name == "ends":
            panel = mortal_panel(n, seed, rows=STEPS + 1, losing=True)
            means = {(p, "any event" if o == "rmst" else o): v
                     for (p, o), v in estimate_ends(panel, estimator, STEPS).items()}  # fmt: skip
        else:
            world = world_of(name)
            means = {(p, "y"): v for p, v in estimate(world, estimator, Course.of(world, n, seed)).items()}
        reference = CASES[name].reference
        for (plan, outcome), (value, se) in means.items():
            limits = (None, None) if np.isnan(se) else (value - Z * se, value + Z * se)
            yield f"known {estimator}", "mean", plan, outcome, value, *limits, None
            if plan != reference:
                more = value - means[reference, outcome][0]
                yield f"known {estimator}", "difference", plan, outcome, more, None, None, None


def dynamic_dml(name: str, n: int, seed: int, python: str) -> tuple[Row, float]:
    """Return DynamicDML's effect of treating always, and the seconds of its fit, of another interpreter."""
    x_NTX, y_NT, a_NHA = WORLDS[name].draw(n, seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "data.npz")
        np.savez(
            path, Y=y_NT[:, 1:].ravel(), T=a_NHA.reshape(-1, a_NHA.shape[2]), periods=a_NHA.shape[1],
            W=x_NTX[:, :-1].reshape(-1, x_NTX.shape[2]), groups=np.repeat(np.arange(n), a_NHA.shape[1]),
        )  # fmt: skip
        script = str(ROOT / "benchmarks" / "effects_peers.py")
        done = subprocess.run([python, script, "econml", str(path)], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    row = ("DynamicDML", "difference", "always", "y", found["estimate"], found["lower"], found["upper"], None)
    return row, found["seconds"]


def repetition(name: str, options: argparse.Namespace, seed: int) -> dict[str, Any]:
    """Return a repetition as the line that is stored; the first ones time each estimator alone."""
    case, n, learner, econml, seconds = CASES[name], options.subjects, options.learner, options.econml, {}
    dataset, estimators = drawn(name, n, seed), [one for one in case.estimators if one in options.estimator.split(",")]
    if seed < 2:
        for estimator in estimators:
            begin = time.perf_counter()
            list(engine(dataset, case, [estimator], learner))
            seconds[estimator] = time.perf_counter() - begin
    begin = time.perf_counter()
    rows = list(engine(dataset, case, estimators, learner))
    seconds["all"] = time.perf_counter() - begin
    rows += yardsticks(name, n, seed)
    if econml and name.startswith("panel"):
        row, seconds["DynamicDML"] = dynamic_dml(name, n, seed, econml)
        rows.append(row)
    found = commit()
    short = [[round(x, 5) if isinstance(x, float) else x for x in row] for row in rows]
    return {
        "seed": seed,
        "commit": found,
        "subjects": n,
        "seconds": {k: round(v, 3) for k, v in seconds.items()},
        "rows": short,
    }


def run(name: str, options: argparse.Namespace) -> None:
    """Add the repetitions that are missing to the file of a world."""
    path = options.out / f"{name}.jsonl"
    lines = stored(path)
    done = {line["seed"] for line in lines}
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")  # whole lines alone
    missing = [seed for seed in range(options.repetitions) if seed not in done]
    if not missing:
        return
    one = partial(repetition, name, options)
    with ProcessPoolExecutor(options.workers) as pool, path.open("a", encoding="utf-8") as file:
        for i, future in enumerate(as_completed(pool.submit(one, seed) for seed in missing), start=1):
            file.write(json.dumps(future.result()) + "\n")
            file.flush()
            sys.stderr.write(f"{name}: {len(done) + i} of {options.repetitions}\n")


def stored(path: Path) -> list[dict[str, Any]]:
    """Return the repetitions of a file; a line that an interrupted run has left half-written is none."""
    lines = []
    for line in path.read_text("utf-8").splitlines() if path.exists() else ():
        try:
            lines.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return lines


def summary(name: str, lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a row per estimator, plan and quantity: bias, error and coverage over repetitions."""
    case = CASES[name]
    table = pl.DataFrame(
        [tuple(row) for line in lines for row in line["rows"]], schema=FIELDS, orient="row", infer_schema_length=None
    )
    rows = []
    for key, group in table.group_by(FIELDS[:4], maintain_order=True):
        estimator, kind, plan, outcome = map(str, key)
        truth = case.truth[plan, outcome]
        if kind == "difference":
            truth -= case.truth[case.reference, outcome]
        error = group["estimate"].cast(pl.Float64).drop_nulls().to_numpy() - truth
        lower, upper = (group[side].cast(pl.Float64).to_numpy() for side in ("lower", "upper"))
        effective = group["effective"].cast(pl.Float64).to_numpy()
        known = effective[np.isfinite(effective)]
        has = np.isfinite(lower) & np.isfinite(upper)
        inside, enough = (lower <= truth) & (truth <= upper), has & (effective >= FEW)
        rows.append({
            "world": name, "estimator": estimator, "kind": kind, "plan": plan, "outcome": outcome,
            "truth": round(truth, 4), "repetitions": len(error), "bias": _mean(error),
            "bias_se": round(float(error.std()) / max(len(error), 1) ** 0.5, 5) if len(error) else None,
            "rmse": round(float(np.sqrt(np.mean(error**2))), 5) if len(error) else None,
            "coverage": _mean(inside[has]), "coverage_supported": _mean(inside[enough]), "supported": int(enough.sum()),
            "flagged": _mean(known < FEW), "effective": _mean(known), "width": _mean((upper - lower)[has]),
        })  # fmt: skip
    return rows


def _mean(values: Any) -> float | None:
    return float(np.round(np.mean(values), 5)) if len(values) else None


def write_summary(folder: Path) -> dict[str, Any]:
    """Summarise all files of a folder; what was kept of worlds without a file, and of other runs, stays."""
    path = folder / "summary.json"
    document: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    worlds = document.setdefault("worlds", {})
    for name in CASES:
        if lines := stored(folder / f"{name}.jsonl"):
            seconds: dict[str, list[float]] = {}
            for line in lines:
                for what, value in line["seconds"].items():
                    seconds.setdefault(what, []).append(value)
            worlds[name] = {
                "seconds": {what: round(min(values), 3) for what, values in seconds.items()},
                "subjects": lines[0]["subjects"],
                "commits": list(dict.fromkeys(line["commit"] for line in lines)), "rows": summary(name, lines),
            }  # fmt: skip
    document |= {"machine": machine(), "versions": versions()}
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return document


def timed(subjects: int = 10_000, steps: int = 12) -> dict[str, Any]:
    """Return seconds and peak memory of all estimators and four plans, in this process."""
    import costar_cli  # noqa: PLC0415

    world = WORLDS["linear"]
    longer = type(world)(**{**vars(world), "steps": steps})
    dataset = longer.dataset(subjects, 0)
    half = {"rule": "a", "with probability": 0.5}
    plans = {regime: how.steps(steps) for regime, how in world.regimes.items()} | {"coin": {**half, "times": steps}}
    begin, cpu, load = time.perf_counter(), time.process_time(), os.getloadavg()[0]
    answers = costar_cli.estimate_effects(dataset, {"plans": plans}, origin=0, estimator="all", unsupported=True)
    rows = len(answers.to_frame())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {
        "seconds": round(time.perf_counter() - begin, 1), "cpu_s": round(time.process_time() - cpu, 1),
        "load": round(load, 1), "commit": commit(), "peak_gb": round(peak / 1e9, 3), "rows": rows,
    }  # fmt: skip


def compared(folder: Path, python: str | None) -> dict[str, Any]:
    """Return risks and means of pygformula's sample data: by costar, of its documentation, of a run of it."""
    found: dict[str, Any] = {}
    peers = {}
    if python:
        script = str(ROOT / "benchmarks" / "effects_peers.py")
        done = subprocess.run([python, script, "pygformula", str(folder)], capture_output=True, text=True, check=True)
        peers = json.loads(done.stdout)
    for name, (dataset, plans, outcome) in samples(folder).items():
        case = Case(plans, next(iter(plans)), {(plan, outcome): float("nan") for plan in plans})
        begin = time.perf_counter()
        rows = [dict(zip(FIELDS, row, strict=True)) for row in engine(dataset, case, ENGINE)]
        elapsed_s = round(time.perf_counter() - begin, 2)
        found[name] = {
            "seconds": elapsed_s, "commit": commit(), "rows": [row for row in rows if row["kind"] == "mean"],
            "documented": DOCUMENTED[name], "pygformula": peers.get(name),
        }  # fmt: skip
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and write what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world", default=",".join(CASES), help="names, with commas between them; none runs nothing")
    parser.add_argument("--repetitions", type=int, default=200)
    parser.add_argument("--subjects", type=int, default=1_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--econml", metavar="PYTHON")
    parser.add_argument("--pygformula", type=Path, metavar="FOLDER")
    parser.add_argument("--with", dest="python", metavar="PYTHON", help="runs pygformula beside")
    parser.add_argument("--estimator", default=",".join(ENGINE), help="names, with commas between them")
    parser.add_argument("--learner", choices=get_args(LearnerName), default="auto")
    parser.add_argument("--timing", action="store_true")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "summary.json"
    if options.timing or options.pygformula:
        kept = json.loads(path.read_text("utf-8")) if path.exists() else {}
        kept |= {"timing": timed()} if options.timing else {}
        kept |= {"samples": compared(options.pygformula, options.python)} if options.pygformula else {}
        path.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    elif not options.table:
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # of each worker
        for name in filter(None, options.world.split(",")):
            run(name, options)
    from benchmarks.effects_table import table  # noqa: PLC0415 - it reads this module's names

    sys.stdout.write(table(write_summary(options.out)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
