"""Logs of events become rows of steps: codes, windows, units, intervals, statics and ends (costar_cli/data/events)."""

import tomllib
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from costar_cli.data.events import Events, parse_signals, table_of_events
from costar_cli.errors import DataError, UsageError
from costar_cli.reporting import NullReporter

START = datetime(2150, 1, 1, 10)
PLAIN = """
name = "log"
[time]
step = "1h"
[columns]
y = { role = "outcome", code = "Y" }
a = { role = "treatment", code = "A" }
"""
TYPES = {"subject": pl.Int64, "time": pl.Datetime("us"), "code": pl.String, "value": pl.Float64}


def at(hours: float) -> datetime:
    return START + timedelta(hours=hours)


def log_of(rows: Sequence[tuple[Any, ...]], *more: str, **known: Any) -> Events:
    """Return a log of rows: subject, hours after the start or None, code, value, and further columns."""
    dated = [(who, None if hours is None else at(hours), *rest) for who, hours, *rest in rows]
    frame = pl.DataFrame(dated, schema=[*TYPES, *more], schema_overrides=TYPES, orient="row")
    return Events(frame.lazy(), Path("log"), **known)


def made(events: Events, toml: str, **options: Any) -> tuple[pl.DataFrame, pl.DataFrame, NullReporter]:
    """Return the steps and the statics of a log, and what was told."""
    reporter = NullReporter()
    inputs, _ = table_of_events(events, parse_signals(tomllib.loads(toml)), reporter, **options)
    steps = inputs.tables[0].scan.collect()  # type: ignore[union-attr]
    statics = inputs.statics.scan.collect() if inputs.statics else pl.DataFrame()  # type: ignore[union-attr]
    return steps, statics, reporter


def codes(reporter: NullReporter) -> set[str]:
    return {diagnostic.code for diagnostic in reporter.diagnostics}


def test_each_step_from_the_first_event_to_the_last_is_a_row() -> None:
    rows = [(1, 0.5, "Y", 5.0), (1, 0.9, "Y", 6.0), (1, 3.2, "Y", 7.0), (1, 2.0, "A", None), (2, 0.0, "Y", 1.0)]
    steps, _, _ = made(log_of(rows), PLAIN)
    assert steps["subject_id"].to_list() == [1, 1, 1, 1, 2]
    assert steps["y"].to_list() == [5.0, None, None, 7.0, 1.0], "the first of the step"
    assert steps["a"].to_list() == [0, 0, 1, 0, 0]
    assert steps["time"].to_list()[:4] == [at(0), at(1), at(2), at(3)]


@pytest.mark.parametrize(
    ("how", "expected"),
    [("sum", [7.0, 0.0, 4.0]), ("mean", [3.5, None, 4.0]), ("last", [2.0, None, 4.0]), ("max", [5.0, None, 4.0]),
     ("min", [2.0, None, 4.0]), ("count", [2, 0, 1]), ("any", [1, 0, 1])],
)  # fmt: skip
def test_what_the_events_of_a_step_become(how: str, expected: list[float | None]) -> None:
    rows = [(1, 0.1, "Y", 5.0), (1, 0.2, "Y", 2.0), (1, 2.0, "Y", 4.0), (1, 0.0, "A", None)]
    toml = PLAIN.replace('code = "Y"', f'code = "Y", aggregate = "{how}"')
    steps, _, _ = made(log_of(rows), toml)
    assert steps["y"].to_list() == expected


def test_an_anchor_and_its_window_cut_series_out_of_a_life() -> None:
    toml = PLAIN + '[anchor]\nprefix = "IN//"\nbefore = "1h"\nafter = "3h"\nuntil = { code = "OUT" }\n'
    rows = [
        *((who, hour, "Y", float(hour)) for who in (1, 2) for hour in range(12)),
        *((who, hour, "A", None) for who in (1, 2) for hour in (5, 11)),
        (1, 4.5, "IN//icu", None), (1, 9.0, "IN//icu", None), (2, 4.5, "IN//icu", None), (2, 5.5, "OUT", None),
        (3, 1.0, "Y", 1.0),
    ]  # fmt: skip
    steps, _, reporter = made(log_of(rows), toml)
    one, two = (steps.filter(pl.col("subject_id") == who) for who in (1, 2))
    assert one["time"].to_list() == [at(3.5), at(4.5), at(5.5), at(6.5)], "an hour before, three behind"
    assert one["y"].to_list() == [4.0, 5.0, 6.0, 7.0]
    assert two["y"].to_list() == [4.0, 5.0], "until OUT"
    assert {"events-outside", "events-without-series"} <= codes(reporter)
    assert steps["subject_id"].n_unique() == 2


