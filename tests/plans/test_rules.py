"""Rules give what they say, are worth what the law says they are worth, and refuse what they cannot know."""

import json
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costar_cli.data import Part, Variable
from costar_cli.data.linear.settings import LinearGaussianConfig
from costar_cli.errors import UsageError
from costar_cli.inference import estimate, estimate_played, simulate_rule
from costar_cli.inference.rollout import ask
from costar_cli.methods.registry import METHODS
from costar_cli.plans import AnyPlan, IndexTimes, PlanRule, TreatmentPlan, parse_plans
from costar_cli.plans.shift import shifted_levels
from costar_cli.questions import estimate_outcomes
from costar_cli.questions.answers import ask_plans, estimate_plans
from simulators.linear_gaussian import LinearGaussian
from tests.codes import said
from tests.methods import mixed_worlds
from tests.methods.linear_worlds import fit, linear_data, model_of
from tests.whatif.whatif_worlds import RETAIL, TUMOR, LinearModel, make_dataset

TEST = Part("source", "test")


def plans_of(schema, horizon=6, **plans) -> tuple[AnyPlan, ...]:
    return parse_plans(json.dumps({"plans": plans}), schema, horizon=horizon).plans


def error_of(plan: object, schema=TUMOR) -> str:
    with pytest.raises(UsageError) as caught:
        plans_of(schema, p=plan)
    assert caught.value.fix
    return "\n".join([caught.value.problem, *caught.value.details])


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ({"rule": "chemotherapy"}, "plan 'p': there is neither `times` nor `until`: it never ends"),
        ({"rule": "chemo", "times": 2}, "plan 'p': no treatment 'chemo'; did you mean 'chemotherapy'?"),
        ({"rule": "chemotherapy = 2", "times": 2}, "'chemotherapy' cannot be 2.0; it takes 0 = 'off', 1 = 'on'"),
        ({"rule": "chemotherapy if", "times": 2}, "plan 'p': 'chemotherapy if': a column or a constant expected"),
        ({"rule": "chemotherapy if tumor_volume > 3", "times": 2},
         "there is no column `tumor_volume`; did you mean 'tumour_volume'?"),
        ({"rule": "chemotherapy if chemotherapy > 0", "times": 2}, "write `chemotherapy in last 1`"),
        ({"rule": "chemotherapy if tumour_volume in last 2 > 0", "times": 2}, "in last 2` counts no treatment"),
        ({"rule": "chemotherapy if tumour_volume in next 2 > 0", "times": 2}, "reads the future"),
        ({"rule": "chemotherapy if patient_type = 'x'", "times": 2}, "is compared with a text"),
        ({"rule": "chemotherapy if " + "(" * 50 + "step > 1" + ")" * 50, "times": 2}, "nested more than 40 levels"),
        ({"rule": 3, "times": 2}, "plan 'p': a rule must be a text, not 3"),
        ({"rule": [], "times": 2}, "plan 'p': `rule` is empty"),
        ({"rule": ["none", {"rule": "none", "with probability": 2}], "times": 2},
         "plan 'p', rule 2: `with probability` must be a number from 0 to 1, not 2"),
        ({"rule": "none", "otherwise": {}, "times": 2}, "unknown key 'otherwise'"),
        ({"rule": "none", "else": {"rule": "none", "times": 3}, "times": 2}, "unknown key 'times'"),
        ({"rule": "none", "else": {"chemo": 1}, "times": 2}, "plan 'p', else: no treatment 'chemo'"),
        ({"rule": "none", "times": 7}, "plan 'p': has 7 steps; the model answers plans of 1 to 6"),
        ([{"rule": "chemotherapy"}], "plan 'p', step 1: `rule` is the whole plan, not one of its steps"),
        ({"shift": {"chemo": 1}, "times": 2}, "plan 'p': no treatment 'chemo'"),
        ({"shift": {"chemotherapy": 1}, "times": 2}, "its levels are not called by numbers"),
        ({"shift": 3, "times": 2}, "`shift` must be an object"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_rule_is_said_with_its_plan(rule, problem):
    assert problem in error_of(rule)


def test_all_problems_of_rules_are_told_at_once():
    said = error_of({"rule": ["chemo", "radiotherapy if volume > 1"], "else": {"x": 1}, "tims": 3})
    for part in ("rule 1", "rule 2", "else", "unknown key 'tims'", "never ends"):
        assert part in said


STEPS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=4, max_size=4)


