"""Which items are source and target, and which of them serve to train, to select and to test (spec RETAIL-9)."""

import math

import numpy as np
from numpy.typing import NDArray

from costar_cli.datasets.retail.settings import M5Config
from costar_cli.datasets.retail.weekly import CATEGORY_IDS, WeeklySales
from costar_cli.errors import DataError
from costar_cli.panel.dataset import Domain, Part
from costar_cli.panel.findings import counted, shown

Ints = NDArray[np.int64]
SPLIT, FEW_SHOT = range(2)  # purposes of a domain's streams
DOMAINS: tuple[Domain, Domain] = ("source", "target")


def split_items(sales: WeeklySales, items: Ints, config: M5Config) -> dict[Part, Ints]:
    """Return the items of each part: all stores and years of an item stay together.

    A share of a category's items is for the test, rounded up, and a share of the rest for selection. Of what remains in
    the target, the few-shot items are drawn: as many as make up their share of all the target's items, rounded down.
    Limits keep the first of a part, so a smaller part is some of a larger one.

    Args:
        sales: all item-stores.
        items: the items that have sequences.
        config: categories, shares, limits and seeds.

    Raises:
        DataError: a category has no items, or too few to fill three splits.
    """
    parts: dict[Part, Ints] = {}
    for number, domain in enumerate(DOMAINS):
        source = domain == "source"
        category = config.source_category if source else config.target_category
        of_category = items[sales.category[items] == CATEGORY_IDS.index(category)]
        if len(of_category) < 3:
            has = np.array(CATEGORY_IDS)[np.unique(sales.category[items])]
            raise DataError(
                f"{counted(len(of_category), 'item')} of {category} with a sequence of 40 weeks, "
                f"but the {domain} needs three: to train, to select, to test",
                where=f"--{domain}-category",
                fix=f"give more items, or choose from {shown(has)}",
            )
        sequence = np.random.SeedSequence(config.seed, spawn_key=(number, SPLIT))
        shuffled = np.random.default_rng(sequence).permutation(of_category)
        test, val, train = _shares(
            shuffled, *((config.source_test, config.source_val) if source else (config.target_test, config.target_val))
        )
        if not source:
            seed = config.seed if config.few_shot_seed is None else config.few_shot_seed
            rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(number, FEW_SHOT)))
            n_few = max(1, math.floor(config.few_shot * len(shuffled) + 1e-9))
            train = rng.permutation(train)[:n_few]
        prefix = "" if source else "target_"
        parts[Part(domain, "train")] = train[: getattr(config, f"{prefix}train_items")]
        parts[Part(domain, "val")] = val[: getattr(config, f"{prefix}val_items")]
        parts[Part(domain, "test")] = test[: getattr(config, f"{prefix}test_items")]
    return {part: np.sort(chosen) for part, chosen in parts.items()}


def _shares(shuffled: Ints, test: float, val: float) -> tuple[Ints, Ints, Ints]:
    """Return the items to test, to select and to train on, at least one each."""
    n_test = min(_up(test * len(shuffled)), len(shuffled) - 2)
    rest = shuffled[n_test:]
    n_val = min(_up(val * len(rest)), len(rest) - 1)
    return shuffled[:n_test], rest[:n_val], rest[n_val:]


def _up(number: float) -> int:
    return max(1, math.ceil(number - 1e-9))
