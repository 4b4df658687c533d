"""Effects of every kind of plan, treatment and outcome come to their truth, in small worlds that are played out."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit

import costar_cli as costar
from costar_cli.data import PanelSchema, TreatmentEncoding
from costar_cli.effects import EffectReport
from tests.effect_worlds import NEVER, WORLDS, EffectWorld, Regime

pytestmark = pytest.mark.filterwarnings("ignore::costar_cli.errors.CostarWarning")  # of few followers
Floats = NDArray[np.float64]
Rng = np.random.Generator
PLAYED: Final = 200_000  # subjects of a truth


ALL: Final = ("sdr", "tmle", "gformula", "ipw")


def check(world: EffectWorld, n: int, widest: float, estimators: Sequence[str] = ALL) -> None:
    """Check means under all regimes after the last step, with standard errors below the widest.

    The mean of those who follow, who are not like the others, is clearly not the truth of some regime.
    """
    plans = {"plans": {name: regime.steps(world.steps) for name, regime in world.regimes.items()}}
    report = costar.estimate_effects(
        world.dataset(n, 1), plans, estimator=estimators, learner="regression", reference=world.reference
    )
    rows = [row for row in report.rows if row["quantity"] == "mean" and row["step"] == world.steps]
    assert len(rows) == len(estimators) * len(world.regimes)
    last_N, biases = world.draw(n, 1)[1][:, -1], []
    for plan, follow in zip(report.effects.plans, report.effects.targets[0].follows, strict=True):
        truth, error = world.mean_under(plan.name, n=PLAYED)
        naive = last_N[follow.raw_MK[:, -1] > 0].mean()
        for row in (row for row in rows if row["plan"] == plan.name):
            assert row["se"] < widest, row
            assert abs(row["estimate"] - truth) < 3 * row["se"] + 3 * error, row
            biases.append(abs(naive - truth) / row["se"])
    assert max(biases) > 4


def _next(x_NX: Floats, y_N: Floats, effect_N: Floats, rng: Rng) -> tuple[Floats, Floats]:
    """Return the next x and y, on both of which treatment has an effect."""
    e_2N = rng.normal(size=(2, len(y_N)))
    x_N = 0.5 * x_NX[:, 0] + 0.3 * effect_N + 0.6 * e_2N[0]
    return x_N[:, None], 0.5 * y_N + x_NX[:, 0] + effect_N + 0.5 * e_2N[1]


def _start(n: int, rng: Rng) -> tuple[Floats, Floats]:
    return rng.normal(size=(n, 1)), rng.normal(size=n)


def _given(*values: float) -> Any:
    return lambda x_NX, y_N, natural_NA: np.tile(values, (len(y_N), 1))


def test_two_treatments_at_once_have_the_effect_of_their_combination() -> None:
    def treat(x_NX: Floats, y_N: Floats, last_NA: Floats, rng: Rng) -> Floats:
        return (rng.random((len(y_N), 2)) < expit(x_NX * np.array([0.8, 0.5]))).astype(float)

    def update(x_NX: Floats, y_N: Floats, a_NA: Floats, rng: Rng) -> tuple[Floats, Floats]:
        return _next(x_NX, y_N, a_NA @ np.array([-1.0, -0.6]) + 1.2 * a_NA.prod(axis=1), rng)

    both = Regime({"repeat": {"a": 1, "b": 1}}, _given(1, 1))
    regimes = {"never": Regime({"repeat": {}}, _given(0, 0)), "both": both}
    regimes["a"] = Regime({"repeat": {"a": 1}}, _given(1, 0))
    check(EffectWorld(("x",), 2, _start, treat, update, regimes, treatments=("a", "b")), 4000, 0.15)


@dataclass(frozen=True)
class OfLevels(EffectWorld):
    """A world whose treatment has three levels."""

    @property
    def schema(self) -> PanelSchema:
        """Return the columns of its panels."""
        levels, classes = (("none", "low", "high"),), ((0,), (1,), (2,))
        encoding = TreatmentEncoding(mode="multiclass", names=("a",), levels=levels, classes=classes)
        return super().schema.model_copy(update={"treatments": encoding})


def test_each_level_of_a_treatment_has_its_effect() -> None:
    def treat(x_NX: Floats, y_N: Floats, last_NA: Floats, rng: Rng) -> Floats:
        odds_N3 = np.exp(x_NX * np.array([0.0, 0.5, 0.9]))
        until_N3 = (odds_N3 / odds_N3.sum(axis=1, keepdims=True)).cumsum(axis=1)
        return (rng.random((len(y_N), 1)) > until_N3[:, :2]).sum(axis=1, keepdims=True).astype(float)

    def update(x_NX: Floats, y_N: Floats, a_NA: Floats, rng: Rng) -> tuple[Floats, Floats]:
        return _next(x_NX, y_N, np.array([0.0, -1.5, -0.7])[a_NA[:, 0].astype(int)], rng)  # more is not better

    regimes = {"none": NEVER} | {
        name: Regime({"repeat": {"a": name}}, _given(level)) for level, name in ((1, "low"), (2, "high"))
    }
    check(OfLevels(("x",), 2, _start, treat, update, regimes, reference="none"), 4000, 0.1)


def test_a_plan_of_odds_moves_the_chances_of_everybody() -> None:
    def decide(ratio: float) -> Any:
        rng = np.random.default_rng(8)

        def drawn(x_NX: Floats, y_N: Floats, natural_NA: Floats) -> Floats:
            usual_N = x_NX[:, 1]
            return (rng.random(len(y_N)) < ratio * usual_N / (1 - usual_N + ratio * usual_N))[:, None].astype(float)

        return drawn

    regimes = {f"{ratio:g} times": Regime({"odds": {"a": ratio}}, decide(ratio)) for ratio in (0.25, 4.0)}
    world = replace(WORLDS["overlap"], regimes=regimes, reference="4 times")
    check(world, 2000, 0.08, ("sdr", "ipw"))


def test_counts_have_means_and_ratios() -> None:
    def treat(x_NX: Floats, y_N: Floats, last_NA: Floats, rng: Rng) -> Floats:
        return (rng.random((len(y_N), 1)) < expit(1.2 * x_NX)).astype(float)

    def update(x_NX: Floats, y_N: Floats, a_NA: Floats, rng: Rng) -> tuple[Floats, Floats]:
        x_N = 0.5 * x_NX[:, 0] - 0.4 * a_NA[:, 0] + 0.5 * rng.normal(size=len(y_N))
        return x_N[:, None], rng.poisson(np.exp(0.4 + 0.5 * x_NX[:, 0] - 0.7 * a_NA[:, 0])).astype(float)

    def start(n: int, rng: Rng) -> tuple[Floats, Floats]:
        return 0.7 * rng.normal(size=(n, 1)), rng.poisson(1.5, n).astype(float)

    world = EffectWorld(("x",), 2, start, treat, update, kind="count")
    check(world, 4000, 0.07)
    plans = {"plans": {name: regime.steps(2) for name, regime in world.regimes.items()}}
    report = costar.estimate_effects(world.dataset(4000, 1), plans, learner="regression")
    (ratio,) = (row for row in report.rows if row["quantity"] == "ratio" and row["step"] == 2)
    truth = world.mean_under("always", n=PLAYED)[0] / world.mean_under("never", n=PLAYED)[0]
    assert ratio["lower"] < truth < ratio["upper"] < 0.6


def test_trials_of_the_same_subject_are_weighed_together_and_err_together() -> None:
    """At every step at which x is positive a trial starts, of which a subject has up to five."""

    def update(x_NX: Floats, y_N: Floats, a_NA: Floats, rng: Rng) -> tuple[Floats, Floats]:
        x_NX, y_new_N = WORLDS["overlap"].update(x_NX, y_N, a_NA, rng)
        return x_NX, y_new_N + 0.4 * y_N - 0.8 * a_NA[:, 0] * (x_NX[:, 0] > 0)

    n, steps, rows = 800, 2, 6
    world = replace(WORLDS["overlap"], steps=rows, update=update)
    plans = {"plans": {name: world.regimes[name].steps(steps) for name in ("never", "always")}}
    report = costar.estimate_effects(
        world.dataset(n, 1), plans, when="x > 0", learner="regression", estimator=["sdr", "gformula"]
    )
    x_NTX, y_NT, _ = world.draw(PLAYED // 2, 2)
    eligible = [(x_NTX[:, t, 0] > 0, t) for t in range(rows - steps + 1)]
    assert len(report.effects.trials) == sum(
        int((world.draw(n, 1)[0][:, t, 0].astype(np.float32) > 0).sum()) for _, t in eligible
    )
    for plan, value in (("never", 0.0), ("always", 1.0)):
        ends = []
        for in_N, t in eligible:
            rng = np.random.default_rng([t, 3])
            x_NX, y_N = x_NTX[in_N, t], y_NT[in_N, t]
            for _ in range(steps):
                x_NX, y_N = update(x_NX, y_N, np.full((len(y_N), 1), value), rng)
            ends.append(y_N)
        truth = np.concatenate(ends).mean()
        for row in report.rows:
            if (row["quantity"], row["plan"], row["step"]) == ("mean", plan, steps):
                assert abs(row["estimate"] - truth) < 3 * row["se"] < 0.3, row
                clustered, apart = standard_errors(report, row["estimator"], plan)
                assert row["units"] == len(np.unique(report.effects.trials.subject_M)) < row["trials"] / 2
                assert row["se"] == pytest.approx(clustered)
                assert clustered > 1.2 * apart


def standard_errors(report: EffectReport, estimator: str, plan: str) -> tuple[float, float]:
    """Return the standard error after the last step with sums over subjects, and as if trials were independent."""
    effects = report.effects
    place = [one.name for one in effects.plans].index(plan)
    moved_M = effects.targets[0].curves[estimator][place].influence_GMHQ[0, :, -1, 0]  # type: ignore[index]
    of_N = np.bincount(effects.trials.subject_M, moved_M)
    units, trials = len(np.unique(effects.trials.subject_M)), len(moved_M)
    clustered = np.sqrt((of_N**2).sum() * units / (units - 1)) / trials
    return float(clustered), float(np.sqrt((moved_M**2).sum()) / trials)
