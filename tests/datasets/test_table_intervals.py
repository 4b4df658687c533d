"""Tables of intervals: an event is at its stop, after its treatment, and nobody is lost by it (spec SURV-6)."""

import tomllib
from collections.abc import Callable
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from costar_cli.api.data import read_new_subjects
from costar_cli.data import Dataset
from costar_cli.data.table.guess import guess_schema
from costar_cli.data.table.schema import TableSchema
from costar_cli.data.table.schema_file import parse_schema
from costar_cli.data.visits import elapsed
from costar_cli.errors import UsageError
from tests.datasets.table_worlds import Listener, ingest, of, problems, save
from tests.datasets.test_table_periods import KINDS
from tests.interval_world import intervals

COLUMNS = {
    "id": {"role": "subject"},
    "start": {"role": "time"},
    "drug": {"role": "treatment"},
    "hb": {"role": "outcome"},
    "event": {"role": "event"},
}


def schema_of(columns: dict[str, Any] = COLUMNS, *, horizon: int = 1, **time: object) -> TableSchema:
    clock = {"step": 10, "stop": "stop"} | time
    return parse_schema({"name": "drug", "horizon": horizon, "columns": columns, "time": clock}, where="schema.toml")


@pytest.fixture(scope="module")
def frame() -> pl.DataFrame:
    return intervals(120)


@pytest.fixture(scope="module")
def plain(frame: pl.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """The data set of the same intervals in numbers; look, but do not write."""
    table = frame.with_columns(stop=pl.col("start") + 10)
    return ingest(table, schema_of(), folder=tmp_path_factory.mktemp("plain"))


def series(dataset: Dataset, frame: pl.DataFrame, subject: int) -> tuple[Any, int, pl.DataFrame]:
    panel, row = of(dataset, str(subject))
    return panel, row, frame.filter(pl.col("id") == subject)


def test_events_come_after_the_treatment_of_their_interval_and_nobody_is_lost(
    frame: pl.DataFrame, tmp_path: Path
) -> None:
    dataset = ingest(frame, schema_of(), folder=tmp_path)
    assert sum(panel.n_subjects for panel in dataset.panels.values()) == 120
    assert sum(int((panel.ends == 1).sum()) for panel in dataset.panels.values()) == frame["event"].sum()
    for subject in frame["id"].unique().to_list():
        panel, row, own = series(dataset, frame, subject)
        assert panel.length[row] == own.height + 1  # the last interval has an end, with an event or without
        assert panel.ends[row] == own["event"][-1]
        np.testing.assert_array_equal(panel.treatments[row, : own.height, 0], own["drug"])
        np.testing.assert_allclose(panel.outcomes[row, : own.height, 0], own["hb"], rtol=1e-6)
        assert panel.observed_outcomes[row, : own.height].all()
        assert not panel.observed_outcomes[row, own.height].any()
    assert [variable.name for variable in dataset.schema.covariates] == []


def test_visits_at_any_time_last_until_their_stop(frame: pl.DataFrame, tmp_path: Path) -> None:
    dataset = ingest(frame, schema_of(step=1, gaps="elapsed"), folder=tmp_path)
    for subject in (0, 1, 2):
        panel, row, own = series(dataset, frame, subject)
        gap_NT = elapsed(dataset.schema.treatments, panel.treatments)
        assert gap_NT is not None
        np.testing.assert_allclose(gap_NT[row, : own.height], own["stop"] - own["start"], rtol=1e-5)


def test_stops_may_be_dates_and_series_are_cut(frame: pl.DataFrame, tmp_path: Path) -> None:
    dates = [(pl.lit("2024-01-01").str.to_date() + pl.duration(days=pl.col(name).ceil().cast(pl.Int64))).alias(name)
             for name in ("start", "stop")]  # fmt: skip
    dataset = ingest(frame.with_columns(dates), schema_of(step="10d"), folder=tmp_path)
    assert sum(int((panel.ends == 1).sum()) for panel in dataset.panels.values()) == frame["event"].sum()
    cut = schema_of().model_copy(update={"max_length": 2})
    dataset = ingest(frame, cut, folder=tmp_path)
    for subject in range(20):
        panel, row, own = series(dataset, frame, subject)
        assert panel.length[row] == 2
        assert panel.ends[row] == (own.height == 1 and own["event"][0])  # later events are cut off


def test_statics_and_a_dropout_stand_in_intervals(frame: pl.DataFrame, tmp_path: Path) -> None:
    last = pl.col("start") == pl.col("start").max().over("id")
    left = frame.with_columns(left=(last & (pl.col("event") == 0)).cast(pl.Int64), age=pl.col("id") % 7 + 40)
    columns = COLUMNS | {"left": {"role": "censored"}, "age": {"role": "static"}}
    dataset = ingest(left, schema_of(columns), folder=tmp_path)
    assert sum(int((panel.ends == 0).sum()) for panel in dataset.panels.values()) == 0
    assert {end.name: end.terminal for end in dataset.schema.ends} == {"event": True, "left": False}


def test_wrong_intervals_are_errors_that_name_rows(frame: pl.DataFrame, tmp_path: Path) -> None:
    first, stop = pl.int_range(pl.len()) == 0, pl.col("stop")  # of subject 0, who has several intervals
    last = frame["id"].to_list().count(0) - 1

    def told(row: int, when: pl.Expr | float | None) -> str:
        changed = frame.with_columns(stop=pl.when(pl.int_range(pl.len()) == row).then(when).otherwise(stop))
        (line,) = problems(changed, schema_of(), folder=tmp_path)
        return line

    for when, what in ((None, "missing"), (0.0, "not after `start` of their row"),
                       (15.0, "after `start` of the subject's next row")):  # fmt: skip
        assert f"first in row 1 of ward.csv (subject 0): column 'stop': 1 value {what}" in told(0, when)
    assert "column 'stop': 1 interval more than a step after the subject's last row" in told(last, stop + 50)
    early = frame.with_columns(event=pl.when(first).then(1).otherwise("event"))
    assert "1 subject" in problems(early, schema_of(), folder=tmp_path)[0]
    assert "there is no column 'stop'" in problems(frame.drop("stop"), schema_of(), folder=tmp_path)[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"columns": COLUMNS | {"stop": {"role": "covariate"}}}, "'stop' is in [columns], too"),
        ({"time": {"step": 10, "stop": "stop", "bin": True}}, "choose one"),
        ({"events": {"code": "what", "value": "value"}}, "no intervals"),
    ],
)
def test_stops_that_mean_something_else_are_refused(change: dict[str, Any], message: str) -> None:
    whole = {"name": "drug", "columns": COLUMNS, "time": {"step": 10, "stop": "stop"}} | change
    with pytest.raises(UsageError) as caught:
        parse_schema(whole, where="schema.toml")
    assert message in "\n".join([caught.value.problem, *caught.value.details])


