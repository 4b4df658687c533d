"""How shelf prices are set week by week, and how demand, seen or unseen, sways them (spec WORLD-11, WORLD-12)."""

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, ndtri

from simulators.retail.chance import Floats, Ints, WeekChance
from simulators.retail.spells import spell_starts, value_in_spell

__all__ = ["CHARM_SHARE", "ObservedPolicy", "price_paths", "shelf_price"]

CHARM_SHARE: Final = 0.6  # of prices that end in 4, 7 or 8 cents
CHARM_CENTS: Final = np.array([-2, 4, 7, 8, 14])  # the endings, with their neighbours in the tens before and after
LOWEST_CENTS: Final = 4
CHAIN_RATE, STORE_RATE = 0.55, 0.25  # permanent changes a week, as shares of the category's rate
UP_SHARE: Final = 0.66  # of permanent changes at demand state 0
STEP_MEDIAN, STEP_SD = 0.062, 0.85  # |change of ln price|: median, sd of its logarithm
PROMOTION_RATE: Final = 0.0016  # starts a week at demand state 0
PROMOTION_DEPTH: Final = (0.06, 0.26)
MISTAKE_RATE: Final = 1.2e-4  # starts a week
MISTAKE_STEP: Final = (0.5, 1.5)  # |change of ln price|
LONGEST_SPELL: Final = 4  # weeks, of promotions and of mistakes
UP_SWAY: Final = 0.6  # of the log odds that a permanent change is an increase, per unit of demand state
PROMOTION_SWAY: Final = -0.8  # of the log rate of promotions, per unit of demand state


def shelf_price(price: Floats, charm: NDArray[np.bool_]) -> Floats:
    """Return prices in whole cents, those of `charm` at the nearest ending in 4, 7 or 8 cents."""
    cents = np.maximum(np.rint(100.0 * price), LOWEST_CENTS)
    tens, unit = np.divmod(cents, 10.0)
    nearest = CHARM_CENTS[np.abs(np.arange(10)[:, None] - CHARM_CENTS).argmin(axis=1)][unit.astype(np.int64)]
    charmed = np.maximum(10.0 * tens + nearest, LOWEST_CENTS)
    return np.asarray(np.where(charm, charmed, cents) / 100.0)


def price_paths(
    base_price_I: Floats, change_rate_I: Floats, seen_state_ISW: Floats, chance: WeekChance, confounding: float
) -> tuple[Floats, Floats]:
    """Return the regular price and the price that is asked, both `[I,S,W]` in dollars.

    Prices of a week are set after the demand state of the week before, which sales have shown only through their
    noise. A price mistake stands for one to four weeks, as a promotion does; both leave the regular price as it is.

    Args:
        base_price_I: prices before any change.
        change_rate_I: the categories' rates of permanent changes.
        seen_state_ISW: demand state of the week before each week.
        chance: what happens, by week.
        confounding: 0 sets prices whatever the demand, 1 as in spec WORLD-11.
    """
    step_ISW = _permanent_steps(change_rate_I, seen_state_ISW, chance, confounding)
    last_change_ISW = np.maximum.accumulate(np.where(step_ISW != 0.0, np.arange(step_ISW.shape[-1]), 0), axis=-1)
    charm_ISW = np.broadcast_to(chance.charm_IW[:, None] < CHARM_SHARE, step_ISW.shape)
    charm_ISW = np.take_along_axis(charm_ISW, last_change_ISW, axis=-1)
    base_I11 = base_price_I[:, None, None]
    regular_ISW = shelf_price(base_I11 * np.exp(step_ISW.cumsum(axis=-1)), charm_ISW)
    regular_ISW = np.where(last_change_ISW > 0, regular_ISW, base_I11)
    rate_ISW = PROMOTION_RATE * np.exp(confounding * PROMOTION_SWAY * seen_state_ISW)
    cut_ISW = _deviation(rate_ISW, chance.spell_ISWK3[..., 0, :], _promotion)
    deviation_ISW = cut_ISW + _deviation(MISTAKE_RATE, chance.spell_ISWK3[..., 1, :], _mistake)
    asked_ISW = shelf_price(regular_ISW * np.exp(deviation_ISW), charm_ISW)
    return regular_ISW, np.where(deviation_ISW == 0.0, regular_ISW, asked_ISW)


