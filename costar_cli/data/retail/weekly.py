"""Weekly sales and prices of every item in every store, and what the calendar says about each week (spec RETAIL-2).

Dense arrays over item-stores and weeks: the full M5 takes 0.2 GB, where its 59 million days in long format would not
fit a small machine. Legend: I items, K item-stores, W weeks, D days.
"""

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from simulators.retail import DEPARTMENTS, EVENT_NAMES, EVENT_TYPES, STATES, STORES, RetailCalendar, RetailWorld

Strings = NDArray[np.str_]
Ints = NDArray[np.int64]

DAYS: Final = 7
MONTHS: Final = 12
ROWS: Final = 4096  # item-stores whose days are summed at once: bounds memory
DEPARTMENT_IDS: Final = tuple(sorted(department.name for department in DEPARTMENTS))
CATEGORY_IDS: Final = tuple(sorted({name.rsplit("_", 1)[0] for name in DEPARTMENT_IDS}))
STORE_IDS: Final = tuple(sorted(STORES))


@dataclass(frozen=True, slots=True)
class WeekCalendar:
    """What is known of W weeks in advance.

    `week_id [W]` is `wm_yr_wk`, `first_day [W]` a date; `event_name [W,30]` and `event_type [W,4]` say whether any day
    of the week carries the event, in the order of `EVENT_NAMES` and `EVENT_TYPES`; `snap_days [W,3]` counts the SNAP
    days by state.
    """

    week_id: Ints
    first_day: NDArray[np.datetime64]
    event_name: NDArray[np.bool_]
    event_type: NDArray[np.bool_]
    snap_days: NDArray[np.int8]

    @classmethod
    def of_days(
        cls,
        date: NDArray[np.datetime64],
        week_id: Ints,
        *,
        names: tuple[Strings, Strings],
        types: tuple[Strings, Strings],
        snap: NDArray[np.bool_],
    ) -> Self:
        """Sum up consecutive days, which are sorted by date; `names` and `types` hold the two slots of events."""
        first = np.flatnonzero(np.append(True, np.diff(week_id) != 0))

        def any_of(values: tuple[Strings, Strings], known: tuple[str, ...]) -> NDArray[np.bool_]:
            of_day = np.any([slot[:, None] == np.array(known) for slot in values], axis=0)
            return np.asarray(np.logical_or.reduceat(of_day, first, axis=0))

        return cls(
            week_id=week_id[first].astype(np.int64),
            first_day=date[first],
            event_name=any_of(names, EVENT_NAMES),
            event_type=any_of(types, EVENT_TYPES),
            snap_days=np.add.reduceat(snap, first, axis=0, dtype=np.int8),
        )

    @classmethod
    def of_calendar(cls, calendar: RetailCalendar) -> Self:
        """Sum up the days of a simulated calendar."""
        return cls.of_days(
            calendar.date,
            calendar.wm_yr_wk.astype(np.int64),
            names=(calendar.event_name_1, calendar.event_name_2),
            types=(calendar.event_type_1, calendar.event_type_2),
            snap=calendar.snap,
        )

    def __len__(self) -> int:
        return int(self.week_id.shape[0])

    @property
    def year(self) -> Ints:
        """Return the year of each week's first day `[W]`."""
        return self.first_day.astype("datetime64[Y]").astype(np.int64) + 1970

    def covariates(self, state: int) -> NDArray[np.float32]:
        """Return the 47 covariates of each week in a state, and of the week after the last `[W+1,47]`.

        Of that week no more is known than its month: it has no events, and as many SNAP days as a week has on average.
        """
        days = np.append(self.first_day, self.first_day[-1:] + np.timedelta64(DAYS, "D"))
        month = days.astype("datetime64[M]").astype(np.int64) % MONTHS
        snap = np.append(self.snap_days[:, state], self.snap_days[:, state].mean())
        known = np.concatenate([self.event_name, self.event_type], axis=1)
        known = np.concatenate([known, np.zeros((1, known.shape[1]), dtype=np.bool_)])
        return np.concatenate([known, snap[:, None], np.eye(MONTHS)[month]], axis=1).astype(np.float32)