def test_new_subjects_are_read_alike_with_stops_and_without(frame: pl.DataFrame, tmp_path: Path) -> None:
    dataset = ingest(frame, schema_of(), folder=tmp_path)
    new = intervals(10, seed=5)
    for table, more in ((new, 1), (new.drop("stop", "event"), 0)):
        (panel,) = read_new_subjects(save(table, tmp_path / f"new{more}.csv"), like=dataset).panels.values()
        lengths = table.group_by("id", maintain_order=True).len()["len"] + more
        np.testing.assert_array_equal(panel.length, lengths)


@pytest.mark.parametrize(
    ("start", "stop"),
    [("start", "stop"), ("tstart", "tstop"), ("start", "end"), ("begin", "end"), ("t0", "t1"), ("from_day", "to_day")],
)
@pytest.mark.parametrize("order", ["as it is", "reversed"])
def test_intervals_are_guessed_by_their_values(
    frame: pl.DataFrame, tmp_path: Path, start: str, stop: str, order: str
) -> None:
    table = frame.rename({"start": start, "stop": stop, "event": "status"})
    table = table.select(table.columns[::-1]) if order == "reversed" else table
    text = guess_schema([save(table, tmp_path / "table.csv")]).text
    assert f'\n{start} = {{ role = "time" }}  # CHECK: each row is an interval that ends at `{stop}`' in text
    assert f'\nstop = "{stop}"' in text
    assert '\nstatus = { role = "event" }  # CHECK' in text
    assert f"\n{stop} = {{" not in text
    assert f"# {stop} = " not in text


