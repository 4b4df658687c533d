"""The calendar of M5, rebuilt from rules: weeks, events and SNAP days (spec WORLD-2)."""

from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["EVENT_NAMES", "EVENT_TYPES", "STATES", "RetailCalendar", "build_calendar", "easter"]

FIRST_DAY: Final = date(2011, 1, 29)
LAST_DAY: Final = date(2016, 6, 19)
N_SALES_DAYS: Final = 1941  # days with sales in sales_train_evaluation.csv; prices and events go on for 28 more
WEEKDAYS: Final = ("Saturday", "Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
YEAR_STARTS: Final = ("2011-01-29", "2012-01-28", "2013-01-26", "2014-02-01", "2015-01-31", "2016-01-30")  # week 01
STATES: Final = ("CA", "TX", "WI")
SNAP_DAYS: Final = {  # days of the month on which food stamps are paid out
    "CA": (1, 2, 3, 4, 5, 6, 7, 8, 9, 10),
    "TX": (1, 3, 5, 6, 7, 9, 11, 12, 13, 15),
    "WI": (2, 3, 5, 6, 8, 9, 11, 12, 14, 15),
}
FIXED_EVENTS: Final = (  # name, type, month, day
    ("NewYear", "National", 1, 1),
    ("IndependenceDay", "National", 7, 4),
    ("VeteransDay", "National", 11, 11),
    ("Christmas", "National", 12, 25),
    ("ValentinesDay", "Cultural", 2, 14),
    ("StPatricksDay", "Cultural", 3, 17),
    ("Cinco De Mayo", "Cultural", 5, 5),
    ("Halloween", "Cultural", 10, 31),
    ("OrthodoxChristmas", "Religious", 1, 7),
)
WEEKDAY_EVENTS: Final = (  # name, type, month, weekday (0 = Monday), which one of the month (-1: last)
    ("MartinLutherKingDay", "National", 1, 0, 3),
    ("PresidentsDay", "National", 2, 0, 3),
    ("MemorialDay", "National", 5, 0, -1),
    ("LaborDay", "National", 9, 0, 1),
    ("ColumbusDay", "National", 10, 0, 2),
    ("Thanksgiving", "National", 11, 3, 4),
    ("Mother's day", "Cultural", 5, 6, 2),
    ("Father's day", "Cultural", 6, 6, 3),
)
EASTER_EVENTS: Final = (("Easter", "Cultural", 0), ("LentStart", "Religious", -46), ("LentWeek2", "Religious", -39))
DATED_EVENTS: Final = {  # moving feasts and finals, as they are in the file
    ("OrthodoxEaster", "Religious"): "11-04-24 12-04-15 13-05-05 14-04-20 15-04-12 16-05-01",
    ("Purim End", "Religious"): "11-03-20 12-03-08 13-02-24 14-03-16 15-03-05 16-03-24",
    ("Pesach End", "Religious"): "11-04-26 12-04-14 13-04-02 14-04-22 15-04-11 16-04-30",
    ("Ramadan starts", "Religious"): "11-08-01 12-07-20 13-07-09 14-06-29 15-06-18 16-06-07",
    ("Eid al-Fitr", "Religious"): "11-08-31 12-08-19 13-08-08 14-07-29 15-07-18",
    ("EidAlAdha", "Religious"): "11-11-07 12-10-26 13-10-15 14-10-04 15-09-24",
    ("Chanukah End", "Religious"): "11-12-28 12-12-16 13-12-05 14-12-24 15-12-14",
    ("SuperBowl", "Sporting"): "11-02-06 12-02-05 13-02-03 14-02-02 15-02-01 16-02-07",
    ("NBAFinalsStart", "Sporting"): "11-05-31 12-06-12 13-06-06 14-06-05 15-06-04 16-06-02",
    ("NBAFinalsEnd", "Sporting"): "11-06-12 12-06-21 13-06-20 14-06-15 15-06-16 16-06-19",
}
EVENT_TYPES: Final = ("Cultural", "National", "Religious", "Sporting")
SLOT_ORDER: Final = ("Sporting", "Religious", "National", "Cultural")  # which of two events of a day takes slot 1 ...
SWAPPED_DAY: Final = date(2014, 4, 20)  # ... except on this day, where the file has Easter before OrthodoxEaster


@dataclass(frozen=True, slots=True)
class RetailCalendar:
    """The columns of calendar.csv as arrays over D = 1,969 days.

    `wm_yr_wk` is the id of the week (Saturday to Friday), `wday` 1 for Saturday to 7 for Friday; event columns hold
    empty strings on days without events; `snap [D,3]` is by state in the order of `STATES`.
    """

    date: NDArray[np.datetime64]
    wm_yr_wk: NDArray[np.int32]
    wday: NDArray[np.int8]
    event_name_1: NDArray[np.str_]
    event_type_1: NDArray[np.str_]
    event_name_2: NDArray[np.str_]
    event_type_2: NDArray[np.str_]
    snap: NDArray[np.bool_]

    def __len__(self) -> int:
        return int(self.date.shape[0])

    @property
    def weekday(self) -> NDArray[np.str_]:
        """Return the name of each day's weekday `[D]`."""
        return np.array(WEEKDAYS)[self.wday - 1]

    @property
    def year(self) -> NDArray[np.int64]:
        """Return the year of each day `[D]`."""
        return self.date.astype("datetime64[Y]").astype(np.int64) + 1970

    @property
    def month(self) -> NDArray[np.int64]:
        """Return the month 1..12 of each day `[D]`."""
        return self.date.astype("datetime64[M]").astype(np.int64) % 12 + 1

    @property
    def d(self) -> NDArray[np.str_]:
        """Return the names of the days in the sales files, `d_1` onwards `[D]`."""
        return np.array([f"d_{day}" for day in range(1, len(self) + 1)])

    @property
    def week(self) -> NDArray[np.int64]:
        """Return each day's week, counted from 0 `[D]`."""
        return np.arange(len(self)) // len(WEEKDAYS)

    @property
    def n_weeks(self) -> int:
        """Return the number of weeks W; the last one has two days."""
        return int(self.week[-1]) + 1

    @property
    def week_id(self) -> NDArray[np.int32]:
        """Return the `wm_yr_wk` of each week `[W]`."""
        return self.wm_yr_wk[:: len(WEEKDAYS)]

    @property
    def week_year(self) -> NDArray[np.int64]:
        """Return the year of each week's first day `[W]`: sequences are cut by it."""
        return self.year[:: len(WEEKDAYS)]


def build_calendar() -> RetailCalendar:
    """Return the calendar of 2011-01-29 to 2016-06-19."""
    days = np.arange(np.datetime64(FIRST_DAY), np.datetime64(LAST_DAY) + 1)
    starts = np.array(YEAR_STARTS, dtype="datetime64[D]")
    year = np.searchsorted(starts, days, side="right") - 1
    week_of_year = (days - starts[year]).astype(np.int64) // 7 + 1
    day_of_month = (days - days.astype("datetime64[M]").astype(days.dtype)).astype(np.int64) + 1
    slots = _event_slots()
    name_1, type_1, name_2, type_2 = (
        np.array([slots.get(day, ("", "", "", ""))[slot] for day in days.astype(object)]) for slot in range(4)
    )
    return RetailCalendar(
        date=days,
        wm_yr_wk=(10_000 + (11 + year) * 100 + week_of_year).astype(np.int32),
        wday=(np.arange(len(days)) % 7 + 1).astype(np.int8),
        event_name_1=name_1,
        event_type_1=type_1,
        event_name_2=name_2,
        event_type_2=type_2,
        snap=np.stack([np.isin(day_of_month, SNAP_DAYS[state]) for state in STATES], axis=1),
    )


def easter(year: int) -> date:
    """Return Easter Sunday in the Gregorian calendar (the anonymous algorithm of 1876)."""
    a, (b, c) = year % 19, divmod(year, 100)
    h = (19 * a + b - b // 4 - (b - (b + 8) // 25 + 1) // 3 + 15) % 30
    k = (32 + 2 * (b % 4) + 2 * (c // 4) - h - c % 4) % 7
    m = (a + 11 * h + 22 * k) // 451
    month, day = divmod(h + k - 7 * m + 114, 31)
    return date(year, month, day + 1)


def _event_slots() -> dict[date, tuple[str, str, str, str]]:
    """Return name and type of the first and of the second event of every day that has one."""
    every: list[tuple[date, str, str]] = []
    for year in range(FIRST_DAY.year, LAST_DAY.year + 1):
        every += [(date(year, month, day), name, kind) for name, kind, month, day in FIXED_EVENTS]
        for name, kind, month, weekday, n in WEEKDAY_EVENTS:
            of_month = [day for day in (date(year, month, 1) + timedelta(i) for i in range(31)) if day.month == month]
            found = [day for day in of_month if day.weekday() == weekday]
            every.append((found[n - 1 if n > 0 else n], name, kind))
        every += [(easter(year) + timedelta(days), name, kind) for name, kind, days in EASTER_EVENTS]
    for (name, kind), dates in DATED_EVENTS.items():
        every += [(date.fromisoformat(f"20{day}"), name, kind) for day in dates.split()]
    events: dict[date, list[tuple[str, str]]] = {}
    for day, name, kind in every:
        if FIRST_DAY <= day <= LAST_DAY:
            events.setdefault(day, []).append((name, kind))
    slots = {}
    for day, of_day in events.items():
        ordered = sorted(of_day, key=lambda event: SLOT_ORDER.index(event[1]), reverse=day == SWAPPED_DAY)
        (name_1, type_1), (name_2, type_2) = [*ordered, ("", "")][:2]
        slots[day] = (name_1, type_1, name_2, type_2)
    return slots


EVENT_NAMES: Final = tuple(
    sorted(
        [event[0] for event in FIXED_EVENTS]
        + [event[0] for event in WEEKDAY_EVENTS]
        + [event[0] for event in EASTER_EVENTS]
        + [name for name, _ in DATED_EVENTS]
    )
)
