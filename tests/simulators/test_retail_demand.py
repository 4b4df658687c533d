"""What drives retail demand, piece by piece."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import nbinom

from simulators.retail import CATEGORIES, build_calendar, build_catalogue, simulate_retail
from simulators.retail.demand import calendar_multiplier, negative_binomial_quantile, price_multiplier
from simulators.retail.traits import sample_traits

FOODS, DOUBLED = 2, 3


@pytest.fixture(scope="module")
def world():
    return simulate_retail(9, scale=0.05)


@pytest.fixture(scope="module")
def effect():
    return calendar_multiplier(build_calendar())


def test_counts_are_quantiles_of_the_negative_binomial():
    rng = np.random.default_rng(0)
    mean, quantile = np.exp(rng.normal(0.0, 2.0, 3000)), rng.random(3000)
    success = 1.0 / (1.0 + 0.25 * mean**0.6)
    expected = nbinom.ppf(quantile, 4.0 * mean**0.4, success)
    np.testing.assert_array_equal(negative_binomial_quantile(quantile, mean), expected)


def test_counts_have_the_mean_and_the_spread_of_the_law():
    quantile = (np.arange(200_000) + 0.5) / 200_000
    for mean in (0.3, 2.0, 40.0):
        counts = negative_binomial_quantile(quantile, np.full(len(quantile), mean))
        assert counts.mean() == pytest.approx(mean, rel=0.002)
        assert counts.var() / counts.mean() == pytest.approx(1.0 + 0.25 * mean**0.6, rel=0.01)


@settings(deadline=None)
@given(st.floats(0.0, 1.0, exclude_max=True), st.floats(0.0, 300.0), st.floats(0.0, 300.0))
def test_larger_means_never_give_smaller_counts(quantile, one, other):
    low, high = negative_binomial_quantile(np.array([quantile, quantile]), np.array(sorted((one, other))))
    assert low <= high


def test_extreme_quantiles_and_means_have_an_end():
    quantile, mean = np.array([0.0, 1.0 - 2**-53, 1.0 - 2**-53, 0.5, 0.9]), np.array([5.0, 5.0, 1e12, 0.0, 1e-12])
    counts = negative_binomial_quantile(quantile, mean)
    assert counts[[0, 3, 4]].tolist() == [0, 0, 0]
    assert 5 < counts[1] < 500
    assert 8_000 < counts[2] < 32_767


def test_weekends_snap_and_events_act_on_a_day(effect):
    calendar = build_calendar()
    day = {str(date): i for i, date in enumerate(calendar.date)}
    monday_tx = effect[:, 1, day["2011-02-14"]]  # Valentine's day, a Monday, no SNAP in Texas
    foods = CATEGORIES[FOODS]
    assert monday_tx[FOODS] == pytest.approx(foods.weekday[2] * foods.events["Cultural"] * foods.snap[1])
    saturday_ca = effect[:, 0, day["2011-03-05"]]
    assert saturday_ca[FOODS] == pytest.approx(1.19 * 1.10)
    assert saturday_ca[DOUBLED] == pytest.approx(1.19 * 1.20)
    assert effect[DOUBLED, 0, day["2011-01-29"]] == pytest.approx(1.19 * 0.90)
    thanksgiving = effect[1, 2, day["2012-11-22"]]
    assert thanksgiving == pytest.approx(CATEGORIES[1].weekday[5] * 0.58 * 0.982)
    assert not effect[..., day["2013-12-25"]].any()


def test_two_events_of_a_day_multiply(effect):
    calendar = build_calendar()
    day = int(np.flatnonzero(calendar.date == np.datetime64("2014-06-15"))[0])
    foods = CATEGORIES[FOODS]
    expected = foods.weekday[1] * foods.events["Sporting"] * foods.events["Cultural"] * foods.snap[1]
    assert effect[FOODS, 0, day] == pytest.approx(expected)


def test_only_items_of_foods_3_have_a_double_snap_effect(world):
    doubled = world.traits.snap_doubled
    assert doubled.any()
    assert set(world.catalogue.dept_id[doubled].tolist()) == {"FOODS_3"}
    np.testing.assert_array_equal(world.group == DOUBLED, doubled)


def test_demand_states_are_stationary_with_the_stated_persistence(world):
    state = world.state.reshape(-1, 282).astype(np.float64)
    assert state.std(axis=0) == pytest.approx(np.full(282, 0.3), abs=0.04)
    lag = (state[:, 1:] * state[:, :-1]).mean() / (state**2).mean()
    assert lag == pytest.approx(0.8, abs=0.01)


def test_stock_outs_are_rare_last_weeks_and_leave_little(world):
    share = world.stock_share
    out = share < 1.0
    starts = (out[..., 1:] & ~out[..., :-1]).sum()
    assert starts / (~out[..., :-1]).sum() == pytest.approx(0.004, rel=0.1)
    assert out[..., 1:].sum() / starts == pytest.approx(2.9, rel=0.1)
    assert share[out].max() <= np.float32(0.15)


def test_price_effect_is_elastic_and_displayed_when_well_below_the_regular_price():
    price = np.array([2.0, 1.96, 1.9, 1.5, 2.5])
    effect = price_multiplier(price, np.float64(2.0), np.float64(2.0), np.float64(-1.2))
    np.testing.assert_allclose(effect, (price / 2.0) ** -1.2 * np.array([1.0, 1.0, 1.15, 1.15, 1.0]))


def test_elasticities_are_negative_and_centred_by_category():
    catalogue = build_catalogue(1.0)
    traits = sample_traits(catalogue, 1)
    assert traits.elasticity.max() <= -0.1
    for category, law in enumerate(CATEGORIES):
        assert traits.elasticity[catalogue.category == category].mean() == pytest.approx(law.elasticity, abs=0.1)


def test_levels_follow_the_medians_of_the_categories():
    catalogue = build_catalogue(1.0)
    traits = sample_traits(catalogue, 1)
    for department, level in (("FOODS_3", 0.75 * np.exp(0.15)), ("HOUSEHOLD_2", 0.40 * np.exp(-0.30))):
        median = np.median(np.exp(traits.log_level[catalogue.dept_id == department]))
        assert median == pytest.approx(level, rel=0.25)
