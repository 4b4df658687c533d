"""Estimators in worlds of two decisions that can be counted by hand, and what must not change them."""

from dataclasses import replace
from typing import Any, Final

import numpy as np
import pytest

import costar_cli as costar
from costar_cli.data import Dataset, Panel, PanelSchema, Part, TreatmentEncoding, Variable
from costar_cli.effects import EffectReport, enrol
from costar_cli.effects.estimators import Follow, sequential
from costar_cli.effects.trials import Target
from costar_cli.effects.weights import PlanWeights
from costar_cli.errors import UsageError
from tests.effect_worlds import WORLDS

pytestmark = pytest.mark.filterwarnings("ignore::costar_cli.errors.CostarWarning")  # of few followers
SCHEMA: Final = PanelSchema(
    covariates=(Variable(name="x"),),
    outcomes=(Variable(name="y"),),
    treatments=TreatmentEncoding(mode="multilabel", names=("a",), levels=(("off", "on"),)),
)
PLANS: Final = {"never": {"repeat": {}, "times": 2}, "always": {"repeat": {"a": 1}, "times": 2}}


def counted_panel(n: int, seed: int, *, losing: bool = False, rows: int = 3) -> Panel:
    """Return binary x, a, x, a and then y, and nothing else; those who are lost have no treatment at their last row."""
    rng = np.random.default_rng(seed)
    x_NT, y_NT, a_NT = np.zeros((3, n, rows))
    x_NT[:, 0] = rng.random(n) < 0.4
    length = np.full(n, rows)
    for t in range(rows - 1):
        a_NT[:, t] = rng.random(n) < 0.3 + 0.4 * x_NT[:, t]
        lost_N = losing & (length == rows) & (rng.random(n) < np.where(x_NT[:, t] > 0, 0.35, 0.05))
        length[lost_N] = t + 1
        x_NT[:, t + 1] = rng.random(n) < 0.6 - 0.3 * a_NT[:, t] + 0.2 * x_NT[:, t]
        y_NT[:, t + 1] = 2 * x_NT[:, t] - a_NT[:, t] - a_NT[:, t] * x_NT[:, t] + 0.1 * rng.normal(size=n)
    there_NT = np.arange(rows) < length[:, None]
    given_NT = (np.arange(rows) < length[:, None] - 1) | ((length == rows)[:, None])
    a_NT[:, -1] = 1.0  # the study ends after a treatment
    return Panel(
        covariates=(x_NT * there_NT)[..., None].astype(np.float32),
        treatments=(a_NT * given_NT)[..., None].astype(np.float32),
        outcomes=(y_NT * there_NT)[..., None].astype(np.float32),
        statics=np.zeros((n, 0), np.float32),
        length=length,
        subject_id=np.arange(n),
    )


def effects_in(panel: Panel, schema: PanelSchema = SCHEMA, plans: Any = PLANS, **options: Any) -> EffectReport:
    data = Dataset("counted", schema, 2, {Part("source", "train"): panel})
    return costar.estimate_effects(data, {"plans": plans}, **{"estimator": "all", "learner": "regression"} | options)


def means(report: EffectReport, step: int = 2) -> dict[tuple[str, str], dict[str, Any]]:
    rows = [row for row in report.rows if row["quantity"] == "mean" and row["step"] == step]
    return {(row["estimator"], row["plan"]): row for row in rows}


def standardised(panel: Panel, given: float) -> float:
    """Return the mean of y at row 2 under a plan by counting: E[E[E[y | x1, a1] | x0, a0]]."""
    x_NT, a_NT, y_N = panel.covariates[..., 0], panel.treatments[..., 0], panel.outcomes[:, 2, 0]
    mean = 0.0
    for x0 in (0, 1):
        start_N = (x_NT[:, 0] == x0) & (a_NT[:, 0] == given)
        inner = [
            (x_NT[start_N, 1] == x1).mean() * y_N[(x_NT[:, 1] == x1) & (a_NT[:, 1] == given)].mean() for x1 in (0, 1)
        ]
        mean += float((x_NT[:, 0] == x0).mean() * sum(inner))
    return mean