@settings(max_examples=20, deadline=None)
@given(STEPS)
def test_a_rule_that_reads_steps_alone_is_the_plan_that_it_spells(steps):
    model, panel = mixed_worlds.model(), mixed_worlds.world().panels[TEST]
    texts = [f"drug = {drug} and ray = {ray} if plan_step = {i}" for i, (drug, ray) in enumerate(steps, start=1)]
    (rule,) = plans_of(mixed_worlds.SCHEMA, 4, r={"rule": texts, "times": 4})
    went = simulate_rule(model, at(panel, 3, 9), rule)
    assert went.how == "fixed"
    assert went.most_common(0).values.tolist() == [list(step) for step in steps]


def at(panel, row, origin):
    return IndexTimes(panel, np.array([row]), np.array([origin]))


def value_of(model, panel, plan: AnyPlan, origin_N, n=200):
    """The mean estimate over subjects `[H,Y]`."""
    moments = IndexTimes(panel, np.arange(len(origin_N)), origin_N)
    if isinstance(plan, TreatmentPlan):
        return estimate_plans(
            "m", model, panel, ask_plans(model, moments, [plan] * len(moments)), [plan]
        ).mean_QHY.mean(axis=0)
    went = simulate_rule(model, moments, plan, n=n)
    return estimate_played(model, moments, went, len(plan)).mean_QHY.mean(axis=0)


@pytest.mark.parametrize(
    "same",
    [
        {"rule": "drug", "times": 4},
        {"rule": "drug", "with probability": 1, "times": 4},
        {"rule": "none", "with probability": 0, "else": {"drug": 1}, "times": 4},
        {"rule": "drug if size > -1e9", "times": 4},
        {"rule": "none if size < -1e9", "else": {"drug": 1}, "times": 4},
    ],
)
def test_rules_that_come_to_a_fixed_plan_are_estimated_as_that_plan(same):
    model, panel = mixed_worlds.model(), mixed_worlds.world().panels[TEST]
    rule, plan = plans_of(mixed_worlds.SCHEMA, 4, rule=same, plan={"repeat": {"drug": 1}, "times": 4})
    origin_N = np.full(panel.n_subjects, 12)
    np.testing.assert_allclose(
        value_of(model, panel, rule, origin_N), value_of(model, panel, plan, origin_N), rtol=1e-6
    )


@pytest.mark.parametrize("size", [1, 1e-3])
def test_a_rule_that_comes_to_a_plan_is_as_uncertain_as_that_plan(size):
    model, panel = mixed_worlds.model(), mixed_worlds.world().panels[TEST]
    panel = replace(panel, outcomes=panel.outcomes * np.float32(size))
    texts = {"rule": "drug if size > -1e9", "times": 4}
    rule, plan = plans_of(mixed_worlds.SCHEMA, 4, rule=texts, plan={"repeat": {"drug": 1}, "times": 4})
    moments = IndexTimes.of(panel, 12)
    went = simulate_rule(model, moments, rule, n=200)
    assert went.how == "drawn"
    found = estimate_played(model, moments, went, len(rule))
    same = estimate_plans("m", model, panel, ask_plans(model, moments, [plan] * len(moments)), [plan])
    np.testing.assert_array_equal(found.mean_QHY, same.mean_QHY)
    np.testing.assert_array_equal(found.sd_QHY, same.sd_QHY)


def test_a_rule_that_acts_on_chance_has_the_spread_of_its_draws_on_top_of_that_of_its_most_common_course():
    model, panel = mixed_worlds.model(), mixed_worlds.world().panels[TEST]
    middle = float(np.median(panel.outcomes[:, 12]))
    (rule,) = plans_of(mixed_worlds.SCHEMA, 4, rule={"rule": f"drug and ray if size > {middle}", "times": 4})
    moments = IndexTimes.of(panel, 12)
    went = simulate_rule(model, moments, rule, n=200)
    found = estimate_played(model, moments, went, len(rule))
    common = [went.most_common(q) for q in range(len(moments))]
    queries = ask(model, moments, np.stack([plan.values for plan in common]))
    apart_QHY = found.sd_QHY**2 - estimate(model, panel, queries).sd_QHY ** 2
    more_QHY = went.outcomes_SQHY.var(axis=0, ddof=1) - went.usual_variance_QHY
    assert (more_QHY != 0).any()
    np.testing.assert_allclose(apart_QHY[more_QHY >= 0], more_QHY[more_QHY >= 0], atol=1e-12)
    assert (found.sd_QHY > 0).all()


