"""A super learner weighs the part that is right, and its effects are as near as those of the better one."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit

import costar_cli as costar
from costar_cli.data import Dataset, Part
from costar_cli.effects import EffectReport
from costar_cli.effects.learners import FEWEST_TRIED, Mixture, chosen_learner
from costar_cli.report.figures.population import draw_effects
from tests.effect_worlds import TRUTH, WORLDS
from tests.mortal_world import MORTAL, mortal_panel

pytestmark = pytest.mark.filterwarnings("ignore::costar_cli.errors.CostarWarning")  # of few followers
Floats = NDArray[np.float64]
COLUMNS = (0, 1, 2)


def drawn(n: int, seed: int = 0) -> tuple[Floats, Floats, Floats]:
    """Return histories, treatments and noise."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 3)), rng.integers(0, 2, (n, 1)).astype(float), rng.normal(size=n)


def line(history_MP: Floats, given_MA: Floats) -> Floats:
    return history_MP @ [1.0, -0.5, 0.2] - given_MA[:, 0]


def ring(history_MP: Floats, given_MA: Floats) -> Floats:
    """An answer that jumps where two columns are alike in size: no bend or product of them tells."""
    return 2.0 * (np.abs(history_MP[:, :2]) > 0.7).all(axis=1) * (1 + given_MA[:, 0])


def weight_of_trees(history_MP: Floats, given_MA: Floats, answer_M: Floats, unit_M: Any = None, **is_: bool) -> float:
    unit_M = np.arange(len(answer_M)) if unit_M is None else unit_M
    rows = [(history_MP, given_MA, answer_M[:, None], unit_M)]
    logistic_Q = np.array([is_.get("binary", False)])
    return chosen_learner("super-learner", rows, COLUMNS, logistic_Q).weights["trees"]


def test_the_weight_goes_to_the_part_that_is_the_law() -> None:
    history_MP, given_MA, noise_M = drawn(1500)
    assert weight_of_trees(history_MP, given_MA, line(history_MP, given_MA) + noise_M) == 0
    risk_M = expit(2 * line(history_MP, given_MA))
    ill_M = (np.random.default_rng(1).random(1500) < risk_M).astype(float)
    assert weight_of_trees(history_MP, given_MA, ill_M, binary=True) == 0
    assert weight_of_trees(history_MP, given_MA, ring(history_MP, given_MA) + 0.5 * noise_M) > 0.9


def test_a_law_with_something_of_both_is_mixed_and_predicted_better_than_by_either() -> None:
    history_MP, given_MA, noise_M = drawn(3000)
    answer_M = 1.5 * line(history_MP, given_MA) + 0.35 * ring(history_MP, given_MA)
    train, test = slice(0, 1500), slice(1500, 3000)
    rows = history_MP[train], given_MA[train], (answer_M + 0.5 * noise_M)[train, None]
    logistic_Q, error = np.zeros(1, dtype=bool), {}
    for name in ("regression", "trees", "super-learner"):
        learner = chosen_learner(name, [(*rows, np.arange(1500))], COLUMNS, logistic_Q)
        law = learner.fit(*rows, logistic_Q)
        error[name] = np.mean((answer_M[test] - law.predict(history_MP[test], given_MA[test])[:, 0]) ** 2)
    assert isinstance(law, Mixture)
    assert 0.1 < learner.weights["trees"] < 0.9
    assert sum(learner.weights.values()) == 1
    assert error["super-learner"] < 0.9 * min(error["regression"], error["trees"])


def test_rows_of_a_unit_are_left_out_together() -> None:
    """Trees know copies of the rows that they learnt from by heart, and would have all weight, even of noise."""
    history_MP, given_MA, noise_M = (np.repeat(array, 4, axis=0) for array in drawn(300))
    assert weight_of_trees(history_MP, given_MA, noise_M, np.repeat(np.arange(300), 4)) < 0.5
    assert weight_of_trees(history_MP, given_MA, noise_M) > 0.9


