"""Tables of intervals: an event is at its stop, after its treatment, and nobody is lost by it (spec SURV-6)."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from costar_cli.api.data import read_new_subjects
from costar_cli.datasets.table.guess import guess_schema
from costar_cli.datasets.table.schema import TableSchema
from costar_cli.datasets.table.schema_file import parse_schema
from costar_cli.errors import UsageError
from costar_cli.panel import Dataset
from costar_cli.panel.visits import elapsed
from tests.datasets.table_worlds import Listener, ingest, of, problems, save
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
        said = [line for line in listener.warnings if "is not used" in line]
        assert bool(said) == warned