def test_a_coin_is_worth_what_its_plans_are_worth_by_their_probability():
    model, panel = mixed_worlds.model(), mixed_worlds.world().panels[TEST].take(np.arange(2))
    coin, on, off = plans_of(
        mixed_worlds.SCHEMA, 4,
        coin={"rule": "drug", "with probability": 0.3, "times": 1}, on=[{"drug": 1}], off=[{}],
    )  # fmt: skip
    origin_N = np.full(2, 12)
    mixed, given_, not_given = (value_of(model, panel, plan, origin_N, n=20_000) for plan in (coin, on, off))
    np.testing.assert_allclose(mixed, 0.3 * given_ + 0.7 * not_given, atol=0.02 * np.abs(given_ - not_given).max())


def test_treatments_of_earlier_steps_count_those_before_the_origin_too():
    panel, model = make_dataset().panels[TEST], LinearModel(TUMOR)
    (rule,) = plans_of(TUMOR, r={"rule": "chemotherapy if chemotherapy in last 2 < 1", "times": 6})
    given_ = TUMOR.treatments.decode(panel.treatments[0])[:, 0]
    went = simulate_rule(model, at(panel, 0, 10), rule).most_common(0).values[:, 0]
    course = [*given_[8:10]]
    for chosen in went:
        assert chosen == (sum(course[-2:]) < 1)
        course.append(chosen)


@cache
def linear_world():
    data = linear_data(train=500)
    return data, model_of(fit(data, "mixed"))


def true_mean(panel, origin: int, decide, steps: int, n: int = 400):
    """The mean outcome `[H]` when the law itself is simulated under a rule, from every subject's state."""
    law, rng = LinearGaussian(confounding=LinearGaussianConfig().gamma), np.random.default_rng(5)
    x = np.repeat(panel.covariates[:, origin].astype(float), n, axis=0)
    y, mean = np.repeat(panel.outcomes[:, origin, 0].astype(float), n), []
    for h in range(steps):
        x, y = law.step(x, y, decide(h, y))
        x, y = x + law.state_sd * rng.normal(size=x.shape), y + law.outcome_sd * rng.normal(size=y.shape)
        mean.append(y.mean())
    return np.array(mean)


def test_a_threshold_rule_is_worth_what_simulating_the_law_says():
    data, model = linear_world()
    panel, origin = data.panels[TEST], 5
    rule, never, always = plans_of(
        data.schema, data.horizon,
        rule={"rule": "treatment if outcome > 0", "until": "end"},
        never={"repeat": {}, "until": "end"}, always={"repeat": {"treatment": 1}, "until": "end"},
    )  # fmt: skip
    origin_N, steps = np.full(panel.n_subjects, origin), data.horizon
    value, nothing, everything = (value_of(model, panel, plan, origin_N)[:, 0] for plan in (rule, never, always))
    truth = true_mean(panel, origin, lambda _, y: y > 0, steps)
    none = true_mean(panel, origin, lambda _, y: np.zeros(len(y)), steps)
    np.testing.assert_allclose(value - nothing, truth - none, atol=0.15)
    assert (everything[1:] < value[1:] - 0.3).all()  # nor is it what treating everybody is worth
    assert (value[1:] < nothing[1:] - 0.2).all()


@dataclass
class Stepwise(LinearModel):
    """A model that could be asked for courses."""

    stepwise: bool = True


def test_without_draws_a_rule_acts_on_the_mean_course():
    model, panel = Stepwise(TUMOR), make_dataset().panels[TEST]
    start = float(panel.outcomes[0, 10, 0])  # each treatment takes two off the last known outcome, on average
    (rule,) = plans_of(TUMOR, r={"rule": f"chemotherapy if tumour_volume > {start - 3.9}", "times": 6})
    went = simulate_rule(model, at(panel, 0, 10), rule)
    assert went.how == "mean course"
    assert went.most_common(0).values[:, 0].tolist() == [1, 1, 0, 0, 0, 0]


def test_a_model_without_courses_refuses_rules_on_outcomes_and_names_those_that_can():
    (rule,) = plans_of(TUMOR, r={"rule": "chemotherapy if tumour_volume > 3", "times": 6})
    with pytest.raises(UsageError, match="rule 'r' reads tumour_volume, and model `here` predicts no course") as caught:
        simulate_rule(LinearModel(TUMOR), at(make_dataset().panels[TEST], 0, 10), rule, label="here")
    assert all(name in str(caught.value.fix) for name in ("mixed", "growth", "--decoder structured"))


