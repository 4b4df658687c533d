"""The retail world as a whole: what it holds, and what its randomness depends on."""

from dataclasses import fields

import numpy as np
import pytest

from simulators.retail import CATEGORIES, DEPARTMENTS, STATES, build_catalogue, simulate_retail

SCALE = 0.02


@pytest.fixture(scope="module")
def world():
    return simulate_retail(3, scale=SCALE)


def test_catalogue_has_the_departments_of_m5():
    catalogue = build_catalogue(1.0)
    assert len(catalogue) == 3049
    names, counts = np.unique(catalogue.dept_id, return_counts=True)
    assert dict(zip(names.tolist(), counts.tolist(), strict=True)) == {
        department.name: department.n_items for department in DEPARTMENTS
    }
    names, counts = np.unique(catalogue.cat_id, return_counts=True)
    assert dict(zip(names.tolist(), counts.tolist(), strict=True)) == {
        "FOODS": 1437,
        "HOBBIES": 565,
        "HOUSEHOLD": 1047,
    }
    assert catalogue.item_id[[0, -1]].tolist() == ["HOBBIES_1_001", "FOODS_3_823"]
    assert catalogue.store_id.tolist() == [
        "CA_1",
        "CA_2",
        "CA_3",
        "CA_4",
        "TX_1",
        "TX_2",
        "TX_3",
        "WI_1",
        "WI_2",
        "WI_3",
    ]
    assert catalogue.state_id.tolist() == ["CA"] * 4 + ["TX"] * 3 + ["WI"] * 3


def test_small_catalogues_keep_eight_items_per_department():
    assert len(build_catalogue(0.001)) == 8 * len(DEPARTMENTS)
    assert len(build_catalogue(0.25)) == pytest.approx(0.25 * 3049, abs=4)


@pytest.mark.parametrize("scale", [0.0, -1.0, 1.5, float("nan")])
def test_scales_outside_the_unit_interval_are_refused(scale):
    with pytest.raises(ValueError, match="scale must be in"):
        simulate_retail(0, scale=scale)


def test_shapes_and_types(world):
    n, s, w = len(world.catalogue), 10, 282
    assert world.sales.shape == (n, s, 1941)
    assert world.sales.dtype == np.int16
    for weekly in (world.price, world.regular_price, world.log_demand, world.state, world.stock_share):
        assert weekly.shape == (n, s, w)
    assert world.day_effect.shape == (len(CATEGORIES) + 1, len(STATES), 1969)


def test_nothing_is_priced_or_sold_before_the_launch(world):
    before = np.arange(282) < world.traits.launch[:, :, None]
    np.testing.assert_array_equal(np.isnan(world.price), before)
    day_before = np.take(before, world.calendar.week[:1941], axis=-1)
    assert before.any()
    assert not world.sales[day_before].any()


def test_no_sales_at_christmas(world):
    christmas = np.flatnonzero(world.calendar.event_name_1[:1941] == "Christmas")
    assert len(christmas) == 5
    assert not world.sales[:, :, christmas].any()


def test_sell_prices_are_the_rows_of_the_price_array(world):
    rows = world.sell_prices()
    assert len(rows) == (~np.isnan(world.price)).sum()
    week = np.searchsorted(world.calendar.week_id, rows.wm_yr_wk)
    np.testing.assert_array_equal(rows.sell_price, world.price[rows.item, rows.store, week])
    key = (rows.store.astype(np.int64) * len(world.catalogue) + rows.item) * 282 + week
    assert (np.diff(key) > 0).all()


def test_same_seed_gives_the_same_world_and_another_seed_another(world):
    again, other = simulate_retail(3, scale=SCALE), simulate_retail(4, scale=SCALE)
    for field in fields(world):
        one, two = getattr(world, field.name), getattr(again, field.name)
        if isinstance(one, np.ndarray):
            np.testing.assert_array_equal(one, two, err_msg=field.name)
    assert (world.sales != other.sales).any()
    assert (world.traits.base_price != other.traits.base_price).any()


def test_series_of_an_item_do_not_depend_on_the_scale(world):
    larger = simulate_retail(3, scale=2 * SCALE)
    where = {name: i for i, name in enumerate(larger.catalogue.item_id.tolist())}
    rows = [where[name] for name in world.catalogue.item_id.tolist()]
    assert len(where) > len(rows)
    np.testing.assert_array_equal(larger.price[rows], world.price)
    np.testing.assert_array_equal(larger.sales[rows], world.sales)


def test_items_differ_from_each_other(world):
    assert len(np.unique(world.log_demand[:, 0, 0])) == len(world.catalogue)
    assert len(np.unique(world.state[:, :, 5])) == world.n_item_stores


def test_relative_changes_are_zero_in_the_first_week_of_each_sequence(world):
    year, change = world.calendar.week_year, world.relative_change
    for item, store in ((0, 0), (11, 3), (40, 9)):
        launch = int(world.traits.launch[item, store])
        for one in range(2011, 2017):
            weeks = np.flatnonzero((year == one) & (np.arange(282) >= launch))
            if len(weeks):
                price = world.price[item, store, weeks]
                assert change[item, store, weeks[0]] == 0.0
                np.testing.assert_array_equal(change[item, store, weeks], (price - price[0]) / price[0])


def test_progress_counts_items(world):
    seen = []
    simulate_retail(3, scale=SCALE, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (len(world.catalogue), len(world.catalogue))
    assert seen == sorted(seen)
