"""Memory and time of reading a table: of its panel and a little per row and per column, whatever else it holds."""

import os
import subprocess
import sys
import time
from contextlib import nullcontext
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from costar_cli.config.memory import Memory
from costar_cli.data.store import with_digest
from costar_cli.data.table import TableInputs, ingest_table, parse, scratch
from costar_cli.data.table.files import open_files
from costar_cli.data.table.parse import Reading, read_rows
from costar_cli.errors import DataError, StorageError
from costar_cli.files import atomic
from tests.datasets.table_worlds import COLUMNS, WATCH_MEMORY, Listener, make_schema, save, ward

FOLDER = "waiting"
ROWS, STEPS = 1_000_000, 50
CHILD = (
    WATCH_MEMORY
    + """
import costar_cli
from costar_cli.data.table import scratch
scratch.MOST_VALUES_HELD = 1_000_000
columns = {"subject": {"role": "subject"}, "day": {"role": "time"}, "drug": {"role": "treatment"},
           "y": {"role": "outcome"}} | {f"c{i}": {"role": "covariate"} for i in range(int(sys.argv[3]))}
columns["drug"]["levels"] = ["none", "given"]
schema = {"name": "large", "horizon": 3, "columns": columns}

few = schema | {"columns": dict(list(columns.items())[:5])}
costar_cli.read_table(sys.argv[1], schema=few)  # what is imported and set up once does not count
before = anonymous()
threading.Thread(target=sample, daemon=True).start()
costar_cli.read_table(sys.argv[2], schema=schema)
print(peak[0] - before)
"""
)


def messy() -> pl.DataFrame:
    """Return a ward in no order, with dates that tell a zone here and there, repeated rows, blank ones and holes."""
    frame = ward()
    days = pl.Series("day", [f"{date(2020, 1, 1) + timedelta(days=int(day))}T12:00Z" for day in frame["day"]])
    holes = pl.when(pl.int_range(pl.len()) % 7 == 3).then(None).otherwise(pl.col("heart rate")).alias("heart rate")
    texts = frame.with_columns(days, holes).select(pl.all().cast(pl.String))
    blank = pl.DataFrame({name: [""] for name in texts.columns})
    return pl.concat([texts.sample(fraction=1.0, shuffle=True, seed=1), texts.head(3), blank])


WORLDS = {
    "plain": (ward, {}),
    "messy": (messy, {"time": {"step": "1d"}, "columns": {**COLUMNS, "heart rate": {"role": "covariate", "shift": 1}}}),
    "several rows a step": (ward, {"time": {"step": 2, "bin": True}}),
}


@pytest.mark.parametrize("world", WORLDS)
def test_rows_that_wait_in_a_file_give_the_same_data_set(
    tmp_path: Path, world: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, tables = WORLDS[world]
    frame = make()
    files = [save(frame.head(50), tmp_path / "a.csv"), save(frame.tail(-50), tmp_path / "b.csv")]
    schema = make_schema(missing="fill", **tables)
    waiting: list[Path] = []
    made = atomic.scratch_file
    monkeypatch.setattr(atomic, "scratch_file", lambda folder, name: waiting.append(folder) or made(folder, name))
    digests = set()
    for most in (scratch.MOST_VALUES_HELD, 0):
        monkeypatch.setattr(scratch, "MOST_VALUES_HELD", most)
        dataset = ingest_table(TableInputs(files, scratch=tmp_path / FOLDER), schema, Listener())
        digests.add(with_digest(dataset).digest)
    assert len(digests) == 1
    assert waiting == [tmp_path / FOLDER] * 2
    assert not list((tmp_path / FOLDER).iterdir())


def test_what_a_killed_process_left_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "MOST_VALUES_HELD", 0)
    left = tmp_path / ".table.00c0ffee.tmp"
    left.write_text("rows")
    file = save(ward(), tmp_path / "ward.csv")
    ingest_table(TableInputs([file], scratch=tmp_path), make_schema(), Listener())
    assert list(tmp_path.iterdir()) == [file]


def test_a_folder_without_room_is_a_storage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "MOST_VALUES_HELD", 0)
    file = save(ward(), tmp_path / "ward.csv")
    with pytest.raises(StorageError, match="a file of that name exists") as caught:
        ingest_table(TableInputs([file], scratch=file), make_schema(), Listener())
    assert caught.value.where == str(file)
    assert "while it reads them" in str(caught.value.fix)


def test_a_table_that_memory_has_no_room_for_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "MOST_VALUES_HELD", 0)
    monkeypatch.setattr(scratch, "free_memory", lambda: Memory(10_000, "this machine"))
    file = save(ward(), tmp_path / "ward.csv")
    with pytest.raises(DataError, match=r"180 rows of 8 columns take at least 0\.0 GB") as caught:
        ingest_table(TableInputs([file], scratch=tmp_path), make_schema(), Listener())
    assert caught.value.where == "this machine, with 0.0 GB free"
    assert list(tmp_path.iterdir()) == [file]


