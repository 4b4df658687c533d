"""A cohort is answered about rules as each of its subjects is, and its mean is what the regime comes to."""

import json
import sys
from functools import cache

import numpy as np
import pytest

from costar_cli.data import Dataset, Location, Part, TreatmentEncoding
from costar_cli.inference import draws, resolve
from costar_cli.plans import IndexTimes, PlanRequest, parse_plans
from costar_cli.questions import (
    Averager,
    Cohort,
    ModelAnswers,
    answer_cohort,
    estimate_outcomes,
    names_of,
    tidy_columns,
    true_answers,
)
from costar_cli.questions import answers as answers_module
from costar_cli.questions.answers import ask_plans
from tests.plans.test_rules import linear_world, true_mean
from tests.whatif.whatif_worlds import RETAIL, TUMOR, LinearModel, make_dataset

TEST = Part("source", "test")
ORIGIN = 5
PLANS = {
    "never": {"repeat": {}, "times": 4},
    "when high": {"rule": "treatment if outcome > 0", "times": 4},
    "first": {"rule": "treatment if plan_step = 1", "times": 3},
    "coin": {"rule": "treatment", "with probability": 0.5, "times": 4},
}


def request(plans=PLANS) -> PlanRequest:
    schema = linear_world()[0].schema
    return parse_plans(json.dumps({"origin": ORIGIN, "plans": plans}), schema, horizon=5)


def answers_of(plans=PLANS) -> ModelAnswers:
    data, model = linear_world()
    panel = data.panels[TEST]
    places = [Location(TEST, row) for row in range(panel.n_subjects)]
    cohort = Cohort.of(panel, names_of(panel), places, origin=ORIGIN)
    (answers,) = answer_cohort("m", model, cohort, request(plans))
    return answers


@pytest.fixture(scope="module")
def answers() -> ModelAnswers:
    return answers_of()


def mean_of(answers: ModelAnswers, plan: str, steps: int = 4) -> np.ndarray:
    rows = [i for i, of in enumerate(answers.plans_Q) if of.name == plan]
    return answers.estimates.mean_QHY[rows, :steps, 0].mean(axis=0)


def test_the_mean_over_a_cohort_is_what_simulating_the_law_under_the_rule_says(answers):
    panel = linear_world()[0].panels[TEST]
    truth = true_mean(panel, ORIGIN, lambda _, y: y > 0, 4)
    np.testing.assert_allclose(mean_of(answers, "when high"), truth, atol=0.2)
    assert np.abs(mean_of(answers, "never") - truth)[-1] > 0.4


def test_a_coin_is_between_always_and_never(answers):
    always = answers_of({"always": {"repeat": {"treatment": 1}, "times": 4}})
    half = (mean_of(answers, "never") + mean_of(always, "always")) / 2
    np.testing.assert_allclose(mean_of(answers, "coin"), half, atol=0.1)


def test_a_subject_has_the_answer_that_it_has_alone_but_for_chance(answers):
    data, model = linear_world()
    panel = data.panels[TEST]
    for row in (0, 7):
        report = estimate_outcomes(data, {"m": model}, request(), subject=panel.names[row])
        alone = report.models[0].estimates
        together = answers.estimates.take(np.arange(4 * row, 4 * row + 4))
        np.testing.assert_allclose(together.mean_QHY[[0, 2]], alone.mean_QHY[[0, 2]], rtol=1e-5)
        apart = np.abs(together.mean_QHY - alone.mean_QHY)[[1, 3]]
        assert (apart < 0.3 * alone.sd_QHY[[1, 3]]).all()


def test_rows_have_the_rule_and_its_truth(answers):
    data, _ = linear_world()
    truth = true_answers(data, answers)
    columns = tidy_columns(answers, truth_QHY=truth)
    rules = columns["plan"] == "when high"
    assert rules.sum() == 4 * len(answers.cohort)
    assert np.isfinite(columns["truth"][rules].astype(float)).all()
    panel, request_ = data.panels[TEST], request({"when high": PLANS["when high"]})
    alone = estimate_outcomes(data, {"m": linear_world()[1]}, request_, subject=panel.names[3], truth=True)
    np.testing.assert_allclose(truth[4 * 3 + 1, :4, 0], alone.truth[0][:, 0])
    assert np.isnan(truth[4 * 3 + 2, 3]).all()  # the rule of three steps has no fourth


def test_the_average_effect_of_a_rule_has_an_interval_that_holds_what_the_law_says():
    data, model = linear_world()
    panel = data.panels[TEST]
    cohort = Cohort.of(panel, names_of(panel), origin=ORIGIN)
    averager = Averager(cohort, request(), ("all",), np.ones((1, len(cohort)), dtype=bool))
    for answers in answer_cohort("m", model, cohort, request()):
        averager.add(answers)
    found = averager.finish("m", model, (0.99,))
    plan = list(PLANS).index("when high")
    truth = true_mean(panel, ORIGIN, lambda _, y: y > 0, 4) - true_mean(panel, ORIGIN, lambda _, y: 0 * y, 4)
    mean_H, half_H = found.differences.mean_GPHY[0, plan, :4, 0], found.differences.half_LGPHY[0, 0, plan, :4, 0]
    assert (np.abs(mean_H - truth) < half_H + 0.1).all()
    assert (half_H[1:] < np.abs(mean_H[1:])).all()


