"""What shows whether effects can be believed, in worlds in which it is known."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import costar_cli as costar
from costar_cli.data import Dataset, Part
from costar_cli.effects import EffectReport, weights
from costar_cli.effects.diagnostics import balance, baseline, followers, natural_course, positivity
from tests.codes import codes, said
from tests.effect_worlds import WORLDS, panel_world
from tests.effects.test_discrete import counted_panel, effects_in
from tests.effects.test_estimation import report_on
from tests.mortal_world import MORTAL, REGIMES, mortal_panel

pytestmark = pytest.mark.filterwarnings("ignore::costar_cli.errors.CostarWarning")  # of few followers


@pytest.fixture(scope="module")
def overlap() -> EffectReport:
    return report_on("overlap", 3000, estimator="sdr")


def test_those_who_follow_are_counted_and_weigh_as_many_as_there_are(overlap: EffectReport) -> None:
    given_NH = WORLDS["overlap"].draw(3000, 1)[2][..., 0]
    rows = {(row["plan"], row["step"]): row for row in followers(overlap.effects)}
    for step in (1, 2, 3):
        row = rows["always", step]
        assert row["followers"] == int((given_NH[:, :step] == 1).all(axis=1).sum())
        assert row["share"] == row["followers"] / 3000
        assert row["mean"] * row["followers"] == pytest.approx(3000, rel=0.05)  # weights stand for everybody
        assert row["cut_largest"] < row["largest"]
        assert row["cut_effective"] >= row["effective"]


def test_weighting_balances_what_treatment_reacts_to(overlap: EffectReport) -> None:
    rows = [row for row in balance(overlap.effects) if row["plan"] in ("always", "never")]
    first = [row for row in rows if row["step"] == 1]
    assert {row["column"] for row in first} == {"y", "x"}
    assert min(abs(row["before"]) for row in first) > 0.15
    assert max(abs(row["after"]) for row in first) < 0.03
    assert max(abs(row["after"]) for row in rows) < 0.1


def test_the_baseline_of_each_arm_is_that_of_those_who_follow_its_first_step(overlap: EffectReport) -> None:
    x_NTX, y_NT, given_NHA = WORLDS["overlap"].draw(3000, 1)
    drawn = {"y": y_NT[:, 0], "x": x_NTX[:, 0, 0]}
    arms = {None: slice(None), "always": given_NHA[:, 0, 0] == 1, "never": given_NHA[:, 0, 0] == 0}
    rows = {(row["column"], row["plan"]): row for row in baseline(overlap.effects, balance(overlap.effects))}
    for (column, value_N), (plan, in_N) in product(drawn.items(), arms.items()):
        row = rows[column, plan]
        assert row["trials"] == row["measured"] == len(value_N[in_N])
        assert row["mean"] == pytest.approx(value_N[in_N].mean(), abs=1e-5)
        assert row["sd"] == pytest.approx(value_N[in_N].std(ddof=1), abs=1e-5)
        assert not row["share"]
        if plan is None:
            assert row["before"] is row["after"] is None
        else:
            assert row["before"] == pytest.approx((row["mean"] - value_N.mean()) / value_N.std(), abs=1e-4)
            assert abs(row["after"]) < 0.03 < abs(row["before"])
    assert list(rows) == list(product(drawn, (None, *(plan.name for plan in overlap.effects.plans))))


def test_a_baseline_of_what_is_0_or_1_is_a_share_of_those_in_whom_it_was_recorded() -> None:
    world = WORLDS["overlap"]
    data = world.dataset(400, 1)
    (part,) = data.panels
    panel = data.panels[part]
    on_N, seen = panel.covariates[:, 0, 0] > 0.2, np.ones(panel.covariates.shape, dtype=bool)
    panel.covariates[:, 0, 0], seen[:90, 0] = on_N, False
    data.panels[part] = replace(panel, covariate_observed=seen)
    plans = {"plans": {name: world.regimes[name].steps(3) for name in ("never", "always")}}
    effects = costar.estimate_effects(data, plans, learner="regression").effects
    row = next(row for row in baseline(effects, ()) if (row["column"], row["plan"]) == ("x", None))
    assert (row["share"], row["trials"], row["measured"]) == (True, 400, 310)
    assert row["mean"] == pytest.approx(on_N[90:].mean(), abs=1e-6)


def test_positivity_is_that_of_the_world(overlap: EffectReport) -> None:
    rows = {(row["plan"], row["step"]): row for row in positivity(overlap.effects)}
    given_NH = WORLDS["overlap"].draw(3000, 1)[2][..., 0]
    assert rows["always", 1]["decisions"] == 3000
    assert rows["always", 2]["decisions"] == int(given_NH[:, 0].sum())
    for row in rows.values():  # treatment has a probability of .31 to .69
        assert row["least"] is not None
        assert 0.2 < row["least"] < row["low"] < 0.7
        assert row["unlikely"] == 0
        assert row["largest_ratio"] < 1 / 0.2


def test_a_plan_that_reads_the_natural_dose_has_no_probability() -> None:
    rows = [row for row in positivity(report_on("doses", 400, estimator="sdr").effects) if row["plan"] == "less"]
    assert [row["least"] for row in rows] == [None] * 3
    assert min(row["largest_ratio"] for row in rows) > 1


def test_models_of_the_natural_course_come_to_what_was_observed(overlap: EffectReport) -> None:
    y_NT = WORLDS["overlap"].draw(3000, 1)[1]
    rows = list(natural_course(overlap.effects))
    assert [row["step"] for row in rows] == [1, 2, 3]
    for row in rows:
        assert row["observed"] == pytest.approx(y_NT[:, row["step"]].mean(), abs=1e-5)
        assert row["weighted"] == pytest.approx(row["observed"])
        assert row["gformula"] == pytest.approx(row["observed"], abs=0.02)


def test_wrong_probabilities_of_treatment_show_in_the_natural_course() -> None:
    world = replace(WORLDS["overlap-known"], show=lambda x: x * np.array([1.0, 0.5]))  # column p is half of the truth
    plans = {"plans": {name: world.regimes[name].steps(3) for name in ("never", "always")}}
    report = costar.estimate_effects(world.dataset(1000, 1), plans, learner="regression", probability={"a": "p"})
    for row in natural_course(report.effects):  # every fourth treatment is missing, of an effect of -1 at least
        assert row["gformula"] - row["observed"] > 0.2


def test_the_natural_course_stands_for_those_who_are_lost() -> None:
    plans = {"plans": {name: {**dict(plan), "times": 5} for name, (plan, _) in REGIMES.items()}}
    data = Dataset("mortal", MORTAL, 5, {Part("source", "train"): mortal_panel(4000, 5, rows=6, losing=True)})
    report = costar.estimate_effects(data, plans, learner="regression")
    whole = mortal_panel(4000, 5, rows=6)
    rows = {(row["outcome"], row["step"]): row for row in natural_course(report.effects)}
    for event, code in (("death", 1), ("recovery", 2)):
        truth = float((whole.end == code).mean())
        row = rows[event, 5]
        assert abs(row["weighted"] - truth) < 0.01
        assert abs(row["gformula"] - truth) < 0.01
    assert rows["recovery", 5]["observed"] - truth > 0.025  # the sicker, who are lost, recover less often


def report_on_rare(n: int, share: float) -> EffectReport:
    """Return effects where a `share` of those with x is treated, and half of the others."""
    panel, rng = counted_panel(n, 1), np.random.default_rng(2)
    given_NT = rng.random((n, 3)) < np.where(panel.covariates[..., 0] > 0, share, 0.5)
    panel = replace(panel, treatments=given_NT[..., None].astype(np.float32))
    return effects_in(panel, estimator="ipw", unsupported=True)


def test_a_treatment_that_is_hardly_ever_given_to_some_is_a_warning_with_a_fix(overlap: EffectReport) -> None:
    report = report_on_rare(3000, 0.005)
    assert {one.subject for one in report.diagnostics if one.code == "effect-positivity"} == {"always"}
    text = said(report.diagnostics, "effect-positivity")
    x_NT = report.effects.trials.panel.covariates[:, :2, 0]
    assert f"plan `always`: at {100 * x_NT.mean():.0f} % of decisions" in text
    assert "(probability below 0.02) (compare plans nearer to practice" in text
    assert "effect-positivity" not in codes(overlap.diagnostics)


def test_one_weight_that_is_much_larger_than_others_is_a_warning_with_its_step(overlap: EffectReport) -> None:
    report = report_on_rare(3000, 0.01)
    (one,) = (one for one in report.diagnostics if one.code == "effect-weights")
    rows = [row for row in followers(report.effects) if row["plan"] == "always"]
    times = {row["step"]: row["largest"] / row["mean"] for row in rows}
    step = max(times, key=lambda k: times[k])
    assert times[step] > 20
    assert one.subject == "always"
    assert str(one).startswith(f"plan `always`: the largest weight is {times[step]:.0f} times the mean weight at step")
    assert f"at step {step} (compare `--truncate`" in str(one)
    assert "effect-weights" not in codes(overlap.diagnostics)


def test_an_event_that_no_trial_has_is_a_warning() -> None:
    panel = mortal_panel(400, 5, rows=3)
    panel = replace(panel, end=np.where(panel.end == 2, 1, panel.end))  # all recoveries are deaths
    data = Dataset("mortal", MORTAL, 2, {Part("source", "train"): panel})
    plans = {"plans": {name: {**dict(plan), "times": 2} for name, (plan, _) in REGIMES.items()}}
    report = costar.estimate_effects(data, plans, learner="regression", estimator="ipw", unsupported=True)
    assert said(report.diagnostics, "effect-no-event") == (
        "recovery: none of 400 trials has it within 2 steps "
        "(ask for more steps (`times`), or leave it out (`--outcome`))"
    )


@pytest.mark.parametrize("iterations", [2, weights.MOST_ITERATIONS])
@pytest.mark.filterwarnings("error::sklearn.exceptions.ConvergenceWarning")
def test_a_regression_of_practice_that_does_not_converge_is_a_warning_of_costar(
    iterations: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "MOST_ITERATIONS", iterations)
    world = panel_world(treatments=2, binary=True)  # four combinations and 100 covariates: not by Newton's method
    plans = {name: regime.steps(2) for name, regime in world.regimes.items()}
    data = world.dataset(300, 1)
    report = costar.estimate_effects(data, {"plans": plans}, learner="regression", estimator="ipw", unsupported=True)
    assert ("effect-not-converged" in codes(report.diagnostics)) == (iterations == 2)
