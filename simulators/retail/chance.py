"""All randomness of the retail panel, drawn per item: an item's series depend neither on the scale nor on the order."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["ItemChance", "WeekChance", "draw_item_chance", "draw_quantiles", "draw_week_chance"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ITEM, WEEK, DAY = range(3)  # purposes: each has its own child stream of the item's stream
ITEM_NORMALS, ITEM_UNIFORMS, STORE_UNIFORMS = 3, 6, 3  # what traits are made of
SPELLS: Final = 3  # promotions, price mistakes, stock-outs: each starts, lasts and has a size


@dataclass(frozen=True, slots=True)
class ItemChance:
    """Standard normals and uniforms that fix the traits of I items in S stores."""

    normal_IK: Floats
    uniform_IK: Floats
    store_normal_IS: Floats
    store_uniform_ISK: Floats


@dataclass(frozen=True, slots=True)
class WeekChance:
    """What happens to I items in S stores in W weeks: uniforms, and standard normals where said so.

    `chain_IWK` and `store_ISWK` hold, of permanent price changes, whether, which way, and how large. `charm_IW` decides
    on the rounding of prices set in a week. `spell_ISWK3` holds start, length and size of the three kinds of spell.
    `state_ISW` (normal) drives the demand state, from the week before week 0, and `drift_IW` (normal) the item's drift.
    """

    chain_IWK: Floats
    store_ISWK: Floats
    charm_IW: Floats
    spell_ISWK3: Floats
    state_ISW: Floats
    drift_IW: Floats


def draw_item_chance(seed: int, department: Ints, number: Ints, n_stores: int) -> ItemChance:
    """Draw the chance behind the traits of the items of given departments and numbers."""
    drawn = []
    for rng in _generators(seed, department, number, ITEM):
        of_item = rng.standard_normal(ITEM_NORMALS), rng.random(ITEM_UNIFORMS)
        drawn.append((*of_item, rng.standard_normal(n_stores), rng.random((n_stores, STORE_UNIFORMS))))
    return ItemChance(*(np.stack(column) for column in zip(*drawn, strict=True)))


def draw_week_chance(seed: int, department: Ints, number: Ints, n_stores: int, n_weeks: int) -> WeekChance:
    """Draw what happens week by week to the items of given departments and numbers."""
    drawn = []
    for rng in _generators(seed, department, number, WEEK):
        of_item = rng.random((n_weeks, 3)), rng.random((n_stores, n_weeks, 3)), rng.random(n_weeks)
        spells, state = rng.random((n_stores, n_weeks, SPELLS, 3)), rng.standard_normal((n_stores, n_weeks + 1))
        drawn.append((*of_item, spells, state, rng.standard_normal(n_weeks)))
    return WeekChance(*(np.stack(column) for column in zip(*drawn, strict=True)))


def draw_quantiles(seed: int, department: Ints, number: Ints, n_stores: int, n_days: int) -> Floats:
    """Draw the quantiles `[I,S,D]` at which each day's demand falls, under whatever price."""
    return np.stack([rng.random((n_stores, n_days)) for rng in _generators(seed, department, number, DAY)])


def _generators(seed: int, department: Ints, number: Ints, purpose: int) -> list[np.random.Generator]:
    keys = zip(department.tolist(), number.tolist(), strict=True)
    return [np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(*key, purpose))) for key in keys]