def test_too_few_rows_are_not_compared() -> None:
    history_MP, given_MA, _ = drawn(FEWEST_TRIED - 1)
    assert weight_of_trees(history_MP, given_MA, ring(history_MP, given_MA)) == 0


def asked(name: str, learner: str, n: int = 1000, seed: int = 1, **options: Any) -> EffectReport:
    world = WORLDS[name]
    plans = {regime: of.steps(world.steps) for regime, of in world.regimes.items()}
    options = {"estimator": ["gformula"], "unsupported": True} | options
    return costar.estimate_effects(world.dataset(n, seed), {"plans": plans}, learner=learner, **options)


def effect_of(report: EffectReport, estimator: str = "gformula") -> dict[str, Any]:
    """Return the row of always less never after the last step."""
    rows = [row for row in report.rows if (row["quantity"], row["plan"]) == ("difference", "always")]
    return max((row for row in rows if row["estimator"] == estimator), key=lambda row: row["step"])


@pytest.mark.parametrize("world", ["linear", "binary"])
def test_effects_are_those_of_regressions_where_these_are_the_law(world: str) -> None:
    every: dict[str, Any] = {"estimator": ["gformula", "sdr", "tmle"], "folds": 2}
    report = asked(world, "super-learner", **every)
    assert report.to_json()["learner_weights"] == {"y": {"regression": 1, "trees": 0}}
    assert report.to_json()["learners"] == {"y": "super-learner"}
    of_regressions = asked(world, "regression", **every)
    for ours, theirs in zip(report.rows, of_regressions.rows, strict=True):
        if ours["estimator"] == "gformula":  # weights may come of trees, too
            assert ours == theirs
    row, truth = effect_of(report), TRUTH[world]["always"][0] - TRUTH[world]["never"][0]
    assert row["lower"] < truth < row["upper"]
    assert "effect-trees" not in {one.code for one in report.diagnostics}


def test_effects_are_as_near_as_those_of_the_better_part_where_regressions_are_wrong() -> None:
    truth = TRUTH["jumps"]["always"][0] - TRUTH["jumps"]["never"][0]
    error: dict[str, list[float]] = {"regression": [], "trees": [], "super-learner": []}
    for seed in range(2):
        for learner, errors in error.items():
            report = asked("jumps", learner, seed=seed)
            errors.append(effect_of(report)["estimate"] - truth)
        assert 0.5 < report.to_json()["learner_weights"]["y"]["trees"] <= 1
    rmse = {learner: float(np.sqrt(np.mean(np.square(errors)))) for learner, errors in error.items()}
    assert rmse["super-learner"] < 0.6 * rmse["regression"]
    assert rmse["super-learner"] < rmse["trees"] + 0.03
    assert effect_of(report)["lower"] is None
    assert "effect-trees" in {one.code for one in report.diagnostics}
    assert "no intervals" in draw_effects(report).get_supxlabel()


def test_a_doubly_robust_interval_holds_with_a_mixture() -> None:
    report = asked("jumps", "super-learner", n=600, estimator=["sdr"], folds=2)
    assert report.to_json()["learner_weights"]["y"]["trees"] > 0
    row, truth = effect_of(report, "sdr"), TRUTH["jumps"]["always"][0] - TRUTH["jumps"]["never"][0]
    assert abs(row["estimate"] - truth) < 3 * row["se"] < 1


def test_events_have_risks_by_a_super_learner() -> None:
    data = Dataset("mortal", MORTAL, 2, {Part("source", "train"): mortal_panel(300, 4, rows=3)})
    plans = {"never": {"repeat": {}, "times": 2}, "always": {"repeat": {"a": 1}, "times": 2}}
    every: dict[str, Any] = {"estimator": ["sdr", "tmle", "gformula"], "folds": 2}
    report = costar.estimate_effects(data, {"plans": plans}, learner="super-learner", measure="risk", **every)
    assert {row["quantity"] for row in report.rows} == {"risk"}
    assert all(0 <= row["estimate"] <= 1 for row in report.rows)
    assert set(report.to_json()["learner_weights"]) >= {"death", "recovery"}