def test_who_is_observed_beyond_the_window_has_all_of_it_with_or_without_an_event() -> None:
    toml = PLAIN.replace('code = "Y"', 'code = "Y", aggregate = "any"')
    toml += 'left = { role = "censored", code = "END" }\n[anchor]\ncode = "A"\nafter = "4h"\n'
    rows = [(who, 0.0, "A", None) for who in (1, 2, 3)] + [(1, 2.5, "Y", None), (3, 1.2, "Y", None)]
    rows += [(1, 9.0, "END", None), (2, 9.0, "END", None), (3, 2.0, "END", None)]
    steps, statics, _ = made(log_of(rows), toml)
    assert steps["subject_id"].value_counts().sort("subject_id")["count"].to_list() == [4, 4, 3]
    assert steps.filter(subject_id=1)["y"].to_list() == [0, 0, 1, 0]
    assert steps.filter(subject_id=2)["y"].to_list() == [0, 0, 0, 0]
    assert statics["time of left"].to_list() == [None, None, at(2)]
    # 4 has nothing but the anchor: no event is an observation of a signal that counts them, and of no other
    either = toml.replace('code = "A"\nafter', 'code = ["A", "B"]\nafter')
    more = [*rows, (4, 0.0, "B", None), (4, 9.0, "END", None), (5, 0.0, "B", None), (5, 2.0, "END", None)]
    steps, _, _ = made(log_of(more), either)
    assert steps["subject_id"].value_counts().sort("subject_id")["count"].to_list() == [4, 4, 3, 4, 3]
    steps, _, _ = made(log_of(more), either.replace(', aggregate = "any"', ""))
    assert steps["subject_id"].unique().to_list() == [1, 2, 3]
    without, _, _ = made(log_of([row for row in rows if row[2] != "END"] + [(4, 9.0, "END", None)]), toml)
    assert without["subject_id"].value_counts().sort("subject_id")["count"].to_list() == [3, 1, 2], "the last event"


def test_rates_of_intervals_are_means_over_each_step() -> None:
    toml = PLAIN.replace(
        'a = { role = "treatment", code = "A" }',
        'a = { role = "treatment", kind = "continuous", code = "A", stop = { code = "Z" }, pair = "order" }',
    )
    rows = [
        (1, 0.0, "Y", 1.0, None), (1, 3.5, "Y", 1.0, None),
        (1, 0.5, "A", 4.0, "p"), (1, 2.25, "Z", 9.0, "p"),  # half an hour, an hour, a quarter
        (1, 2.0, "A", 1.0, "q"), (1, 2.5, "Z", 9.0, "q"),  # overlaps p
        (1, 3.0, "A", 1.0, "r"),  # never stops
        (1, 3.0, "A", 1.0, "s"), (1, 2.0, "Z", 1.0, "s"),  # stops before it starts
        (1, 3.0, "Z", 1.0, "t"),
    ]  # fmt: skip
    steps, _, reporter = made(log_of(rows, "order"), toml)
    assert steps["a"].to_list() == pytest.approx([2.0, 4.0, 1.0 + 0.5, 0.0])
    odd = next(str(one) for one in reporter.diagnostics if one.code == "intervals-odd")
    assert "2 intervals" in odd
    assert "1 stop without a start" in odd
    assert "1 start without a stop" in odd
    assert "1 interval that ends before it begins" in odd
    assert "intervals-overlap" in codes(reporter)


@pytest.mark.parametrize(("how", "expected"), [("amount", [2.0, 6.0]), ("fraction", [0.25, 0.75]), ("any", [1.0, 1.0])])
def test_a_log_may_say_the_stop_of_each_event(how: str, expected: list[float]) -> None:
    line = f'a = {{ role = "treatment", kind = "continuous", code = "A", aggregate = "{how}" }}'
    toml = PLAIN.replace('a = { role = "treatment", code = "A" }', line)
    rows = [(1, 0.0, "Y", 1.0, None), (1, 1.9, "Y", 1.0, None), (1, 0.75, "A", 8.0, at(1.75))]
    steps, _, _ = made(log_of(rows, "stop"), toml)
    assert steps["a"].to_list() == pytest.approx(expected)


