"""Plans of doses: numbers, tables, exact shifts, rules that read a dose."""

import json
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from costar_cli.data import Dataset, Part
from costar_cli.errors import UsageError
from costar_cli.inference import simulate_on
from costar_cli.plans import IndexTimes, PlanRule, PlanShift, Rule, parse_plans
from costar_cli.plans.plan import in_words
from tests.dose_worlds import linear_doses


@pytest.fixture(scope="module")
def data() -> Dataset:
    return linear_doses(60)


def read(data: Dataset, plans: object, where: str = "plan.json") -> tuple[Any, ...]:
    text = plans if isinstance(plans, str) else json.dumps({"plans": plans})
    return parse_plans(text, data.schema, horizon=3, where=where).plans


def moments_of(data: Dataset) -> IndexTimes:
    return IndexTimes.of(data.panels[Part("source", "test")], 4)


def simulated(data: Dataset, rule: Rule) -> NDArray[np.float64]:
    """Return what a rule that reads no outcome gives, `[Q,H,names]`."""
    went = simulate_on(rule, moments_of(data), data.schema, lambda rows, _: np.zeros((len(rows), 1)))
    return np.asarray(went.values_SQHA[0], dtype=np.float64)


def test_a_step_gives_a_number_and_nothing_else_is_none(data: Dataset) -> None:
    (plan,) = read(data, {"a": [{"dose": 2.5}, {}, {"dose": "1"}]})
    assert plan.values.tolist() == [[2.5], [0.0], [1.0]]
    assert in_words(data.schema, plan.values, 4) == "step 4 dose=2.5 mg, 5 none, then dose=1 mg"


def test_tables_give_doses(data: Dataset) -> None:
    (plan,) = read(data, "plan,step,dose\na,1,2.5\na,2,\n", "plan.csv")
    assert plan.values.tolist() == [[2.5], [0.0]]


@pytest.mark.parametrize(
    ("plans", "said"),
    [
        ({"a": [{"dose": -1}]}, "not negative"),
        ({"a": [{"dose": "much"}]}, "it is a number"),
        ({"a": [{"dose": True}]}, "it is a number"),
        ({"a": [{"dose": 1e4}]}, "10 times what was ever given"),
        ({"a": {"shift": {"dose": "many"}, "times": 2}}, "a shift is a number"),
        ("plan,step,dose\na,1,x\n", "it is a number"),
        ("plan,step\na,1\n", "no column of the dose"),
    ],
)
def test_a_dose_that_cannot_be_given_is_refused(data: Dataset, plans: object, said: str) -> None:
    with pytest.raises(UsageError) as error:
        read(data, plans, "plan.csv" if isinstance(plans, str) else "plan.json")
    assert said in str(error.value)


def test_shifts_move_what_was_given_exactly(data: Dataset) -> None:
    (shift,) = read(data, {"a": {"shift": {"dose": "-5 %"}, "times": 3}})
    assert isinstance(shift, PlanShift)
    given = data.schema.treatments.decode(moments_of(data).panel.treatments[:, 4:7])
    assert np.allclose(simulated(data, shift), given * 0.95, atol=1e-8)


def test_a_rule_reads_what_was_given_before(data: Dataset) -> None:
    (rule,) = read(data, {"a": {"rule": "dose = 3.5 if dose in last 2 < 2", "else": {"dose": 0.5}, "times": 3}})
    assert isinstance(rule, PlanRule)
    given = data.schema.treatments.decode(moments_of(data).panel.treatments[:, 2:4])[..., 0]
    for (first, second), went in zip(given.tolist(), simulated(data, rule)[..., 0].tolist(), strict=True):
        course = [first, second]
        for dose in went:
            assert dose == (3.5 if sum(course[-2:]) < 2 else 0.5)
            course.append(dose)


@pytest.mark.parametrize("by", ["1e30", 1e30, 100])
def test_a_shift_to_a_dose_that_cannot_be_is_an_error(data: Dataset, by: object) -> None:
    (shift,) = read(data, {"a": {"shift": {"dose": by}, "times": 3}})
    with pytest.raises(UsageError, match=r"plan 'a' moves dose to .*more than 10 times") as error:
        simulated(data, shift)
    assert error.value.fix == "shift it by less"
