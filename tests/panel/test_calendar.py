"""When steps were: dates of steps, steps of dates, in a panel and in its file."""

from datetime import date, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costar_cli.data.calendar import Calendar, Date

DAY = 86_400_000_000
MARCH = int(np.datetime64("2024-03-01", "us").astype(np.int64))


def weekly(*first: str) -> Calendar:
    return Calendar(np.array([[np.datetime64(day, "us").astype(np.int64)] for day in first]), "us", 7 * DAY)


def found(calendar: Calendar, text: str, *length: int) -> list[int]:
    said = Date.parse(text)
    assert said is not None
    return calendar.find(said, np.array(length)).tolist()


@given(st.dates(date(1900, 1, 1), date(2100, 1, 1)), st.integers(1, 40), st.integers(0, 30), st.integers(1, 500))
def test_the_date_of_a_step_finds_the_step(first, size, step, more):
    calendar = Calendar(np.array([[int(np.datetime64(first, "us").astype(np.int64))]]), "us", size * DAY)
    (text,) = calendar.texts(np.array([0]), np.array([step]), np.array([step + more]))
    assert text == str(first + timedelta(days=size * step))
    assert found(calendar, text, step + more) == [step]
    later = str(first + timedelta(days=size * step + size - 1))
    assert found(calendar, later, step + more) == [step], "a step lasts until the next"


def test_dates_outside_a_series_are_outside_its_steps():
    calendar = weekly("2024-01-01", "2024-02-05")
    assert found(calendar, "2024-01-30", 5, 9)[0] == 4
    assert found(calendar, "2024-01-30", 5, 9)[1] < 0
    assert found(calendar, "2024-02-05", 5, 9) == [5, 0], "the last week of the first subject is over"


def test_a_day_or_month_without_a_time_ends_with_its_last_step():
    hourly = Calendar(np.array([[MARCH]]), "us", 3_600_000_000)
    assert found(hourly, "2024-03-01", 100) == [23]
    assert found(hourly, "2024-03-01 05:30", 100) == found(hourly, "2024-03-01T05:00Z", 100) == [5]
    assert found(hourly, "2024-03", 10) == [9]
    months = Calendar(np.array([[(2024 - 1970) * 12 + 1]]), "M", 1)
    assert found(months, "2024-03-15", 6) == found(months, "2024-03", 6) == [1]
    assert months.texts(np.array([0]), np.array([11]), np.array([6])).tolist() == ["2025-01"]


def test_uneven_steps_have_the_dates_of_their_rows_and_none_beyond():
    days = [datetime(2024, 3, day).isoformat() for day in (1, 2, 9)]
    uneven = Calendar(np.array([[np.datetime64(day, "us").astype(np.int64) for day in days]]), "us", None)
    assert uneven.texts(np.zeros(4, int), np.arange(4), np.full(4, 3)).tolist() == [*[day[:10] for day in days], None]
    assert [found(uneven, f"2024-03-{day:02}", 3)[0] for day in (1, 5, 9)] == [0, 1, 2]
    assert found(uneven, "2024-02-28", 3)[0] < 0
    assert found(uneven, "2024-03-10", 3) == [3]


@pytest.mark.parametrize("text", ["2024", "2024-3-1", "2024-02-30", "01.03.2024", "2024-03-01T25:00", "soon", 3, None])
def test_what_is_no_iso_date_is_none(text):
    assert Date.parse(text) is None


def test_some_subjects_have_their_dates_written_as_all_have():
    calendar = Calendar(np.array([[MARCH], [MARCH + 3_600_000_000]]), "us", DAY)
    one, zero = calendar.take([0]), np.array([0])
    assert one.texts(zero, zero, zero + 1).tolist() == ["2024-03-01 00:00"]
    assert Calendar.joined([one, one]).texts(zero, zero, zero + 1).tolist() == ["2024-03-01"]


def test_dates_beyond_the_year_9999_are_not_known():
    calendar = Calendar(np.array([[MARCH]]), "us", 99_999 * 7 * DAY)
    texts = calendar.texts(np.zeros(3, int), np.array([0, 1, 32_767]), np.full(3, 9))
    assert texts.tolist() == ["2024-03-01", "3940-09-06", None]


def test_calendars_are_joined_where_all_panels_have_the_same_kind():
    one, other = weekly("2024-01-01"), weekly("2024-02-05")
    assert Calendar.joined([one, other]).time_NK.shape == (2, 1)
    assert Calendar.joined([one, None]) is None
    assert Calendar.joined([one, Calendar(one.time_NK, "us", DAY)]) is None
