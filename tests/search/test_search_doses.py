"""Searches among doses: amounts that are named, or some over the range of the data, and what they cost."""

from functools import cache

import numpy as np
import pytest

from costar_cli.data import Dataset, Part
from costar_cli.data.dose import Dose
from costar_cli.data.linear.settings import LinearGaussianConfig
from costar_cli.data.linear.simulate import simulate_linear
from costar_cli.errors import UsageError
from costar_cli.methods.base import FittedModel
from costar_cli.questions.search import SearchReport, SearchRequest, notes_on, search
from costar_cli.questions.search.candidates import usual_amounts
from costar_cli.questions.search.regret import regrets
from costar_cli.reporting import NullReporter
from tests.codes import said
from tests.dose_worlds import EFFECT, HORIZON, linear_doses
from tests.methods.linear_worlds import SMALL, fit, model_of

TEST = Part("source", "test")


@cache
def data() -> Dataset:
    return linear_doses(100)


@cache
def ridge() -> FittedModel:
    return model_of(fit(data(), "ridge"))


def best(**asked: object) -> tuple[list[float], float]:
    """Return the best plan of a subject, and its difference from no dose."""
    question = SearchRequest(minimise=("severity at end",), unsupported=True, **asked).question(ridge())
    panel = data().panels[TEST].take(np.array([0]))
    (found,) = search("ridge", ridge(), panel, np.array([9]), question)
    return found.values_MHA[0][:, 0].tolist(), float(found.difference_M[0])


def test_the_largest_of_the_named_doses_is_best_where_each_unit_helps() -> None:
    plan, difference = best(levels=("dose 0,1,3",))
    assert plan == [3.0] * HORIZON
    one, less = best(levels=("dose 0,1",))
    assert one == [1.0] * HORIZON
    assert difference == pytest.approx(3 * less, rel=1e-4), "linear in the dose"


def test_a_cost_counts_each_unit_of_a_dose_and_a_named_amount_once() -> None:
    dear = abs(EFFECT) * 10
    assert best(levels=("dose 0,1,3",), cost=(f"dose {dear}",))[0] == [0.0] * HORIZON
    assert 3.0 not in best(levels=("dose 0,1,3",), cost=(f"dose=3 {dear}",))[0]
    question = SearchRequest(minimise=("severity at end",), cost=("dose 0.5",), levels=("dose 0,1,3",)).question(
        ridge()
    )
    assert question.objective.text == "minimise severity at end + 0.5 per mg of dose"
    assert question.objective.costs_of(np.array([[0.0], [1.0], [3.0]])).tolist() == [0, 0.5, 1.5]


def test_constraints_count_steps_with_a_dose_and_those_with_an_amount() -> None:
    plan = best(levels=("dose 0,1,3",), at_most=("dose 2",))[0]
    assert sorted(plan) == [0.0, 3.0, 3.0]
    assert sorted(best(levels=("dose 0,1,3",), at_most=("dose=3 1",))[0]) == [1.0, 1.0, 3.0]
    assert 0.0 in best(levels=("dose 0,1,3",), not_consecutive=("dose",))[0]


def test_the_greatest_dose_is_named_by_the_six_digits_that_are_shown() -> None:
    (dose,) = ridge().schema.treatments.doses
    most = usual_amounts(dose)[-1] + 1e-7
    named = SearchRequest(minimise=("severity at end",), levels=(f"dose 0,{most}",), at_most=(f"dose={most:.6g} 0",))
    assert named.question(ridge()).candidates.plans_PH is not None
    assert len(named.question(ridge()).candidates.plans_PH) == 1


def test_without_names_doses_are_spread_over_what_was_given_and_said() -> None:
    question = SearchRequest(minimise=("severity at end",)).question(ridge())
    (dose,) = ridge().schema.treatments.doses
    amounts = question.candidates.values_KA[:, 0]
    assert (amounts.min(), len(amounts)) == (dose.low, 5)
    assert amounts.max() == pytest.approx(dose.high, abs=0.005), "to three digits"
    report = SearchReport("doses", ridge().schema, "ridge", "ridge", "band", question, [], None)
    note = said(notes_on(report), "search-doses")
    assert note.startswith("doses to choose from at each step: dose 0 mg, ")
    assert note.endswith("(others: --levels)")