@pytest.mark.parametrize("name", ["mixed", "ridge"])
def test_the_registry_knows_whose_models_predict_stepwise(name):
    model = model_of(fit(linear_world()[0], name)) if name == "ridge" else linear_world()[1]
    assert model.stepwise == METHODS[name].stepwise


def test_a_shift_moves_what_was_given_and_then_the_last_one_to_the_nearest_level():
    data = make_dataset("retail")
    panel, levels = data.panels[TEST], RETAIL.treatments.levels[0]
    (shift,) = plans_of(RETAIL, s={"shift": {"price_class": "-7 %"}, "times": 6})
    went = simulate_rule(LinearModel(RETAIL), at(panel, 0, 16), shift).most_common(0).values[:, 0]
    given_ = RETAIL.treatments.decode(panel.treatments[0])[:, 0].tolist()
    numbers = [0, *(change for change in range(-50, 55, 5) if change)]
    for before, after in zip([*given_[16:19], *[given_[18]] * 3], went.tolist(), strict=True):
        target = numbers[before] - 7
        assert abs(numbers[after] - target) == min(abs(number - target) for number in numbers[:21])
    assert "nearest level of price_class" in shift.text
    assert levels[0] == "unchanged"


@pytest.mark.parametrize(
    ("amount", "to"),
    [
        ("-5 %", ["-9 % to -3 %", "below -9 %", "below -9 %", "-9 % to -3 %", "unused"]),
        (8, ["above 3 %", "no change", "above 3 %", "above 3 %", "unused"]),
        (0, ["no change", "below -9 %", "-9 % to -3 %", "above 3 %", "unused"]),
    ],
)
def test_a_shift_of_ranges_takes_the_range_that_holds_the_number(amount, to):
    levels = ["no change", "below -9 %", "-9 % to -3 %", "above 3 %", "unused"]
    places, _ = shifted_levels(levels, range(5), amount)
    assert [levels[place] for place in places] == to


def test_a_share_shifts_doses_by_their_size():
    assert shifted_levels(["0", "10", "20", "40"], range(4), "-50 %") == ((0, 1, 1, 2), False)  # 5 is as near to 10
    assert shifted_levels(["0", "10", "20", "40"], range(4), "+100%") == ((0, 2, 3, 3), False)


def test_a_report_says_what_a_rule_is_and_what_it_gave():
    data, model = mixed_worlds.world(), mixed_worlds.model()
    panel = data.panels[TEST]
    middle = float(np.median(panel.outcomes[:, 10]))
    row = int(np.abs(panel.outcomes[:, 10, 0] - middle).argmin())
    plans = {"off": [{}] * 4, "rule": {"rule": f"drug if size > {panel.outcomes[row, 10, 0]}", "times": 4}}
    request = parse_plans(json.dumps({"origin": 10, "plans": plans}), data.schema, horizon=4)
    report = estimate_outcomes(data, {"m": model}, request, subject=panel.names[row], unsupported=True)
    document = report.to_json()
    assert document["rules"] == {"rule": f"drug if size > {panel.outcomes[row, 10, 0]}; else none"}
    told = document["models"]["m"]["rules"]["rule"]
    assert (told["played_on"], told["draws"], told["seed"]) == ("drawn", 1_000, 0)
    assert all(sum(step.values()) == pytest.approx(1) for step in told["given"])
    assert any(len(step) > 1 for step in told["given"])
    assert "g-formula" in said(report.diagnostics, "rule-on-draws")
    assert any("%" in row["treatment"] for row in report.to_rows() if row["plan"] == "rule")
    assert report.rules_in_words(report.models[0])["rule"].startswith("day 10 ")


def test_the_same_seed_gives_the_same_answer_and_a_longer_plan_beside_it_changes_nothing():
    model, panel = mixed_worlds.model(), mixed_worlds.world().panels[TEST]
    short, long = (
        plans_of(mixed_worlds.SCHEMA, 4, r={"rule": "drug if size > 1", "times": steps})[0] for steps in (2, 4)
    )
    first, again, beside = (simulate_rule(model, at(panel, 3, 9), rule, horizon=4) for rule in (short, short, long))
    np.testing.assert_array_equal(first.outcomes_SQHY, again.outcomes_SQHY)
    np.testing.assert_array_equal(first.outcomes_SQHY, beside.outcomes_SQHY[:, :, :2])


