"""Estimators of effects against worlds whose effects are known."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import costar_cli as costar
from costar_cli.data import Dataset, Part
from costar_cli.effects import EffectReport, effects
from costar_cli.effects.learners import Learner
from costar_cli.errors import UsageError
from tests.effect_worlds import ALWAYS, TRUTH, WORLDS
from tests.mortal_world import MORTAL, mortal_panel

pytestmark = pytest.mark.filterwarnings("ignore::costar_cli.errors.CostarWarning")  # of few followers
ESTIMATORS = ("sdr", "tmle", "gformula", "ipw")


def report_on(name: str, n: int, seed: int = 1, **options: Any) -> EffectReport:
    """Return the effects of a world's regimes on n of its subjects."""
    world = WORLDS[name]
    options = {"estimator": "all", "learner": "regression", "unsupported": True} | options
    if world.probability:
        options.setdefault("probability", dict.fromkeys(world.treatments, world.probability))
    plans = {regime: of.steps(world.steps) for regime, of in world.regimes.items()}
    return costar.estimate_effects(world.dataset(n, seed), {"plans": plans}, reference=world.reference, **options)


def last_rows(report: EffectReport, quantity: str) -> dict[tuple[str, str], Mapping[str, Any]]:
    """Return the rows of a quantity after the last step, by estimator and plan."""
    steps = max(row["step"] for row in report.rows)
    rows = [row for row in report.rows if row["step"] == steps and row["quantity"] == quantity]
    return {(row["estimator"], row["plan"]): row for row in rows}


@pytest.fixture(scope="module")
def overlap() -> EffectReport:
    return report_on("overlap", 3000)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("plan", ["always", "threshold"])
def test_effects_are_recovered_where_practice_overlaps(overlap: EffectReport, estimator: str, plan: str) -> None:
    truth = TRUTH["overlap"][plan][0] - TRUTH["overlap"]["never"][0]
    row = last_rows(overlap, "difference")[estimator, plan]
    assert abs(row["estimate"] - truth) < 3.5 * row["se"]
    assert row["se"] < {"gformula": 0.05, "ipw": 0.12}.get(estimator, 0.07)
    assert row["supported"]


def test_a_regression_of_outcome_on_plan_would_have_missed_what_is_recovered(overlap: EffectReport) -> None:
    rows = last_rows(overlap, "mean")
    world = WORLDS["overlap"]
    _, y_NT, a_NHA = world.draw(3000, 1)
    followed = [(a_NHA[..., 0] == given).all(axis=1) for given in (1.0, 0.0)]
    naive = y_NT[followed[0], -1].mean() - y_NT[followed[1], -1].mean()
    truth = TRUTH["overlap"]["always"][0] - TRUTH["overlap"]["never"][0]
    assert abs(naive - truth) > 5 * abs(last_rows(overlap, "difference")["sdr", "always"]["estimate"] - truth)
    assert rows["sdr", "never"]["followers"] == int(followed[1].sum())


class Blind:
    """Regressions that are shown no history: the law of treatment alone is right."""

    name = "regression"

    def __init__(self, sees: Any) -> None:
        self.sees, self.weights = sees, getattr(sees, "weights", None)

    def fit(self, history_MP: NDArray[np.float64], *rest: Any) -> "Blind":
        return Blind(self.sees.fit(np.zeros_like(history_MP), *rest))

    def predict(self, history_MP: NDArray[np.float64], given_MA: NDArray[np.float64]) -> Any:
        return self.sees.predict(np.zeros_like(history_MP), given_MA)


