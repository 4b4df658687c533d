"""Plans that change what would be given anyway: the natural course, modified treatment policies, odds."""

import json
from dataclasses import replace

import numpy as np
import pytest

from costar_cli.data import Part, TreatmentEncoding
from costar_cli.errors import UsageError
from costar_cli.inference import resolve, simulate_rule
from costar_cli.plans import Course, IndexTimes, PlanOdds, parse_plans
from costar_cli.questions import estimate_outcomes
from tests.codes import said
from tests.dose_worlds import linear_doses
from tests.methods import mixed_worlds
from tests.plans.test_options import course_of, plan_of
from tests.plans.test_rules import Stepwise, at, linear_world, plans_of, true_mean, value_of
from tests.whatif.whatif_worlds import RETAIL, TUMOR, LinearModel, make_dataset

TEST = Part("source", "test")
DOSES = linear_doses(60).schema


def doses_given(plan: object, usual: list[float], schema=DOSES) -> list[float]:
    """What a plan gives courses with these natural doses, where severity is 1."""
    usual_MA, n = np.array(usual, dtype=np.float64)[:, None], len(usual)
    columns = {"severity": np.ones(n), "step": np.zeros(n), "plan_step": np.ones(n)}
    read = plan_of(plan, schema, 3)
    course = Course(columns, usual_MA[:, None], usual_MA, schema.treatments, np.full((n, read.n_chances), 0.5))
    decided_MA = read.decide(course)
    chance_KM, values_KMA = read.options(0, course)
    np.testing.assert_allclose((chance_KM[..., None] * values_KMA).sum(axis=0), decided_MA)  # nothing here has chance
    return decided_MA[:, 0].tolist()


@pytest.mark.parametrize(
    ("rule", "doses"),
    [
        ("dose = natural dose - 1 if natural dose > 2", [0, 0.25, 2, 2]),
        ("dose = 0.5 if natural dose < 0.5", [0.5, 0.5, 2, 3]),
        ("dose = natural dose -1", [0, 0, 1, 2]),  # no dose is below 0
        ("dose = natural dose + 1 if severity = 1 and natural dose >= 2", [0, 0.25, 3, 4]),
        ("dose = natural dose * 0.5", [0, 0.125, 1, 1.5]),
        ("none if natural dose > 2", [0, 0.25, 2, 0]),
        ("natural if severity > 0", [0, 0.25, 2, 3]),
        (["dose = 0.5 if natural dose < 1.5", "dose = natural dose - 1"], [0.5, 0.5, 1, 2]),
    ],
)
def test_a_rule_changes_the_natural_dose_as_it_says_and_leaves_it_where_it_does_not(rule, doses):
    assert doses_given({"rule": rule, "times": 2}, [0, 0.25, 2, 3]) == doses


@pytest.mark.parametrize(
    ("other", "doses"),
    [({}, [0, 0]), ({"else": {}}, [0, 0]), ({"else": "natural"}, [1, 3]), ({"else": {"dose": 2}}, [2, 2]),
     ({"else": {"rule": "dose = 4 if natural dose > 2"}}, [1, 4])],
)  # fmt: skip
def test_else_may_be_the_natural_treatment(other, doses):
    assert doses_given({"rule": "none if severity > 2", "times": 2} | other, [1, 3]) == doses


def test_what_a_rule_on_natural_treatments_does_not_name_stays_as_it_would_be():
    courses = course_of(4, n_chances=1)
    usual_MA = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    courses = replace(courses, usual_MA=usual_MA)
    natural = plan_of({"rule": "chemotherapy if natural radiotherapy = 1", "times": 2})
    assert natural.decide(courses).tolist() == [[0, 0], [1, 1], [1, 0], [1, 1]]
    plain = plan_of({"rule": "chemotherapy if tumour_volume > 0", "times": 2})
    assert plain.decide(courses).tolist() == [[1, 0]] * 4
    left = plan_of({"rule": "chemotherapy if tumour_volume > 3", "else": "natural", "times": 2})
    assert left.decide(courses).tolist() == [[0, 0], [1, 1], [1, 0], [1, 1]]
    none = plan_of({"rule": "none if natural radiotherapy = 1", "times": 2})
    assert none.decide(courses).tolist() == [[0, 0], [0, 0], [1, 0], [0, 0]]


