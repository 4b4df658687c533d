"""What shows whether effects can be believed, in worlds in which it is known."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import costar_cli as costar
from costar_cli.data import Dataset, Part
from costar_cli.effects import EffectReport
from costar_cli.effects.diagnostics import balance, baseline, followers, natural_course, positivity
from tests.effect_worlds import WORLDS
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
