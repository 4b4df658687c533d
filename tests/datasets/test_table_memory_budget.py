"""Memory of a panel is asked for before it is laid out: series are padded to the longest, categories are columns."""

import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from costar_cli.config.memory import Memory
from costar_cli.data.table import TableInputs, context, files, ingest_table, scratch
from costar_cli.data.table.context import PartSize
from costar_cli.errors import DataError
from tests.datasets.table_worlds import COLUMNS, WATCH_MEMORY, Listener, make_schema, save, ward


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Say how many bytes are free, however small the table is."""
    free = {"bytes": 0}
    monkeypatch.setattr(context, "SMALL", 0)
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
    original = context.MemoryBudget.needed.fget  # type: ignore[attr-defined]
    monkeypatch.setattr(context.MemoryBudget, "needed", property(lambda of: needed.append(original(of)) or needed[-1]))
    free["bytes"] = 2**40
    ingest_table(TableInputs([save(frame, tmp_path / "ward.csv")]), make_schema(**schema), Listener())
    narrow, *_, wide = needed
    assert wide > narrow + 39 * 4 * len(frame)
    free["bytes"] = (narrow + wide) // 2
    assert "columns take" in refused(frame, tmp_path, **schema).problem


def test_a_part_is_padded_to_its_own_longest_series() -> None:
    assert PartSize.of(np.array([3, 0, 10])) == (13, 20)
    assert PartSize.of(np.array([0, 0])) == (0, 0)


@pytest.mark.parametrize(
    "raised",
    [
        MemoryError(),
        OSError("Cannot allocate memory (os error 12)"),
        OSError(12, "Cannot allocate memory"),
        pl.exceptions.ComputeError("OS can't spawn worker thread: Resource temporarily unavailable (os error 11)"),
        pl.exceptions.ComputeError("called `Result::unwrap()` on an `Err` value: Os { code: 12, kind: OutOfMemory }"),
    ],
    ids=repr,
)
def test_memory_that_runs_out_while_a_file_is_read_is_an_error_of_the_table(tmp_path: Path, raised: Exception) -> None:
    with pytest.raises(scratch.NoRoomError, match="too little memory to read the table"), files.collected(tmp_path):
        raise raised


@pytest.mark.parametrize("cell", ["OutOfMemory", "Cannot allocate memory", "failed to spawn thread"])
def test_a_cell_that_speaks_of_memory_is_no_lack_of_it(tmp_path: Path, cell: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"x\n{cell}\n", "utf-8")
    with pytest.raises(DataError, match="the CSV file cannot be read: could not parse"), files.collected(path):
        pl.scan_csv(path, schema={"x": pl.Int64}).collect()


@pytest.mark.parametrize(("size", "fits"), [(900_000, True), (1_100_000, False)])
def test_a_small_file_asks_for_fewer_addresses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, *, fits: bool
) -> None:
    (tmp_path / "t.csv").write_bytes(b"0" * size)
    monkeypatch.setattr(pl, "thread_pool_size", lambda: 4)
    free = [(Memory(size * 4 + scratch.LEAST_ADDRESSES, "this process"), True)]
    monkeypatch.setattr(scratch, "free_under_own_limits", lambda: free)
    with nullcontext() if fits else pytest.raises(scratch.NoRoomError, match="polars may take"):
        scratch.require_limits(tmp_path / "t.csv")


def test_memory_that_runs_out_later_is_one_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run_out(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("costar_cli.data.table.ingest.build_panels", run_out)
    assert "too little memory" in refused(ward(), tmp_path).problem


MEASURE = (
    WATCH_MEMORY
    + """
import costar_cli
from costar_cli.data.table.context import MemoryBudget
begun = {}

usual = MemoryBudget.__init__
def init(room, *words, **more):
    usual(room, *words, **more)
    begun.update(room=room, held=anonymous())
    peak[0] = 0
MemoryBudget.__init__ = init
costar_cli.read_table(sys.argv[1], schema=sys.argv[3])  # what is imported and set up once does not count
threading.Thread(target=sample, daemon=True).start()
costar_cli.read_table(sys.argv[2], schema=sys.argv[3])
print(begun["room"].needed / (peak[0] - begun["held"]))
"""
)
SHAPES = {
    "numbers": (20_000, 50, 0, ""),
    "one long series": (5_000, 10, 5_000, ""),
    "60 categories": (8_000, 50, 0, 'kind = "categorical"'),
}


def write_shape(path: Path, subjects: int, steps: int, longest: int, kind: str) -> None:
    rng = np.random.default_rng(0)
    length = np.array([steps] * subjects + [longest] * bool(longest))
    rows = int(length.sum())
    columns = {
        "subject": np.repeat(np.arange(len(length)), length),
        "day": np.concatenate([np.arange(n) for n in length]),
        "drug": np.where(rng.random(rows) < 0.3, "given", "none"),
        "y": rng.normal(size=rows).round(4),
    }
    values = [f"L{i}" for i in rng.integers(0, 60, rows)] if kind else rng.normal(size=rows).round(4)
    names = ["c0"] if kind else [f"c{i}" for i in range(20)]
    pl.DataFrame(columns | dict.fromkeys(names, values)).write_csv(path)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells what memory is a process's own")
@pytest.mark.parametrize(("subjects", "steps", "longest", "kind"), SHAPES.values(), ids=SHAPES)
def test_what_a_panel_takes_is_about_what_was_said(
    tmp_path: Path, subjects: int, steps: int, longest: int, kind: str
) -> None:
    covariates = 1 if kind else 20
    columns = "".join(f'c{i} = {{ role = "covariate"{", " * bool(kind)}{kind} }}\n' for i in range(covariates))
    roles = 'subject = { role = "subject" }\nday = { role = "time" }\ny = { role = "outcome" }\n'
    drug = 'drug = { role = "treatment", levels = ["none", "given"] }\n'
    (tmp_path / "s.toml").write_text(f'name = "shape"\nhorizon = 3\n[columns]\n{roles}{drug}{columns}')
    write_shape(tmp_path / "small.csv", 100, steps, 0, kind)
    write_shape(tmp_path / "large.csv", subjects, steps, longest, kind)
    command = [sys.executable, "-c", MEASURE, *(tmp_path / name for name in ("small.csv", "large.csv", "s.toml"))]
    alone = os.environ | {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=alone, capture_output=True, text=True, check=True)
    assert 0.75 < float(done.stdout) < 1.35