@dataclass(frozen=True, slots=True)
class WeeklySales:
    """K item-stores over the W weeks of `weeks`, sorted by item and store.

    `item_id [I]` is sorted, `department [I]` indexes `DEPARTMENT_IDS`; `item [K]` and `store [K]` say what a row is,
    the store as a position in `STORE_IDS`. `price [K,W]` in dollars is NaN where the item was not on sale;
    `units [K,W]` are sold; `days [K,W]` counts the days of the week with data.
    """

    weeks: WeekCalendar
    item_id: Strings
    department: Ints
    item: Ints
    store: Ints
    price: NDArray[np.float64]
    units: NDArray[np.int32]
    days: NDArray[np.int8]

    @classmethod
    def of_world(cls, world: RetailWorld) -> Self:
        """Sum up the days of a simulated world: the same as writing its files and reading them."""
        catalogue, calendar = world.catalogue, world.calendar
        order = np.argsort(catalogue.item_id, kind="stable")
        stores = np.argsort(catalogue.store_id, kind="stable")
        n_weeks, n_days = calendar.n_weeks, world.sales.shape[-1]
        by_item = np.ix_(order, stores)
        units, days = weekly_totals(world.sales[by_item].reshape(-1, n_days), calendar.week[:n_days], n_weeks)
        return cls(
            weeks=WeekCalendar.of_calendar(calendar),
            item_id=catalogue.item_id[order],
            department=np.searchsorted(DEPARTMENT_IDS, catalogue.dept_id[order]),
            item=np.repeat(np.arange(len(order)), len(stores)),
            store=np.tile(np.arange(len(stores)), len(order)),
            price=world.price[by_item].reshape(-1, n_weeks),
            units=units,
            days=days,
        )

    @property
    def category(self) -> Ints:
        """Return the position in `CATEGORY_IDS` of each item `[I]`."""
        of_department = [CATEGORY_IDS.index(name.rsplit("_", 1)[0]) for name in DEPARTMENT_IDS]
        return np.array(of_department, dtype=np.int64)[self.department]

    @property
    def state(self) -> Ints:
        """Return the position in `STATES` of each item-store's state `[K]`."""
        of_store = [STATES.index(name.split("_", 1)[0]) for name in STORE_IDS]
        return np.array(of_store, dtype=np.int64)[self.store]

    @property
    def item_store_name(self) -> Strings:
        """Return a name per item-store, `FOODS_1_001@CA_1` `[K]`."""
        stores = np.char.add("@", np.array(STORE_IDS))
        return np.char.add(self.item_id[self.item], stores[self.store])


def weekly_totals(
    daily_KD: NDArray[np.integer] | NDArray[np.floating], week_D: Ints, n_weeks: int
) -> tuple[NDArray[np.int32], NDArray[np.int8]]:
    """Return the units sold and the days with data, both `[K,W]`; NaN is a day without data.

    Args:
        daily_KD: units a day, the days of a week side by side.
        week_D: the week of each day, rising.
        n_weeks: W.
    """
    units = np.zeros((len(daily_KD), n_weeks), dtype=np.int32)
    days = np.zeros((len(daily_KD), n_weeks), dtype=np.int8)
    first = np.flatnonzero(np.append(True, np.diff(week_D) != 0))
    weeks = week_D[first]
    for lo in range(0, len(daily_KD), ROWS):
        rows = slice(lo, lo + ROWS)
        known = ~np.isnan(daily_KD[rows])
        units[rows, weeks] = np.add.reduceat(np.where(known, daily_KD[rows], 0), first, axis=1)
        days[rows, weeks] = np.add.reduceat(known, first, axis=1, dtype=np.int8)
    return units, days
