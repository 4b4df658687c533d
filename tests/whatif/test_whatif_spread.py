"""The interval of an ensemble is ordered, labelled, and covers one more member as often as it says."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from costar_cli.whatif.report import interval_kind, interval_method, spread

MEMBERS = arrays(
    np.float64, st.tuples(st.integers(2, 40), st.integers(1, 3)), elements=st.floats(-1e6, 1e6, allow_subnormal=False)
)


@settings(max_examples=200, deadline=None)
@given(MEMBERS, st.floats(0.01, 0.999))
def test_limits_enclose_the_mean(members, level):
    band = spread(members, level)
    assert (band.lower <= band.estimate).all()
    assert (band.estimate <= band.upper).all()
    assert np.isfinite([band.lower, band.upper]).all()


@settings(max_examples=50, deadline=None)
@given(MEMBERS)
def test_a_higher_level_is_no_narrower_by_the_same_method(members):
    levels = [level for level in (0.3, 0.5, 0.7, 0.9) if interval_method(len(members), level) == "student-t"]
    widths = [spread(members, level).upper - spread(members, level).lower for level in levels]
    assert all((narrow <= wide).all() for narrow, wide in itertools.pairwise(widths))


def test_one_member_claims_no_interval():
    band = spread(np.ones((1, 3)), 0.9)
    assert band.lower is None
    assert band.upper is None
    assert interval_kind(1) == "none (one member)"
    assert interval_method(1, 0.9) is None


def test_few_members_use_student_t_and_many_use_quantiles():
    assert interval_kind(2) == "ensemble spread"
    assert [interval_method(count, 0.9) for count in (2, 18, 19)] == ["student-t", "student-t", "quantiles"]
    assert [interval_method(count, 0.5) for count in (5, 18, 19)] == ["student-t", "student-t", "quantiles"]
    assert [interval_method(count, 0.95) for count in (38, 39)] == ["student-t", "quantiles"]


def test_five_members_give_the_textbook_limits():
    band = spread(np.array([[1.0], [2.0], [3.0], [4.0], [5.0]]), 0.9)
    half = 2.1318467863 * np.sqrt(2.5) * np.sqrt(1.2)  # t(4, 0.95), sd, one more member
    np.testing.assert_allclose([band.lower[0], band.estimate[0], band.upper[0]], [3 - half, 3.0, 3 + half])


def test_nineteen_members_give_the_outermost_two():
    band = spread(np.arange(19.0)[:, None], 0.9)
    np.testing.assert_allclose([band.lower[0], band.upper[0]], [0.0, 18.0])


def test_equal_members_give_an_interval_of_no_width():
    band = spread(np.full((5, 2), 7.0), 0.9)
    np.testing.assert_array_equal(band.lower, band.upper)


def coverage(draws, level):
    band = spread(draws[:-1], level)
    return ((band.lower <= draws[-1]) & (draws[-1] <= band.upper)).mean()


@pytest.mark.parametrize("count", [2, 4, 5, 18, 19, 27, 50])
@pytest.mark.parametrize("level", [0.5, 0.8, 0.9])
def test_one_more_normal_member_falls_within_as_often_as_the_level_says(count, level):
    draws = np.random.default_rng(7).normal(size=(count + 1, 20_000))
    assert abs(coverage(draws, level) - level) < 0.02


@pytest.mark.parametrize("count", [19, 27, 50])
def test_many_skewed_members_are_covered_as_often_as_the_level_says(count):
    draws = np.random.default_rng(8).lognormal(size=(count + 1, 20_000))
    assert abs(coverage(draws, 0.9) - 0.9) < 0.02


@pytest.mark.parametrize(("count", "covered"), [(3, 0.86), (5, 0.88)])
def test_few_skewed_members_are_covered_less_as_documented(count, covered):
    draws = np.random.default_rng(9).lognormal(size=(count + 1, 20_000))
    assert abs(coverage(draws, 0.9) - covered) < 0.01