class ObservedPolicy:
    """Prices that follow what was sold: every reason for a price is in the recorded year, and nothing else sways it.

    Weeks are set one after the other. What sways a price is the log of last week's sales over the year's mean so far,
    in the item's own store. Every year, and every launch, begins at the list price, which changes by chance alone, and
    without a promotion: whatever was sold before has no say. Chains and stores change prices as often as under
    `price_paths`; that a chain raises a price is decided store by store.

    Args:
        base_price_I: prices before any change.
        change_rate_I: the categories' rates of permanent changes.
        chance: what happens, by week.
        begins_ISW: where a year, or an item's sale, begins.
    """

    def __init__(
        self, base_price_I: Floats, change_rate_I: Floats, chance: WeekChance, begins_ISW: NDArray[np.bool_]
    ) -> None:
        self.base_I1, self.rate_I1, self.chance = base_price_I[:, None], change_rate_I[:, None], chance
        self.begins_ISW = begins_ISW
        list_step_ISW = _permanent_steps(change_rate_I, np.zeros(begins_ISW.shape), chance, 0.0)
        weeks = np.arange(begins_ISW.shape[-1])
        self.list_change_ISW = np.maximum.accumulate(np.where(list_step_ISW != 0.0, weeks, 0), axis=-1)
        self.list_level_ISW = list_step_ISW.cumsum(axis=-1)
        self.mistake_ISW = _deviation(MISTAKE_RATE, chance.spell_ISWK3[..., 1, :], _mistake)
        self.charm_IW = chance.charm_IW < CHARM_SHARE
        shape = begins_ISW.shape[:-1]
        self.level_IS, self.promotion_IS = np.zeros(shape), np.zeros(shape)
        self.changed_IS, self.left_IS = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)

    def set_prices(self, week: int, signal_IS: Floats) -> tuple[Floats, Floats]:
        """Return the regular price and the price that is asked in the next week, both `[I,S]` in dollars.

        Args:
            week: the week, one after that of the last call.
            signal_IS: how well sales went; where a year begins it has no say.
        """
        begins_IS = self.begins_ISW[..., week]
        signal_IS = np.where(begins_IS, 0.0, signal_IS)
        chain_IS = _steps(CHAIN_RATE * self.rate_I1, signal_IS, self.chance.chain_IWK[:, None, week])
        store_IS = _steps(STORE_RATE * self.rate_I1, signal_IS, self.chance.store_ISWK[:, :, week])
        step_IS = chain_IS + store_IS
        changed_IS = np.where(step_IS != 0.0, week, self.changed_IS)
        self.level_IS = np.where(begins_IS, self.list_level_ISW[..., week], self.level_IS + step_IS)
        self.changed_IS = np.where(begins_IS, self.list_change_ISW[..., week], changed_IS)
        u_IS3 = self.chance.spell_ISWK3[:, :, week, 0]
        self.left_IS = np.where(begins_IS, 0, np.maximum(self.left_IS - 1, 0))
        fresh_IS = (self.left_IS == 0) & (u_IS3[..., 0] < PROMOTION_RATE * np.exp(PROMOTION_SWAY * signal_IS))
        self.left_IS = np.where(fresh_IS, _spell_weeks(u_IS3), self.left_IS)
        self.promotion_IS = np.where(fresh_IS, _promotion(u_IS3[..., 2]), self.promotion_IS)
        charm_IS = np.take_along_axis(self.charm_IW, self.changed_IS, axis=-1)
        regular_IS = shelf_price(self.base_I1 * np.exp(self.level_IS), charm_IS)
        regular_IS = np.where(self.changed_IS > 0, regular_IS, self.base_I1)
        deviation_IS = np.where(self.left_IS > 0, self.promotion_IS, 0.0) + self.mistake_ISW[..., week]
        asked_IS = shelf_price(regular_IS * np.exp(deviation_IS), charm_IS)
        return regular_IS, np.where(deviation_IS == 0.0, regular_IS, asked_IS)


def _permanent_steps(change_rate_I: Floats, state_ISW: Floats, chance: WeekChance, confounding: float) -> Floats:
    """Return the permanent changes of ln price `[I,S,W]`: of the chain, which sees its mean state, and of stores."""
    chain_IW = _steps(CHAIN_RATE * change_rate_I[:, None], confounding * state_ISW.mean(axis=1), chance.chain_IWK)
    store_ISW = _steps(STORE_RATE * change_rate_I[:, None, None], confounding * state_ISW, chance.store_ISWK)
    step_ISW = chain_IW[:, None] + store_ISW
    step_ISW[..., 0] = 0.0
    return step_ISW


def _steps(rate: Floats, sway: Floats, uniform: Floats) -> Floats:
    up = uniform[..., 1] < expit(logit(UP_SHARE) + UP_SWAY * sway)
    size = STEP_MEDIAN * np.exp(STEP_SD * ndtri(uniform[..., 2]))
    return np.where(uniform[..., 0] < rate, np.where(up, size, -size), 0.0)


def _deviation(rate: Floats | float, uniform_ISW3: Floats, size: Callable[[Floats], Floats]) -> Floats:
    """Return by how much ln price deviates in spells of equally likely lengths."""
    begins_ISW, weeks_ISW = uniform_ISW3[..., 0] < rate, _spell_weeks(uniform_ISW3)
    return value_in_spell(size(uniform_ISW3[..., 2]), spell_starts(begins_ISW, weeks_ISW), otherwise=0.0)


def _spell_weeks(uniform_3: Floats) -> Ints:
    return (1 + LONGEST_SPELL * uniform_3[..., 1]).astype(np.int64)


def _promotion(u: Floats) -> Floats:
    shallowest, deepest = PROMOTION_DEPTH
    return np.log1p(-(shallowest + (deepest - shallowest) * u))


def _mistake(u: Floats) -> Floats:
    (least, most), signed = MISTAKE_STEP, 2.0 * u - 1.0
    return np.sign(signed) * (least + (most - least) * np.abs(signed))
