"""The simulated world: an M5-like panel with all that its true demand depends on (docs/spec/world.md)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from simulators.retail.calendar import N_SALES_DAYS, RetailCalendar, build_calendar
from simulators.retail.catalogue import CATEGORIES, RetailCatalogue, build_catalogue
from simulators.retail.chance import Floats, Ints, draw_quantiles, draw_week_chance
from simulators.retail.demand import (
    calendar_group,
    calendar_multiplier,
    demand_states,
    item_drift,
    negative_binomial_quantile,
    price_multiplier,
    season,
    stock_share,
)
from simulators.retail.prices import ObservedPolicy, price_paths
from simulators.retail.traits import ItemTraits, sample_traits

__all__ = ["Confounding", "RetailWorld", "SellPrices", "simulate_retail"]

BLOCK = 64  # items simulated at once: bounds memory
LARGEST_SIGNAL: Final = 1.0  # of sales on prices, either way: few units make large ratios
Confounding = float | Literal["observed"]


@dataclass(frozen=True, slots=True)
class SellPrices:
    """The rows of sell_prices.csv, sorted by store, item and week; stores and items as positions in the catalogue."""

    store: NDArray[np.int8]
    item: NDArray[np.int16]
    wm_yr_wk: NDArray[np.int32]
    sell_price: Floats

    def __len__(self) -> int:
        return int(self.sell_price.shape[0])


@dataclass(frozen=True, slots=True)
class RetailWorld:
    """I items in S stores over W weeks and D days, and what their true demand depends on.

    What M5 publishes: `calendar`, `catalogue`, `price [I,S,W]` (dollars, NaN before the launch) and `sales [I,S,1941]`
    (units a day). What it does not: `traits`; `regular_price [I,S,W]` without promotions and mistakes;
    `log_demand [I,S,W]`, ln units a day at the base price, before the calendar's effects, of which `state [I,S,W]` is
    the slow demand state; `stock_share [I,S,W]` of the demand that can be served; `day_effect [G,3,D]`, the effects of
    the calendar on group G (`group [I]`) by state; and `seed`, from which each day's quantile is drawn again.
    """

    seed: int
    calendar: RetailCalendar
    catalogue: RetailCatalogue
    traits: ItemTraits
    price: Floats
    regular_price: Floats
    log_demand: NDArray[np.float32]
    state: NDArray[np.float32]
    stock_share: NDArray[np.float32]
    group: Ints
    day_effect: Floats
    sales: NDArray[np.int16]

    @property
    def n_item_stores(self) -> int:
        """Return I S: item-store i S + s is item i in store s."""
        return len(self.catalogue) * self.catalogue.n_stores

    @property
    def relative_change(self) -> Floats:
        """Return (price - reference) / reference `[I,S,W]`, in full double precision; NaN before the launch.

        The reference is the price of the first week of the week's year-sequence.
        """
        item, store = np.ogrid[: len(self.catalogue), : self.catalogue.n_stores]
        reference = self.reference_price(item[..., None], store[..., None], np.arange(self.calendar.n_weeks))
        return (self.price - reference) / reference

    def reference_price(self, item: Ints, store: Ints, week: Ints) -> Floats:
        """Return the price of the first week on sale in the calendar year of each week."""
        year_W = self.calendar.week_year
        first_week = np.maximum(np.searchsorted(year_W, year_W)[week], self.traits.launch[item, store])
        return self.price[item, store, first_week]

    def item_and_store(self, item_store: Ints, week: Ints) -> tuple[Ints, Ints]:
        """Return the item and the store of item-stores.

        Raises:
            ValueError: an item-store or a week that does not exist, or a week before the launch.
        """
        if item_store.size and (item_store.min() < 0 or item_store.max() >= self.n_item_stores):
            raise ValueError(f"item-stores are 0 to {self.n_item_stores - 1}")
        if week.size and (week.min() < 0 or week.max() >= self.calendar.n_weeks):
            raise ValueError(f"weeks are 0 to {self.calendar.n_weeks - 1}")
        item, store = np.divmod(item_store, self.catalogue.n_stores)
        if (week < self.traits.launch[item, store]).any():
            raise ValueError("a week before the item's launch in the store has neither price nor demand")
        return item, store

    def sell_prices(self) -> SellPrices:
        """Return the rows of sell_prices.csv."""
        price_SIW = self.price.transpose(1, 0, 2)
        store, item, week = np.nonzero(~np.isnan(price_SIW))
        return SellPrices(
            store.astype(np.int8), item.astype(np.int16), self.calendar.week_id[week], price_SIW[store, item, week]
        )


def simulate_retail(
    seed: int,
    *,
    scale: float = 0.25,
    confounding: Confounding = 1.0,
    catalogue: RetailCatalogue | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> RetailWorld:
    """Simulate the panel; an item's series depend on the seed and its name, not on the scale.

    Args:
        seed: of everything.
        scale: share of the real number of items, in (0, 1].
        confounding: how strongly the latent demand state of the week before sways prices, 0 for not at all; `observed`
            lets prices follow recorded sales instead (`ObservedPolicy`), which leaves nothing hidden.
        catalogue: the items to simulate, whatever the scale; they have the series that they have in a larger world.
        progress: called with the number of items done and of all items.

    Raises:
        ValueError: a scale outside (0, 1].
    """
    calendar, catalogue = build_calendar(), build_catalogue(scale) if catalogue is None else catalogue
    traits, n_items = sample_traits(catalogue, seed), len(catalogue)
    weekly = (n_items, catalogue.n_stores, calendar.n_weeks)
    price, regular_price = np.empty(weekly), np.empty(weekly)
    log_demand, state, stock = (np.empty(weekly, dtype=np.float32) for _ in range(3))
    sales = np.empty((*weekly[:2], N_SALES_DAYS), dtype=np.int16)
    world = RetailWorld(
        seed=seed,
        calendar=calendar,
        catalogue=catalogue,
        traits=traits,
        price=price,
        regular_price=regular_price,
        log_demand=log_demand,
        state=state,
        stock_share=stock,
        group=calendar_group(catalogue, traits),
        day_effect=calendar_multiplier(calendar),
        sales=sales,
    )
    for lo in range(0, n_items, BLOCK):
        items = slice(lo, min(lo + BLOCK, n_items))
        _simulate_items(world, items, confounding)
        if progress is not None:
            progress(items.stop, n_items)
    return world


def _simulate_items(world: RetailWorld, items: slice, confounding: Confounding) -> None:
    """Fill in what demand depends on, prices and sales."""
    calendar, catalogue, traits = world.calendar, world.catalogue, world.traits
    key = catalogue.department[items], catalogue.number[items]
    chance = draw_week_chance(world.seed, *key, catalogue.n_stores, calendar.n_weeks)
    quantile_ISD = draw_quantiles(world.seed, *key, catalogue.n_stores, len(calendar))
    category_I = catalogue.category[items]
    season_IW = season(category_I, traits.season_amplitude[items], traits.season_phase[items], calendar)
    shared_IW, state_ISW = season_IW + item_drift(chance), demand_states(chance)
    world.state[items] = state_ISW[..., 1:]
    world.log_demand[items] = traits.log_level[items, :, None] + shared_IW[:, None] + state_ISW[..., 1:]
    world.stock_share[items] = stock_share(chance)
    base_price_I = traits.base_price[items]
    change_rate_I = np.array([law.change_rate for law in CATEGORIES])[category_I]
    day_ISD = world.day_effect[world.group[items, None], catalogue.store_state]
    if confounding == "observed":
        new_year_W = np.diff(calendar.week_year, prepend=0) != 0
        begins_ISW = new_year_W | (np.arange(calendar.n_weeks) == traits.launch[items, :, None])
        policy = ObservedPolicy(base_price_I, change_rate_I, chance, begins_ISW)
        _sell_week_by_week(world, items, policy, day_ISD, quantile_ISD)
        return
    regular, price = price_paths(base_price_I, change_rate_I, state_ISW[..., :-1], chance, confounding)
    on_sale_ISW = np.arange(calendar.n_weeks) >= traits.launch[items, :, None]
    world.price[items] = np.where(on_sale_ISW, price, np.nan)
    world.regular_price[items] = np.where(on_sale_ISW, regular, np.nan)
    mean_ISD = np.take(_daily_mean(world, items, slice(None)), calendar.week, axis=-1) * day_ISD
    world.sales[items] = negative_binomial_quantile(quantile_ISD, mean_ISD)[..., :N_SALES_DAYS]


def _sell_week_by_week(
    world: RetailWorld, items: slice, policy: ObservedPolicy, day_ISD: Floats, quantile_ISD: Floats
) -> None:
    """Fill in prices and sales in turns: each price follows the sales before it."""
    calendar, launch_IS, begins_ISW = world.calendar, world.traits.launch[items], policy.begins_ISW
    units_ISD = np.zeros(day_ISD.shape, dtype=np.int16)
    signal_IS, sold_IS, weeks_IS = (np.zeros(launch_IS.shape) for _ in range(3))
    for week in range(calendar.n_weeks):
        on_sale_IS = week >= launch_IS
        for filled, price_IS in zip(
            (world.regular_price, world.price), policy.set_prices(week, signal_IS), strict=True
        ):
            filled[items, :, week] = np.where(on_sale_IS, price_IS, np.nan)
        days = np.flatnonzero(calendar.week == week)
        mean_IS7 = _daily_mean(world, items, slice(week, week + 1)) * day_ISD[..., days]
        units_ISD[..., days] = negative_binomial_quantile(quantile_ISD[..., days], mean_IS7)
        last_IS = units_ISD[..., days].sum(axis=-1, dtype=np.float64)
        sold_IS = np.where(begins_ISW[..., week], 0.0, sold_IS) + last_IS
        weeks_IS = np.where(begins_ISW[..., week], 0.0, weeks_IS) + 1.0
        signal_IS = np.log((last_IS + 1.0) / (sold_IS / weeks_IS + 1.0)).clip(-LARGEST_SIGNAL, LARGEST_SIGNAL)
    world.sales[items] = units_ISD[..., :N_SALES_DAYS]


def _daily_mean(world: RetailWorld, items: slice, weeks: slice) -> Floats:
    """Return the expected units a day `[I,S,W]` before the effects of the calendar; none before the launch."""
    traits, at = world.traits, (items, slice(None), weeks)
    base, elasticity = traits.base_price[items, None, None], traits.elasticity[items, None, None]
    effect_ISW = price_multiplier(world.price[at], world.regular_price[at], base, elasticity)
    mean_ISW = np.exp(world.log_demand[at].astype(np.float64)) * effect_ISW * world.stock_share[at]
    return np.where(np.isnan(world.price[at]), 0.0, mean_ISW)
