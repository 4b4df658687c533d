"""Averages of models without a posterior, corrected by what came of those who followed a plan, against known truth."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from benchmarks.comparing import made
from costar_cli import Model
from costar_cli.data import Dataset, Panel, Part, TreatmentEncoding
from costar_cli.effects import weights
from costar_cli.plans import PlanRequest
from costar_cli.questions import Averager, Cohort, answer_cohort, corrected, groups_of
from costar_cli.questions.averages import refuted
from costar_cli.reporting import NullReporter
from tests.effect_worlds import TRUTH, WORLDS, Regime, in_parts
from tests.feedback_worlds import LINEAR
from tests.whatif.whatif_worlds import ICU, LinearModel, request_of

SCHEMA = ICU.model_copy(
    update={
        "treatments": TreatmentEncoding(mode="multilabel", names=("drug",), levels=(("no", "yes"),)),
        "covariates": (),
        "outcomes": ICU.outcomes[:1],
    }
)
PLANS = {"never": [{}] * 4, "always": [{"drug": 1}] * 4}


def rows_of(model: Model, dataset: Dataset, plans: Mapping[str, object], origin: int) -> list[dict[str, Any]]:
    return warned_rows_of(model, dataset, plans, origin)[0]


def warned_rows_of(
    model: Model, dataset: Dataset, plans: Mapping[str, object], origin: int, **options: object
) -> tuple[list[dict[str, Any]], set[str]]:
    """Return averages, and the codes of what they come with."""
    reporter = NullReporter()
    every: dict[str, Any] = {"part": "source/test", "origin": origin, "progress": reporter, **options}
    rows = model.average(dataset, {"plans": plans}, frame="polars", **every).to_dicts()
    return list(rows), {diagnostic.code for diagnostic in reporter.diagnostics}


@cache
def asked(method: str, name: str, n: int, seed: int, steps: int, origin: int) -> list[dict[str, Any]]:
    """Return averages by a method of subjects whom it did not learn from."""
    dataset = in_parts(name, n, seed)
    model = made(dataset, method, preset="quick", members=1)
    plans: dict[str, Any] = {"never": [{}] * steps, "always": [{"a": 1}] * steps}
    if name == "overlap":
        plans["threshold"] = {"rule": "a if x > 0", "times": steps}
    return rows_of(model, dataset, plans, origin)


def end(rows: list[dict[str, Any]], plan: str, quantity: str = "difference") -> dict[str, Any]:
    """Return the row of a plan after its last step, in everybody."""
    mine = [row for row in rows if (row["plan"], row["quantity"], row["group"]) == (plan, quantity, "all")]
    return max(mine, key=lambda row: row["step"])


def linear_truth(steps: int) -> float:
    always, never = (LINEAR.mean_under([float(a)] * steps, origin=1)[-1] for a in (1, 0))
    return float(always - never)


def overlap_truth(plan: str) -> float:
    return TRUTH["overlap"][plan][0] - TRUTH["overlap"]["never"][0]


@pytest.mark.parametrize("method", ["ridge", "boosting"])
@pytest.mark.parametrize(
    ("name", "steps", "origin", "truth"),
    [("overlap", 3, 0, overlap_truth("always")), ("linear", 2, 1, linear_truth(2))],
)
def test_what_forecasts_miss_of_an_effect_is_found(
    method: str, name: str, steps: int, origin: int, truth: float
) -> None:
    row = end(asked(method, name, 1_200, 2, steps, origin), "always")
    se = (row["upper"] - row["lower"]) / 2 / 1.65
    assert row["estimator"] == "tmle"
    assert row["interval_kind"].startswith("influence curve (")
    assert abs(row["estimate"] - truth) < 3 * se < 0.3
    assert abs(row["model_estimate"] - truth) > 3 * se


def test_the_mean_under_a_rule_is_found_too() -> None:
    row = end(asked("ridge", "overlap", 1_200, 2, 3, 0), "threshold", "outcome")
    se = (row["upper"] - row["lower"]) / 2 / 1.65
    assert row["estimator"] == "tmle"
    assert abs(row["estimate"] - TRUTH["overlap"]["threshold"][0]) < 3 * se < 0.2


@pytest.mark.slow
def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    held = {}
    for name, steps, origin, truth in (("overlap", 3, 0, overlap_truth("always")), ("linear", 2, 1, linear_truth(2))):
        rows = [end(asked("ridge", name, 1_200, seed, steps, origin), "always") for seed in range(20)]
        rows = [row for row in rows if row["estimator"] == "tmle"]
        assert len(rows) > 15
        held[name] = np.mean([row["lower"] <= truth <= row["upper"] for row in rows])
    assert min(held.values()) >= 0.75  # of 20 that hold 90 %, fewer than 15 do in 1 %
    assert np.mean([*held.values()]) >= 0.8


def test_a_network_is_corrected_like_any_forecast() -> None:
    dataset = replace(in_parts("linear", 500, 2), horizon=2)
    model = made(dataset, "crn", preset="quick", members=1, epochs=1)
    row = end(rows_of(model, dataset, {"never": [{}], "always": [{"a": 1}]}, 1), "always")
    assert row["estimator"] == "tmle"
    assert row["lower"] < -0.8 < row["upper"]
    assert row["model_estimate"] != row["estimate"]


def panel_of(n: int = 600, rows: int = 6) -> Panel:
    """Subjects of two types who are treated at random, each time losing 2."""
    rng = np.random.default_rng(5)
    drug_NT = rng.integers(0, 2, (n, rows)).astype(float)
    lost_NT = np.pad(drug_NT.cumsum(axis=1)[:, :-1], ((0, 0), (1, 0)))
    y_NT = 50 + 3 * rng.normal(size=(n, 1)) - 2 * lost_NT + rng.normal(size=(n, rows))
    return Panel(
        covariates=np.zeros((n, rows, 0), np.float32),
        treatments=drug_NT[..., None].astype(np.float32),
        outcomes=y_NT[..., None].astype(np.float32),
        statics=np.zeros((n, 0), np.float32),
        length=np.full(n, rows),
        subject_id=np.arange(n),
    )


def averages(
    panel: Panel, origin: int | str = 1, *, request: PlanRequest | None = None, by: str | None = None, **model: object
) -> list[Mapping[str, Any]]:
    linear = LinearModel(SCHEMA, calibrated=False, **{"coefficients": (-0.5,), **model})
    request = request or request_of(PLANS, schema=SCHEMA)
    cohort = Cohort.of(panel, panel.subject_id.tolist(), origin=origin)
    averager = Averager(cohort, request, *groups_of(cohort, SCHEMA, by))
    for answers in answer_cohort("m", linear, cohort, request):
        averager.add(answers)
    return list(averager.finish("m", linear, (0.9, 0.5)).to_rows())


def test_a_model_that_finds_a_quarter_of_the_effect_is_corrected_as_far_as_enough_follow() -> None:
    rows = [row for row in averages(panel_of()) if (row["plan"], row["quantity"]) == ("always", "difference")]
    for row in rows[:3]:
        step, se = row["step"], (row["upper"] - row["lower"]) / 2 / 1.65
        assert abs(row["estimate"] + 2 * step) < 3 * se < 1.5
        assert row["model_estimate"] == pytest.approx(-0.5 * step, abs=1e-4)
        assert row["lower"] < row["lower_0.5"] < row["estimate"] < row["upper_0.5"] < row["upper"]
        assert row["level"] == 0.9
    last = rows[3]
    assert (last["step"], last["estimator"], last["lower"], last["level"]) == (4, "model", None, None)
    assert last["estimate"] == last["model_estimate"] == pytest.approx(-2, abs=1e-4)


@pytest.mark.parametrize("iterations", [1, weights.MOST_ITERATIONS])
@pytest.mark.filterwarnings("error::sklearn.exceptions.ConvergenceWarning")
def test_a_correction_by_regressions_that_do_not_converge_is_warned_of(
    iterations: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "MOST_ITERATIONS", iterations)
    dataset = in_parts("overlap", 200, 3)
    model = made(dataset, "ridge", preset="quick", members=1)
    rows, codes = warned_rows_of(model, dataset, {"never": [{}], "always": [{"a": 1}]}, 0)
    assert end(rows, "always")["estimator"] == "tmle"
    assert ("effect-not-converged" in codes) == (iterations == 1)


def test_a_model_whose_effect_the_data_contradict_is_warned_of() -> None:
    warning = refuted(averages(panel_of()))
    assert warning is not None
    assert (warning.code, warning.subject) == ("averages-refuted", "m")
    assert "says -1.5 for plan `always` less `never` at step 3" in warning.text
    assert refuted(averages(panel_of(), coefficients=(-2.0,))) is None


def test_followers_are_counted_and_why_there_is_no_interval_is_said_by_step() -> None:
    panel, plan = panel_of(), "always"
    drug_NT = panel.treatments[..., 0]
    rows = [row for row in averages(panel) if (row["plan"], row["quantity"]) == (plan, "outcome")]
    share = [(drug_NT[:, 1 : 2 + h] == 1).all(axis=1) for h in range(4)]
    weigh = rows[2]["interval_kind"].rpartition(" ")[2]
    count = int(share[2].sum())
    assert rows[2]["interval_kind"] == f"influence curve ({count} follow through step 3, as many as {weigh}"
    assert 50 <= int(weigh[:-1]) <= count
    shares = ", ".join(f"{100 * of.mean():.0f} %" for of in share)
    assert rows[3]["interval_kind"] == (
        "none (a network shrinks effects, by how much nothing that it says shows; "
        f"{int(share[3].sum())} follow the plan through step 4, of 50 needed; by step {shares})"
    )


@pytest.mark.parametrize(
    ("origin", "n", "why"),
    [
        ("last", 600, corrected.NO_FOLLOW_UP),
        (2, 600, corrected.OUTLASTED),
        (1, 49, corrected.TOO_FEW_UNITS),
    ],
)
def test_nothing_is_corrected_where_nothing_is_known_of_it(origin: int | str, n: int, why: str) -> None:
    last = [row for row in averages(panel_of(n), origin) if row["step"] == 4]
    assert {row["estimator"] for row in last} == {"model"}
    assert {row["lower"] for row in last} == {None}
    assert all(row["interval_kind"].endswith(f"; {why})") for row in last)
    assert all(row["estimate"] == row["model_estimate"] for row in last)


def test_what_a_model_adds_to_every_forecast_is_taken_away() -> None:
    plain, moved = averages(panel_of()), averages(panel_of(), shift=(7.0,))
    at = [i for i, row in enumerate(plain) if row["estimator"] == "tmle"]
    assert len(at) == 2 * 3 + 3
    for key in ("estimate", "lower", "upper"):
        np.testing.assert_allclose([moved[i][key] for i in at], [plain[i][key] for i in at], atol=1e-3)
    assert moved[0]["model_estimate"] == pytest.approx(plain[0]["model_estimate"] + 7, abs=1e-3)


def test_how_many_are_asked_at_once_and_a_table_of_plans_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    panel, request = panel_of(), request_of(PLANS, schema=SCHEMA)
    plain = averages(panel)
    monkeypatch.setattr(corrected, "MOST_QUERIES", 7)
    table = PlanRequest((), by_subject={str(name): request.fixed for name in panel.subject_id})
    for rows in (averages(panel), averages(panel, request=table)):
        for row, before in zip(rows, plain, strict=True):
            assert row["interval_kind"] == before["interval_kind"]
            assert row["estimate"] == pytest.approx(before["estimate"], abs=1e-9)


def test_the_mean_of_a_group_is_corrected_by_its_own_followers() -> None:
    schema_rows = averages(panel_of(1_200), by="heart_rate:2")
    groups = {row["group"]: row for row in schema_rows if (row["plan"], row["step"]) == ("always", 2)
              and row["quantity"] == "outcome"}  # fmt: skip
    assert len(groups) == 3
    everybody, low, high = groups.values()
    assert low["estimate"] < everybody["estimate"] < high["estimate"]
    assert low["upper"] - low["lower"] > everybody["upper"] - everybody["lower"]
    assert {row["estimator"] for row in groups.values()} == {"tmle"}


def test_means_of_the_first_plans_alone_are_corrected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corrected, "MOST_CORRECTED", 1)
    rows = averages(panel_of())
    first = {(row["plan"], row["quantity"]): row for row in rows if row["step"] == 1}
    assert first["never", "outcome"]["estimator"] == "tmle"
    for quantity in ("outcome", "difference"):
        assert first["always", quantity]["interval_kind"].endswith(f"; {corrected.TOO_MANY})")


def test_that_differences_are_no_effects_is_said_of_those_that_are_not_corrected() -> None:
    dataset = in_parts("overlap", 400, 2)
    model = made(dataset, "ridge", preset="quick", members=1)
    plans: dict[str, Any] = {"never": [{}] * 2, "always": [{"a": 1}] * 2}
    rows, codes = warned_rows_of(model, dataset, plans, 0)
    assert {row["estimator"] for row in rows} == {"tmle"}
    assert "not-adjusted" not in codes
    few = dataset.panels[Part("source", "test")].names[:60]
    for options in ({"subjects": few, "part": None}, {"by": "y:8"}):  # of all, or of groups alone
        rows, codes = warned_rows_of(model, dataset, plans, 0, **options)
        assert "model" in {row["estimator"] for row in rows}
        assert "not-adjusted" in codes


PLAY = np.random.default_rng(3)
# Rules with chance and plans that read the natural treatment, as plan files and as functions, in two worlds.
POLICIES: Mapping[str, Mapping[str, Regime]] = {
    "overlap": {
        "natural": Regime({"natural": True}, lambda x, y, a: a),
        "coin": Regime({"rule": "a", "with probability": 0.5}, lambda x, y, a: 1.0 * (PLAY.random(a.shape) < 0.5)),
        "more": Regime({"rule": "a if natural a = 0 and x > 0"}, lambda x, y, a: np.maximum(a, x[:, :1] > 0)),
        "late": Regime({"rule": "a if plan_step > 1"}, lambda x, y, a: np.ones_like(a)),
    },
    "doses": {
        "natural": Regime({"natural": True}, lambda x, y, a: a),
        "less": WORLDS["doses"].regimes["less"],
        "share": Regime({"shift": {"dose": "-30%"}}, lambda x, y, a: 0.7 * a),
    },
}


def true_differences(name: str, n: int = 100_000) -> dict[str, float]:
    """Return the mean after the last step under each policy less that of the natural course, by simulation."""
    world = WORLDS[name]
    if name == "overlap":  # a rule that counts its steps starts at the second
        first = replace(world, steps=1).draw(n, 50, lambda x, y, a: np.zeros_like(a))
        start = replace(world, steps=2, start=lambda n, rng: (first[0][:, 1], first[1][:, 1]))
        late = start.draw(n, 50, POLICIES[name]["late"].decide)[1][:, -1].mean()
    ends = {plan: world.draw(n, 50, of.decide)[1][:, -1].mean() for plan, of in POLICIES[name].items()}
    ends |= {"late": late} if name == "overlap" else {}
    return {plan: float(end - ends["natural"]) for plan, end in ends.items() if plan != "natural"}


def policy_rows(name: str, seed: int) -> list[dict[str, Any]]:
    dataset = in_parts(name, 1_200, seed)
    plans = {plan: of.steps(3) for plan, of in POLICIES[name].items()}
    return rows_of(made(dataset, "ridge", preset="quick", members=1), dataset, plans, 0)


@pytest.mark.parametrize("name", POLICIES)
def test_natural_treatments_shifts_and_chances_are_corrected(name: str) -> None:
    rows, missed = policy_rows(name, 1), 0.0
    assert {row["estimator"] for row in rows} == {"tmle"}
    for plan, truth in true_differences(name).items():
        row = end(rows, plan)
        se = (row["upper"] - row["lower"]) / 2 / 1.65
        assert abs(row["estimate"] - truth) < 3 * se < 0.15
        missed = max(missed, abs(row["model_estimate"] - truth) / se)
    assert missed > 3  # and the forecast alone is wrong of some


def test_the_natural_course_has_the_mean_that_was_observed() -> None:
    panel, request = panel_of(), request_of({"natural": {"natural": True, "times": 4}}, schema=SCHEMA)
    rows = [row for row in averages(panel, request=request) if row["quantity"] == "outcome"]
    for row, observed in zip(rows, panel.outcomes[:, 2:, 0].mean(axis=0, dtype=float), strict=True):
        assert row["estimate"] == pytest.approx(observed, abs=1e-4)
        assert row["interval_kind"] == f"influence curve (600 follow through step {row['step']}, as many as 600)"


def test_a_plan_that_makes_of_an_earlier_dose_what_cannot_be_given_has_that_as_its_reason() -> None:
    dataset = in_parts("doses", 300, 1)
    dataset.panels[Part("source", "test")].treatments[:, 0] = 20.0
    plans = {"more": {"rule": "dose = natural dose * 5", "times": 2}}
    rows = rows_of(made(dataset, "ridge", preset="quick", members=1), dataset, plans, 1)
    assert {row["estimator"] for row in rows} == {"model"}
    assert all("; plan 'more' moves dose to 200: it is more than 10 times" in row["interval_kind"] for row in rows)