@pytest.mark.parametrize(
    ("dose", "amounts"),
    [
        (Dose(name="d", low=0, high=8), (0, 2, 4, 6, 8)),
        (Dose(name="d", low=0, high=1000, basis="log1p"), (0, 4.62, 30.6, 177, 1000)),
        (Dose(name="d", low=-0.5, high=1, basis="identity"), (-0.5, -0.125, 0, 0.25, 0.625, 1)),
        (Dose(name="d", low=2, high=4), (2, 2.5, 3, 3.5, 4)),
        (Dose(name="d", low=0, high=4, levels=(1, 4)), (0, 1, 4)),
        (Dose(name="elapsed", low=1, high=30, elapsed=7.0), (7,)),
    ],
)
def test_usual_amounts_are_even_in_the_basis_and_hold_none(dose: Dose, amounts: tuple[float, ...]) -> None:
    assert usual_amounts(dose) == amounts


@pytest.mark.parametrize(
    ("asked", "said", "fix"),
    [
        ({"levels": ("dos 0,1",)}, "no dose 'dos'; did you mean 'dose'", "of dose"),
        ({"levels": ("dose a,b",)}, "'a,b' are no doses", 'write "NAME FIRST:LAST:STEP"'),
        ({"levels": ("dose -1,1",)}, "dose cannot be -1: a dose is not negative", "were given"),
        ({"levels": ("dose nan",)}, "'nan' are no doses", "write"),
        ({"levels": ("dose 1e30",)}, "cannot be 1e.30: it is more than 10 times what was ever given", "were given"),
        ({"levels": ("dose 0,1", "dose 2,3")}, "dose is named twice", "at once"),
        ({"at_most": ("dose=much 1",)}, "dose cannot be 'much': a dose is a number", 'write --at-most "dose=5"'),
        (
            {"at_most": ("dose=7 0",), "levels": ("dose 0,1,3",)},
            "no plan of this search gives dose 7 mg",
            "choose one of 0 mg, 1 mg, 3 mg; others: --levels",
        ),
        ({"not_consecutive": ("dose=1e9",)}, "no plan of this search gives dose 1e.09 mg", "choose one of 0 mg"),
        ({"not_with": ("dose=7 dose=3",), "levels": ("dose 0,1,3",)}, "no plan of this search gives dose 7", "0 mg"),
        ({"cost": ("dose=7 2",), "levels": ("dose 0,1,3",)}, "--cost 'dose=7': no plan of this search", "0 mg, 1 mg"),
        ({"cost": ("dos 1",)}, "no treatment 'dos'; did you mean 'dose'", "treatments are dose"),
    ],
)
def test_what_names_no_dose_is_one_error(asked: dict[str, tuple[str, ...]], said: str, fix: str) -> None:
    with pytest.raises(UsageError, match=said) as error:
        SearchRequest(minimise=("severity at end",), **asked).question(ridge())
    assert fix in (error.value.fix or "")


def test_too_many_doses_and_treatments_without_any_are_refused() -> None:
    with pytest.raises(UsageError, match="not 1 to 101 doses"):
        SearchRequest(minimise=("severity at end",), levels=("dose 0:4:0.0001",)).question(ridge())
    classed = model_of(fit(simulate_linear(LinearGaussianConfig(train=50, **SMALL), NullReporter()), "ridge"))
    with pytest.raises(UsageError, match="no doses") as error:
        SearchRequest(minimise=("outcome at end",), levels=("treatment 0,1",)).question(classed)
    assert "leave --levels out" in (error.value.fix or "")


def test_regret_of_doses_is_measured_against_the_simulator() -> None:
    world = simulate_linear(LinearGaussianConfig(train=200, doses=True, **SMALL), NullReporter())
    model = model_of(fit(world, "ridge"))
    found = regrets({"ridge": model}, world, SearchRequest(minimise=("outcome at end",)), subjects=10)
    of = {row.policy: row.relative for row in found if row.part == "source/test"}
    assert {row.subjects for row in found if row.part == "source/test"} == {10}, "all policies, of the same subjects"
    assert of["ridge, any plan"] < of["last treatment"] < of["never"], "some of a dose that helps"
    assert of["ridge, any plan"] == pytest.approx(0.0, abs=0.02)
    assert of["never"] > 0.5
