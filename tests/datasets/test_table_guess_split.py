"""The split and the horizon that `--init` proposes are ones that the ingest that follows takes."""

import tomllib
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from costar_cli.data import Dataset, Part
from costar_cli.data.table.guess import GuessedSchema, guess_schema
from costar_cli.data.table.schema import TableSchema
from costar_cli.data.table.schema_file import parse_schema
from tests.datasets.table_worlds import ingest, problems, save, ward

TRAIN, VAL, TEST = (Part("source", split) for split in ("train", "val", "test"))
COLUMNS = {"day": {"role": "time"}, "campaign": {"role": "treatment"}, "visits": {"role": "outcome"}}


def day(k: int) -> str:
    return str(date(2023, 1, 1) + timedelta(days=k))


def month(k: int) -> str:
    return f"{2015 + k // 12}-{k % 12 + 1:02}"


def series(rows: int, change: int, when: Any = day) -> pl.DataFrame:
    """One series whose campaign begins in row `change` and stops now and then."""
    k = np.arange(rows)
    campaign = np.where((k >= change) & ((k - change) % 5 != 4), 1, 0)
    return pl.DataFrame(
        {"day": [when(i) for i in range(rows)], "campaign": campaign, "visits": 100 + np.sin(k) + 5 * campaign}
    )


def guessed(frame: pl.DataFrame, folder: Path) -> tuple[GuessedSchema, TableSchema]:
    guess = guess_schema([save(frame, folder / "table.csv")])
    return guess, parse_schema(tomllib.loads(guess.text))


def as_guessed(frame: pl.DataFrame, folder: Path) -> tuple[TableSchema, Dataset]:
    _, schema = guessed(frame, folder)
    return schema, ingest(folder / "table.csv", schema)


@pytest.mark.parametrize("when", [day, month, lambda k: k, lambda k: 1900 + k, lambda k: f"{day(k)} 06:30"])
def test_train_includes_a_treatment_that_begins_late(when: Any, tmp_path: Path):
    frame = series(200, 150, when)
    schema, dataset = as_guessed(frame.rename({"day": "year"}) if when(0) == 1900 else frame, tmp_path)
    assert dataset.panels[TRAIN].length.tolist() == [185]  # 150 rows, and 0.7 of the 50 from the change on
    assert dataset.panels[VAL].length.tolist() == [192]
    assert schema.horizon == 6
    assert dataset.panels[TRAIN].treatments.sum() > 20


@pytest.mark.parametrize(("change", "told"), [(20, False), (100, False), (120, True), (139, True), (190, True)])
def test_moments_are_proposed_where_shares_would_have_little_of_a_change(change: int, told: object, tmp_path: Path):
    guess, schema = guessed(series(200, change), tmp_path)
    assert (schema.split.val_from is not None) is told
    assert (f"`campaign` first changes at {day(change)}" in guess.text) is told
    assert ingest(tmp_path / "table.csv", schema).panels[TRAIN].treatments.sum() > 0


def test_a_change_that_is_too_late_for_any_split_is_asked_about(tmp_path: Path):
    guess, schema = guessed(series(60, 58), tmp_path)
    assert schema.split.val_from is None
    assert any(f"first changes at {day(58)}, too late to learn from" in doubt for doubt in guess.doubts)


@pytest.mark.parametrize(("rows", "horizon"), [(20, 3), (30, 4), (45, 6), (8, 1)])
def test_the_horizon_is_as_long_as_the_shortest_part_allows(rows: int, horizon: int, tmp_path: Path):
    schema, dataset = as_guessed(series(rows, 2), tmp_path)
    assert schema.horizon == horizon
    assert dataset.queries[TEST]
    if horizon < 6:
        longer = schema.model_copy(update={"horizon": horizon + 1})
        assert f"the longest possible `horizon` is {horizon}" in problems(tmp_path / "table.csv", longer)[0]


