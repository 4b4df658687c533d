"""Memory of a panel is asked for before it is laid out: series are padded to the longest, categories are columns."""

from pathlib import Path

import polars as pl
import pytest

from costar_cli.datasets.table import TableInputs, files, ingest_table, room, scratch
from costar_cli.datasets.table.room import PartSize
from costar_cli.errors import DataError
from costar_cli.memory import Memory
from tests.datasets.table_worlds import COLUMNS, Listener, make_schema, save, ward


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Say how many bytes are free, however small the table is."""
    free = {"bytes": 0}
    monkeypatch.setattr(room, "SMALL", 0)
    monkeypatch.setattr(scratch, "free_memory", lambda: Memory(free["bytes"], "this container"))
    return free


def refused(frame: pl.DataFrame, folder: Path, **tables: object) -> DataError:
    with pytest.raises(DataError) as caught:
        ingest_table(TableInputs([save(frame, folder / "ward.csv")]), make_schema(**tables), Listener())
    return caught.value


def test_a_panel_without_room_is_refused_with_what_it_takes_and_what_there_is(
    tmp_path: Path, free: dict[str, int]
) -> None:
    error = refused(ward(), tmp_path)
    assert error.exit_code == 3
    assert error.problem.startswith("30 subjects of up to 6 steps in ")
    assert "GB of memory as a panel" in error.problem
    assert error.where == "this container, with 0.0 GB free"
    assert "leave out columns" in str(error.fix)


def test_the_one_long_series_that_all_are_padded_to_is_named(tmp_path: Path, free: dict[str, int]) -> None:
    long = ward(1, 400).with_columns(pl.lit("p99").alias("patient"))
    error = refused(pl.concat([ward(), long]), tmp_path)
    assert "padded to the 400 steps of subject p99 (the mean is 19)" in error.problem
    assert str(error.fix).startswith("leave out subject p99, give `max_length`")


@pytest.mark.parametrize(
    ("column", "change"),
    [
        ("heart rate", {"role": "covariate", "kind": "categorical"}),
        ("drug", {"role": "treatment"}),
    ],
)
def test_categories_and_levels_count_as_columns_once_they_are_known(
    tmp_path: Path, free: dict[str, int], column: str, change: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = ward(60, 40)
    texts = pl.Series([f"L{i % 40}" for i in range(len(frame))])
    frame, schema = frame.with_columns(texts.alias(column)), {"columns": {**COLUMNS, column: change}}
    needed: list[int] = []
    original = room.Room.needed.fget  # type: ignore[attr-defined]
    monkeypatch.setattr(room.Room, "needed", property(lambda of: needed.append(original(of)) or needed[-1]))
    free["bytes"] = 2**40
    ingest_table(TableInputs([save(frame, tmp_path / "ward.csv")]), make_schema(**schema), Listener())
    narrow, *_, wide = needed
    assert wide > narrow + 39 * 4 * len(frame)
    free["bytes"] = (narrow + wide) // 2
    assert "columns take" in refused(frame, tmp_path, **schema).problem


def test_a_part_is_padded_to_its_own_longest_series() -> None:
    import numpy as np

    assert PartSize.of(np.array([3, 0, 10])) == (13, 20)
    assert PartSize.of(np.array([0, 0])) == (0, 0)


@pytest.mark.parametrize("raised", [MemoryError(), OSError("Cannot allocate memory (os error 12)")], ids=repr)
def test_memory_that_runs_out_while_a_file_is_read_is_an_error_of_the_table(tmp_path: Path, raised: Exception) -> None:
    with pytest.raises(scratch.NoRoomError, match="too little memory to read the table"), files.collected(tmp_path):
        raise raised


def test_memory_that_runs_out_later_is_one_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run_out(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("costar_cli.datasets.table.ingest.build_panels", run_out)
    assert "too little memory" in refused(ward(), tmp_path).problem