def test_gaps_between_intervals_do_not_hide_them_where_they_are_called_so(frame: pl.DataFrame, tmp_path: Path) -> None:
    gap = frame.with_columns(stop=pl.when((pl.col("event") == 0) & (pl.col("id") % 4 == 0)).then(pl.col("stop") - 1)
                             .otherwise("stop"))  # fmt: skip
    assert '\nstop = "stop"' in guess_schema([save(gap, tmp_path / "gap.csv")]).text
    other = gap.rename({"stop": "next_dose"})
    assert "\nstop =" not in guess_schema([save(other, tmp_path / "other.csv")]).text


def test_a_table_of_visits_is_no_table_of_intervals(frame: pl.DataFrame, tmp_path: Path) -> None:
    followed = frame.with_columns(stop=pl.col("stop").max().over("id"))  # one end of follow-up in all rows
    assert "\nstop =" not in guess_schema([save(followed, tmp_path / "table.csv")]).text
    before = frame.with_columns(stop=pl.col("start") - 10)
    assert "\nstop =" not in guess_schema([save(before, tmp_path / "before.csv")]).text


def test_an_unused_end_of_intervals_is_warned_of(frame: pl.DataFrame, tmp_path: Path) -> None:
    for time, warned in (({"stop": None}, True), ({}, False)):
        listener = Listener()
        ingest(frame, schema_of(**time), folder=tmp_path, listener=listener)
        for words in ("is not used", "that mark `event` have a treatment, which is taken to come after the event"):
            assert any(words in line for line in listener.warnings) == warned


def ten_days(k: int) -> date:
    return date(2022, 11, 20) + timedelta(days=10 * k)


DATES: dict[str, tuple[Callable[[int], date], Callable[[date], str]]] = {
    **{kind: (when, written) for kind, (when, written, _) in KINDS.items() if kind != "2015"},
    "every ten days": (ten_days, str),
    "20221120": (ten_days, "{:%Y%m%d}".format),
    "days of months": (KINDS["202212"][0], str),
    "02/01/2022": (KINDS["202212"][0], "{:%m/%d/%Y}".format),  # of which no start tells the format
}
OF_DAYS = ("every ten days", "20221120", "days of months", "02/01/2022")


def dated(frame: pl.DataFrame, kind: str, *, closed: bool, periods: int = 1) -> pl.DataFrame:
    """Intervals of one period or several that begin when the next one of ten days did, and end before it if closed."""
    when, written = DATES[kind]
    which = (frame["start"] / 10).cast(pl.Int64).to_list()
    less, days = (0, timedelta(days=closed)) if kind in OF_DAYS else (int(closed), timedelta(0))
    start = [written(when(k * periods)) for k in which]
    stop = [written(when((k + 1) * periods - less) - days) for k in which]
    return frame.with_columns(start=pl.Series(start), stop=pl.Series(stop))


@pytest.mark.parametrize("periods", [1, 3])
@pytest.mark.parametrize(
    ("kind", "closed"), [(kind, closed) for kind in DATES for closed in (False, True) if closed or "/" not in kind]
)
def test_intervals_of_dates_and_periods_are_ingested_as_guessed(
    frame: pl.DataFrame, plain: Dataset, kind: str, closed: object, periods: int, tmp_path: Path
) -> None:
    table = dated(frame, kind, closed=bool(closed), periods=periods)
    text = guess_schema([save(table, tmp_path / "table.csv")]).text
    schema = parse_schema(tomllib.loads(text))
    assert (schema.named("time"), schema.time.stop, schema.time.closed or False) == (["start"], "stop", closed)
    assert schema.time.gaps == "error"
    steps = ingest(table, schema, folder=tmp_path)
    for subject in frame["id"].unique().to_list():
        (panel, row), (other, at) = (of(made, str(subject)) for made in (steps, plain))
        assert panel.length[row] == other.length[at]
        assert panel.ends[row] == other.ends[at]
        np.testing.assert_array_equal(panel.treatments[row], other.treatments[at])


