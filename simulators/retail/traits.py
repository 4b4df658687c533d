"""What is fixed about an item: its level, price, elasticity, season and launch (spec WORLD-3, WORLD-4)."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from simulators.retail.catalogue import CATEGORIES, DEPARTMENTS, STORES, RetailCatalogue
from simulators.retail.chance import Floats, Ints, draw_item_chance
from simulators.retail.prices import CHARM_SHARE, shelf_price

__all__ = ["ItemTraits", "sample_traits"]

LEVEL_BOUND: Final = 2.0  # sd: the busiest items are cut off here, which brings weekly means to those of M5
ELASTICITY_SD: Final = 0.4  # over items
LEAST_ELASTICITY: Final = -0.1  # truncation: no item sells more when it costs more
SEASON_SD: Final = 0.12  # of an item's own yearly amplitude
SNAP_DOUBLED_SHARE: Final = 0.20  # of the items of FOODS_3, whose SNAP effect is double
FIRST_WEEK_SHARE: Final = 0.55  # of items sold from week 0
FIRST_WEEK_STORE_SHARE: Final = 0.45  # of stores with a launch of their own that sell from week 0
FOLLOW_SHARE: Final = 0.8  # of stores that launch with the item
LAUNCH_WEEKS, STORE_LAUNCH_WEEKS = 200, 230  # the other launches are uniform over these


@dataclass(frozen=True, slots=True)
class ItemTraits:
    """The traits of I items in S stores.

    `log_level [I,S]` is ln units a day; `base_price [I]` the first price in dollars; `elasticity [I]` acts on
    ln(price / base price); `season_amplitude [I]` and `season_phase [I]` (radians) are the item's own season, on top of
    its category's; `snap_doubled [I]` marks items with a double SNAP effect; `launch [I,S]` is the first week on sale.
    """

    log_level: Floats
    base_price: Floats
    elasticity: Floats
    season_amplitude: Floats
    season_phase: Floats
    snap_doubled: NDArray[np.bool_]
    launch: NDArray[np.int16]


def sample_traits(catalogue: RetailCatalogue, seed: int) -> ItemTraits:
    """Draw the traits of every item of a catalogue."""
    chance = draw_item_chance(seed, catalogue.department, catalogue.number, catalogue.n_stores)
    z_price, z_elasticity, z_season = chance.normal_IK.T
    u_level, u_charm, u_phase, u_snap, u_first, u_launch = chance.uniform_IK.T
    z_level = ndtri(ndtr(LEVEL_BOUND) * u_level)
    category = catalogue.category
    median_price, price_sd, level, item_sd, store_sd, elasticity = np.array(
        [(c.base_price, c.base_price_sd, c.daily_level, c.item_sd, c.store_item_sd, c.elasticity) for c in CATEGORIES]
    )[category].T
    offset = np.array([department.offset for department in DEPARTMENTS])[catalogue.department]
    volume = np.array([STORES[store] for store in catalogue.store_id.tolist()])
    log_level_IS = (np.log(level) + offset + item_sd * z_level)[:, None] + np.log(volume / volume.mean())
    item_I: Ints = np.where(u_first < FIRST_WEEK_SHARE, 0, LAUNCH_WEEKS * u_launch).astype(np.int64)
    u_follow, u_store_first, u_store = np.moveaxis(chance.store_uniform_ISK, -1, 0)
    store_IS = np.where(u_store_first < FIRST_WEEK_STORE_SHARE, 0, STORE_LAUNCH_WEEKS * u_store)
    return ItemTraits(
        log_level=log_level_IS + store_sd[:, None] * chance.store_normal_IS,
        base_price=shelf_price(median_price * np.exp(price_sd * z_price), u_charm < CHARM_SHARE),
        elasticity=np.minimum(elasticity + ELASTICITY_SD * z_elasticity, LEAST_ELASTICITY),
        season_amplitude=SEASON_SD * z_season,
        season_phase=2.0 * np.pi * u_phase,
        snap_doubled=(u_snap < SNAP_DOUBLED_SHARE) & (catalogue.dept_id == "FOODS_3"),
        launch=np.where(u_follow < FOLLOW_SHARE, item_I[:, None], store_IS).astype(np.int16),
    )
