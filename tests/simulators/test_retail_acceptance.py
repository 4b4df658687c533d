"""The numbers to expect (spec WORLD-15), over two seeds at the default scale.

Weekly sales are taken within year-sequences of 40 weeks or more. The lag-1 correlation is that of sales about their
sequence's mean, pooled over complete sequences, as where the figures come from.
"""

import numpy as np
import pytest

from simulators.retail import CATEGORIES, simulate_retail

TARGETS = {  # weekly mean, share of weeks without a sale, lag-1 correlation, median variance / mean
    "FOODS": (11.0, 0.14, 0.54, 1.8),
    "HOUSEHOLD": (5.0, 0.21, 0.35, 1.6),
    "HOBBIES": (3.4, 0.37, 0.47, 1.4),
}
NAMES = [category.name for category in CATEGORIES]
SEEDS = (2, 4)


def category_statistics(world, category):
    of_category = world.catalogue.category == category
    n_weeks = world.sales.shape[-1] // 7
    sales = world.sales[of_category, :, : 7 * n_weeks]
    units = sales.reshape(*sales.shape[:2], n_weeks, 7).sum(axis=-1, dtype=np.float64)
    change = world.relative_change[of_category, :, :n_weeks]
    kept_units, kept_change, ratio, products = [], [], [], np.zeros(2)
    n_sequences = 0
    for year in range(2011, 2016):
        weeks = world.calendar.week_year[:n_weeks] == year
        of_year, changes = units[:, :, weeks], change[:, :, weeks]
        length = (~np.isnan(changes)).sum(axis=-1)
        n_sequences += (length >= 40).sum()
        kept = ~np.isnan(changes) & (length >= 40)[..., None]
        kept_units.append(of_year[kept])
        kept_change.append(changes[kept])
        complete = of_year[length == weeks.sum()]
        centred = complete - complete.mean(axis=1, keepdims=True)
        products += (centred[:, 1:] * centred[:, :-1]).sum(), (centred**2).sum()
        sold = complete[complete.sum(axis=1) > 0]
        ratio.append(sold.var(axis=1) / sold.mean(axis=1))
    units, change = np.concatenate(kept_units), np.concatenate(kept_change)
    return {
        "demand": (units.mean(), (units == 0).mean(), products[0] / products[1], np.median(np.concatenate(ratio))),
        "changed": (change != 0).mean(),
        "quantiles": np.quantile(change[change != 0], (0.05, 0.5, 0.95)),
        "sequences": n_sequences / units.dtype.type(of_category.sum() * world.catalogue.n_stores),
    }


@pytest.fixture(scope="module")
def statistics():
    """Return the statistics of each category, averaged over the seeds."""
    of_seeds = {name: [] for name in NAMES}
    for seed in SEEDS:
        world = simulate_retail(seed)
        for category, name in enumerate(NAMES):
            of_seeds[name].append(category_statistics(world, category))
    return {
        name: {key: np.mean([one[key] for one in each], axis=0) for key in each[0]} for name, each in of_seeds.items()
    }


@pytest.mark.parametrize("name", NAMES)
def test_weekly_demand_is_within_a_fifth_of_the_prototype(statistics, name):
    np.testing.assert_allclose(statistics[name]["demand"], TARGETS[name], rtol=0.2)


def test_source_and_target_means_differ(statistics):
    assert statistics["FOODS"]["demand"][0] > 1.5 * statistics["HOUSEHOLD"]["demand"][0]


@pytest.mark.parametrize("name", NAMES)
def test_share_and_size_of_price_changes(statistics, name):
    assert 0.11 < statistics[name]["changed"] < 0.21
    np.testing.assert_allclose(statistics[name]["quantiles"], (-0.17, 0.034, 0.29), rtol=0.2, atol=0.01)


def test_item_stores_have_about_four_usable_year_sequences(statistics):
    for of_category in statistics.values():
        assert of_category["sequences"] == pytest.approx(3.9, rel=0.07)