@pytest.mark.parametrize("wrong", ["outcome", "treatment"])
def test_double_robustness_either_model_may_be_wrong(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if wrong == "outcome":
        monkeypatch.setattr(effects, "chosen_learner", lambda *_: Blind(Learner("regression", ())))
    report = report_on("overlap" if wrong == "outcome" else "overlap-treatment-wrong", 4000)
    truth = TRUTH["overlap"]["always"][0] - TRUTH["overlap"]["never"][0]
    rows = last_rows(report, "difference")
    misled = rows["gformula" if wrong == "outcome" else "ipw", "always"]
    assert abs(misled["estimate"] - truth) > 0.3
    for estimator in ("sdr", "tmle"):
        assert abs(rows[estimator, "always"]["estimate"] - truth) < 3 * rows[estimator, "always"]["se"]


@pytest.mark.parametrize("world", ["linear", "binary"])
def test_g_computation_extrapolates_where_hardly_anybody_follows(world: str) -> None:
    report = report_on(world, 1000, estimator=["gformula", "sdr"])
    truth = TRUTH[world]["always"][0] - TRUTH[world]["never"][0]
    rows = last_rows(report, "difference")
    assert abs(rows["gformula", "always"]["estimate"] - truth) < {"linear": 0.25, "binary": 0.08}[world]
    assert not rows["sdr", "always"]["supported"]
    row = rows["sdr", "always"]
    assert (row["lower"] is None) == (row["effective"] < 10)
    assert rows["gformula", "always"]["lower"] < truth < rows["gformula", "always"]["upper"]
    assert [one.subject for one in report.diagnostics if one.code == "effect-few-followers"] >= ["always"]


@pytest.mark.slow
def test_standard_errors_are_those_of_repetitions() -> None:
    rows = [last_rows(report_on("overlap", 300, seed=seed), "difference") for seed in range(24)]
    for estimator in ESTIMATORS[:3]:  # those of weights are too large: they take probabilities of treatment to be known
        estimates = np.array([row[estimator, "always"]["estimate"] for row in rows])
        errors = np.array([row[estimator, "always"]["se"] for row in rows])
        assert 0.7 < errors.mean() / estimates.std(ddof=1) < 1.6  # the sd of 24 is known to 15 %


def test_the_natural_course_is_what_was_observed() -> None:
    report = report_on("doses", 800)
    y_NT = WORLDS["doses"].draw(800, 1)[1]
    rows = last_rows(report, "mean")
    for estimator in ("sdr", "tmle", "ipw"):
        assert rows[estimator, "natural"]["estimate"] == pytest.approx(y_NT[:, -1].mean(), abs=1e-4)
        assert rows[estimator, "natural"]["followers"] == 800


def test_known_probabilities_stand_in_for_a_model_of_treatment() -> None:
    known, modelled = (
        report_on("trial", 1500, estimator="ipw"),
        report_on("trial", 1500, estimator="ipw", probability={}),
    )
    truth = TRUTH["trial"]["always"][0] - TRUTH["trial"]["never"][0]
    for report in (known, modelled):
        row = last_rows(report, "difference")["ipw", "always"]
        assert abs(row["estimate"] - truth) < 3 * row["se"]
    assert known.rows != modelled.rows


def test_groups_have_means_of_their_own_that_make_up_the_mean_of_all() -> None:
    report = report_on("overlap", 2000, by="x:2", estimator=["sdr", "gformula"])
    for estimator in ("sdr", "gformula"):
        rows = [
            row for row in report.rows if row["quantity"] == "mean" and row["step"] == 3 and row["plan"] == "always"
        ]
        of = {row["group"]: row for row in rows if row["estimator"] == estimator}
        everybody, *parts = of.values()
        mean = sum(row["trials"] * row["estimate"] for row in parts) / everybody["trials"]
        assert mean == pytest.approx(everybody["estimate"])
        assert sum(row["trials"] for row in parts) == everybody["trials"]


def test_a_plan_that_nobody_follows_is_named_with_the_step() -> None:
    world = WORLDS["linear"]
    with pytest.raises(UsageError, match=r"nobody follows plan 'always' through step \d") as caught:
        costar.estimate_effects(world.dataset(60, 3), {"plans": {"always": {"repeat": {"a": 1}, "times": 5}}})
    assert "--unsupported" in str(caught.value.fix)


def test_fewer_than_fifty_subjects_are_refused() -> None:
    with pytest.raises(UsageError, match="49 subjects: effects are estimated from 50 or more"):
        report_on("overlap", 49)


def test_simultaneous_bands_are_wider_than_single_intervals(overlap: EffectReport) -> None:
    for row in overlap.rows:
        assert row["upper_simultaneous"] - row["lower_simultaneous"] >= 0.999 * 2 * 1.6449 * row["se"]


def test_p_values_are_adjusted_for_all_contrasts(overlap: EffectReport) -> None:
    tested = [row for row in overlap.rows if row["p"] is not None]
    assert tested
    assert all(row["p_holm"] >= row["p"] for row in tested)
    assert max(row["p_holm"] for row in tested) <= 1


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"seed": -1}, "-1 is out of range"),
        ({"measure": ["risk", "rmst"]}, "risk and rmst are of events, and no series ends with one"),
        ({"outcome": "any event"}, "there is no outcome or event 'any event'"),
        ({"probability": {"a": "x"}}, "x goes from .* and is no probability"),
        ({"origin": 99}, "no trial starts: no subject is followed up to 99"),
    ],
)
def test_what_cannot_be_asked_is_one_error(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem) as caught:
        costar.estimate_effects(WORLDS["overlap"].dataset(60, 1), {"plans": {"always": ALWAYS.steps(3)}}, **options)
    assert caught.value.fix


def test_numbers_of_events_stay_where_they_can_be() -> None:
    panel = mortal_panel(150, 4, rows=4)
    data = Dataset("mortal", MORTAL, 3, {Part("source", "train"): panel})
    plans = {"never": {"repeat": {}, "times": 3}, "always": {"repeat": {"a": 1}, "times": 3}}
    rows = costar.estimate_effects(data, {"plans": plans}, learner="regression", estimator=["sdr", "gformula"]).rows
    times = [row for row in rows if row["quantity"] == "rmst" and row["se"] is not None]
    assert all(0 <= row["lower"] <= row["estimate"] <= row["upper"] <= row["step"] for row in times)
    assert any(row["upper"] == row["step"] > 1 for row in times)  # an interval that would go on beyond
    risks = {
        (row["estimator"], row["outcome"], row["step"], row["plan"]): row for row in rows if row["quantity"] == "risk"
    }
    clear = set()
    for row in (row for row in rows if row["quantity"] == "risk ratio" and row["estimate"] is not None):
        of = [risks[row["estimator"], row["outcome"], row["step"], plan] for plan in plans]
        if all(risk["se"] is not None for risk in of):
            clear.add(all(risk["estimate"] > risk["se"] for risk in of))
            assert (row["lower"] is not None) == all(risk["estimate"] > risk["se"] for risk in of)
    assert clear == {True, False}
