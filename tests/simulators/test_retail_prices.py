"""How retail prices move: rounding, permanent changes, promotions, mistakes, and what sways them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulators.retail import CATEGORIES, simulate_retail
from simulators.retail.prices import shelf_price
from simulators.retail.spells import spell_starts, value_in_spell


@pytest.fixture(scope="module")
def world():
    return simulate_retail(6, scale=0.1, confounding=3.0)


@pytest.fixture(scope="module")
def latent():
    return simulate_retail(6, scale=0.1)


@pytest.fixture(scope="module")
def exogenous():
    return simulate_retail(6, scale=0.1, confounding=0.0)


def test_charm_prices_take_the_nearest_ending():
    price = np.array([1.00, 1.01, 1.02, 1.03, 1.05, 1.06, 1.09, 2.50, 0.01])
    charmed = [0.98, 0.98, 1.04, 1.04, 1.04, 1.07, 1.08, 2.48, 0.04]
    np.testing.assert_array_equal(shelf_price(price, np.ones(9, dtype=bool)), charmed)
    np.testing.assert_array_equal(shelf_price(price, np.zeros(9, dtype=bool))[:-1], price[:-1])


@given(st.floats(0.05, 500.0), st.booleans())
def test_shelf_prices_are_whole_cents_near_the_price(price, charm):
    rounded = float(shelf_price(np.array([price]), np.array([charm]))[0])
    assert rounded == round(rounded, 2)
    assert abs(rounded - price) <= 0.0351
    assert not charm or f"{rounded:.2f}"[-1] in "478"


def test_spells_last_as_long_as_they_say_and_do_not_restart():
    begins = np.array([[[0, 1, 1, 0, 1, 0, 0, 1]]], dtype=bool)
    weeks = np.array([[[9, 2, 9, 9, 1, 9, 9, 4]]])
    start = spell_starts(begins, weeks)
    assert start[0, 0].tolist() == [-1, 1, 1, -1, 4, -1, -1, 7]
    value = value_in_spell(np.arange(8.0)[None, None] * 10.0, start, otherwise=-5.0)
    assert value[0, 0].tolist() == [-5.0, 10.0, 10.0, -5.0, 40.0, -5.0, -5.0, 70.0]


def test_a_spell_may_follow_another_at_once():
    start = spell_starts(np.ones((1, 1, 4), dtype=bool), np.full((1, 1, 4), 2))
    assert start[0, 0].tolist() == [0, 0, 2, 2]


def test_more_than_half_of_the_prices_have_charm_endings(world):
    cents = np.rint(100.0 * world.price[~np.isnan(world.price)]).astype(int)
    assert np.isin(cents % 10, (4, 7, 8)).mean() == pytest.approx(0.6 + 0.4 * 0.3, abs=0.06)


@pytest.mark.parametrize("category", range(3))
def test_rate_and_size_of_permanent_changes(world, category):
    regular = world.regular_price[world.catalogue.category == category]
    step = np.diff(np.log(regular), axis=-1)
    step = step[~np.isnan(step)]
    # roundings swallow some small steps and widen others
    assert (step != 0).mean() == pytest.approx(0.8 * CATEGORIES[category].change_rate, rel=0.3)
    assert np.median(np.abs(step[step != 0])) == pytest.approx(0.062, rel=0.2)
    assert (step[step != 0] > 0).mean() == pytest.approx(0.66, abs=0.07)


def test_stores_share_the_changes_of_the_chain(world):
    on_sale = world.traits.launch.max(axis=1) == 0
    changed = np.diff(world.regular_price[on_sale], axis=-1) != 0
    of_chain = changed.all(axis=1)
    assert of_chain.mean() == pytest.approx(0.55 / 0.8 * changed.mean(), rel=0.25)


def test_prices_return_after_promotions(world):
    off = (world.price != world.regular_price) & ~np.isnan(world.price)
    assert 0.002 < off.mean() < 0.01
    starts = off[..., 1:] & ~off[..., :-1]
    ends = off[..., :-1] & ~off[..., 1:]
    assert starts.sum() == pytest.approx(ends.sum(), rel=0.1)
    run = np.zeros(off.shape[:2])
    longest = 0
    for week in range(off.shape[-1]):
        run = np.where(off[..., week], run + 1, 0)
        longest = max(longest, int(run.max()))
    assert 4 <= longest <= 8  # two spells may follow or overlap
    share = (world.price / world.regular_price)[off]
    promoted = (share > 0.7) & (share < 1.0)
    assert promoted.mean() > 0.85
    assert 1.0 - np.median(share[promoted]) == pytest.approx(0.16, abs=0.02)


def promotion_and_increase_states(world):
    """Return the mean demand state of the week before a promotion starts, and before rises and cuts for good."""
    before, share = world.state[..., :-1], world.price / world.regular_price
    promoted = (share < 0.95) & (share > 0.7)
    starts = promoted[..., 1:] & ~promoted[..., :-1]
    step = np.diff(world.regular_price, axis=-1)
    return before[starts], before[step > 0], before[step < 0]


def test_promotions_start_when_demand_is_low_and_prices_rise_when_it_is_high(world):
    promotion, rise, cut = promotion_and_increase_states(world)
    # tilting a normal state's rate by exp(-2.4 state) moves its mean by -2.4 variances
    assert promotion.mean() == pytest.approx(-2.4 * 0.3**2, abs=5.0 * 0.3 / len(promotion) ** 0.5)
    assert rise.mean() > cut.mean() + 0.02


def test_prices_ignore_demand_without_confounding(exogenous):
    promotion, rise, cut = promotion_and_increase_states(exogenous)
    assert abs(promotion.mean()) < 4.0 * 0.3 / len(promotion) ** 0.5
    assert abs(rise.mean() - cut.mean()) < 0.02


def test_confounding_of_the_spec_points_the_same_way():
    states = promotion_and_increase_states(simulate_retail(7, scale=0.1))[0]
    assert states.mean() < -3.0 * 0.3 / len(states) ** 0.5


@pytest.fixture(scope="module")
def reactive():
    return simulate_retail(6, scale=0.1, confounding="observed")


def promotion_weeks(world):
    """Return, of weeks at the regular price of an item on sale: was it promoted next, the state, and what had sold.

    The first weeks of a year are left out: their history is short.
    """
    week = np.arange(4, world.calendar.n_weeks - 30)  # the last weeks have no recorded sales
    units = np.add.reduceat(world.sales, np.arange(0, world.sales.shape[-1], 7), axis=-1).astype(float)
    year = world.calendar.week_year
    first = np.maximum(np.searchsorted(year, year), world.traits.launch[..., None])
    total = np.concatenate([np.zeros((*units.shape[:2], 1)), units.cumsum(axis=-1)], axis=-1)
    share = world.price / world.regular_price
    in_year = week - first[..., week] >= 4
    i, s, w = np.nonzero(in_year & (share[..., week - 1] == 1.0))
    w = week[w]
    mean = (total[i, s, w] - total[i, s, first[i, s, w]]) / (w - first[i, s, w])
    last = np.log((units[i, s, w - 1] + 1) / (mean + 1)).clip(-1, 1)
    promoted = (share[i, s, w] < 0.95) & (share[i, s, w] > 0.7)
    return promoted.astype(float), world.state[i, s, w - 1].astype(float), last


def state_given_sales(world):
    """Return by how many standard errors promoted weeks differ in latent demand from others after the same sales."""
    promoted, state, last = promotion_weeks(world)
    known = np.column_stack([last**power for power in range(5)])
    left, state = (x - known @ np.linalg.lstsq(known, x, rcond=None)[0] for x in (promoted, state))
    return (left @ state) / (left**2 @ state**2) ** 0.5


def test_observed_confounding_leaves_the_latent_demand_no_say_beside_recorded_sales(reactive, world, latent):
    assert abs(state_given_sales(reactive)) < 3
    assert state_given_sales(world) < -10
    assert state_given_sales(latent) < -3


def test_observed_confounding_lets_prices_follow_recorded_sales(reactive):
    promoted, _, last = promotion_weeks(reactive)
    assert last[promoted == 1].mean() < last.mean() - 4 * last.std() / promoted.sum() ** 0.5


def test_prices_under_observed_confounding_move_as_often_as_under_latent(reactive, latent):
    for one, other in ((reactive, latent), (latent, reactive)):
        rates = [(np.diff(w.price, axis=-1) != 0)[~np.isnan(np.diff(w.price, axis=-1))].mean() for w in (one, other)]
        assert rates[0] == pytest.approx(rates[1], rel=0.25)


def test_a_year_begins_at_a_price_that_no_sales_have_swayed(reactive, exogenous):
    """Sales before the recorded year are in nobody's history: the list price moves by chance alone."""
    weeks = np.flatnonzero(np.diff(reactive.calendar.week_year, prepend=0))
    np.testing.assert_array_equal(reactive.regular_price[..., weeks], exogenous.regular_price[..., weeks])


def test_items_of_an_observed_world_are_the_same_in_any_catalogue(reactive):
    from simulators.retail import catalogue_of

    few = catalogue_of(reactive.catalogue.department[[3, 70]], reactive.catalogue.number[[3, 70]])
    part = simulate_retail(6, confounding="observed", catalogue=few)
    np.testing.assert_array_equal(part.price, reactive.price[[3, 70]])
    np.testing.assert_array_equal(part.sales, reactive.sales[[3, 70]])
