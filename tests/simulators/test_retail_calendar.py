"""The rebuilt calendar against the facts that are known of the real file (spec WORLD-2)."""

from collections import Counter
from datetime import date

import numpy as np
import pytest

from simulators.retail import EVENT_NAMES, EVENT_TYPES, build_calendar
from simulators.retail.calendar import easter


@pytest.fixture(scope="module")
def calendar():
    return build_calendar()


def events(calendar):
    slots = (calendar.event_name_1, calendar.event_type_1), (calendar.event_name_2, calendar.event_type_2)
    return [
        (str(day), str(name), str(kind))
        for names, types in slots
        for day, name, kind in zip(calendar.date, names, types, strict=True)
        if name
    ]


def test_days_and_week_ids(calendar):
    assert len(calendar) == 1969
    assert (str(calendar.date[0]), str(calendar.date[-1])) == ("2011-01-29", "2016-06-19")
    assert calendar.d[[0, -1]].tolist() == ["d_1", "d_1969"]
    assert calendar.n_weeks == 282 == len(set(calendar.wm_yr_wk.tolist()))
    assert calendar.week_id[[0, 48, 49, -1]].tolist() == [11101, 11149, 11150, 11621]
    of_week = Counter(calendar.wm_yr_wk.tolist())
    assert [week for week, days in of_week.items() if days != 7] == [11621]
    assert of_week[11621] == 2
    years = Counter(week // 100 for week in of_week)
    assert years == {111: 52, 112: 52, 113: 53, 114: 52, 115: 52, 116: 21}


def test_weeks_by_year_of_their_first_day(calendar):
    assert Counter(calendar.week_year.tolist()) == dict(zip(range(2011, 2017), (49, 52, 52, 52, 52, 25), strict=True))


def test_weekdays_months_and_years_are_those_of_the_dates(calendar):
    for i in range(0, len(calendar), 97):
        day = date.fromisoformat(str(calendar.date[i]))
        assert day.strftime("%A") == calendar.weekday[i]
        assert (day.month, day.year) == (calendar.month[i], calendar.year[i])
    assert set(calendar.wday[calendar.weekday == "Saturday"].tolist()) == {1}
    assert set(calendar.wday[calendar.weekday == "Friday"].tolist()) == {7}


def test_numbers_of_events(calendar):
    assert len(EVENT_NAMES) == 30
    assert set(EVENT_NAMES) == {name for _, name, _ in events(calendar)}
    assert set(EVENT_TYPES) == {kind for _, _, kind in events(calendar)}
    first = Counter(calendar.event_type_1[calendar.event_type_1 != ""].tolist())
    assert first == {"Religious": 55, "National": 52, "Cultural": 37, "Sporting": 18}
    second_days = np.flatnonzero(calendar.event_name_2 != "")
    assert calendar.date[second_days].astype(str).tolist() == [
        "2011-04-24",
        "2013-05-05",
        "2014-04-20",
        "2014-06-15",
        "2016-06-19",
    ]
    assert (calendar.event_name_1[second_days] != "").all()


@pytest.mark.parametrize(
    "event",
    [
        ("2011-02-14", "ValentinesDay", "Cultural"),
        ("2011-11-24", "Thanksgiving", "National"),
        ("2012-01-16", "MartinLutherKingDay", "National"),
        ("2012-02-20", "PresidentsDay", "National"),
        ("2013-05-27", "MemorialDay", "National"),
        ("2013-09-02", "LaborDay", "National"),
        ("2014-10-13", "ColumbusDay", "National"),
        ("2014-05-11", "Mother's day", "Cultural"),
        ("2015-06-21", "Father's day", "Cultural"),
        ("2015-04-05", "Easter", "Cultural"),
        ("2012-02-22", "LentStart", "Religious"),
        ("2012-02-29", "LentWeek2", "Religious"),
        ("2014-04-20", "OrthodoxEaster", "Religious"),
        ("2016-01-07", "OrthodoxChristmas", "Religious"),
        ("2016-02-07", "SuperBowl", "Sporting"),
        ("2016-06-19", "NBAFinalsEnd", "Sporting"),
    ],
)
def test_events_fall_on_their_days(calendar, event):
    assert event in events(calendar)


def test_easter_of_other_years():
    assert [easter(year) for year in (2000, 2008, 2011, 2038)] == [
        date(2000, 4, 23),
        date(2008, 3, 23),
        date(2011, 4, 24),
        date(2038, 4, 25),
    ]


def test_snap_days_of_each_state(calendar):
    of_month = calendar.date.astype(object)
    for state, days in enumerate(
        (
            (1, 2, 3, 4, 5, 6, 7, 8, 9, 10),
            (1, 3, 5, 6, 7, 9, 11, 12, 13, 15),
            (2, 3, 5, 6, 8, 9, 11, 12, 14, 15),
        )
    ):
        assert {day.day for day in of_month[calendar.snap[:, state]]} == set(days)
        assert calendar.snap[:, state].sum() == 650
