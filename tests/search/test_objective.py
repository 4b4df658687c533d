"""Objectives mean what they say, and what they cannot mean is refused with what exists."""

import numpy as np
import pytest

from costar_cli.inference import OutcomeFacts
from costar_cli.plans.untrusted import Problems
from costar_cli.questions.search import Objective
from tests.whatif.whatif_worlds import ICU, RETAIL, TUMOR

COURSE = np.array([[60.0, 70.0], [80.0, 60.0], [70.0, 50.0]])  # heart rate and blood pressure after three steps


def read(schema=ICU, steps=3, **flags):
    problems = Problems()
    objective = Objective.parse(schema, steps, problems, **flags)
    assert not problems.lines
    return objective


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("heart_rate at end", 70),
        ("heart_rate at step 2", 80),
        ("heart_rate mean", 70),
        ("HEART_RATE MAXIMUM".replace("HEART_RATE", "heart_rate"), 80),
        ("heart_rate min", 60),
        ("map time above 55", 2),
        ("map time below 55.5", 1),
        ("map time in 55 to 70", 2),
        ("map time within 50 to 60", 2),
        ("heart_rate AUC", 210),
        ("heart_rate Cmax", 80),
        ("heart_rate cmin", 60),
        ("0.5 heart_rate at end", 35),
        ("2 * map mean", 120),
    ],
)
def test_a_term_is_a_number_of_the_course(text, value):
    assert read(minimise=[text]).loss(COURSE) == pytest.approx(value)
    assert read(maximise=[text]).loss(COURSE) == pytest.approx(-value)


def test_terms_add_up_and_more_is_better_only_where_all_are_maximised():
    both = read(minimise=["heart_rate at end"], maximise=["map at end"])
    assert (both.loss(COURSE), both.sign) == (20, 1)
    assert both.text == "minimise heart_rate at end - map at end"
    large = read(maximise=["map at end"])
    assert (large.shown(large.loss(COURSE)), large.sign, large.unit) == (50, -1, "mmHg")


def test_areas_and_times_have_units_and_bounds_of_their_own():
    volume = OutcomeFacts(lower=(0.0,), upper=(100.0,), least=(None,), forms=())
    area, inside = read(TUMOR, minimise=["tumour_volume AUC"]), read(TUMOR, maximise=["tumour_volume time in 1 to 2"])
    assert (area.unit, area.linear, area.bounds(volume)) == ("cm3 steps", True, (0, 300))
    assert (inside.unit, inside.linear, inside.bounds(volume)) == ("steps", False, (-3, 0))


def test_each_use_of_a_treatment_costs():
    objective = read(minimise=["map mean"], cost=["vasopressor 0.5", "dialysis 2"])
    values = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 1]])
    np.testing.assert_allclose(objective.costs_of(values), [0, 0.5, 2.5])
    assert objective.text == "minimise map mean + 0.5 per vasopressor + 2 per dialysis"
    praised = read(minimise=["map mean"], cost=["vasopressor -0.5"])
    assert praised.text == "minimise map mean - 0.5 per vasopressor"
    dear = read(RETAIL, maximise=["sales mean"], cost=["price_class=-50 % 3"])
    np.testing.assert_allclose(dear.costs_of(np.array([[0], [1], [2]])), [0, 3, 0])


@pytest.mark.parametrize(
    ("flags", "problem", "fix"),
    [
        ({"minimise": ["tumor_volume at end"]}, "no outcome 'tumor_volume'; did you mean 'tumour_volume'?", "tumour"),
        ({"minimise": ["tumour_volume"]}, "does not say what of an outcome", 'such as --minimise "tumour_volume at'),
        ({"maximise": ["tumour_volume at step 9"]}, "asks for a step that plans of 6 steps do not have", "1 to 6"),
        ({"minimise": ["tumour_volume time above lots"]}, "'lots' in", "tumour_volume time above 30"),
        ({"maximise": ["tumour_volume time in 9 to 5"]}, "a number and a larger one", "tumour_volume time in 5 to 15"),
        ({"maximise": ["tumour_volume time in low to 5"]}, "a number and a larger one", "time in 5 to 15"),
        ({"minimise": ["tumour_volume mean"], "cost": ["surgery 2"]}, "no treatment 'surgery'", "chemotherapy"),
        ({"minimise": ["tumour_volume mean"], "cost": ["chemotherapy"]}, "is not a treatment and a number", "0.5"),
        ({}, "no objective is given", "tumour_volume at end"),
    ],
)
def test_an_objective_that_means_nothing_is_refused_with_what_exists(flags, problem, fix):
    problems = Problems()
    Objective.parse(TUMOR, 6, problems, **flags)
    assert problem in problems.lines[0]
    assert fix is None or fix in problems.fix
