"""What would have been sold at other prices: the retail oracle."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulators.retail import (
    PRICE_EDGES,
    PriceClasses,
    class_change,
    counterfactual_weekly_sales,
    demand_by_class,
    expected_weekly_sales,
    simulate_retail,
    true_weekly_demand,
)
from simulators.retail.demand import negative_binomial_quantile

WEEKS = 277  # complete weeks with sales


@pytest.fixture(scope="module")
def world():
    return simulate_retail(11, scale=0.02)


@pytest.fixture(scope="module")
def classes(world):
    return PriceClasses.of(world.relative_change)


@pytest.fixture(scope="module")
def queries(world):
    """Return item-stores, weeks and factual changes of 3,000 weeks on sale."""
    rng = np.random.default_rng(0)
    item, store, week = np.nonzero(~np.isnan(world.price[..., :WEEKS]))
    rows = rng.choice(len(item), 3_000, replace=False)
    item, store, week = item[rows], store[rows], week[rows]
    return item * 10 + store, week, world.relative_change[item, store, week]


def weekly_sales(world):
    sales = world.sales[..., : 7 * WEEKS]
    return sales.reshape(-1, WEEKS, 7).sum(axis=-1)


def test_factual_prices_lead_to_factual_sales(world, queries):
    item_store, week, change = queries
    np.testing.assert_array_equal(
        counterfactual_weekly_sales(world, item_store, week, change), weekly_sales(world)[item_store, week]
    )


def test_expected_sales_at_factual_prices_are_the_mean_of_sales(world):
    item, store, week = np.nonzero(~np.isnan(world.price[..., :WEEKS]))
    item_store = item * 10 + store
    expected = expected_weekly_sales(world, item_store, week, world.relative_change[item, store, week])
    observed = weekly_sales(world)[item_store, week]
    # weeks are independent given what the oracle knows, with a variance of mean (1 + 0.25 daily mean^0.6)
    variance = expected * (1.0 + 0.25 * (expected / 7.0) ** 0.6)
    assert abs((observed - expected).sum()) < 4.0 * variance.sum() ** 0.5
    busy = expected > 20.0
    standardised = (observed - expected)[busy] / variance[busy] ** 0.5
    assert standardised.std() == pytest.approx(1.0, abs=0.1)


def test_mean_over_chance_of_counterfactual_days_is_the_expected_demand(world):
    level = true_weekly_demand(world, 205, 200, -0.1)
    day = world.day_effect[world.group[20], world.catalogue.store_state[5], 1400:1407]
    mean = level * day / day.sum()
    counts = negative_binomial_quantile(np.random.default_rng(1).random((20_000, 7)), np.tile(mean, (20_000, 1)))
    total = counts.sum(axis=1)
    assert abs(total.mean() - level) < 4.0 * total.std() / 20_000**0.5


def test_lower_prices_never_lower_the_true_demand_nor_the_sales(world, queries):
    item_store, week, _ = queries
    changes = np.linspace(-0.6, 0.8, 29)
    at = item_store[:500, None], week[:500, None]
    demand = true_weekly_demand(world, *at, changes)
    assert (np.diff(demand, axis=1) < 0.0).all()
    assert (np.diff(counterfactual_weekly_sales(world, *at, changes), axis=1) <= 0).all()
    assert (expected_weekly_sales(world, *at, changes) <= demand).all()


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 559), st.integers(230, 281), st.floats(-0.9, 5.0), st.floats(-0.9, 5.0))
def test_the_lower_of_two_prices_sells_no_less(world, item_store, week, one, other):
    high, low = true_weekly_demand(world, item_store, week, sorted((one, other)))
    assert high >= low


def test_elasticity_is_the_slope_of_demand_on_price_away_from_display(world):
    item, store, week = 25, 2, 260
    item_store, regular = item * 10 + store, world.regular_price[item, store, week]
    reference = world.reference_price(np.array(item), np.array(store), np.array(week))
    changes = np.array([1.0, 1.5]) * regular / reference - 1.0
    demand = true_weekly_demand(world, item_store, week, changes)
    assert np.log(demand[1] / demand[0]) / np.log(1.5) == pytest.approx(world.traits.elasticity[item])


def test_a_plan_is_answered_week_by_week(world):
    weeks = 240 + np.arange(4)
    plain = counterfactual_weekly_sales(world, 300, weeks, np.zeros(4))
    cut = counterfactual_weekly_sales(world, 300, weeks, [0.0, -0.3, 0.0, 0.0])
    assert plain[[0, 2, 3]].tolist() == cut[[0, 2, 3]].tolist()
    assert cut[1] >= plain[1]


def test_answers_do_not_depend_on_the_other_queries_nor_their_order(world, queries):
    item_store, week, change = queries
    together = counterfactual_weekly_sales(world, item_store, week, change - 0.05)
    order = np.random.default_rng(2).permutation(len(week))
    shuffled = counterfactual_weekly_sales(world, item_store[order], week[order], change[order] - 0.05)
    np.testing.assert_array_equal(shuffled, together[order])
    alone = [counterfactual_weekly_sales(world, *(x[i] for x in (item_store, week, change - 0.05))) for i in range(3)]
    assert [int(units) for units in alone] == together[:3].tolist()


def test_arguments_broadcast_and_none_is_fine(world):
    item_store, week, change = np.array([[280], [300]]), np.array([[250], [260]]), np.zeros(5)
    assert true_weekly_demand(world, item_store, week, change).shape == (2, 5)
    assert counterfactual_weekly_sales(world, item_store, week, change).shape == (2, 5)
    nothing = np.zeros(0, dtype=np.int64)
    assert counterfactual_weekly_sales(world, nothing, nothing, np.zeros(0)).shape == (0,)


def test_stock_outs_cut_sales_but_not_demand(world):
    item, store, week = np.argwhere((world.stock_share < 1.0) & ~np.isnan(world.price))[0]
    demand = true_weekly_demand(world, item * 10 + store, week, 0.0)
    sales = expected_weekly_sales(world, item * 10 + store, week, 0.0)
    assert sales == pytest.approx(demand * world.stock_share[item, store, week])


def test_impossible_queries_are_refused(world):
    with pytest.raises(ValueError, match="weeks are 0 to 281"):
        true_weekly_demand(world, 0, 282, 0.0)
    with pytest.raises(ValueError, match="item-stores are 0 to"):
        true_weekly_demand(world, world.n_item_stores, 281, 0.0)
    with pytest.raises(ValueError, match="above -1"):
        true_weekly_demand(world, 0, 281, -1.0)
    with pytest.raises(ValueError, match="above -1"):
        true_weekly_demand(world, 0, 281, np.nan)
    late = int(np.argmax(world.traits.launch.ravel()))
    with pytest.raises(ValueError, match="before the item's launch"):
        counterfactual_weekly_sales(world, late, 0, 0.0)


def test_classes_are_right_closed_bins(classes):
    assert len(classes) == 22
    edges = np.array(PRICE_EDGES)
    assert classes.classify(edges).tolist() == [1, *range(1, 21)]
    assert classes.classify(np.nextafter(edges[1:-1], np.inf)).tolist() == list(range(2, 21))
    assert classes.classify([0.0, -0.0, -0.9999, 9.01, np.nan]).tolist() == [0] * 5
    assert classes.classify([0.001, -0.001]).tolist() == [7, 7]


def test_each_class_stands_for_a_change_in_its_own_bin(classes):
    assert classes.change[0] == 0.0
    assert np.isnan(classes.change[21])
    np.testing.assert_array_equal(classes.classify(classes.change[:21]), np.arange(21))
    assert (np.diff(classes.change[1:21]) > 0).all()


def test_empty_bins_stand_for_their_middle_and_outer_ones_stay_near():
    empty = PriceClasses.of(np.zeros(3))
    np.testing.assert_array_equal(empty.classify(empty.change[:21]), np.arange(21))
    assert -0.25 < empty.change[1] < -0.16
    assert 0.25 < empty.change[20] < 0.35
    fitted = PriceClasses.of(np.array([-0.1, 0.05, 0.07]), edges=[-0.2, -0.05, 0.1, 0.3])
    np.testing.assert_allclose(fitted.change[:3], [0.0, -0.1, 0.06])
    assert np.isnan(fitted.change[4])


@pytest.mark.parametrize("edges", [[0.0, 1.0, 2.0], [0.0, 0.1, 0.1, 0.2], [-1.0, 0.0, 1.0, 2.0]])
def test_edges_without_a_meaning_are_refused(edges):
    with pytest.raises(ValueError, match="increasing numbers above -1"):
        PriceClasses.of(np.zeros(1), edges=edges)


def test_factual_classes_mean_the_price_that_was_asked(world, classes, queries):
    item_store, week, change = queries
    factual = classes.classify(change)
    np.testing.assert_array_equal(class_change(world, classes, item_store, week, factual), change)
    other = np.where(factual == 5, 6, 5)
    planned = class_change(world, classes, item_store, week, other)
    np.testing.assert_array_equal(planned, classes.change[other])
    with pytest.raises(ValueError, match="price classes are 0 to 20"):
        class_change(world, classes, item_store, week, 21)


def test_demand_under_every_class_falls_with_the_price(world, classes, queries):
    item_store, week, change = queries
    table = demand_by_class(world, classes, item_store, week)
    assert table.shape == (3_000, 22)
    assert np.isnan(table[:, 21]).all()
    assert (np.diff(table[:, 1:21], axis=1) <= 0.0).all()
    rows = np.arange(3_000)
    factual = true_weekly_demand(world, item_store, week, change)
    np.testing.assert_allclose(table[rows, classes.classify(change)], factual)
