"""Times that are periods: months, quarters, ISO weeks and years, as numbers and as texts, from `--init` to answers."""

import tomllib
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from costar_cli.data import Dataset, Panel
from costar_cli.data.calendar import Date
from costar_cli.data.store import read_dataset, write_dataset
from costar_cli.data.table import TableInputs, ingest_table
from costar_cli.data.table.export import export_dataset
from costar_cli.data.table.guess import guess_schema
from costar_cli.data.table.new_subjects import ingest_new
from costar_cli.data.table.preprocessing import Preprocessing
from costar_cli.data.table.schema_file import parse_schema, read_schema
from costar_cli.errors import ArtifactError, UsageError
from costar_cli.plans import IndexTimes, parse_origin, parse_plans, step_of
from costar_cli.reporting import NullReporter
from tests.datasets.table_worlds import ingest, make_schema, of, problems, save, ward


def month(k: int) -> date:
    return date(2022 + (8 + k) // 12, (8 + k) % 12 + 1, 1)


def quarter(k: int) -> date:
    return date(2019 + (2 + k) // 4, (2 + k) % 4 * 3 + 1, 1)


def week(k: int) -> date:
    return date(2020, 12, 14) + timedelta(weeks=k)  # across 2020-W53


def year(k: int) -> date:
    return date(2012 + k, 1, 1)


def iso(form: str) -> Callable[[date], str]:
    return lambda day: form.format(year=day.isocalendar().year, week=day.isocalendar().week)


def plain(form: str) -> Callable[[date], str]:
    return lambda day: form.format(day=day, quarter=(day.month + 2) // 3)


KINDS: dict[str, tuple[Callable[[int], date], Callable[[date], str], dict[str, Any]]] = {
    "202212": (month, plain("{day:%Y%m}"), {"step": "1mo", "format": "%Y%m"}),
    "2022-12": (month, plain("{day:%Y-%m}"), {"step": "1mo", "format": "%Y-%m"}),
    "2022M12": (month, plain("{day:%Y}M{day:%m}"), {"step": "1mo", "format": "%YM%m"}),
    "2019Q3": (quarter, plain("{day:%Y}Q{quarter}"), {"step": "3mo", "unit": "quarter", "format": "%YQ%q"}),
    "2019-Q3": (quarter, plain("{day:%Y}-Q{quarter}"), {"step": "3mo", "unit": "quarter", "format": "%Y-Q%q"}),
    "201903": (quarter, plain("{day:%Y}0{quarter}"), {"step": "3mo", "unit": "quarter", "format": "%Y0%q"}),
    "20193": (quarter, plain("{day:%Y}{quarter}"), {"step": "3mo", "unit": "quarter", "format": "%Y%q"}),
    "2023-W40": (week, iso("{year}-W{week:02}"), {"step": "1w", "format": "%G-W%V"}),
    "2023W40": (week, iso("{year}W{week:02}"), {"step": "1w", "format": "%GW%V"}),
    "202340": (week, iso("{year}{week:02}"), {"step": "1w", "format": "%G%V"}),
    "2015": (year, plain("{day:%Y}"), {"step": "1y", "format": "%Y"}),
}


def of_periods(kind: str, *, days: int = 6) -> tuple[pl.DataFrame, list[str]]:
    """The ward with six periods for its days, and what these are called."""
    when, written, _ = KINDS[kind]
    names = [written(when(k)) for k in range(days)]
    frame = ward(days=days)
    return frame.with_columns(period=pl.Series(names).gather(frame["day"])).drop("day"), names


def schema_of(kind: str, **time: Any) -> Any:
    return make_schema({"period": {"role": "time"}}, without=("day",), time=KINDS[kind][2] | time)


def called(panel: Panel, row: int) -> list[object]:
    dates = panel.dates(np.full(6, row), np.arange(6))
    return [] if dates is None else list(dates)


@pytest.mark.parametrize(("kind", "form"), [*((kind, "csv") for kind in KINDS), ("202212", "parquet")])
def test_periods_are_steps_and_answers_call_them_as_the_data_do(kind: str, form: str, tmp_path: Path):
    frame, names = of_periods(kind)
    if form == "parquet" and names[0].isdigit():
        frame = frame.with_columns(pl.col("period").cast(pl.Int64))
    plainly = ingest(ward(), folder=tmp_path)
    data = ingest(frame, schema_of(kind), folder=tmp_path, form=form)
    panel, row = of(data, "p01")
    np.testing.assert_array_equal(panel.outcomes, of(plainly, "p01")[0].outcomes)
    assert called(panel, row) == names
    assert data.schema.step == {"1mo": "month", "3mo": "quarter", "1w": "week", "1y": "year"}[KINDS[kind][2]["step"]]


@pytest.mark.parametrize(
    ("kind", "form", "column"),
    [*((kind, "csv", "period") for kind in KINDS), ("202212", "parquet", "period"), ("2019Q3", "csv", "yq"),
     ("20193", "csv", "quarter"), ("2015", "csv", "year")],
)  # fmt: skip
def test_a_guess_proposes_the_format_and_the_step_of_periods(kind: str, form: str, column: str, tmp_path: Path):
    frame, names = of_periods(kind, days=12)
    if form == "parquet" and names[0].isdigit():
        frame = frame.with_columns(pl.col("period").cast(pl.Int64))
    path = save(frame.rename({"period": column}), tmp_path / f"table.{form}")
    schema = parse_schema(tomllib.loads(guess_schema([path]).text))
    assert schema.columns[column].role == "time"
    wanted = KINDS[kind][2]
    assert schema.time.model_dump(exclude_defaults=True) == wanted
    assert ingest(path, schema).panels


def test_months_across_a_new_year_are_one_apart(tmp_path: Path):
    frame, names = of_periods("202212")
    assert names[3:5] == ["202212", "202301"]
    with_gaps = frame.filter(~((pl.col("period") == "202301") & (pl.col("patient") == "p01")))
    (line,) = problems(with_gaps, schema_of("202212"), folder=tmp_path)
    assert "1 gap" in line


def test_months_need_no_format_where_the_step_is_of_months(tmp_path: Path):
    frame, names = of_periods("2022-12")
    schema = make_schema({"period": {"role": "time"}}, without=("day",), time={"step": "1mo"})
    data = ingest(frame, schema, folder=tmp_path)
    assert called(*of(data, "p01")) == names
    days = make_schema({"period": {"role": "time"}}, without=("day",), time={"step": "30d"})
    (line,) = problems(frame, days, folder=tmp_path)  # which of its days?
    assert 'give `format = "%Y-%m"` in [time]' in line


@pytest.mark.parametrize(("kind", "form"), [("2019Q3", "%YQ%q"), ("2023-W40", "%G-W%V"), ("202212", "%Y%m")])
def test_periods_that_are_read_as_dates_get_the_format_as_advice(kind: str, form: str, tmp_path: Path):
    frame, _ = of_periods(kind)
    step = KINDS[kind][2]["step"]
    schema = make_schema({"period": {"role": "time"}}, without=("day",), time={"step": step})
    (line,) = problems(frame, schema, folder=tmp_path)
    assert f'give `format = "{form}"` in [time]' in line


@pytest.mark.parametrize("kind", KINDS)
def test_periods_are_origins_and_steps_of_plans(kind: str, tmp_path: Path):
    frame, names = of_periods(kind)
    data = ingest(frame, schema_of(kind), folder=tmp_path)
    panel, row = of(data, "p02")
    one = panel.take([row])
    for asked in (names[3], *([int(names[3])] if names[3].isdigit() else [])):
        assert step_of(one, parse_origin(asked)) == 3
        assert IndexTimes.of(panel, parse_origin(asked)).origin_Q.tolist() == [3] * panel.n_subjects
    with pytest.raises(UsageError, match="outside the series"):
        step_of(one, parse_origin(KINDS[kind][1](KINDS[kind][0](40))))
    until: object = int(names[5]) if names[5].isdigit() else names[5]
    drug = '{"drug": "low"}'
    written = f'"{until}"' if isinstance(until, str) else until
    document = f'{{"plans": {{"a": {{"repeat": {drug}, "until": {written}}}}}}}'
    start = IndexTimes.of(one, 3)
    plans = parse_plans(document, data.schema, horizon=4, where="x", origin=3, begin=lambda _: start)
    assert len(plans.fixed[0]) == 2
    document = f'{{"plans": {{"a": {{"at": {{"{names[4]}": {drug}}}}}}}}}'
    plans = parse_plans(document, data.schema, horizon=4, where="x", origin=3, begin=lambda _: start)
    assert plans.fixed[0].values[:, 0].tolist() == [0, 1]
    table = f"plan,step,drug\na,{names[3]},low\na,{names[4]},high\n"
    read = parse_plans(table, data.schema, horizon=4, where="x.csv", origin=3, begin=lambda _: start)
    assert read.fixed[0].values[:, 0].tolist() == [1, 2]


def test_numbers_stay_steps_where_times_are_no_numbers(tmp_path: Path):
    frame, _ = of_periods("2019Q3")
    panel, row = of(ingest(frame, schema_of("2019Q3"), folder=tmp_path), "p01")
    assert step_of(panel.take([row]), 2) == 2
    assert IndexTimes.of(panel, 2019).outside_Q.all()


def test_years_that_are_numbers_are_origins_where_the_step_is_a_year(tmp_path: Path):
    frame = ward().with_columns(day=pl.col("day") + 2012)
    data = ingest(frame, make_schema(time={"unit": "year"}), folder=tmp_path)
    panel, row = of(data, "p01")
    assert called(panel, row) == [str(2012 + k) for k in range(6)]
    assert step_of(panel.take([row]), parse_origin("2015")) == 3
    assert step_of(panel.take([row]), parse_origin("3")) == 3
    since = ingest(ward(), make_schema(time={"unit": "year"}), folder=tmp_path)  # years since something
    assert of(since, "p01")[0].calendar is None


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "2022-12"])  # whose export has days, as of old
def test_periods_are_kept_in_files_and_exports(kind: str, tmp_path: Path):
    frame, names = of_periods(kind)
    data = ingest(frame, make_schema({"period": {"role": "time"}}, without=("day",), domain={}, time=KINDS[kind][2]),
                  folder=tmp_path)  # fmt: skip
    write_dataset(tmp_path / "data.h5", data)
    assert called(*of(read_dataset(tmp_path / "data.h5"), "p01")) == names
    export_dataset(data, tmp_path / "out", "csv")
    written = pl.read_csv(tmp_path / "out" / "table.csv", infer_schema=False)
    assert set(names) <= {text for name in written.columns for text in written[name].to_list()}
    inputs = TableInputs((tmp_path / "out" / "table.csv",), queries=tmp_path / "out" / "queries.csv")
    again = ingest_table(inputs, read_schema(tmp_path / "out" / "schema.toml"), NullReporter())
    assert called(*of(again, "p01")) == names


def test_new_subjects_have_periods_as_training_had(tmp_path: Path):
    frame, names = of_periods("201903")
    data = ingest(frame, schema_of("201903"), folder=tmp_path)
    path = save(frame.filter(pl.col("patient") == "p01"), tmp_path / "new.csv")
    new: Dataset = ingest_new(TableInputs([path]), Preprocessing.of_dataset(data), NullReporter())
    assert called(*of(new, "p01")) == names


def test_splits_by_time_begin_with_a_period(tmp_path: Path):
    frame, _ = of_periods("202212")
    for moment in ("2023-01", 202301):
        split = {"by": "time", "val_from": moment, "test_from": "2023-02"}
        schema = make_schema({"period": {"role": "time"}}, without=("day",), split=split, horizon=1,
                             time=KINDS["202212"][2])  # fmt: skip
        data = ingest(frame, schema, folder=tmp_path)
        lengths = {str(part): int(panel.length.max()) for part, panel in data.panels.items()}
        assert (lengths["source/train"], lengths["source/val"]) == (4, 5)


def test_quarters_stand_with_their_years_alone():
    with pytest.raises(UsageError, match="needs its year"):
        make_schema(time={"step": "3mo", "format": "%Y-%m Q%q"})


@pytest.mark.parametrize(
    ("text", "begin", "last"),
    [
        ("2019Q3", "2019-07-01", "2019-09-30"),
        ("2019-q4", "2019-10-01", "2019-12-31"),
        ("2020-W53", "2020-12-28", "2021-01-03"),
        ("2023W40", "2023-10-02", "2023-10-08"),
        ("2022M9", "2022-09-01", "2022-09-30"),
    ],
)
def test_a_period_begins_and_ends(text: str, begin: str, last: str):
    found = Date.parse(text)
    assert found is not None
    assert (str(found.begin)[:10], str(found.last)[:10]) == (begin, last)


@pytest.mark.parametrize("text", ["2019Q5", "2021-W53", "2019Q", "0000Q1", "202212", "2022M13", "2019-Q3-01"])
def test_what_is_no_period_is_none(text: str):
    assert Date.parse(text) is None


def test_a_form_that_nobody_writes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    frame, _ = of_periods("2019Q3")
    data = ingest(frame, schema_of("2019Q3"), folder=tmp_path)
    for panel in data.panels.values():
        assert panel.calendar is not None
        object.__setattr__(panel.calendar, "form", "%x")
    write_dataset(tmp_path / "odd.h5", data)
    with pytest.raises(ArtifactError, match="unknown form"):
        read_dataset(tmp_path / "odd.h5")
