"""Times become steps: numbers, dates in every spelling, months, gaps."""

from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from costar_cli.panel.store import read_dataset
from tests.datasets.table_worlds import Listener, assert_same_dataset, ingest, make_schema, of, problems, ward

DAY = datetime(2024, 2, 27)


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
