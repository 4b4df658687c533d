"""Exports keep when steps were: dates, visits at any time, and origins of queries, as ingestion reads them."""

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from costar_cli.data import Dataset, Panel, Part
from costar_cli.data.calendar import Calendar
from costar_cli.data.table import TableInputs, ingest_table
from costar_cli.data.table.export import export_dataset
from costar_cli.data.table.schema_file import read_schema
from costar_cli.data.tumor.settings import TumorConfig
from costar_cli.data.tumor.simulate import simulate_tumor
from costar_cli.reporting import NullReporter
from tests.datasets.table_worlds import assert_same_dataset, ingest, make_schema, ward

TEST = Part("source", "test")
START = datetime(2024, 2, 27)


def through_tables(dataset: Dataset, out: Path, form: str = "csv") -> tuple[Dataset, pl.DataFrame, pl.DataFrame]:
    """What comes back of an export, and its tables as text."""
    table, schema, queries = export_dataset(dataset, out, form)
    again = ingest_table(TableInputs([table], None, queries), read_schema(schema), NullReporter())
    read = pl.read_parquet if form == "parquet" else lambda path: pl.read_csv(path, infer_schema=False)
    return again, read(table), read(queries)


def dates(panel: Panel) -> list[str]:
    found = panel.dates(*np.nonzero(panel.observed))
    assert found is not None
    return list(found)


def assert_same_dates(again: Dataset, dataset: Dataset) -> None:
    assert_same_dataset(again, dataset)
    for part, panel in again.panels.items():
        mine, theirs = panel.calendar, dataset.panels[part].calendar
        assert mine is not None
        assert theirs is not None
        assert mine.kind == theirs.kind
        assert dates(panel) == dates(dataset.panels[part])


def dated(every: timedelta) -> pl.DataFrame:
    """Patients whose first rows are on different days."""
    frame, day = ward(), pl.col("day")
    first = pl.col("patient").str.slice(1).cast(pl.Int64) % 4
    return frame.with_columns(day=START + first * timedelta(days=1) + day * every)


@pytest.mark.parametrize(
    ("every", "time", "first"),
    [
        (timedelta(days=1), {"step": "1d"}, "2024-02-28"),
        (timedelta(weeks=2), {"step": "2w", "unit": "round"}, "2024-02-28"),
        (timedelta(hours=6), {"step": "6h", "zone": "Europe/Berlin"}, "2024-02-27 23:00"),
        (timedelta(seconds=90), {"step": "90s"}, "2024-02-28 00:00:00"),
        (timedelta(days=1), {"step": "1d", "calendar": ["weekday"]}, "2024-02-28"),
        (timedelta(minutes=50), {"step": "1h", "gaps": "ignore"}, "2024-02-28 00:00"),
    ],
)
def test_dates_and_origins_go_into_tables_and_come_back(
    every: timedelta, time: dict[str, Any], first: str, tmp_path: Path
) -> None:
    dataset = ingest(dated(every), make_schema(time=time), folder=tmp_path)
    again, table, queries = through_tables(dataset, tmp_path / "out")
    assert_same_dates(again, dataset)
    assert table.filter(pl.col("subject") == "p01")["time"][0] == first
    asked = dataset.queries[TEST]["rolling_origin"]
    origin = dataset.panels[TEST].dates(asked.subject, asked.origin)
    said = queries.filter((pl.col("step").cast(pl.Int64) == 1) & pl.col("subject").is_in(dataset.panels[TEST].names))
    assert origin is not None
    assert said["origin"].to_list() == list(origin)


def test_months_are_written_as_days_that_ingestion_reads(tmp_path: Path) -> None:
    frame = ward(days=8).with_columns(day=pl.format("2024-0{}-15", pl.col("day") + 1))
    dataset = ingest(frame, make_schema(time={"step": "1mo"}), folder=tmp_path)
    again, table, _ = through_tables(dataset, tmp_path / "out", "parquet")
    assert_same_dates(again, dataset)
    assert table["time"][0] == "2024-01-01"


def test_a_split_by_time_comes_back_with_dates(tmp_path: Path) -> None:
    split = {"by": "time", "val_from": "2024-03-03", "test_from": "2024-03-06"}
    frame = ward(30, 12).with_columns(day=START + pl.col("day") * timedelta(days=1))
    dataset = ingest(frame, make_schema(time={"step": "1d"}, split=split), folder=tmp_path)
    again, _, _ = through_tables(dataset, tmp_path / "out")
    assert_same_dates(again, dataset)


GAPS = pl.col("day") + pl.col("day").cast(pl.Float64) ** 2 / 7  # farther and farther apart


def test_visits_with_dates_come_back_with_their_gaps(tmp_path: Path) -> None:
    time = START + (GAPS * 1440).round().cast(pl.Int64) * timedelta(minutes=1)
    dataset = ingest(
        ward().with_columns(day=time), make_schema(time={"step": "1d", "gaps": "elapsed"}), folder=tmp_path
    )
    again, table, _ = through_tables(dataset, tmp_path / "out")
    assert_same_dates(again, dataset)
    assert "elapsed" not in table.columns


def test_visits_with_numbers_for_times_come_back_with_their_gaps(tmp_path: Path) -> None:
    frame = ward().with_columns(day=(GAPS * 8).round() / 8 + 3)
    dataset = ingest(frame, make_schema(time={"gaps": "elapsed", "unit": "day"}), folder=tmp_path)
    again, table, queries = through_tables(dataset, tmp_path / "out")
    assert_same_dataset(again, dataset)
    assert table["time"][:3].to_list() == ["0.0", "1.125", "2.625"]
    assert set(queries["origin"]) <= set(table["time"])


def test_simulated_visits_come_back(tmp_path: Path) -> None:
    config = TumorConfig(train=20, val=8, test=6, target_train=5, target_val=5, target_test=5, steps=30, horizon=2,
                         visits=4, seed=1)  # fmt: skip
    dataset = simulate_tumor(config, NullReporter())
    again, _, _ = through_tables(dataset, tmp_path / "out")
    assert_same_dates(again, dataset)


@pytest.mark.parametrize("size", [1, None])
def test_dates_that_no_schema_can_say_are_left_out(size: int | None, tmp_path: Path) -> None:
    """Microseconds are no step of a schema; two rows of one date would contradict each other."""
    dataset = ingest(ward(), folder=tmp_path)
    panels = {
        part: replace(
            panel, calendar=Calendar(np.zeros((panel.n_subjects, 1 if size else panel.n_steps), int), "us", size)
        )
        for part, panel in dataset.panels.items()
    }
    again, table, _ = through_tables(replace(dataset, panels=panels), tmp_path / "out")
    assert_same_dataset(again, dataset)
    assert table["time"][:2].to_list() == ["0", "1"]