def test_a_file_that_cannot_be_removed_while_it_is_mapped_stays_for_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "MOST_VALUES_HELD", 0)
    file = save(ward(), tmp_path / "ward.csv")

    def refuse(path: Path, *, missing_ok: bool = False) -> None:  # as Windows does
        raise PermissionError(13, "in use", str(path))

    with monkeypatch.context() as on_windows:
        on_windows.setattr(Path, "unlink", refuse)
        ingest_table(TableInputs([file], scratch=tmp_path), make_schema(), Listener())
    assert [path.suffix for path in tmp_path.iterdir() if path != file] == [".tmp"]
    ingest_table(TableInputs([file], scratch=tmp_path), make_schema(), Listener())
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("together", [1, 1_000_000])
def test_columns_of_few_rows_that_wait_in_a_file_are_read_together(
    together: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "MOST_VALUES_HELD", 0)
    monkeypatch.setattr(parse, "VALUES_AT_ONCE", together)
    names, queries = ["pressure", "heart rate", "age"], []
    readings = [Reading(name, "number") for name in names]
    with scratch.Scratch(tmp_path) as waiting:
        rows = read_rows(open_files([save(ward(), tmp_path / "ward.csv")]), readings, [], waiting)
        assert isinstance(rows.table, pl.LazyFrame)
        select = pl.LazyFrame.select
        monkeypatch.setattr(pl.LazyFrame, "select", lambda table, names: queries.append(names) or select(table, names))
        found = [rows.series(reading) for reading in readings]
    assert queries == [["0"], ["1"], ["2"]] if together == 1 else [["0", "1", "2"]]
    assert [column.to_list() for column in found] == [ward()[name].to_list() for name in names]


def ingesting_s(folder: Path, covariates: int, *, wrong: bool = False) -> float:
    """Return the processor time of ingesting a ward of so many covariates, or of refusing it as they are no numbers."""
    rng, plain = np.random.default_rng(0), ward(24, 4)
    names = [f"c{i}" for i in range(covariates)]
    values = np.where(wrong, "1,5", rng.normal(size=(plain.height, covariates)).round(3).astype(str))
    wide = plain.with_columns(pl.Series(name, values[:, i]) for i, name in enumerate(names))
    file = save(wide, folder / "wide.csv")
    schema = make_schema({name: {"role": "covariate"} for name in names}, horizon=1)
    start = time.process_time()
    with pytest.raises(DataError, match=f"{covariates} problems") if wrong else nullcontext():
        ingest_table(TableInputs([file]), schema, Listener())
    return time.process_time() - start


@pytest.mark.parametrize(("few", "wrong"), [(300, False), (200, True)], ids=["ingesting", "telling what is wrong"])
def test_time_grows_with_the_number_of_columns_and_not_with_its_square(
    few: int, tmp_path: Path, *, wrong: bool
) -> None:
    ingesting_s(tmp_path, 10, wrong=wrong)  # which imports what it needs

    def grows_as_columns_do() -> bool:
        few_s = ingesting_s(tmp_path, few, wrong=wrong)
        return ingesting_s(tmp_path, 8 * few, wrong=wrong) < 8 * 1.5 * few_s

    assert any(grows_as_columns_do() for _ in range(3))  # 8 to 9 times in all but one of many runs; a square is 64


def test_many_columns_without_room_are_refused_however_few_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "free_memory", lambda: Memory(500_000_000, "this machine"))
    scratch.Scratch().require_memory(10, 10_000)
    with pytest.raises(DataError, match=r"10 rows of 20,000 columns take at least 0\.8 GB of memory to read"):
        scratch.Scratch().require_memory(10, 20_000)


def test_numbers_are_read_as_texts_are_where_some_column_may_hold_truth_values(tmp_path: Path) -> None:
    texts = ["1", " 2.5 ", "-999", "na", "NA ", "", "1e400", "x", "inf", "nan"]
    frame = pl.DataFrame({"plain": texts, "worded": ["true", *texts[1:]], "row": [str(i) for i in range(10)]})
    readings = [Reading(name, "number", factor=2.0, offset=1.0) for name in ("plain", "worded")]
    rows = read_rows(
        open_files([save(frame, tmp_path / "odd.csv")]), [*readings, Reading("row", "text")], ["-999", "NA"]
    )
    plain, worded = (rows.series(reading).to_list() for reading in readings)
    assert str(plain) == "[3.0, 6.0, None, None, None, None, inf, nan, inf, nan]"
    assert str(plain[1:]) == str(worded[1:])


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells what memory is a process's own")
def test_many_columns_take_about_what_the_estimate_says(tmp_path: Path) -> None:
    columns = 2_000
    small, wide = write(tmp_path / "small.csv", 60 * STEPS, 2), write(tmp_path / "wide.csv", 10 * STEPS, columns)
    taken = peak_bytes(small, wide, columns)
    assert taken < 2 * scratch.COLUMN_BYTES * columns  # measured: 1.3 times what is said; once 2.9
    assert taken > scratch.COLUMN_BYTES * columns


def write(path: Path, rows: int, covariates: int) -> Path:
    rng = np.random.default_rng(0)
    with path.open("wb") as file:
        for begin in range(0, rows, 1_000 * STEPS):
            row = np.arange(begin, min(begin + 1_000 * STEPS, rows))
            drug = np.where(rng.random(len(row)) < 0.3, "given", "none")
            series = {"subject": row // STEPS, "day": row % STEPS, "drug": drug}
            names = ("y", *(f"c{i}" for i in range(covariates)))
            numbers = {name: rng.normal(size=len(row)).round(5) for name in names}
            pl.DataFrame(series | numbers).write_csv(file, include_header=not begin)
    return path


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells what memory is a process's own")
def test_a_table_of_three_times_the_memory_that_reading_it_takes(tmp_path: Path) -> None:
    small, large = write(tmp_path / "small.csv", 60 * STEPS, 2), write(tmp_path / "large.csv", ROWS, 100)
    taken = peak_bytes(small, large)
    assert 3 * taken < large.stat().st_size


def peak_bytes(small: Path, file: Path, covariates: int = 1) -> int:
    """Return the memory that reading so many covariates of a file adds to a process that has read a small one."""
    alone = os.environ | {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", CHILD, small, file, str(covariates)]
    return int(subprocess.run(command, env=alone, capture_output=True, text=True, check=True).stdout)
