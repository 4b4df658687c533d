"""Splits by time: what is learned, selected on and scored is apart, and nothing later reaches an earlier part."""

from dataclasses import replace
from datetime import datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from costar_cli.data import Dataset, Part
from costar_cli.data.store import read_dataset
from costar_cli.data.table import TableInputs, ingest_table
from costar_cli.data.table.export import export_dataset
from costar_cli.data.table.schema_file import read_schema
from costar_cli.data.tensors import PanelTensors
from costar_cli.data.transforms import Scaler
from costar_cli.data.truncated import Stretches
from costar_cli.data.windows import factual_windows
from costar_cli.errors import DataError, UsageError
from costar_cli.methods.regression.ridge_moments import WindowFeatures, step_moments
from costar_cli.questions.subjects import choose_subjects
from tests.datasets.table_worlds import Listener, assert_same_dataset, ingest, make_schema, of, problems, ward

SPLIT = {"by": "time", "val_from": "2024-03-03", "test_from": "2024-03-06"}
TRAIN, VAL, TEST = (Part("source", split) for split in ("train", "val", "test"))


def dated(days: int = 12) -> pl.DataFrame:
    """A ward in which each fifth patient comes two days later, and p01 leaves after the fourth day."""
    late = 2 * (pl.col("patient").str.slice(1).cast(pl.Int64) % 5 == 0)
    frame = ward(30, days).filter((pl.col("patient") != "p01") | (pl.col("day") < 4))
    return frame.with_columns(day=pl.lit(datetime(2024, 2, 27)) + pl.duration(days=pl.col("day") + late))


def split_by_time(frame: pl.DataFrame, folder: Path, **changes: object) -> Dataset:
    return ingest(frame, make_schema(time={"step": "1d"}, split=SPLIT | changes), folder=folder)


def test_each_outcome_is_to_be_predicted_in_one_part(tmp_path: Path):
    frame = dated()
    dataset = split_by_time(frame, tmp_path)
    targets = sum(int(panel.targets[:, 1:].sum()) for panel in dataset.panels.values())
    assert targets == frame.height - frame["patient"].n_unique()  # all but each one's first
    for part, (begin, end) in {TRAIN: ("2024-01-01", "2024-03-03"), VAL: ("2024-03-03", "2024-03-06"),
                               TEST: ("2024-03-06", "2024-12-31")}.items():  # fmt: skip
        panel = dataset.panels[part]
        rows, steps = np.nonzero(panel.targets[..., 0])
        dates = panel.dates(rows, steps)
        assert dates is not None
        assert all(begin <= date < end for date in dates)
        windows = factual_windows(panel, 2)
        assert windows is not None
        first = windows.panel.dates(windows.queries.subject, windows.queries.origin + 1)
        assert first is not None
        assert all(begin <= date < end for date in first)
    asked = dataset.queries[TEST]["rolling_origin"]
    assert (asked.origin + 1 >= dataset.panels[TEST].since[asked.subject]).all()
    assert "p01" not in dataset.panels[TEST].names


def test_later_rows_reach_no_earlier_part(tmp_path: Path):
    frame, later = dated(), pl.col("day") >= datetime(2024, 3, 6)
    changed = frame.with_columns(
        pressure=pl.when(later).then(999.0).otherwise("pressure"),
        **{"heart rate": pl.when(later).then(-5.0).otherwise("heart rate")},
    )
    one, other = (split_by_time(each, tmp_path) for each in (frame, changed))
    for part in (TRAIN, VAL):
        mine, theirs = one.panels[part], other.panels[part]
        for name in ("covariates", "treatments", "outcomes", "statics", "length", "since"):
            np.testing.assert_array_equal(getattr(mine, name), getattr(theirs, name))
    schemas = [dataset.config["preprocessing"] for dataset in (one, other)]
    assert schemas[0] == schemas[1]  # means, ranges, categories
    scalers = [Scaler.fit(dataset.panels[TRAIN], dataset.schema) for dataset in (one, other)]
    np.testing.assert_array_equal(scalers[0].outcomes, scalers[1].outcomes)


