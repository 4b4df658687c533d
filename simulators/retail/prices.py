"""How shelf prices are set week by week, and how demand sways them (spec datasets E.2)."""

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, ndtri

from simulators.retail.chance import Floats, WeekChance
from simulators.retail.spells import spell_starts, value_in_spell

__all__ = ["CHARM_SHARE", "price_paths", "shelf_price"]

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
        confounding: 0 sets prices whatever the demand, 1 as the spec says.
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
    begins_ISW, weeks_ISW = uniform_ISW3[..., 0] < rate, (1 + LONGEST_SPELL * uniform_ISW3[..., 1]).astype(np.int64)
    return value_in_spell(size(uniform_ISW3[..., 2]), spell_starts(begins_ISW, weeks_ISW), otherwise=0.0)


def _promotion(u: Floats) -> Floats:
    shallowest, deepest = PROMOTION_DEPTH
    return np.log1p(-(shallowest + (deepest - shallowest) * u))


def _mistake(u: Floats) -> Floats:
    (least, most), signed = MISTAKE_STEP, 2.0 * u - 1.0
    return np.sign(signed) * (least + (most - least) * np.abs(signed))
