"""What a plan may give at a step is a distribution, of which `decide` draws."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costar_cli.errors import UsageError
from costar_cli.plans import AnyPlan, Course, TreatmentPlan, parse_plans
from tests.whatif.whatif_worlds import TUMOR

DRAWS = 20_000


def plan_of(plan: object, schema=TUMOR, horizon=6) -> AnyPlan:
    [read] = parse_plans(json.dumps({"plans": {"p": plan}}), schema, horizon=horizon).plans
    return read


def course_of(n=DRAWS, *, schema=TUMOR, n_chances=4, seed=0) -> Course:
    """Half of the courses have a volume of 1, the others one of 5; what they were usually given varies, too."""
    rng, encoding = np.random.default_rng(seed), schema.treatments
    usual_MA = rng.integers(0, 2, (n, len(encoding.all_names))).astype(encoding.value_type)
    columns = {"tumour_volume": np.tile([1.0, 5.0], n // 2), "step": np.full(n, 9.0), "plan_step": np.ones(n)}
    probability_MA = np.full(usual_MA.shape, 0.25)
    return Course(columns, usual_MA[:, None], usual_MA, encoding, rng.random((n, n_chances)), probability_MA)


CHANCE = st.sampled_from([0, 0.2, 0.7, 1])
CONDITION = st.sampled_from(["", " if tumour_volume > 3", " if natural chemotherapy = 1 or radiotherapy in last 1 > 0"])
GIVEN = st.sampled_from(["none", "natural", "chemotherapy", "radiotherapy = natural radiotherapy and chemotherapy"])
OTHER = st.sampled_from([{}, {"else": "natural"}, {"else": {"radiotherapy": 1}}])
CHOICE = st.builds(
    lambda what, when, chance: {"rule": what + when, "with probability": chance}, GIVEN, CONDITION, CHANCE
)
CHOICES = st.lists(CHOICE, min_size=1, max_size=4)
RULE = st.builds(lambda rules, other: {"rule": rules, "times": 2} | other, CHOICES, OTHER)
OTHERS = st.sampled_from(
    [
        {"natural": True, "times": 2},
        {"odds": {"chemotherapy": 3}, "times": 2},
        {"odds": {"radiotherapy": 0.2}, "times": 2},
    ]
)


@settings(max_examples=40, deadline=None)
@given(RULE | OTHERS)
def test_chances_of_a_plan_sum_to_one_and_are_how_often_it_gives_what_it_may(said):
    rule = plan_of(said)
    courses = course_of(n_chances=rule.n_chances)
    chance_KM, values_KMA = rule.options(0, courses)
    np.testing.assert_allclose(chance_KM.sum(axis=0), 1)
    assert (chance_KM >= 0).all()
    assert values_KMA.shape == (*chance_KM.shape, 2)
    decided_MA = rule.decide(courses)
    for kind in ([0, 0], [0, 1], [1, 0], [1, 1]):
        likely_M = (chance_KM * (values_KMA == kind).all(axis=2)).sum(axis=0)
        gave_M = (decided_MA == kind).all(axis=1)
        assert gave_M.mean() == pytest.approx(likely_M.mean(), abs=0.02)
        assert not gave_M[likely_M == 0].any()


def test_a_plan_of_steps_has_one_option_its_step():
    plan = plan_of([{"chemotherapy": 1}, {"radiotherapy": 1}])
    assert isinstance(plan, TreatmentPlan)
    for step, values in enumerate(([1, 0], [0, 1])):
        chance_KM, values_KMA = plan.options(step, course_of(6))
        assert chance_KM.tolist() == [[1] * 6]
        assert values_KMA.tolist() == [[values] * 6]
    assert not plan.reads_natural


@settings(max_examples=40, deadline=None)
@given(RULE | OTHERS)
def test_a_plan_that_does_not_read_the_natural_treatment_gives_the_same_whatever_that_is(said):
    plan, courses = plan_of(said), course_of(200)
    other = replace(courses, usual_MA=1 - courses.usual_MA)
    same = all(np.array_equal(a, b) for a, b in zip(plan.options(0, courses), plan.options(0, other), strict=True))
    if not plan.reads_natural:
        assert same
    elif "natural" in said:
        assert not same


# A grammar that often comes near to a valid plan, so that every branch of its reader is reached.
WORDS = st.lists(
    st.sampled_from(["none", "natural", "chemotherapy", "radiotherapy", "tumour_volume", "step", "if", "and", "or",
                     "not", "(", ")", "=", "<", ">", "-", "+", "*", "1", "2", "0", "'on'", "in", "last"]),
    max_size=9,
).map(" ".join)  # fmt: skip
SCALARS = st.none() | st.booleans() | st.integers(-2, 3) | st.floats() | st.sampled_from(["natural", "none", "end"])
KEYS = st.sampled_from(
    ["rule", "else", "with probability", "natural", "odds", "shift", "times", "until", "chemotherapy", "radiotherapy"]
)
ANYTHING = st.recursive(
    SCALARS | WORDS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)
TEXT = st.builds(lambda what, when: what + when, GIVEN, CONDITION) | WORDS
OPTIONAL = {"else": st.just("natural") | st.just({}) | ANYTHING, "with probability": st.floats(0, 1) | SCALARS}
RATIOS = st.dictionaries(st.sampled_from(["chemotherapy", "radiotherapy", "chemo"]), st.floats() | SCALARS, max_size=2)
NEARLY = st.one_of(
    st.fixed_dictionaries({"times": st.just(2), form: said}, optional=OPTIONAL if form == "rule" else {})
    for form, said in {"rule": TEXT | st.lists(TEXT), "odds": RATIOS, "natural": SCALARS, "shift": RATIOS}.items()
)


@settings(max_examples=400, deadline=None)
@given(NEARLY | ANYTHING)
def test_any_policy_is_a_plan_with_options_or_a_usage_error(said):
    try:
        plan = plan_of(said)
    except UsageError as error:
        str(error).encode()  # printable
        return
    chance_KM, values_KMA = plan.options(0, course_of(6))
    np.testing.assert_allclose(chance_KM.sum(axis=0), 1)
    assert set(np.unique(values_KMA)) <= {0, 1}
    assert isinstance(plan, TreatmentPlan) or plan.text