def test_the_courses_of_chance_are_estimated_some_at_a_time(monkeypatch):
    asked = []

    class Watched(LinearModel):
        def rollout(self, panel, queries, **options):
            asked.append(len(queries))
            return super().rollout(panel, queries, **options)

    plan = {"rule": "price_class = '+5 %'", "with probability": 0.5, "times": 4}
    cohort, _ = shifted("all")
    request = parse_plans(json.dumps({"plans": {"coin": plan}}), RETAIL, horizon=6)
    (once,) = answer_cohort("m", Watched(RETAIL), cohort, request)
    assert max(asked) > 20
    monkeypatch.setattr(sys.modules["costar_cli.inference.resolve"], "MOST_QUERIES", 20)
    first = len(asked)
    (parts,) = answer_cohort("m", Watched(RETAIL), cohort, request)
    assert max(asked[first + 1 :]) <= 20
    np.testing.assert_array_equal(once.estimates.mean_QHY, parts.estimates.mean_QHY)
    np.testing.assert_array_equal(once.estimates.sd_QHY, parts.estimates.sd_QHY)


@cache
def shelves() -> Dataset:
    """Prices that change at every step, in series of several lengths."""
    return make_dataset("retail")


def shifted(origin: int | str) -> tuple[Cohort, PlanRequest]:
    part, plan = Part("target", "test"), {"shift": {"price_class": "-7 %"}, "times": 4}
    request = parse_plans(json.dumps({"plans": {"s": plan, "now": [{}]}}), RETAIL, horizon=6)
    panel = shelves().panels[part]
    places = [Location(part, row) for row in range(panel.n_subjects)]
    return Cohort.of(panel, names_of(panel), places, origin=origin, skip=True), request


@pytest.mark.parametrize("moments", [1, 7, 1_000])
@pytest.mark.parametrize("origin", [-5, 3, "all"])
def test_a_shift_moves_what_each_subject_was_given_whoever_else_is_asked_about(monkeypatch, origin, moments):
    monkeypatch.setattr(answers_module, "MOST_MOMENTS", moments)
    model, (cohort, request) = LinearModel(RETAIL), shifted(origin)
    chunks = list(answer_cohort("m", model, cohort, request))
    plans = [answers.plans_Q[q] for answers in chunks for q in range(0, len(answers), 2)]
    means = [answers.estimates.mean_QHY[q] for answers in chunks for q in range(0, len(answers), 2)]
    for subject, step, plan, mean_HY in zip(cohort.subject_M, cohort.origin_M.tolist(), plans, means, strict=True):
        name = str(cohort.names[subject])
        alone = estimate_outcomes(shelves(), {"m": model}, request, subject=name, origin=step, unsupported=True)
        np.testing.assert_array_equal(plan.values, alone.plans[0].values)
        np.testing.assert_array_equal(mean_HY, alone.models[0].estimates.mean_QHY[0])


def test_models_are_shown_nothing_beyond_the_last_origin():
    shown = []

    class Watched(LinearModel):
        def rollout(self, panel, queries, **options):
            shown.append(panel.n_steps)
            return super().rollout(panel, queries, **options)

    cohort, request = shifted(3)
    list(answer_cohort("m", Watched(RETAIL), cohort, request))
    assert set(shown) == {4}


def test_the_truth_and_the_average_of_a_shift_are_those_of_what_each_subject_is_given():
    data, model = linear_world()
    doses = TreatmentEncoding(mode="multilabel", names=("treatment",), levels=(("0", "1"),))
    numbered = data.schema.model_copy(update={"treatments": doses})
    panel, plan = data.panels[TEST], {"shift": {"treatment": 0}, "times": 4}
    places = [Location(TEST, row) for row in range(panel.n_subjects)]
    cohort = Cohort.of(panel, names_of(panel), places, origin=3)
    shift = parse_plans(json.dumps({"plans": {"s": plan}}), numbered, horizon=5)
    averager = Averager(cohort, shift, ("all",), np.ones((1, len(cohort)), dtype=bool))
    (answers,) = answer_cohort("m", model, cohort, shift)
    truth = true_answers(data, answers)
    averager.add(answers, truth)
    alone = [
        estimate_outcomes(data, {"m": model}, shift, subject=name, origin=3, truth=True) for name in panel.names[:9]
    ]
    np.testing.assert_array_equal(truth[:9], [report.truth[0] for report in alone])
    found = averager.finish("m", model, (0.9,))
    np.testing.assert_allclose(found.outcomes.mean_GPHY[0, 0], answers.estimates.mean_QHY.mean(axis=0))
    given = data.schema.treatments.decode(panel.treatments[:, 3:7])
    np.testing.assert_array_equal([plan.values for plan in answers.plans_Q], given)
    assert len(np.unique(given, axis=0)) > 1


def test_draws_of_a_rule_have_the_chance_of_the_same_subjects_plans():
    panel, model = make_dataset().panels[Part("source", "train")], LinearModel(TUMOR)
    moments = IndexTimes(panel, np.array([0, 1, 3]), np.array([10, 10, 10]))
    coin = {"rule": "chemotherapy", "with probability": 0.5, "else": {"chemotherapy": 1}, "times": 3}
    request = parse_plans(json.dumps({"plans": {"coin": coin}}), TUMOR, horizon=6)
    asked = resolve("m", model, moments, [*request.plans] * 3)
    drawn_SQHY = draws(model, panel, ask_plans(model, moments, asked.plans_Q))
    assert np.ptp(drawn_SQHY, axis=0).min() > 0
    np.testing.assert_array_equal(asked.drawn(drawn_SQHY.copy()), drawn_SQHY)
