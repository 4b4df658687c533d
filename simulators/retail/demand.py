"""What drives daily demand: calendar, slow states, stock-outs, price, and the law of counts (spec WORLD-5 to 10)."""

from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from simulators.retail.calendar import RetailCalendar
from simulators.retail.catalogue import CATEGORIES, RetailCatalogue
from simulators.retail.chance import Floats, Ints, WeekChance
from simulators.retail.spells import spell_starts, value_in_spell
from simulators.retail.traits import ItemTraits

__all__ = [
    "calendar_group",
    "calendar_multiplier",
    "demand_states",
    "item_drift",
    "negative_binomial_quantile",
    "price_multiplier",
    "season",
    "stock_share",
]

STATE_PERSISTENCE, STATE_SD = 0.80, 0.30  # weekly AR(1) per item and store, stationary
DRIFT_PERSISTENCE, DRIFT_STEP = 0.997, 0.03  # weekly AR(1) per item, from 0
WEEKS_PER_YEAR: Final = 365.25 / 7.0
DISPLAY_LIFT: Final = 1.15  # of demand in weeks on display
DISPLAY_BELOW: Final = 0.95  # of the regular price: at or below it an item is on display
STOCK_OUT_RATE: Final = 0.004  # starts a week
STOCK_OUT_END: Final = 1.0 / 2.9  # a week: mean length of 2.9 weeks
RESIDUAL_SALES: Final = 0.15  # largest share that still sells in a stock-out
OVERDISPERSION, OVERDISPERSION_POWER = 0.25, 0.6  # variance / mean of a day's count is 1 + 0.25 mean^0.6
LARGEST_MEAN: Final = 8_000.0  # units a day: keeps the probability of no sale above the smallest float
LARGEST_QUANTILE: Final = 1.0 - 1e-12  # keeps the search for a quantile finite


def calendar_group(catalogue: RetailCatalogue, traits: ItemTraits) -> Ints:
    """Return the row of `calendar_multiplier` of each item `[I]`: its category, or FOODS with a double SNAP effect."""
    return np.where(traits.snap_doubled, len(CATEGORIES), catalogue.category)


def calendar_multiplier(calendar: RetailCalendar) -> Floats:
    """Return the effect of weekday, SNAP and events `[G,3,D]` for each group of items and state."""
    slots = (calendar.event_name_1, calendar.event_type_1), (calendar.event_name_2, calendar.event_type_2)
    effects = []
    for law in CATEGORIES:
        effect_D = np.array(law.weekday)[calendar.wday - 1]
        special = {"Thanksgiving": law.thanksgiving, "Christmas": 0.0}  # all stores are closed at Christmas
        for names, types in slots:
            pairs = zip(names.tolist(), types.tolist(), strict=True)
            effect_D = effect_D * [special.get(name, law.events.get(kind, 1.0)) for name, kind in pairs]
        effects.append(effect_D)
    day_GD = np.stack(effects)
    snap_G2 = np.array([category.snap for category in CATEGORIES])
    foods = len(CATEGORIES) - 1
    day_GD, snap_G2 = np.vstack([day_GD, day_GD[foods]]), np.vstack([snap_G2, 2.0 * snap_G2[foods] - 1.0])
    snap_3D = calendar.snap.T
    return day_GD[:, None] * np.where(snap_3D, snap_G2[:, 0, None, None], snap_G2[:, 1, None, None])


def demand_states(chance: WeekChance) -> Floats:
    """Return the slow demand state `[I,S,1+W]`, from the week before week 0: ln units."""
    shock = STATE_SD * (1.0 - STATE_PERSISTENCE**2) ** 0.5 * chance.state_ISW
    shock[..., 0] = STATE_SD * chance.state_ISW[..., 0]
    return np.asarray(lfilter([1.0], [1.0, -STATE_PERSISTENCE], shock, axis=-1))