@pytest.mark.parametrize("kind", ["202212", "every ten days", "days of months", "numbers"])
def test_closed_intervals_are_recognised_by_the_reader_and_by_that_of_new_subjects(
    frame: pl.DataFrame, kind: str, tmp_path: Path
) -> None:
    numbers = frame.with_columns(pl.col("start").cast(pl.Int64), stop=pl.col("start").cast(pl.Int64) + 9)
    table = numbers if kind == "numbers" else dated(frame, kind, closed=True)
    step: dict[str, Any] = {"numbers": {"step": 10}, "202212": {"step": "1mo", "format": "%Y%m"},
                            "days of months": {"step": "1mo"}}.get(kind, {"step": "10d"})  # fmt: skip
    listener = Listener()
    dataset = ingest(table, schema_of(**step), folder=tmp_path, listener=listener)
    (note,) = [note for note in listener.notes if "(`closed`)" in note]
    assert note.startswith("column 'stop': intervals include their last ")
    half = frame.with_columns(stop=pl.col("start") + 10)
    plain = ingest(half, schema_of(), folder=tmp_path)
    for subject in range(40):
        (panel, row, _), (other, at, _) = (series(made, frame, subject) for made in (dataset, plain))
        assert (panel.length[row], panel.ends[row]) == (other.length[at], other.ends[at])
    alone = table.filter(pl.col("id") == table["id"][0]).head(1)  # by which nobody could tell
    (new,) = read_new_subjects(save(alone, tmp_path / "new.csv"), like=dataset).panels.values()
    assert new.length.tolist() == [2]


def week(k: int) -> datetime:
    return datetime(2022, 1, 3) + timedelta(weeks=k)


LAYOUTS: dict[str, tuple[Callable[[int], tuple[object, object]], bool]] = {
    "to the last second": (lambda k: (str(week(k)), str(week(k + 1) - timedelta(seconds=1))), True),
    "to the last minute": (
        lambda k: (f"{week(k):%Y-%m-%d %H:%M}", f"{week(k) + timedelta(days=6):%Y-%m-%d} 23:59"),
        True,
    ),
    "from the 15th": (lambda k: (f"2022-{k + 1:02}-15", f"2022-{k + 2:02}-14"), True),
    "one day each": (lambda k: (f"2022-01-{k + 1:02}",) * 2, True),
    "one number each": (lambda k: (k, k), True),
    "of Parquet": (lambda k: (week(k).date(), (week(k) + timedelta(days=6)).date()), True),
    "some on the day of the next": (lambda k: (str(week(k)), str(week(k) + timedelta(days=6 + (k == 2)))), False),
}


