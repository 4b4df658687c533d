"""Scores with known errors for the tests of the benchmark's statistics and tables."""

from dataclasses import replace

import numpy as np

from costar_cli.cli.benchmarking.methods import ABLATIONS, BenchmarkMethod
from costar_cli.cli.benchmarking.report import BenchmarkReport, Failure, JobCost
from costar_cli.cli.benchmarking.tables import DataSetFacts, Score, build_tables
from costar_cli.config.models import EvaluateConfig
from costar_cli.evaluation import ReportRow, SquaredErrors

BOUND = "Best possible (knows the simulator)"
SETUPS = ["zero-shot", "few-shot", "supervised"]
CONFIG = EvaluateConfig(bootstrap=200)


def constant_errors(rmse_RH, subjects=24, per_subject=3):
    """Errors of exactly this RMSE for every member and step, the same for every subject."""
    rmse_RH = np.atleast_2d(np.asarray(rmse_RH, dtype=float))
    members, horizon = rmse_RH.shape
    count = np.full((subjects, horizon), per_subject)
    squared = np.broadcast_to((rmse_RH**2 * per_subject)[:, None, :, None], (members, subjects, horizon, 1)).copy()
    return SquaredErrors(squared, squared.mean(axis=0), count)


def noisy_errors(mean, *, subjects=60, members=2, horizon=3, seed=0, sd=0.2):
    """Errors whose size varies by subject about a mean square; the same seed gives the same subjects."""
    rng = np.random.default_rng(seed)
    size_N = np.exp(sd * rng.normal(size=(1, subjects, 1, 1)))
    squared = np.broadcast_to(mean * size_N, (members, subjects, horizon, 1)).copy()
    return SquaredErrors(squared, squared.mean(axis=0), np.ones((subjects, horizon), dtype=np.int64))


def method(name):
    return next((ablation for ablation in ABLATIONS if ablation.name == name), BenchmarkMethod(name, name))


def score(name, errors, *, seed=10, setup="zero-shot", truth="counterfactual", factor=1.0):
    part = "source/test" if setup == "supervised" else "target/test"
    row = ReportRow.scored_row(
        errors,
        None,
        factor=factor,
        outcome_names=["y"],
        setup=setup,
        label=name,
        basis="ours",
        truth=truth,
        test=part,
    )
    return Score(seed, method(name), row, errors)


def limit(errors, *, seed=10, setup="zero-shot"):
    scored = score("limit", errors, seed=seed, setup=setup).row
    return (seed, scored.setup, scored.truth), replace(scored, label=BOUND, basis="limit")


def tables(scores, *, name="tumor", horizon=6, setups=SETUPS, config=CONFIG, limits=(), **facts):
    facts = DataSetFacts(name, horizon, facts.pop("factor", 1.0), **{"published": True, **facts})
    return build_tables(scores, facts, config, setups=setups, limits=dict(limits))


def report(made, *, dataset="tumor", unit="% of V_max", horizon=6):
    cost = JobCost(
        "costar/source/10", "costar", "COSTAR", 10, "source", 12.5, False, 512.0, None, "cpu", 2, 20_657, 11.0,
        {"finetune": 8.0, "more": 3.0},
    )  # fmt: skip
    unknown = JobCost("crn/source/10", "crn", "CRN", 10, "source", *[None, True, *[None] * 6])
    failure = Failure("ct/source/10", "CT, source, seed 10", {"problem": "the loss | is not finite"})
    return BenchmarkReport(
        dataset=dataset,
        seeds=(10, 11),
        digests={"10": "a" * 64},
        preset="quick",
        unit=unit,
        level=0.95,
        horizon=horizon,
        step="day",
        tables=tuple(made),
        costs=(cost, unknown),
        failures=(failure,),
    )
