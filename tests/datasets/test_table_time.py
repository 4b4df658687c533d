"""Times become steps: numbers, dates in every spelling, months, gaps."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from costar_cli.data.store import read_dataset
from costar_cli.data.table.files import open_files
from costar_cli.data.table.guess import guess_schema
from costar_cli.data.table.parse import Reading, read_rows
from tests.datasets.table_worlds import Listener, assert_same_dataset, ingest, make_schema, of, problems, save, ward

DAY = datetime(2024, 2, 27)
MOMENTS = Path(__file__).parent / "moments"  # by pyarrow 26; spark.parquet as Spark does: INT96, no Arrow schema


def dated(frame: pl.DataFrame, step: timedelta) -> pl.DataFrame:
    return frame.with_columns(day=pl.lit(DAY) + pl.duration(seconds=pl.col("day") * int(step.total_seconds())))


@pytest.mark.parametrize(
    "written", ["%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S.250", "%Y-%m-%dT%H:%M:%SZ"]
)
def test_dates_become_steps(written: str, tmp_path: Path):
    plain = ingest(ward(), folder=tmp_path)
    texts = dated(ward(), timedelta(hours=6)).with_columns(pl.col("day").dt.strftime(written))
    dataset = ingest(texts, make_schema(time={"step": "6h", "unit": "step"}), folder=tmp_path)
    assert_same_dataset(dataset, plain)


def test_typed_dates_zones_and_own_formats_become_steps_too(tmp_path: Path):
    plain = ingest(ward(), make_schema(time={"unit": "day"}), folder=tmp_path)
    days = dated(ward(), timedelta(days=1))
    schema = make_schema(time={"step": "1d"})
    day = pl.col("day")
    for typed in (day, day.cast(pl.Date), day.dt.replace_time_zone("UTC"), day.cast(pl.Datetime("ms"))):
        assert_same_dataset(ingest(days.with_columns(typed), schema, folder=tmp_path, form="parquet"), plain)
    german = days.with_columns(pl.col("day").dt.strftime("%d.%m.%Y"))
    assert_same_dataset(ingest(german, make_schema(time={"step": "1d", "format": "%d.%m.%Y"}), folder=tmp_path), plain)


@pytest.mark.parametrize("name", ["arrow", "spark"])
def test_moments_of_every_unit_type_and_zone_are_read_from_parquet(name: str):
    days = [datetime(1880, 2, 29), datetime(1969, 12, 31), datetime(1978, 1, 12), datetime(2021, 1, 4)]
    far = [datetime(1, 1, 1), datetime(1582, 10, 15), datetime(1970, 1, 1), datetime(2300, 1, 1)]
    want = {"days": [*days, datetime(2262, 4, 11)], "far": [*far, datetime(9999, 12, 31)]}
    [file] = open_files([MOMENTS / f"{name}.parquet"])
    rows = read_rows([file], [Reading(column, "us") for column in file.types], ())
    assert len(rows.readings) == (19 if name == "arrow" else 2)
    for reading in rows.readings:
        moments = want["far" if reading.column.startswith("far") else "days"]
        epoch = datetime(1970, 1, 1, tzinfo=UTC)
        expected = [(m.replace(tzinfo=UTC) - epoch) // timedelta(microseconds=1) for m in moments]
        assert rows.series(reading).to_list() == expected, reading.column


@pytest.mark.parametrize(
    ("unit", "zone", "year"),
    [("ms", None, 1925), ("us", "America/New_York", 1969), ("ns", None, 1969), ("ns", "America/New_York", 2150)],
)
def test_a_table_of_typed_times_is_the_same_in_every_unit(unit, zone: str | None, year: int, tmp_path: Path):
    start = pl.lit(datetime(year, 6, 28, 22)).cast(pl.Datetime(unit))
    moment = start + pl.duration(hours=pl.col("day"), time_unit=unit)
    frame = ward().with_columns(day=moment)
    texts = frame.with_columns(pl.col("day").dt.strftime("%Y-%m-%dT%H:%M:%S"))
    if zone:
        frame = frame.with_columns(pl.col("day").dt.replace_time_zone("UTC").dt.convert_time_zone(zone))
    assert frame["day"].dtype == pl.Datetime(unit, zone)
    schema = make_schema(time={"step": "1h"})
    dataset = ingest(frame, schema, folder=tmp_path, form="parquet")
    panel, row = of(dataset, "p01")
    assert panel.dates(np.array([row]), np.array([0])).tolist() == [f"{year}-06-28 22:00"]
    assert_same_dataset(dataset, ingest(texts, schema, folder=tmp_path))


@pytest.mark.parametrize("form", ["parquet", "csv", "%d.%m.%Y %H:%M %z"])
@pytest.mark.parametrize("step", ["1d", "1mo"])
def test_midnights_of_a_zone_are_days_and_months_whenever_clocks_change(step: str, form: str, tmp_path: Path):
    first = datetime(2024, 3, 29) if step == "1d" else datetime(2024, 1, 1)  # clocks change on 31 March
    midnights = [first + timedelta(days=i) if step == "1d" else first.replace(month=1 + i) for i in range(6)]
    zoned = pl.Series(midnights).dt.replace_time_zone("Europe/Berlin")
    frame = ward().with_columns(day=zoned.gather(ward()["day"]))
    if form.startswith("%"):
        frame = frame.with_columns(pl.col("day").dt.strftime(form))
    time = {"step": step} | ({"format": form} if form.startswith("%") else {})
    ending = "parquet" if form == "parquet" else "csv"
    dataset = ingest(frame, make_schema(time=time), folder=tmp_path, form=ending)
    panel, row = of(dataset, "p01")
    dates = [str(midnight.date())[: 7 if step == "1mo" else 10] for midnight in midnights]
    assert panel.dates(np.full(6, row), np.arange(6)).tolist() == dates
    if not form.startswith("%"):
        text = guess_schema([save(frame, tmp_path / f"guessed.{ending}")]).text
        assert f'step = "{step}"' in text
        assert "gaps" not in text


def test_months_count_by_the_calendar(tmp_path: Path):
    months = [f"2023-{m:02d}-28" for m in (9, 10, 11, 12)] + ["2024-01-31", "2024-02-01"]
    frame = ward().with_columns(day=pl.Series(months).gather(ward()["day"]))
    plain = ingest(ward(), make_schema(time={"unit": "month"}), folder=tmp_path)
    assert_same_dataset(ingest(frame, make_schema(time={"step": "1mo"}), folder=tmp_path), plain)


def test_gaps_are_filled_as_missing_values_or_ignored(tmp_path: Path):
    frame = ward().filter((pl.col("patient") != "p01") | (pl.col("day") != 2))
    columns = {name: {"role": role, "missing": "fill"} for name, role in
               (("pressure", "outcome"), ("heart rate", "covariate"), ("drug", "treatment"))}  # fmt: skip
    columns["drug"]["levels"] = ["none", "low", "high"]
    listener = Listener()
    dataset = ingest(frame, make_schema(columns, time={"gaps": "fill"}), folder=tmp_path, listener=listener)
    panel, row = of(dataset, "p01")
    assert panel.length[row] == 6
    assert panel.outcomes[row, 2] == panel.outcomes[row, 1]
    assert panel.treatments[row, 2].argmax() == 0
    assert any("1 step without a row filled in as missing" in note for note in listener.notes)
    dataset = ingest(frame, make_schema(time={"gaps": "ignore"}), folder=tmp_path)
    panel, row = of(dataset, "p01")
    assert panel.length[row] == 5
    strict = problems(
        frame, make_schema({"pressure": columns["pressure"]}, time={"gaps": "fill"}, missing="fill"), folder=tmp_path
    )
    assert "step 2 of subject p01, which has no row" in strict[0]


@pytest.mark.parametrize("gaps", ["error", "fill", "ignore"])
def test_dates_are_kept_with_the_data_set_and_in_its_file(gaps: str, tmp_path: Path):
    frame = ward().filter((pl.col("patient") != "p01") | (pl.col("day") != 2) | (gaps == "error"))
    columns = {name: {"role": role, "missing": "fill"} for name, role in
               (("pressure", "outcome"), ("heart rate", "covariate"), ("drug", "treatment"))}  # fmt: skip
    columns["drug"]["levels"] = ["none", "low", "high"]
    schema = make_schema(columns, time={"step": "1d", "gaps": gaps})
    made = ingest(dated(frame, timedelta(days=1)), schema, folder=tmp_path)
    made.save(tmp_path / "data.h5")
    for dataset in (made, read_dataset(tmp_path / "data.h5")):
        panel, row = of(dataset, "p01")
        steps = np.arange(int(panel.length[row]))
        days = [DAY.date() + timedelta(days=int(t)) for t in steps + (steps > 1) * (gaps == "ignore")]
        assert panel.dates(np.full(len(steps), row), steps).tolist() == [str(day) for day in days]
        assert panel.calendar.time_NK.shape[1] == (panel.n_steps if gaps == "ignore" else 1)


def test_times_that_are_numbers_make_no_dates(tmp_path: Path):
    assert ingest(ward(), folder=tmp_path).panel("source", "train").calendar is None