def test_all_estimators_are_the_count_where_nothing_else_is_to_be_known() -> None:
    panel = counted_panel(4000, 1)
    rows = means(effects_in(panel, truncate=1.0))
    for (estimator, plan), row in rows.items():
        counted = standardised(panel, float(plan == "always"))
        # weights know nothing of the outcome, and so less
        assert row["estimate"] == pytest.approx(counted, abs=0.03 if estimator == "ipw" else 0.01), estimator


@pytest.mark.parametrize("rows", [3, 6])
def test_those_lost_are_stood_for_and_their_last_treatment_is_not_taken_for_none(rows: int) -> None:
    truth = {plan: standardised(counted_panel(400_000, 2), float(plan == "always")) for plan in PLANS}
    panel = counted_panel(6000, 3, losing=True, rows=rows)
    report = effects_in(panel)
    assert not report.effects.trials.records_last
    probability_MK = report.effects.practice.of(report.effects.plans[1]).likely_MK
    x_MK = panel.covariates[:, :2, 0]
    for x, likely in ((0, 0.3), (1, 0.7)):
        at_MK = report.effects.trials.decided_MK & (x_MK == x)
        assert probability_MK[at_MK].mean() == pytest.approx(likely, abs=0.03)
    for (estimator, plan), row in means(report).items():
        assert abs(row["estimate"] - truth[plan]) < 3.5 * row["se"], estimator


def test_the_order_of_subjects_changes_estimates_only_by_their_parts() -> None:
    panel = counted_panel(1000, 4)
    mixed = means(effects_in(panel.take(np.random.default_rng(0).permutation(1000))))
    for key, row in means(effects_in(panel)).items():
        assert abs(mixed[key]["estimate"] - row["estimate"]) < (1e-6 if key[0] == "gformula" else 0.5 * row["se"])
        assert mixed[key]["followers"] == row["followers"]


def test_subjects_twice_in_a_cluster_know_no_more() -> None:
    panel = counted_panel(1000, 5)
    twice = panel.take(np.repeat(np.arange(1000), 2))
    twice = replace(twice, subject_id=np.arange(2000), cluster=np.repeat(np.arange(1000), 2))
    rows = means(effects_in(twice))
    for key, row in means(effects_in(panel)).items():
        assert rows[key]["estimate"] == pytest.approx(row["estimate"], abs=0.1 * row["se"])
        assert rows[key]["se"] == pytest.approx(row["se"], rel=0.03)
        assert rows[key]["units"] == 1000


def test_intention_to_treat_leaves_later_treatment_to_practice() -> None:
    rows = means(effects_in(counted_panel(4000, 6), protocol="intention-to-treat"))
    far = counted_panel(400_000, 7)
    x_NT, a_NT, y_N = far.covariates[..., 0], far.treatments[..., 0], far.outcomes[:, 2, 0]
    for (estimator, plan), row in rows.items():
        given = float(plan == "always")
        of = [y_N[(x_NT[:, 0] == x) & (a_NT[:, 0] == given)].mean() * (x_NT[:, 0] == x).mean() for x in (0, 1)]
        assert abs(row["estimate"] - sum(of)) < 3.5 * row["se"], estimator
        assert row["effective"] > 1000


def test_a_rare_treatment_that_practice_goes_on_to_give_weighs_as_it_is() -> None:
    panel = counted_panel(4000, 8)
    rare = np.random.default_rng(1).random((4000, 3, 1)) < 0.004
    panel = replace(panel, treatments=np.where(np.arange(3)[:, None] == 0, panel.treatments, rare).astype(np.float32))
    report = effects_in(panel, protocol="intention-to-treat", estimator="ipw")
    ratio_MK = report.effects.weights[0].ratio_MK
    assert rare[:, 1].sum() > 5
    assert ratio_MK[:, 1] == pytest.approx(1.0)


def test_a_grace_period_is_that_of_a_course_played_out() -> None:
    plans = {"never": {"repeat": {}, "times": 2}, "start": {"repeat": {"a": 1}, "times": 2}}
    rows = means(effects_in(counted_panel(5000, 9), plans=plans, grace=1))
    rng = np.random.default_rng(3)
    x0 = rng.random(400_000) < 0.4
    natural = rng.random(400_000) < 0.3 + 0.4 * x0  # who would not be treated yet waits for a step
    x1 = rng.random(400_000) < 0.6 - 0.3 * natural + 0.2 * x0
    truth = float((2 * x1 - 1 - x1).mean())
    for estimator in ("sdr", "tmle", "gformula", "ipw"):
        assert abs(rows[estimator, "start"]["estimate"] - truth) < 3.5 * rows[estimator, "start"]["se"] + 0.005