def test_a_covariate_of_intervals_that_overlap_is_the_fraction_of_the_step_in_any() -> None:
    toml = PLAIN + 'ward = { role = "covariate", code = "W" }\n'
    rows = [(1, 0.0, "Y", 1.0, None), (1, 2.5, "Y", 1.0, None), (1, 0.0, "A", None, None)]
    rows += [(1, 0.5, "W", None, at(2)), (1, 1.0, "W", None, at(2))]
    steps, _, reporter = made(log_of(rows, "stop"), toml)
    assert steps["ward"].to_list() == pytest.approx([0.5, 1.0, 0.0])
    assert "intervals-overlap" in codes(reporter)


@pytest.mark.parametrize("how", ["first", "last"])
@pytest.mark.parametrize("value", ["code", "text"])
def test_intervals_may_be_levels_and_each_step_has_one_that_reaches_into_it(how: str, value: str) -> None:
    line = f'value = "{value}", levels = ["none", "x", "y"], aggregate = "{how}"'
    line = f'a = {{ role = "treatment", prefix = "A/", {line} }}'
    toml = PLAIN.replace('a = { role = "treatment", code = "A" }', line)
    toml += 'ward = { role = "covariate", kind = "categorical", prefix = "W/", value = "code" }\n'
    rows = [(1, 0.0, "Y", 1.0, None, None), (1, 5.5, "Y", 1.0, None, None), (1, 1.5, "W/icu", None, at(3), None)]
    rows += [
        (1, 0.5, "A/x", 9.0, at(2.5), "x"),
        (1, 2.25, "A/y", None, at(4.0), "y"),
        (1, 5.2, "A/x", 1.0, at(5.2), "x"),
    ]
    steps, _, reporter = made(log_of(rows, "stop", "text"), toml)
    assert steps["a"].to_list() == ["x", "x", "x" if how == "first" else "y", "y", "none", "x"]
    assert steps["ward"].to_list() == [None, "icu", "icu", None, None, None]
    [said] = [str(one) for one in reporter.diagnostics if one.code == "intervals-overlap"]
    assert f"each step has the {how} of them" in said


@pytest.mark.parametrize(
    ("how", "expected", "fix"),
    [("rate", [0.0, 6.0], 'aggregate = "amount"'), ("fraction", [0.0, 0.75], 'aggregate = "any"'),
     ("amount", [5.0, 6.0], ""), ("any", [1.0, 1.0], "")],
)  # fmt: skip
def test_intervals_at_once_and_those_outside_are_counted(how: str, expected: list[float], fix: str) -> None:
    line = f'a = {{ role = "treatment", kind = "continuous", code = "A", aggregate = "{how}" }}'
    toml = PLAIN.replace('a = { role = "treatment", code = "A" }', line)
    toml += '[anchor]\ncode = "IN"\nafter = "2h"\n'
    rows = [(1, 0.0, "IN", None, None), (1, 0.0, "Y", 1.0, None), (1, 1.9, "Y", 1.0, None)]
    rows += [(1, 0.5, "A", 5.0, at(0.5)), (1, 1.0, "A", 8.0 if how == "rate" else 6.0, at(1.75))]
    rows += [(1, 7.0, "A", 9.0, at(8.0)), (1, -3.0, "A", 9.0, at(-2.0)), (1, 9.0, "A", 9.0, at(9.0))]
    steps, _, reporter = made(log_of(rows, "stop"), toml)
    assert steps["a"].to_list() == pytest.approx(expected)
    said = {one.code: str(one) for one in reporter.diagnostics}
    assert said["events-outside"].startswith("3 events outside of the series")
    assert ("intervals-at-once" in said) == bool(fix)
    if fix:
        assert said["intervals-at-once"].startswith("a: 1 interval whose stop is the start")
        assert fix in said["intervals-at-once"]


def test_amounts_of_intervals_add_up_to_what_was_given() -> None:
    rng = np.random.default_rng(3)
    starts = rng.uniform(0, 40, 200)
    stops = starts + rng.exponential(4, 200) * (rng.random(200) > 0.1)
    rows = [(1, 0.0, "Y", 1.0, None), (1, 99.0, "Y", 1.0, None)]
    rows += [(1, float(s), "A", float(i), at(float(e))) for i, (s, e) in enumerate(zip(starts, stops, strict=True))]
    line = 'a = { role = "treatment", kind = "continuous", code = "A", aggregate = "amount" }'
    steps, _, _ = made(log_of(rows, "stop"), PLAIN.replace('a = { role = "treatment", code = "A" }', line))
    assert steps["a"].sum() == pytest.approx(sum(range(200)), rel=1e-6)