def test_a_combination_that_never_occurs_stays_natural():
    classes = ((0, 0), (1, 0), (0, 1))
    encoding = TreatmentEncoding(
        mode="multiclass", names=TUMOR.treatments.names, levels=TUMOR.treatments.levels, classes=classes
    )
    schema = TUMOR.model_copy(update={"treatments": encoding})
    courses = replace(course_of(2, schema=schema, n_chances=1), usual_MA=np.array([[0, 0], [0, 1]]))
    rule = plan_of({"rule": "chemotherapy", "else": "natural", "times": 2}, schema)
    assert rule.decide(courses).tolist() == [[1, 0], [0, 1]]


def test_levels_are_compared_by_their_names_or_numbers():
    level = RETAIL.treatments.levels[0]
    courses = Course({}, np.zeros((3, 1, 1), dtype=int), np.array([[0], [1], [len(level) - 1]]), RETAIL.treatments,
                     np.zeros((3, 1)))  # fmt: skip
    by_name = plan_of({"rule": f"none if natural price_class = '{level[1]}'", "times": 2}, RETAIL)
    assert by_name.decide(courses)[:, 0].tolist() == [0, 0, len(level) - 1]
    by_number = plan_of({"rule": "none if natural price_class < -40", "times": 2}, RETAIL)
    assert level[1] == "-50 %"
    assert by_number.decide(courses)[:, 0].tolist() == [0, 0, len(level) - 1]


def test_odds_are_multiplied():
    courses = replace(course_of(3, n_chances=1), probability_MA=np.array([[0.5, 0.1], [0.25, 0.9], [1, 0.3]]))
    chance_KM, values_KMA = plan_of({"odds": {"chemotherapy": 3}, "times": 2}).options(0, courses)
    np.testing.assert_allclose(chance_KM[1], [0.75, 0.5, 1])
    assert (values_KMA[0, :, 0] == 0).all()
    assert (values_KMA[1, :, 0] == 1).all()
    np.testing.assert_array_equal(values_KMA[..., 1], [courses.usual_MA[:, 1]] * 2)


def test_odds_of_one_are_the_natural_course():
    courses = course_of()
    chance_KM, _ = plan_of({"odds": {"chemotherapy": 1}, "times": 2}).options(0, courses)
    np.testing.assert_allclose(chance_KM[1], 0.25)


def test_risk_ratio_incremental_plans_are_rules_with_chance_and_the_natural_treatment():
    courses = course_of(4)
    chance_KM, values_KMA = plan_of(
        {"rule": "none", "with probability": 0.2, "else": "natural", "times": 6}
    ).options(0, courses)  # fmt: skip
    np.testing.assert_allclose(chance_KM, [[0.2] * 4, [0.8] * 4])
    np.testing.assert_array_equal(values_KMA, [np.zeros((4, 2)), courses.usual_MA])


