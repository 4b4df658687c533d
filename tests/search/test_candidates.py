"""Constraints leave exactly the plans that meet them, and name each other where they leave none."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costar_cli.data.support import Support
from costar_cli.errors import UsageError
from costar_cli.plans.untrusted import Problems
from costar_cli.questions.search import Candidates, Constraints
from tests.whatif.whatif_worlds import ICU, RETAIL, TUMOR, LinearModel, make_panel, request_of

NAMES = ("chemotherapy", "radiotherapy")


def read(schema=TUMOR, **flags):
    problems = Problems()
    constraints = Constraints.parse(schema.treatments, problems, **flags)
    assert not problems.lines
    return constraints


def plans_of(candidates):
    return {tuple(map(tuple, plan)) for plan in candidates.values_KA[candidates.plans_PH].tolist()}


def meets(plan, flags, before):
    given = {name: [step[i] for step in plan] for i, name in enumerate(NAMES)}
    most = all(sum(given[name]) <= n for name, n in flags["at_most"])
    least = all(sum(given[name]) >= n for name, n in flags["at_least"])
    course = {name: [before[i], *given[name]] for i, name in enumerate(NAMES)}
    apart = all(
        not (a and b) for name in flags["not_consecutive"] for a, b in zip(course[name], course[name][1:], strict=False)
    )
    alone = not flags["not_with"] or all(not (a and b) for a, b in plan)
    return most and least and apart and alone


LIMITS = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 4)), max_size=2)


@given(
    at_most=LIMITS,
    at_least=LIMITS,
    not_consecutive=st.sets(st.sampled_from(NAMES)),
    not_with=st.booleans(),
    before=st.tuples(st.integers(0, 1), st.integers(0, 1)),
    steps=st.integers(1, 4),
)
def test_exactly_the_plans_that_meet_all_constraints_are_left(
    at_most, at_least, not_consecutive, not_with, before, steps
):
    flags = {"at_most": at_most, "at_least": at_least, "not_consecutive": not_consecutive, "not_with": not_with}
    every = product(product((0, 1), repeat=2), repeat=steps)
    wanted = {plan for plan in every if meets(plan, flags, before)}
    constraints = read(
        at_most=[f"{name} {n}" for name, n in at_most],
        at_least=[f"{name} {n}" for name, n in at_least],
        not_consecutive=sorted(not_consecutive),
        not_with=["chemotherapy radiotherapy"] if not_with else [],
    )
    values_KA = np.array(list(product((0, 1), repeat=2)))
    open_KA = values_KA[constraints.allowed(values_KA)]
    assert constraints.count(open_KA, steps, constraints.open_first(open_KA, np.array(before))) == len(wanted)
    try:
        candidates = Candidates.of(LinearModel(TUMOR), constraints, steps, unsupported=False)
        left = candidates.after(np.array(before), lambda plans: np.zeros(len(plans)))
    except UsageError:
        assert not wanted
    else:
        assert {tuple(map(tuple, plan)) for plan in candidates.values_KA[left].tolist()} == wanted


def test_combinations_of_binary_treatments_and_levels_of_one_are_all_considered():
    assert Candidates.of(LinearModel(ICU), Constraints(), 2, unsupported=False).plans_PH.shape == (8**2, 2)
    constraints = read(RETAIL, at_most=["price_class=-50 % 1", "price_class 1"])
    candidates = Candidates.of(LinearModel(RETAIL), constraints, 2, unsupported=False)
    assert len(candidates.plans_PH) == 1 + 2 * 20  # one changed price at most
    assert candidates.possible == 21**2


def test_what_no_training_subject_received_is_left_out_unless_asked_for():
    panel = make_panel(TUMOR, 0, 0)
    panel.treatments[..., 3] = 0  # never both
    model = LinearModel(TUMOR, meta={"support": Support.of(panel, TUMOR).to_meta()})
    seen = Candidates.of(model, Constraints(), 3, unsupported=False)
    assert (1, 1) not in set(map(tuple, seen.values_KA.tolist()))
    assert len(Candidates.of(model, Constraints(), 3, unsupported=True).plans_PH) == 4**3


def test_constraints_that_exclude_each_other_are_one_error_that_names_them():
    constraints = read(
        at_least=["chemotherapy 4"], not_consecutive=["chemotherapy"], at_most=["radiotherapy 5"],
        not_with=["chemotherapy, radiotherapy"],
    )  # fmt: skip
    with pytest.raises(UsageError) as caught:
        Candidates.of(LinearModel(TUMOR), constraints, 6, unsupported=False)
    wanted = "no plan of 6 steps meets --at-least 'chemotherapy 4' and --not-consecutive 'chemotherapy'"
    assert caught.value.problem == wanted
    with pytest.raises(UsageError, match="after what the subject received last"):
        Candidates.of(
            LinearModel(TUMOR), read(at_least=["chemotherapy 1"], not_consecutive=["chemotherapy"]), 1,
            unsupported=False,
        ).after(np.array([1, 0]), np.zeros)  # fmt: skip


def test_a_list_of_plans_is_chosen_from_alone():
    request = request_of({"a": [{"chemotherapy": 1}] * 2, "b": [{}] * 2, "c": [{"radiotherapy": 1}, {}]})
    constraints = read(at_most=["chemotherapy 1"], only=request.plans)
    candidates = Candidates.of(LinearModel(TUMOR), constraints, 2, unsupported=False)
    assert plans_of(candidates) == {((0, 0), (0, 0)), ((0, 1), (0, 0))}
    with pytest.raises(UsageError, match="none of the 3 plans"):
        Candidates.of(LinearModel(TUMOR), read(at_least=["chemotherapy 1"], not_consecutive=["chemotherapy"],
                                               only=request.plans), 2, unsupported=False)  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ({"at_most": ["chemo 2"]}, "--at-most: there is no treatment 'chemo'; did you mean 'chemotherapy'?"),
        ({"at_least": ["chemotherapy"]}, "--at-least: 'chemotherapy' is not a treatment and a number of steps"),
        ({"not_consecutive": ["chemotherapy=offf"]}, "chemotherapy has no level 'offf'; did you mean 'off'?"),
        ({"not_with": ["chemotherapy"]}, "--not-with: 'chemotherapy' is not two treatments"),
        ({"not_with": ["chemotherapy surgery"]}, "--not-with: there is no treatment 'surgery'"),
    ],
)
def test_a_constraint_that_means_nothing_is_refused_with_what_there_is(flags, problem):
    problems = Problems()
    Constraints.parse(TUMOR.treatments, problems, **flags)
    assert any(problem in line for line in problems.lines)