def test_statics_are_what_has_no_time_or_was_known_by_the_first_step() -> None:
    toml = PLAIN + (
        'sex = { role = "static", kind = "categorical", prefix = "SEX//", value = "code" }\n'
        'weight = { role = "static", code = "W" }\n'
        'age = { role = "static", code = "BIRTH", value = "years" }\n'
        'ill = { role = "static", kind = "binary", prefix = "DX//", aggregate = "any" }\n'
    )
    rows = [(1, 0.0, "Y", 1.0), (1, 5.0, "Y", 1.0), (1, 0.0, "A", None), (2, 0.0, "Y", 2.0)]
    rows += [(1, None, "SEX//F", None), (2, None, "SEX//M", None), (1, -99.0, "W", 60.0), (1, 0.5, "W", 61.0)]
    rows += [(1, 3.0, "W", 99.0), (1, -24 * 365.25 * 30, "BIRTH", None), (2, 0.5, "DX//9", None)]
    _, statics, reporter = made(log_of(rows), toml)
    assert statics["sex"].to_list() == ["F", "M"]
    assert statics["weight"].to_list() == [61.0, None]
    assert statics["age"][0] == pytest.approx(30.0)
    assert statics["ill"].to_list() == [0, 1]
    assert "static-known-later" in codes(reporter)


def test_a_series_ends_at_its_first_end() -> None:
    toml = PLAIN + 'death = { role = "event", code = "DEAD" }\nhome = { role = "event", code = "HOME" }\n'
    rows = [*((1, hour, "Y", 1.0) for hour in range(9)), (1, 0.0, "A", None), (1, 4.5, "HOME", None)]
    rows += [(1, 6.0, "DEAD", None), (2, 0.0, "Y", 1.0), (2, 7.0, "DEAD", None)]
    steps, statics, _ = made(log_of(rows), toml)
    assert steps["subject_id"].value_counts(sort=True)["count"].to_list() == [8, 6]
    assert statics["time of home"].to_list() == [at(4.5), None]
    assert statics["time of death"].to_list() == [None, at(7)]


def test_an_event_counts_before_a_loss_at_its_moment_and_what_ends_no_series_is_counted() -> None:
    left, death = 'left = { role = "censored", code = "OUT" }\n', 'death = { role = "event", code = "DEAD" }\n'
    rows = [*((who, hour, "Y", 1.0) for who in range(1, 6) for hour in range(9)), (1, 0.0, "A", None)]
    rows += [(1, 4.5, "DEAD", None), (1, 4.5, "OUT", None), (2, 4.5, "OUT", None), (2, 5.0, "DEAD", None)]
    rows += [(3, -9.0, "DEAD", None), (4, 20.0, "DEAD", None)]
    for order in (left + death, death + left):
        toml = PLAIN + order + '[anchor]\ncode = "Y"\nafter = "7h"\n'
        steps, statics, reporter = made(log_of(rows), toml)
        assert statics["time of death"].to_list() == [at(4.5), None, None, None, None]
        assert statics["time of left"].to_list() == [None, at(4.5), None, None, None]
        assert steps["subject_id"].value_counts().sort("subject_id")["count"].to_list() == [6, 6, 7, 7, 7]
        [told] = [str(one) for one in reporter.diagnostics if one.code == "ends-outside"]
        assert "3 subjects" in told
        assert "for 1 of them, after the loss" in told


def test_units_are_brought_together_or_refused() -> None:
    rows = [(1, 0.0, "Y", 1.0, "mg"), (1, 1.0, "Y", 2.0, "g"), (1, 0.0, "A", None, None)]
    with pytest.raises(DataError, match="2 units: 1 of 'g', 1 of 'mg'"):
        made(log_of(rows, "unit"), PLAIN)
    toml = PLAIN.replace('code = "Y"', 'code = "Y", unit = "mg", units = { "g" = 1000.0, "mg" = 1.0 }')
    assert made(log_of(rows, "unit"), toml)[0]["y"].to_list() == [1.0, 2000.0]


def test_texts_of_events_are_levels_and_categories() -> None:
    toml = PLAIN.replace('code = "A"', 'code = "A", value = "text", levels = ["no", "yes"]')
    toml += 'kind_of = { role = "static", kind = "categorical", code = "K", value = "text" }\n'
    rows = [(1, 0.0, "Y", 1.0, None), (1, 1.0, "Y", 2.0, None), (1, 0.5, "A", None, "yes"), (1, 1.5, "A", None, "no")]
    steps, statics, _ = made(log_of([*rows, (1, None, "K", None, "big")], "text"), toml)
    assert steps["a"].to_list() == ["yes", "no"]
    assert statics["kind_of"].to_list() == ["big"]
    with pytest.raises(DataError, match="no column 'text'"):
        made(log_of([row[:4] for row in rows]), toml.replace('code = "K"', 'code = "Y"'))