@pytest.mark.parametrize(
    ("plan", "text"),
    [
        ({"natural": True, "times": 2}, "natural course"),
        ({"odds": {"chemotherapy": 2}, "times": 2}, "odds of chemotherapy times 2"),
        ({"rule": "none if natural chemotherapy = 1", "times": 2}, "none if natural chemotherapy = 1; else natural"),
        ({"rule": "none", "with probability": 0.2, "else": "natural", "times": 2},
         "none with probability 0.2; else natural"),
        ({"rule": "natural if step > 3", "else": {"chemotherapy": 1}, "times": 2},
         "natural if step > 3; else chemotherapy"),
        ({"rule": "natural if step > 3", "else": {}, "times": 2}, "natural if step > 3; else none"),
    ],
)  # fmt: skip
def test_plans_are_put_into_words(plan, text):
    assert plan_of(plan).text == text


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        ({"natural": 1, "times": 2}, "`natural` must be true, not 1"),
        ({"natural": True}, "neither `times` nor `until`"),
        ({"natural": True, "times": 9}, "has 9 steps"),
        ({"natral": True, "times": 2}, "not an object; did you mean 'natural'?"),
        ({"natural": True, "tims": 2}, "unknown key 'tims'; did you mean 'times'?"),
        ([{"natural": True}], "`natural` is the whole plan, not one of its steps"),
        ([{"odds": {"chemotherapy": 2}}], "`odds` is the whole plan, not one of its steps"),
        ({"odds": {"chemo": 2}, "times": 2}, "no treatment 'chemo'; did you mean 'chemotherapy'?"),
        ({"odds": {"chemotherapy": 0}, "times": 2}, "are multiplied by a number above 0, not 0"),
        ({"odds": {"chemotherapy": "2"}, "times": 2}, "are multiplied by a number above 0, not '2'"),
        ({"odds": 2, "times": 2}, "`odds` must be an object of one treatment"),
        ({"odds": {"chemotherapy": 2, "radiotherapy": 2}, "times": 2}, "`odds` must be an object of one treatment"),
        ({"rule": "none", "else": "natrual", "times": 2}, "`else` cannot be 'natrual'; did you mean 'natural'?"),
        ({"rule": "none if natural chemo = 1", "times": 2}, "`natural chemo` is no treatment; did you mean"),
        ({"rule": "none if natural chemotherapy = 'om'", "times": 2}, "is never 'om'; it takes 0 = 'off', 1 = 'on'"),
        ({"rule": "none if natural chemotherapy > 'on'", "times": 2}, "are compared by `=` or `!=`, not `>`"),
        ({"rule": "none if chemotherapy = 1", "times": 2}, "`natural chemotherapy` for what would be given anyway"),
        ({"rule": "chemotherapy = natural radiotherapy", "times": 2}, "not from `natural radiotherapy`"),
        ({"rule": "chemotherapy = natural chemotherapy - 1", "times": 2}, "has levels: move these by `shift`"),
        ({"rule": "chemo = natural chemo", "times": 2}, "no treatment 'chemo'"),
        ({"rule": "chemotherapy = natural chemotherapy - x", "times": 2}, "a number expected before `x`"),
        ({"rule": "chemotherapy = natural chemotherapy 2", "times": 2}, "`+`, `-` or `*` expected before `2`"),
        ({"rule": "chemotherapy = chemotherapy - 1", "times": 2}, "given anyway is `natural chemotherapy`"),
        ({"rule": "none if natural chemotherapy - 1 > 0", "times": 2}, "a comparison such as `>=` expected before `-`"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_a_fix(plan, problem):
    with pytest.raises(UsageError) as caught:
        plan_of(plan)
    assert problem in "\n".join([caught.value.problem, *caught.value.details])
    assert caught.value.fix


def test_doses_and_levels_of_more_kinds_have_no_odds():
    for schema, treatment in ((DOSES, "dose"), (RETAIL, "price_class")):
        with pytest.raises(UsageError, match="has no odds"):
            plan_of({"odds": {treatment: 2}, "times": 2}, schema, 3)


def test_treatments_that_cannot_be_switched_alone_have_no_odds():
    encoding = TUMOR.treatments.model_copy(update={"classes": ((0, 0), (1, 0), (0, 1))})
    with pytest.raises(UsageError, match="cannot be switched by itself"):
        plan_of({"odds": {"chemotherapy": 2}, "times": 2}, TUMOR.model_copy(update={"treatments": encoding}))


def test_levels_without_numbers_are_compared_by_name():
    levels = (("none", "tablet", "drip"),)
    encoding = TreatmentEncoding(mode="multiclass", names=("form",), levels=levels, classes=((0,), (1,), (2,)))
    with pytest.raises(UsageError, match="are no numbers: compare `natural form` with one in quotes"):
        plan_of({"rule": "none if natural form > 1", "times": 2}, TUMOR.model_copy(update={"treatments": encoding}))


@pytest.mark.parametrize("rule", ["dose = natural dose * 1000", "dose = natural dose + 1e30 if natural dose > 0"])
def test_a_natural_dose_that_is_moved_too_far_is_refused(rule):
    with pytest.raises(UsageError, match=r"plan 'p' moves dose to .*more than 10 times"):
        doses_given({"rule": rule, "times": 2}, [0, 2])
    assert doses_given({"rule": "dose = natural dose * 1000 if natural dose > 9", "times": 2}, [0, 2]) == [0, 2]


@pytest.mark.parametrize("rule", [{"natural": True}, {"rule": "natural"}, {"shift": {"dose": 0}}])
def test_the_natural_course_is_what_the_data_gave_also_where_models_do_not_see_it(rule):
    data = linear_doses(60)
    panel, plan = data.panels[TEST], plan_of({**rule, "times": 3}, data.schema, 3)
    known = replace(panel, treatments=np.where(np.arange(panel.n_steps)[:, None] < 5, panel.treatments, 0))
    moments = IndexTimes.of(known, 5)
    asked = resolve("m", LinearModel(data.schema, horizon=3), moments, [plan] * len(moments), given=panel)
    given_ = data.schema.treatments.decode(panel.treatments[:, 5:8])
    np.testing.assert_allclose([of.values for of in asked.plans_Q], given_, atol=1e-8)


def test_a_rule_that_reads_outcomes_and_natural_treatments_is_played_on_the_mean_course():
    model, panel = Stepwise(TUMOR), make_dataset().panels[TEST]
    start = float(panel.outcomes[0, 10, 0])
    rule = plan_of({"rule": f"none if tumour_volume < {start - 1}", "else": "natural", "times": 6})
    went = simulate_rule(model, at(panel, 0, 10), rule)
    assert went.how == "mean course"
    values, usual = went.most_common(0).values, TUMOR.treatments.decode(panel.treatments[0])[10:16]
    fell = False
    for step, natural in zip(values.tolist(), usual.tolist(), strict=True):
        assert step == ([0, 0] if fell else natural)
        fell = fell or bool(step[0])  # a treatment takes two off the last known outcome
    assert (values != usual).any()


def test_the_natural_course_has_the_estimate_of_the_plan_that_was_followed():
    model, panel = mixed_worlds.model(), mixed_worlds.world().panels[TEST]
    encoding = mixed_worlds.SCHEMA.treatments
    steps = [dict(zip(encoding.names, row, strict=True)) for row in encoding.decode(panel.treatments[3, 9:13]).tolist()]
    plans = {"natural course": {"natural": True, "times": 4}, "followed": steps}
    request = parse_plans(json.dumps({"origin": 9, "plans": plans}), mixed_worlds.SCHEMA, horizon=4)
    report = estimate_outcomes(mixed_worlds.world(), {"m": model}, request, subject=panel.names[3], unsupported=True)
    document = report.to_json()
    assert document["rules"]["natural course"] == "natural course"
    [natural, followed] = report.models[0].estimates.mean_QHY
    np.testing.assert_array_equal(natural, followed)
    assert "what the data gave" in said(report.diagnostics, "natural-of-data")


def test_a_policy_on_outcomes_and_the_natural_treatment_is_worth_what_simulating_the_law_says():
    data, model = linear_world()
    panel, origin, steps = data.panels[TEST], 5, data.horizon
    plans = {"stop": {"rule": "none if outcome > 0", "else": "natural", "until": "end"}, "natural": {
        "natural": True, "until": "end"}}  # fmt: skip
    stop, natural = plans_of(data.schema, steps, **plans)
    usual_NH = data.schema.treatments.decode(panel.treatments[:, origin : origin + steps])[..., 0]

    def stopped(h, y):
        usual = np.repeat(usual_NH[:, h], len(y) // panel.n_subjects)
        return np.where(y > 0, 0, usual)

    truth = true_mean(panel, origin, stopped, steps)
    none_stopped = true_mean(panel, origin, lambda h, y: np.repeat(usual_NH[:, h], len(y) // panel.n_subjects), steps)
    origin_N = np.full(panel.n_subjects, origin)
    value, followed = (value_of(model, panel, plan, origin_N)[:, 0] for plan in (stop, natural))
    assert truth[-1] > none_stopped[-1] + 0.3  # treatment lowers the outcome, and was stopped
    np.testing.assert_allclose(value - followed, truth - none_stopped, atol=0.08)


def test_odds_are_refused_by_models_of_outcomes_with_what_answers_them():
    data, model = linear_world()
    request = parse_plans(
        json.dumps({"origin": 5, "plans": {"twice": {"odds": {"treatment": 2}, "times": 3}}}), data.schema, horizon=5
    )
    assert isinstance(request.plans[0], PlanOdds)
    with pytest.raises(UsageError, match="plan 'twice' multiplies the odds of treatment") as caught:
        estimate_outcomes(data, {"m": model}, request, subject=data.panels[TEST].names[0])
    assert "costar effect" in str(caught.value.fix)
    with pytest.raises(UsageError, match="which are not known here"):
        simulate_rule(model, at(data.panels[TEST], 0, 5), request.plans[0])