@pytest.mark.parametrize("rows", [4, 5, 8])
def test_few_subjects_of_few_rows_have_a_step_in_each_part(rows: int, tmp_path: Path):
    frame = pl.concat([series(rows, 1).with_columns(person=pl.lit(name)) for name in "abcdef"])
    _, dataset = as_guessed(frame, tmp_path)
    assert set(dataset.panels) == {TRAIN, VAL, TEST}


def test_the_steps_of_rows_of_doses_limit_the_horizon(tmp_path: Path):
    rows = [(s, 12 * (k // 3), "" if k % 3 else f"{s + k % 7}", "100" if k % 3 == 1 else "", int(k % 3 == 1))
            for s in range(1, 31) for k in range(15) if k % 3 < 2]  # fmt: skip
    frame = pl.DataFrame(rows, schema=["ID", "TIME", "DV", "AMT", "EVID"], orient="row")
    _, schema = guessed(frame, tmp_path)
    assert schema.horizon == 2  # of five steps, which are ten rows


@pytest.mark.parametrize("role", ["treatment", "dose", "outcome"])
def test_what_changes_after_train_alone_is_told_to_be_the_splits_doing(role: str, tmp_path: Path):
    frame = series(60, 50)
    columns: dict[str, Any] = COLUMNS | {"campaign": {"role": role}}
    if role == "dose":
        columns |= {"campaign": {"role": "treatment", "kind": "continuous"}}
    if role == "outcome":
        columns |= {"visits": {"role": "treatment"}}
        frame = frame.with_columns(visits=pl.int_range(pl.len()) % 2)
    made = {"name": "one", "horizon": 1, "columns": columns, "subject": [], "time": {"step": "1d"}}
    [line] = problems(frame, parse_schema(made | {"split": {"by": "time"}}), folder=tmp_path)
    assert f"train ends at {day(41)}, and it changes at {day(50)}, first in row 51 of ward.csv" in line
    assert "give a later `val_from` in [split]" in line
    fixed = parse_schema(made | {"split": {"by": "time", "val_from": day(54), "test_from": day(57)}})
    assert ingest(frame, fixed, folder=tmp_path).panels
    said = frame.with_columns(part=pl.Series(["train"] * 42 + ["val"] * 9 + ["test"] * 9))
    made["columns"] = columns | {"part": {"role": "split"}}
    [line] = problems(said, parse_schema(made | {"split": {"by": "time"}}), folder=tmp_path)
    assert "put later rows into train by column 'part'" in line


def test_what_changes_in_subjects_of_other_parts_alone_is_told_so(tmp_path: Path):
    second = pl.col("patient") == "p02"
    drug = pl.when(second & (pl.col("day") > 2)).then(pl.lit("low")).otherwise(pl.lit("none"))
    part = pl.when(second).then(pl.lit("test")).when(pl.col("patient") == "p04").then(pl.lit("val"))
    frame = ward().with_columns(drug=drug, part=part.otherwise(pl.lit("train")))
    columns = {name: {"role": role} for name, role in (("patient", "subject"), ("day", "time"), ("drug", "treatment"),
                                                        ("pressure", "outcome"), ("part", "split"))}  # fmt: skip
    [line] = problems(frame, parse_schema({"name": "ward", "horizon": 2, "columns": columns}), folder=tmp_path)
    assert "it does elsewhere, first in row 10 of ward.csv (subject p02)" in line


def test_a_wide_table_once_reshaped_is_ingested_as_guessed(tmp_path: Path):
    rng = np.random.default_rng(0)
    long = pl.DataFrame({"id": np.repeat(np.arange(200), 5), "time": np.tile(np.arange(5), 200),
                         "trt": rng.integers(2, size=1000), "bp": rng.normal(50, 5, 1000).round(3),
                         "age": np.repeat(rng.integers(30, 80, 200), 5)})  # fmt: skip
    schema, dataset = as_guessed(long, tmp_path)
    assert schema.horizon == 2
    assert dataset.panels