def test_codes_are_named_by_their_parents_and_prefixes() -> None:
    parents = pl.DataFrame({"code": ["LAB//1", "LAB//2"], "parent": ["LOINC/7", "LOINC/7"]})
    rows = [(1, 0.0, "LAB//1", 1.0), (1, 1.0, "LAB//2", 2.0), (1, 0.0, "A", None)]
    for key in ('parent = "LOINC/7"', 'prefix = "LAB//"', 'code = ["LAB//1", "LAB//2"]'):
        toml = PLAIN.replace('code = "Y"', key)
        assert made(log_of(rows, parents=parents), toml)[0]["y"].to_list() == [1.0, 2.0]


def test_codes_that_no_event_has_are_one_error_with_the_nearest() -> None:
    rows = [(1, 0.0, "LAB//50912//mg/dL", 1.0), (1, 0.0, "DRUG//1", None)]
    toml = PLAIN.replace('"Y"', '"LAB//50921//mg/dL"').replace('code = "A"', 'prefix = "DURG//"')
    with pytest.raises(DataError) as caught:
        made(log_of(rows), toml)
    told = "\n".join(caught.value.details)
    assert "LAB//50912//mg/dL" in told
    assert "'DRUG//'" in told
    assert made(log_of([*rows, (1, 0.0, "DURG//2", None)]), toml, new=True)[0]["y"].to_list() == [None]


def test_what_is_dated_at_discharge_is_warned_of() -> None:
    toml = PLAIN + 'dx = { role = "covariate", prefix = "DX//", aggregate = "any" }\n'
    rows = [*((who, hour, "Y", 1.0) for who in range(9) for hour in (0, 4)), (1, 0.0, "A", None)]
    rows += [(who, 3.0, code, None) for who in range(9) for code in ("HOSPITAL_DISCHARGE//HOME", "DX//1")]
    told = made(log_of(rows), toml)[2].diagnostics
    assert [one.subject for one in told if one.code == "signal-at-discharge"] == ["dx"]


def test_ties_are_counted_and_their_order_in_the_file_does_not_matter() -> None:
    rows = [(1, 0.0, "Y", 3.0), (1, 0.0, "Y", 2.0), (1, 1.0, "Y", 5.0), (1, 0.0, "A", None)]
    one, two = (made(log_of(log), PLAIN) for log in (rows, rows[::-1]))
    assert one[0]["y"].to_list() == two[0]["y"].to_list() == [2.0, 5.0]
    assert "events-tied" in codes(one[2])


def test_nobody_with_a_series_is_an_error() -> None:
    toml = PLAIN + '[anchor]\ncode = "B"\n'
    with pytest.raises(DataError, match="no subject of 2 with an event of the anchor"):
        made(log_of([(1, 0.0, "Y", 1.0), (2, 5.0, "A", None), (1, 5.0, "B", None)]), toml)


WRONG: Mapping[str, str] = {
    'y = { role = "outcome" }': "columns.y: give the `code`, `prefix` or `parent`",
    'y = { role = "outcome", code = "Y", aggregat = "sum" }': "did you mean `aggregate`",
    'y = { role = "outcome", code = "Y", aggregate = "rate", stop = { code = "Z" } }': "`pair` is missing",
    'y = { role = "outcome", code = "Y", value = "text" }': '`value = "text"` makes texts',
    'y = { role = "outcome", code = "Y" }\nz = { role = "static", code = "Y", aggregate = "sum" }': "what does not",
    'y = { role = "outcome", code = "Y", aggregate = "sum", stop = { code = "Z" }, pair = "p" }': "intervals become",
    'y = { role = "outcome", code = 7 }': "columns.y.code",
}


@pytest.mark.parametrize("line", WRONG)
def test_what_is_wrong_with_a_signals_file_is_told_at_once(line: str) -> None:
    toml = PLAIN.replace('y = { role = "outcome", code = "Y" }', line)
    with pytest.raises(UsageError, match="signals"):
        parse_signals(tomllib.loads(toml))
    with pytest.raises(UsageError) as caught:
        parse_signals(tomllib.loads(toml + '[anchor]\nbefore = "1x"\n'))
    told = "\n".join([str(caught.value), *caught.value.details])
    assert WRONG[line] in told
    assert "aggregat " in line or "anchor.before" in told
