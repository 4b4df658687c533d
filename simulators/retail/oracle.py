"""What would have been sold at other prices: the simulator's answers, which real M5 cannot give (spec WORLD-14).

A price acts on the demand of its own week only: through the item's elasticity, and through display if it is well below
the regular price. Nothing carries over (no stockpiling, no reference price, no effect on states, stock or later
prices), so a plan over several weeks is answered week by week, and everything else stays as it was.
"""

from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from simulators.retail.chance import Floats, Ints, draw_quantiles
from simulators.retail.classes import PriceClasses, class_change
from simulators.retail.demand import negative_binomial_quantile, price_multiplier
from simulators.retail.world import BLOCK, RetailWorld

__all__ = ["counterfactual_weekly_sales", "demand_by_class", "expected_weekly_sales", "true_weekly_demand"]

CHUNK: Final = 65536  # weeks answered at once: bounds memory
DAYS: Final = 7


def true_weekly_demand(
    world: RetailWorld, item_store: ArrayLike, week: ArrayLike, relative_price_change: ArrayLike
) -> Floats:
    """Return the expected demand in units per week, had the price differed by the given share.

    The expectation is over daily counts, given the week's demand state; it is what could be sold if nothing ran out of
    stock, and never falls when the price falls. Arguments broadcast; the result has their common shape.

    Args:
        world: the simulated world.
        item_store: item-stores, item * S + store.
        week: weeks, 0 to W - 1; the last one has two days.
        relative_price_change: (price - reference) / reference, against the first week of the week's year-sequence.

    Raises:
        ValueError: an item-store or week that does not exist, a week before the launch, or a change of -1 or less.
    """
    item, store, week_, change = _checked(world, item_store, week, relative_price_change)
    week_effect = np.add.reduceat(world.day_effect, np.arange(0, len(world.calendar), DAYS), axis=-1)
    state = world.catalogue.store_state[store]
    return _daily_level(world, item, store, week_, change) * week_effect[world.group[item], state, week_]


def expected_weekly_sales(
    world: RetailWorld, item_store: ArrayLike, week: ArrayLike, relative_price_change: ArrayLike
) -> Floats:
    """Return the expected sales in units per week: `true_weekly_demand` as far as stock lasted."""
    demand = true_weekly_demand(world, item_store, week, relative_price_change)
    item, store, week_, _ = _checked(world, item_store, week, relative_price_change)
    return demand * world.stock_share[item, store, week_]


def demand_by_class(world: RetailWorld, classes: PriceClasses, item_store: ArrayLike, week: ArrayLike) -> Floats:
    """Return the true demand `[...,K]` of weeks under every price class; NaN for the last one, which is never used."""
    usable = np.arange(len(classes) - 1)
    item_store_, week_ = np.asarray(item_store)[..., None], np.asarray(week)[..., None]
    demand = true_weekly_demand(world, item_store_, week_, class_change(world, classes, item_store_, week_, usable))
    return np.concatenate([demand, np.full((*demand.shape[:-1], 1), np.nan)], axis=-1)


def counterfactual_weekly_sales(
    world: RetailWorld, item_store: ArrayLike, week: ArrayLike, relative_price_change: ArrayLike
) -> Ints:
    """Return the units that would have been sold in a week, had the price differed by the given share.

    Each day's count falls at the same quantile whatever the price: siblings differ by their prices alone, a lower price
    never sells less, and the price that was asked gives the sales that were. Their mean over days' chance is
    `expected_weekly_sales`. Arguments as in `true_weekly_demand`.
    """
    queries = _checked(world, item_store, week, relative_price_change)
    item, store, week_, change = queries[0].ravel(), queries[1].ravel(), queries[2].ravel(), queries[3].ravel()
    units = np.zeros(len(item), dtype=np.int64)
    order = np.argsort(item, kind="stable")
    item_sorted = item[order]
    for lo in range(0, len(world.catalogue), BLOCK):
        first, last = np.searchsorted(item_sorted, (lo, lo + BLOCK))
        if first == last:
            continue
        items = np.unique(item_sorted[first:last])
        key = world.catalogue.department[items], world.catalogue.number[items]
        quantile_ISD = draw_quantiles(world.seed, *key, world.catalogue.n_stores, len(world.calendar))
        for at in range(first, last, CHUNK):
            rows = order[at : min(at + CHUNK, last)]
            item_K, store_K, week_K = item[rows], store[rows], week_[rows]
            day_K7 = DAYS * week_K[:, None] + np.arange(DAYS)
            in_calendar = day_K7 < len(world.calendar)
            day_K7 = np.where(in_calendar, day_K7, 0)
            effect_K7 = world.day_effect[world.group[item_K, None], world.catalogue.store_state[store_K, None], day_K7]
            level_K = _daily_level(world, item_K, store_K, week_K, change[rows])
            level_K = level_K * world.stock_share[item_K, store_K, week_K]
            mean_K7 = level_K[:, None] * effect_K7 * in_calendar
            drawn = np.searchsorted(items, item_K)
            quantile_K7 = quantile_ISD[drawn[:, None], store_K[:, None], day_K7]
            units[rows] = negative_binomial_quantile(quantile_K7, mean_K7).sum(axis=1)
    return units.reshape(queries[0].shape)


def _daily_level(world: RetailWorld, item: Ints, store: Ints, week: Ints, relative_change: Floats) -> Floats:
    """Return units a day before stock-outs and the calendar's effects."""
    traits, at = world.traits, (item, store, week)
    price = world.reference_price(*at) * (1.0 + relative_change)
    effect = price_multiplier(price, world.regular_price[at], traits.base_price[item], traits.elasticity[item])
    return np.asarray(np.exp(world.log_demand[at].astype(np.float64)) * effect)


def _checked(
    world: RetailWorld, item_store: ArrayLike, week: ArrayLike, relative_change: ArrayLike
) -> tuple[Ints, Ints, Ints, Floats]:
    """Return items, stores, weeks and changes in their common shape."""
    item_store_, week_, change = np.broadcast_arrays(item_store, week, np.asarray(relative_change, dtype=np.float64))
    item, store = world.item_and_store(item_store_, week_)
    if not (change > -1.0).all():
        raise ValueError("relative price changes must be above -1: a price is positive")
    return item, store, week_, change