def test_what_stands_for_missing_values_is_learned_before_the_first_date(tmp_path: Path):
    early = (pl.col("day") < datetime(2024, 3, 3)) & (pl.col("site") == "north")
    rate = pl.when(early).then(80.0 + pl.col("day").dt.day() % 2).otherwise(10.0)
    frame = dated().with_columns(pl.when(pl.col("patient") != "p02").then(rate).alias("heart rate"))
    columns = {"heart rate": {"role": "covariate", "missing": "fill"}}
    dataset = ingest(frame, make_schema(columns, time={"step": "1d"}, split=SPLIT), folder=tmp_path)
    panel, row = of(dataset, "p02")
    assert 80 < panel.covariates[row, 0, 0] < 81


def test_validation_counts_its_own_steps_alone(tmp_path: Path):
    dataset = split_by_time(dated(), tmp_path)
    panel, scaler = dataset.panels[VAL], Scaler.fit(dataset.panels[TRAIN], dataset.schema)
    own = int(panel.targets[:, 1:].sum())
    assert 0 < own < int((panel.length - 1).sum())
    observed = PanelTensors.from_panel(panel, scaler).observed_NTY
    assert observed is not None
    assert int(observed[:, 1:].sum()) == own
    [[first]] = step_moments(panel, WindowFeatures(panel, scaler, 2), 1, apart=True)
    assert first.n == own
    stretches = Stretches.of(panel, 4).panel
    assert stretches.since is not None
    assert (stretches.since >= 0).all()
    assert int(Stretches.of(panel, 8).panel.targets[:, 1:].sum()) == own


def test_a_subject_of_several_parts_is_asked_once_with_its_whole_series(tmp_path: Path):
    dataset = split_by_time(dated(), tmp_path)
    dataset.save(tmp_path / "data.h5")
    for data in (dataset, read_dataset(tmp_path / "data.h5")):
        assert data.find_subject("p02").part == TEST
        assert data.find_subject("p01").part == TRAIN
        places = choose_subjects(data, "all")
        assert sorted(data.panels[place.part].names[place.row] for place in places) == [
            f"p{i:02d}" for i in range(1, 31)
        ]


def test_a_step_may_not_be_predicted_in_two_parts(tmp_path: Path):
    dataset = split_by_time(dated(), tmp_path)
    panel = dataset.panels[TEST]
    assert panel.since is not None
    with pytest.raises(DataError, match="subject ids are not unique"):
        replace(dataset, panels={**dataset.panels, TEST: replace(panel, since=panel.since - 1)})


def test_moments_are_shares_of_the_rows_by_default(tmp_path: Path):
    listener = Listener()
    numbers = ward(30, 20)
    dataset = ingest(numbers, make_schema(split={"by": "time"}), folder=tmp_path, listener=listener)
    assert "split by time: train before 14, val from there to 17, test from there on" in listener.notes
    assert [int(dataset.panels[part].length.max()) for part in (TRAIN, VAL, TEST)] == [14, 17, 20]
    months = numbers.filter(pl.col("day") < 12).with_columns(
        day=pl.lit("2024-") + (pl.col("day") + 1).cast(pl.String).str.zfill(2) + "-15"
    )
    split = {"by": "time", "val_from": "2024-06", "test_from": "2024-09-15"}
    dataset = ingest(months, make_schema(time={"step": "1mo"}, split=split), folder=tmp_path)
    assert [int(dataset.panels[part].length.max()) for part in (TRAIN, VAL, TEST)] == [5, 8, 12]