@pytest.mark.parametrize("kind", LAYOUTS)
def test_closed_intervals_of_many_kinds_keep_all_subjects_and_events(
    frame: pl.DataFrame, kind: str, tmp_path: Path
) -> None:
    of, closed = LAYOUTS[kind]
    start, stop = zip(*(of(int(k) // 10) for k in frame["start"]), strict=True)
    table = frame.with_columns(start=pl.Series(start), stop=pl.Series(stop))
    path = save(table, tmp_path / ("table.parquet" if "Parquet" in kind else "table.csv"))
    schema = parse_schema(tomllib.loads(guess_schema([path]).text))
    assert (schema.time.stop, schema.time.closed or False) == ("stop", closed)
    dataset = ingest(path, schema)
    assert sum(int((panel.ends == 1).sum()) for panel in dataset.panels.values()) == frame["event"].sum()
    for subject in frame["id"].unique().to_list():
        panel, row, own = series(dataset, frame, subject)
        assert panel.length[row] == own.height + 1


def test_what_the_schema_says_of_closed_intervals_holds(frame: pl.DataFrame, tmp_path: Path) -> None:
    table = dated(frame, "every ten days", closed=True)
    listener = Listener()
    ingest(table, schema_of(step="10d", closed=False), folder=tmp_path, listener=listener)
    assert not any("closed" in note for note in listener.notes)
    one = frame.group_by("id", maintain_order=True).first().with_columns(start=pl.lit(5), stop=pl.lit(5), hb="id")
    lines = problems(one, schema_of(), folder=tmp_path)
    assert "not after `start`" in lines[0]
    lines = problems(one, schema_of(closed=True, step=1), folder=tmp_path)
    assert lines == ["source/train: outcome 'hb' was never observed after a first step (choose an outcome that was)"]
    halves = frame.with_columns(stop=pl.col("start") + 9.5)
    assert "have no last unit" in problems(halves, schema_of(closed=True), folder=tmp_path)[0]
    with pytest.raises(UsageError, match="`closed` says what `stop` is"):
        schema_of(stop=None, closed=True)


def test_an_event_within_a_month_comes_after_the_treatment_of_that_month(frame: pl.DataFrame, tmp_path: Path) -> None:
    table = dated(frame, "days of months", closed=True)
    early = pl.when(pl.col("event") == 1).then(pl.col("start").str.replace("01$", "17")).otherwise("stop")
    dataset = ingest(table.with_columns(stop=early), schema_of(step="1mo"), folder=tmp_path)
    assert sum(int((panel.ends == 1).sum()) for panel in dataset.panels.values()) == frame["event"].sum()
    panel, row, own = series(dataset, frame, int(frame.filter(pl.col("event") == 1)["id"][0]))
    assert panel.length[row] == own.height + 1


@pytest.mark.parametrize("name", ["obs", "ym_of_visit", "key3"])
def test_months_and_days_as_numbers_are_a_time_whatever_they_are_called(name: str, tmp_path: Path) -> None:
    months = [202200 + 100 * (k // 12) + k % 12 + 1 for k in range(8, 20)]
    people = pl.concat(
        [pl.DataFrame({"patient": who, name: months, "drug": np.arange(12) % 2, "y": np.arange(12) * 1.5 + who})
         for who in range(10)]
    )  # fmt: skip
    schema = parse_schema(tomllib.loads(guess_schema([save(people, tmp_path / "table.csv")]).text))
    assert (schema.named("time"), schema.time.step, schema.time.format) == ([name], "1mo", "%Y%m")
    assert ingest(tmp_path / "table.csv", schema).panels


def test_numbers_of_subjects_and_few_numbers_are_no_months(tmp_path: Path) -> None:
    ids = [f"20{site}00{k}" for site in range(4) for k in range(1, 4)]
    people = pl.concat(
        [pl.DataFrame({"subject_id": who, "day": np.arange(8), "drug": np.arange(8) % 2, "y": np.arange(8) * 1.5,
                       "kind": [201901, 202003, 202101, 202101] * 2}) for who in ids]
    )  # fmt: skip
    schema = parse_schema(tomllib.loads(guess_schema([save(people, tmp_path / "table.csv")]).text))
    assert (schema.named("subject"), schema.named("time")) == (["subject_id"], ["day"])
    assert "kind" in schema.named("covariate")


def uneven_intervals(lengths: tuple[int, ...] = (1, 2, 1, 1, 3, 1, 3)) -> pl.DataFrame:
    """40 subjects of intervals of so many steps, treated in every second one, with an outcome at each start."""
    rng = np.random.default_rng(0)
    stops = np.cumsum(lengths)
    rows = [
        (i, int(stop) - length, int(stop), (i + k) % 2, round(rng.normal(), 3), round(rng.normal(), 3))
        for i in range(40)
        for k, (stop, length) in enumerate(zip(stops, lengths, strict=True))
    ]
    return pl.DataFrame(rows, schema=["subject", "start", "stop", "drug", "lab", "y"], orient="row")


def test_a_guess_of_intervals_is_ingested_and_treats_until_their_stop(tmp_path: Path) -> None:
    frame, listener = uneven_intervals(), Listener()
    guess = guess_schema([save(frame, tmp_path / "table.csv")])
    lines = {line.split(" = ")[0]: line for line in guess.text.splitlines()}
    assert 'drug = { role = "treatment", missing = "carry" }  # CHECK' in lines["drug"]
    assert "The dose of an interval holds until its stop" in lines["drug"]
    assert "120 steps between rows without one" in lines["start"]
    dataset = ingest(frame, parse_schema(tomllib.loads(guess.text)), folder=tmp_path, listener=listener)
    for subject in range(40):
        panel, row = of(dataset, str(subject))
        own = frame.filter(pl.col("subject") == subject)
        in_force = np.concatenate([[drug] * (stop - start) for start, stop, drug in own[:, 1:4].iter_rows()])
        np.testing.assert_array_equal(panel.treatments[row, : len(in_force), 0], in_force)
        assert panel.length[row] == len(in_force) + 1
        seen = np.flatnonzero(panel.observed_outcomes[row, :, 0])
        np.testing.assert_array_equal(seen, own["start"])  # an outcome is known where it was measured
    assert not any("biased towards zero" in warning for warning in listener.warnings)


def test_blank_treatments_of_intervals_are_asked_about_without_ending_other_intervals(tmp_path: Path) -> None:
    blank = uneven_intervals().with_columns(drug=pl.when(pl.int_range(pl.len()) != 3).then("drug"))
    text = guess_schema([save(blank, tmp_path / "table.csv")]).text
    (line,) = (line for line in text.splitlines() if line.startswith("drug = "))
    assert "1 value missing: does the last one go on, or else write what was given?" in line
    assert 'missing = "fill"' not in line


@pytest.mark.parametrize("times", ["numbers", "dates"])
def test_overlaps_that_hide_intervals_are_named_at_their_stop(times: str, tmp_path: Path) -> None:
    frame = uneven_intervals().with_columns(stop=pl.when(pl.int_range(pl.len()) == 9).then(6).otherwise("stop"))
    if times == "dates":
        days = [pl.lit(date(2024, 1, 1)) + pl.duration(days=pl.col(name)) for name in ("start", "stop")]
        frame = frame.with_columns(start=days[0].cast(pl.Date), stop=days[1].cast(pl.Date))
    guess = guess_schema([save(frame, tmp_path / "table.csv")])
    (told,) = (doubt for doubt in guess.doubts if doubt.startswith("stop: "))
    assert "those of 1 subject overlap, first of 1 in row 10: correct them and run `--init` again" in told
    assert "overlap, first of 1 in row 10" in guess.text


@pytest.mark.parametrize("times", ["numbers", "dates", "closed months"])
def test_a_long_last_interval_after_even_starts_is_filled_and_ingested(times: str, tmp_path: Path) -> None:
    frame = uneven_intervals((1, 1, 1, 1, 4))
    if times == "dates":
        days = [date(2024, 1, 1) + pl.duration(days=pl.col(name)) for name in ("start", "stop")]
        frame = frame.with_columns(start=days[0].cast(pl.Date), stop=days[1].cast(pl.Date))
    elif times == "closed months":
        first = pl.date(2024, 1 + pl.col("start"), 1)
        frame = frame.with_columns(start=first, stop=pl.date(2024, 1 + pl.col("stop"), 1) - pl.duration(days=1))
    guess = guess_schema([save(frame, tmp_path / "table.csv")])
    (line,) = (line for line in guess.text.splitlines() if line.startswith("start = "))
    assert "120 steps of last intervals without a row: treatments go on there" in line
    dataset = ingest(frame, parse_schema(tomllib.loads(guess.text)), folder=tmp_path)
    panel, row = of(dataset, "0")
    assert panel.length[row] == 9
    np.testing.assert_array_equal(panel.treatments[row, :8, 0], [0, 1, 0, 1, 0, 0, 0, 0])  # the last dose goes on


def test_a_blank_end_of_a_last_interval_is_asked_about_and_does_not_hide_the_others(tmp_path: Path) -> None:
    frame = uneven_intervals((2, 2, 2))
    last = (pl.col("subject") < 3) & pl.col("subject").is_last_distinct()
    blank = frame.with_columns(stop=pl.when(~last).then("stop"))
    guess = guess_schema([save(blank, tmp_path / "table.csv")])
    assert '\nstop = "stop"' in guess.text
    (told,) = (doubt for doubt in guess.doubts if doubt.startswith("start: "))
    assert "the last interval of 3 subjects has no `stop`: write how far it goes" in told
    inner = frame.with_columns(stop=pl.when(pl.int_range(pl.len()) != 1).then("stop"))
    assert "\nstop =" not in guess_schema([save(inner, tmp_path / "inner.csv")]).text
    other = blank.rename({"stop": "next_visit"})  # blank where there is no next visit: no end of an interval
    assert "\nstop =" not in guess_schema([save(other, tmp_path / "other.csv")]).text
