"""The simulated world: an M5-like panel with all that its true demand depends on (spec datasets E.2)."""

from collections.abc import Callable
from dataclasses import dataclass

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
from simulators.retail.prices import price_paths
from simulators.retail.traits import ItemTraits, sample_traits

__all__ = ["RetailWorld", "SellPrices", "simulate_retail"]

BLOCK = 64  # items simulated at once: bounds memory


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
    confounding: float = 1.0,
    catalogue: RetailCatalogue | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> RetailWorld:
    """Simulate the panel; an item's series depend on the seed and its name, not on the scale.

    Args:
        seed: of everything.
        scale: share of the real number of items, in (0, 1].
        confounding: how strongly the demand state of the week before sways prices; 0 sets them at random.
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
        _simulate_weeks(world, items, confounding)
        _simulate_days(world, items)
        if progress is not None:
            progress(items.stop, n_items)
    return world


def _simulate_weeks(world: RetailWorld, items: slice, confounding: float) -> None:
    """Fill in prices and what demand depends on."""
    calendar, catalogue, traits = world.calendar, world.catalogue, world.traits
    category_I, n_stores = catalogue.category[items], catalogue.n_stores
    key = catalogue.department[items], catalogue.number[items]
    chance = draw_week_chance(world.seed, *key, n_stores, calendar.n_weeks)
    state_ISW = demand_states(chance)
    rate_I = np.array([law.change_rate for law in CATEGORIES])[category_I]
    regular, price = price_paths(traits.base_price[items], rate_I, state_ISW[..., :-1], chance, confounding)
    on_sale_ISW = np.arange(calendar.n_weeks) >= traits.launch[items, :, None]
    world.price[items] = np.where(on_sale_ISW, price, np.nan)
    world.regular_price[items] = np.where(on_sale_ISW, regular, np.nan)
    season_IW = season(category_I, traits.season_amplitude[items], traits.season_phase[items], calendar)
    shared_IW = season_IW + item_drift(chance)
    world.state[items] = state_ISW[..., 1:]
    world.log_demand[items] = traits.log_level[items, :, None] + shared_IW[:, None] + state_ISW[..., 1:]
    world.stock_share[items] = stock_share(chance)


def _simulate_days(world: RetailWorld, items: slice) -> None:
    """Fill in the sales."""
    catalogue, traits, n_days = world.catalogue, world.traits, len(world.calendar)
    base, elasticity = traits.base_price[items, None, None], traits.elasticity[items, None, None]
    effect_ISW = price_multiplier(world.price[items], world.regular_price[items], base, elasticity)
    mean_ISW = np.exp(world.log_demand[items].astype(np.float64)) * effect_ISW * world.stock_share[items]
    mean_ISW = np.where(np.isnan(world.price[items]), 0.0, mean_ISW)
    day_ISD = world.day_effect[world.group[items, None], catalogue.store_state]
    mean_ISD = np.take(mean_ISW, world.calendar.week, axis=-1) * day_ISD
    quantile = draw_quantiles(
        world.seed, catalogue.department[items], catalogue.number[items], catalogue.n_stores, n_days
    )
    world.sales[items] = negative_binomial_quantile(quantile, mean_ISD)[..., :N_SALES_DAYS]