def test_few_shot_keeps_training_steps_of_some(tmp_path: Path):
    dataset = split_by_time(dated(), tmp_path, few_shot=4)
    assert dataset.panels[Part("target", "train")].n_subjects == 4
    assert dataset.panels[Part("target", "test")].n_subjects == 10


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ({"val_from": "2024-05-01", "test_from": "2024-06-01"}, "times run from 2024-02-27, row 1 of ward.csv"),
        ({"val_from": "2024-02-27"}, "source/train is empty: no subject has an outcome to predict before 2024-02-27"),
        ({"val_from": "2024-03-05"}, "no source/val subject has the 3 steps that a horizon of 2 needs"),
        ({"val_from": "2024-03-08"}, "val begins at 2024-03-08, and test at 2024-03-06, not later"),
    ],
)  # fmt: skip
def test_empty_parts_are_told_with_rows(split: dict[str, str], message: str, tmp_path: Path):
    schema = make_schema(time={"step": "1d"}, split=SPLIT | split)
    assert any(message in line for line in problems(dated(), schema, folder=tmp_path))


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ({"by": "time", "val_from": 3}, "split.val_from: 3 is not a date such as 2024-03-01"),
        ({"by": "time", "test_from": "spring"}, "split.test_from: 'spring' is not a date"),
        ({"val_from": "2024-03-01"}, '`val_from`: give `by = "time"`, too'),
        ({"by": "time", "target": {"train": 0.5, "val": 0.25, "test": 0.25}}, "split at the same moments"),
    ],
)
def test_a_split_that_cannot_be_meant_is_refused(split: dict[str, object], message: str):
    with pytest.raises(UsageError) as error:
        make_schema(time={"step": "1d"}, split=split)
    assert message in str(error.value)


def test_known_answers_about_steps_of_training_are_refused(tmp_path: Path):
    queries = tmp_path / "queries.csv"
    rows = [f"p02,2024-{origin},{step},none,80" for origin in ("03-01", "03-05") for step in (1, 2)]
    queries.write_text("\n".join(["patient,origin,step,drug,pressure", *rows, ""]))
    schema = make_schema(time={"step": "1d"}, split=SPLIT)
    [line] = problems(dated(), schema, folder=tmp_path, queries=queries)
    assert "1 query about steps that an earlier split has" in line
    assert "row 1 of queries.csv" in line


@pytest.mark.parametrize("few_shot", [None, 4])
def test_a_split_by_time_survives_the_way_into_tables_and_back(few_shot: int | None, tmp_path: Path):
    dataset = split_by_time(dated(), tmp_path, **({"few_shot": few_shot} if few_shot else {}))
    table, text, queries = export_dataset(dataset, tmp_path / "out", "csv")
    frame = pl.read_csv(table)
    assert not frame.select("subject", "time").is_duplicated().any()
    assert frame["split"].null_count() == 0 if few_shot is None else frame["split"].null_count() > 0
    listener = Listener()
    again = ingest_table(TableInputs([table], None, queries), read_schema(text), listener)
    assert_same_dataset(again, dataset)
    for part, panel in dataset.panels.items():
        mine, theirs = panel.since, again.panels[part].since
        assert (mine is None) == (theirs is None)
        assert mine is None or np.array_equal(mine, theirs)
        assert np.array_equal(again.panels[part].targets, panel.targets)
    assert "split by time, as column 'split' says" in listener.notes


@pytest.mark.parametrize(
    ("splits", "row", "message"),
    [
        (["train", "val", "test", "train"], 4, "1 value in a split that an earlier row of the subject is behind"),
        (["train", "val", "tset", "test"], 3, "'split': 1 value in no split (use train, val, test)"),
    ],
)
def test_a_column_of_splits_by_time_that_cannot_be_meant_names_its_rows(
    splits: list[str], row: int, message: str, tmp_path: Path
):
    told = splits + ["train", "train", "val", "test"] * 29
    frame = ward(30, 4).with_columns(pl.Series("split", told))
    schema = make_schema({"split": {"role": "split"}}, split={"by": "time"}, horizon=1)
    [line] = problems(frame, schema, folder=tmp_path)
    assert message in line
    assert f"row {row} of ward.csv" in line