def item_drift(chance: WeekChance) -> Floats:
    """Return each item's drift `[I,W]`: ln units."""
    return np.asarray(lfilter([1.0], [1.0, -DRIFT_PERSISTENCE], DRIFT_STEP * chance.drift_IW, axis=-1))


def season(category_I: Ints, amplitude_I: Floats, phase_I: Floats, calendar: RetailCalendar) -> Floats:
    """Return the yearly season of each item `[I,W]`, its category's and its own: ln units."""
    first_day_W = calendar.date[::7]
    day_of_year_W = (first_day_W - first_day_W.astype("datetime64[Y]").astype(first_day_W.dtype)).astype(np.int64)
    angle_W = 2.0 * np.pi * day_of_year_W / 7.0 / WEEKS_PER_YEAR
    shared = np.array([(law.season_amplitude, law.season_peak_week) for law in CATEGORIES])[category_I]
    peak_I = 2.0 * np.pi * shared[:, 1] / WEEKS_PER_YEAR
    own_IW = amplitude_I[:, None] * np.cos(angle_W - phase_I[:, None])
    return np.asarray(shared[:, :1] * np.cos(angle_W - peak_I[:, None]) + own_IW)


def stock_share(chance: WeekChance) -> Floats:
    """Return the share of demand that can be served `[I,S,W]`: 1, or 0 to 0.15 while out of stock."""
    u_begin, u_length, u_residual = np.moveaxis(chance.spell_ISWK3[..., 2, :], -1, 0)
    weeks_ISW = 1 + np.floor(np.log1p(-u_length) / np.log1p(-STOCK_OUT_END)).astype(np.int64)
    start_ISW = spell_starts(u_begin < STOCK_OUT_RATE, weeks_ISW)
    return value_in_spell(RESIDUAL_SALES * u_residual, start_ISW, otherwise=1.0)


def price_multiplier(price: Floats, regular_price: Floats, base_price: Floats, elasticity: Floats) -> Floats:
    """Return the effect of a price on the same week's demand: elasticity, and display if well below the regular price.

    It falls in the price: display comes with low prices, whoever set them.
    """
    displayed = price <= DISPLAY_BELOW * regular_price * (1.0 + 1e-9)
    return np.exp(elasticity * np.log(price / base_price)) * np.where(displayed, DISPLAY_LIFT, 1.0)


def negative_binomial_quantile(quantile: Floats, mean: Floats) -> NDArray[np.int16]:
    """Return the counts at given quantiles of negative binomials with variance / mean = 1 + 0.25 mean^0.6.

    For one quantile the count never falls as the mean grows, so worlds that share quantiles differ only by their means.

    Args:
        quantile: in [0, 1).
        mean: units a day, 0 or more, of the same shape; beyond 8,000 it counts as 8,000.
    """
    mean_K = np.minimum(np.ravel(mean), LARGEST_MEAN)
    count_K = np.zeros(mean_K.shape, dtype=np.int16)
    excess_K = OVERDISPERSION * mean_K**OVERDISPERSION_POWER  # variance / mean - 1
    shape_K = np.divide(mean_K, excess_K, out=np.zeros_like(mean_K), where=mean_K > 0.0)
    pmf_K = np.exp(-shape_K * np.log1p(excess_K))
    target_K = np.minimum(np.ravel(quantile), LARGEST_QUANTILE)
    open_K = np.flatnonzero(target_K > pmf_K)
    target, shape, pmf = target_K[open_K], shape_K[open_K], pmf_K[open_K]
    ratio, cdf, count = (excess_K / (1.0 + excess_K))[open_K], pmf.copy(), 0
    while len(open_K):  # each round settles those whose quantile is `count`
        pmf *= (count + shape) / (count + 1) * ratio
        count += 1
        cdf += pmf
        beyond = target > cdf
        count_K[open_K[~beyond]] = count
        open_K, target, shape, pmf, ratio, cdf = (x[beyond] for x in (open_K, target, shape, pmf, ratio, cdf))
    return count_K.reshape(np.shape(mean))