def test_a_rule_on_a_covariate_is_worth_what_simulating_the_law_says():
    data, model = linear_world()
    panel, origin = data.panels[TEST], 5
    (rule,) = plans_of(data.schema, 4, r={"rule": "treatment if state_1 > 0", "times": 4})
    moments = IndexTimes.of(panel, origin)
    went = simulate_rule(model, moments, rule, n=200)
    assert went.how == "drawn"
    found = estimate_played(model, moments, went, 4).mean_QHY.mean(axis=0)[:, 0]
    law, rng = LinearGaussian(confounding=LinearGaussianConfig().gamma), np.random.default_rng(5)
    x, y = (np.repeat(a[:, origin].astype(float), 200, axis=0) for a in (panel.covariates, panel.outcomes[..., 0]))
    for mean in found:
        x, y = law.step(x, y, (x[:, 0] > 0).astype(float))
        x, y = x + law.state_sd * rng.normal(size=x.shape), y + law.outcome_sd * rng.normal(size=y.shape)
        assert mean == pytest.approx(y.mean(), abs=0.12)


@dataclass
class Drawing(Stepwise):
    """Draws a covariate that is 1 at the origin, but for rounding, and 0.7 and 0.2 after it."""

    draws_courses: bool = True
    draws_covariates: bool = True

    def draw_courses(self, panel, subject_Q, origin_Q, decide, *, steps, n, seed):
        for h, drawn in enumerate((0.99999, 0.7, 0.2)):
            decide(h, np.tile([0.0, drawn], (n * len(subject_Q), 1)))
        return np.zeros((n, len(subject_Q), steps, 1))


def test_a_rule_reads_what_is_known_at_the_origin_and_drawn_covariates_as_what_they_can_be():
    schema, panel = TUMOR.model_copy(update={"covariates": (Variable(name="icu", kind="binary"),)}), make_dataset()
    panel = panel.panels[TEST]
    panel = replace(panel, covariates=np.ones((panel.n_subjects, panel.n_steps, 1), dtype=np.float32))
    (rule,) = plans_of(
        schema, r={"rule": "chemotherapy if icu = 1 and (tumour_volume > 0 or plan_step > 1)", "times": 3}
    )
    went = simulate_rule(Drawing(schema), at(panel, 0, 10), rule, n=5)
    assert went.most_common(0).values[:, 0].tolist() == [1, 1, 0]


def test_covariates_that_are_not_drawn_are_held_and_the_report_says_so():
    data, model = linear_world()[0], LinearModel(linear_world()[0].schema, horizon=3)
    name = data.panels[TEST].names[0]
    request = parse_plans(
        json.dumps({"origin": 5, "plans": {"r": {"rule": "treatment if state_1 > 0", "times": 3}}}),
        data.schema, horizon=3,
    )  # fmt: skip
    report = estimate_outcomes(data, {"m": model}, request, subject=name)
    note = said(report.diagnostics, "rule-reads-held")
    assert "reads state_1, held at the value at the forecast start by model `m`" in note
    always = data.panels[TEST].covariates[0, 5, 0] > 0
    assert report.plans[0].values.ravel().tolist() == [int(always)] * 3


def test_the_truth_of_a_rule_is_that_of_the_plan_it_comes_to_on_what_would_have_happened():
    data, model = linear_world()
    panel, plan = data.panels[TEST], {"rule": "treatment if outcome > 0", "times": 3}
    for row in range(8):
        given_ = data.schema.treatments.decode(panel.treatments[row])[5:8, 0]
        if (given_ != (panel.outcomes[row, 5:8, 0] > 0)).any():
            continue  # else what happened is what the rule leads to
        plans = {"r": plan, "given": [{"treatment": int(level)} for level in given_]}
        request = parse_plans(json.dumps({"origin": 5, "plans": plans}), data.schema, horizon=3)
        report = estimate_outcomes(data, {"m": model}, request, subject=panel.names[row], truth=True)
        np.testing.assert_allclose(report.truth[0], report.truth[1])
        return
    pytest.fail("no subject was treated as the rule says")


def test_rules_have_names_and_lengths_like_plans():
    (rule,) = plans_of(TUMOR, r={"rule": "chemotherapy if tumour_volume > 3", "times": 5})
    assert isinstance(rule, PlanRule)
    assert (rule.name, len(rule), rule.text) == ("r", 5, "chemotherapy if tumour_volume > 3; else none")
    assert replace(rule, steps=2).steps == 2
