"""The three CSV files of M5, as Kaggle has them (spec RETAIL-1)."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from simulators.retail.calendar import STATES, RetailCalendar
from simulators.retail.world import RetailWorld

__all__ = ["write_csv"]


def write_csv(world: RetailWorld, folder: Path) -> list[Path]:
    """Write calendar.csv, sell_prices.csv and sales_train_evaluation.csv, and return their paths.

    Rows are sorted by store and item as in the Kaggle files. One item-store at a time is turned into text.

    Args:
        world: what to write.
        folder: where to; it is made if need be, and files of these names are replaced.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        "calendar.csv": _calendar_lines(world.calendar),
        "sell_prices.csv": _price_lines(world),
        "sales_train_evaluation.csv": _sales_lines(world),
    }
    for name, lines in files.items():
        with (folder / name).open("w", encoding="utf-8", newline="") as file:
            file.writelines(lines)
    return [folder / name for name in files]


def _calendar_lines(calendar: RetailCalendar) -> Iterator[str]:
    columns = {
        "date": calendar.date,
        "wm_yr_wk": calendar.wm_yr_wk,
        "weekday": calendar.weekday,
        "wday": calendar.wday,
        "month": calendar.month,
        "year": calendar.year,
        "d": calendar.d,
        "event_name_1": calendar.event_name_1,
        "event_type_1": calendar.event_type_1,
        "event_name_2": calendar.event_name_2,
        "event_type_2": calendar.event_type_2,
    } | {f"snap_{state}": calendar.snap[:, i].astype(np.int8) for i, state in enumerate(STATES)}
    yield _line(columns)
    for row in zip(*(column.astype(np.str_).tolist() for column in columns.values()), strict=True):
        yield _line(row)


def _price_lines(world: RetailWorld) -> Iterator[str]:
    """Yield the weeks of one item-store at a time."""
    yield "store_id,item_id,wm_yr_wk,sell_price\n"
    weeks = world.calendar.week_id.astype(np.str_).tolist()
    items, launch = world.catalogue.item_id.tolist(), world.traits.launch
    for store, store_id in enumerate(world.catalogue.store_id.tolist()):
        for item, item_id in enumerate(items):
            first = int(launch[item, store])
            priced = zip(weeks[first:], world.price[item, store, first:].tolist(), strict=True)
            yield "".join([f"{store_id},{item_id},{week},{price:.2f}\n" for week, price in priced])


def _sales_lines(world: RetailWorld) -> Iterator[str]:
    """Yield one item-store at a time."""
    catalogue = world.catalogue
    days = world.calendar.d[: world.sales.shape[-1]].tolist()
    yield _line(["id", "item_id", "dept_id", "cat_id", "store_id", "state_id", *days])
    items = list(zip(catalogue.item_id, catalogue.dept_id, catalogue.cat_id, strict=True))
    digits = [str(units) for units in range(int(world.sales.max(initial=0)) + 1)]
    for store, (store_id, state_id) in enumerate(zip(catalogue.store_id, catalogue.state_id, strict=True)):
        for item, (item_id, dept_id, cat_id) in enumerate(items):
            keys = f"{item_id}_{store_id}_evaluation", item_id, dept_id, cat_id, store_id, state_id
            yield _line([*keys, *[digits[units] for units in world.sales[item, store].tolist()]])


def _line(values: Iterable[str]) -> str:
    return ",".join(values) + "\n"