def test_after_assignment_of_a_dose_practice_is_left_alone() -> None:
    world = WORLDS["doses"]
    chance = {"rule": "dose = 2", "with probability": 0.5, "times": 3}
    plans = {"plans": {"none": {"repeat": {"dose": 0}, "times": 3}, "by chance": chance}}
    report = costar.estimate_effects(
        world.dataset(600, 1), plans, protocol="intention-to-treat", learner="regression", unsupported=True
    )
    for weights in report.effects.weights:
        assert weights.ratio_MK[:, 1:] == pytest.approx(1.0)
        assert weights.ratio_MK[:, 0].std() > 0


def test_simultaneous_limits_hold_single_ones_where_few_follow() -> None:
    report = effects_in(counted_panel(60, 10), estimator=["sdr", "ipw"])
    assert min(row["effective"] for row in report.rows) < 15
    for row in report.rows:
        if row["se"] is not None:
            assert row["lower_simultaneous"] <= row["lower"] + 1e-9
            assert row["upper_simultaneous"] >= row["upper"] - 1e-9


def test_outcomes_that_are_never_measured_together_are_learnt_apart() -> None:
    panel = counted_panel(1500, 11)
    seen_NTY = np.ones((1500, 3, 2), dtype=bool)
    seen_NTY[::2, 1:, 0] = seen_NTY[1::2, 1:, 1] = False
    both = replace(panel, outcomes=np.repeat(panel.outcomes, 2, axis=2) * seen_NTY, outcome_observed=seen_NTY)
    schema = SCHEMA.model_copy(update={"outcomes": (Variable(name="y"), Variable(name="z"))})
    report = effects_in(both, schema, learner="auto", estimator=["sdr", "gformula"])
    for row in report.rows:
        if row["quantity"] == "mean" and row["step"] == 2:
            assert abs(row["estimate"] - standardised(panel, float(row["plan"] == "always"))) < 4 * row["se"] + 0.02


def test_tmle_of_a_plan_by_chance_rests_on_treatment_where_the_regression_is_wrong() -> None:
    rng, n = np.random.default_rng(12), 20_000
    a_N = rng.random(n) < 0.5
    y_N = (rng.random(n) < np.where(a_N, 0.9, 0.5)).astype(float)
    wrong_2 = np.array([0.02, 0.5])
    one_M1 = np.ones((n, 1), dtype=bool)
    target = Target(("y",), ("binary",), y_N[:, None, None], one_M1[..., None], one_M1, ~one_M1)
    weight_M1 = np.ones((n, 1))  # the plan gives what practice gives, by a coin of its own
    follow = Follow(one_M1, weight_M1, weight_M1[..., None], weight_M1, weight_M1[..., None], weight_M1,
                    weight_M1[..., None])  # fmt: skip
    coin = PlanWeights([np.full((2, n), 0.5)], [np.repeat([[[0.0]], [[1.0]]], n, axis=1)], None, weight_M1, weight_M1)
    predicted = wrong_2[a_N.astype(int), None], np.repeat(wrong_2[:, None, None], n, axis=1)
    curve = sequential(target, coin, follow, lambda *_: predicted, one_M1.T, targeted=True)
    assert curve.mean_GHQ.item() == pytest.approx(y_N.mean(), abs=0.005)


def test_a_cut_panel_still_knows_whose_last_treatment_is_there() -> None:
    trials, _ = enrol(SCHEMA, counted_panel(500, 13, losing=True, rows=6), 2)
    assert trials.panel.treatments[:, -1].any()
    assert not trials.records_last


def test_outcomes_that_nobody_has_in_time_are_an_error() -> None:
    panel = counted_panel(100, 14)
    nobody = np.broadcast_to(np.arange(3)[:, None] == 0, panel.outcomes.shape).copy()
    with pytest.raises(UsageError, match="nothing is measured within 2 steps of the 100 trials"):
        effects_in(replace(panel, outcome_observed=nobody), estimator="sdr")
