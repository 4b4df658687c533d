"""Tables are written chunk after chunk, whole or not at all."""

import csv
import json
import subprocess
import sys

import numpy as np
import polars as pl
import pytest

from costar_cli.errors import StorageError, UsageError
from costar_cli.files.tables import check_table_name, safe_cells, table_file

TEXT = np.array(["a,b", 'say "ü"', None], dtype=object)


def columns(first: int) -> dict[str, object]:
    return {"n": np.arange(first, first + 3), "text": TEXT if first else np.array([None] * 3, dtype=object),
            "x": np.array([0.1, np.nan, 1e-300])}  # fmt: skip


def write(path):
    with table_file(path) as table:
        for first in (0, 3):
            table.write(columns(first))
    return table.rows


def test_all_kinds_hold_the_same_rows(tmp_path):
    for name in ("a.csv", "a.jsonl", "a.parquet"):
        assert write(tmp_path / name) == 6
    found = pl.read_parquet(tmp_path / "a.parquet").rows(named=True)
    assert [row["n"] for row in found] == list(range(6))
    assert [row["text"] for row in found] == [None, None, None, *TEXT]
    assert [row["x"] for row in found] == [0.1, None, 1e-300] * 2
    assert [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()] == found
    with (tmp_path / "a.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["text"] for row in rows] == ["", "", "", "a,b", 'say "ü"', ""]
    assert [float(row["x"] or "nan") for row in rows[:1]] == [0.1]


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_chunk_without_rows_adds_none(tmp_path, kind):
    path = tmp_path / f"a.{kind}"
    with table_file(path) as table:
        for rows in (0, 2, 0):
            table.write({"n": np.arange(rows)})
    read = {"csv": pl.read_csv, "jsonl": pl.read_ndjson, "parquet": pl.read_parquet}[kind]
    assert read(path)["n"].to_list() == [0, 1]


def interrupted(path):
    with table_file(path) as table:
        table.write(columns(0))
        raise KeyboardInterrupt


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_an_interrupted_table_leaves_the_old_one(tmp_path, name):
    write(tmp_path / name)
    before = (tmp_path / name).read_bytes()
    with pytest.raises(KeyboardInterrupt):
        interrupted(tmp_path / name)
    assert (tmp_path / name).read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == [name]


KILLED = """
import os, sys
from pathlib import Path
from costar_cli.files.tables import table_file
with table_file(Path(sys.argv[1])) as table:
    table.write({"n": [1]})
    print(*sorted(os.listdir(Path(sys.argv[1]).parent)), flush=True)
    os._exit(9)
"""


def test_what_a_killed_table_left_the_next_one_removes_but_not_the_pieces_of_a_living_one(tmp_path):
    path = tmp_path / "a.parquet"
    killed = subprocess.run([sys.executable, "-c", KILLED, path], capture_output=True, text=True, check=False)
    left = killed.stdout.split()
    assert killed.returncode == 9
    assert {path.name for path in tmp_path.iterdir()} == set(left)
    assert len(left) == 2
    with table_file(path) as living:
        living.write(columns(0))
        assert not {path.name for path in tmp_path.iterdir()} & set(left)
        write(path)
        living.write(columns(3))
    assert len(pl.read_parquet(path)) == 6
    assert list(tmp_path.iterdir()) == [path]


def test_a_table_that_cannot_be_written_is_one_error(tmp_path):
    with pytest.raises(UsageError, match=r"cannot write a table to `a.xls`") as caught:
        check_table_name(tmp_path / "a.xls", flag="--csv")
    assert ".parquet" in caught.value.fix
    with pytest.raises(StorageError):
        write(tmp_path / "missing" / "a.csv")


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_file_that_may_not_be_as_large_is_a_storage_error_wherever_it_ends(tmp_path, kind):
    resource = pytest.importorskip("resource")
    path = tmp_path / f"a.{kind}"

    def written():
        with table_file(path, {"costar.question": "q"}) as table:
            for _ in range(2):
                table.write({f"column {i}": [0.5 * i] for i in range(60)})  # whose metadata are written in pieces

    written()
    size = path.stat().st_size
    path.unlink()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        for most in [*range(0, size, max(size // 40, 1)), size - 1]:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, limits[1]))
            with pytest.raises(StorageError, match="larger than the system allows"):
                written()
            assert not any(tmp_path.iterdir())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_long_cells_are_made_safe_too(tmp_path):
    long = "=" + "x" * 200_000
    with safe_cells(True), table_file(tmp_path / "a.csv") as table:
        table.write({"text": np.array([long], dtype=object)})
    assert (tmp_path / "a.csv").read_text() == f"text\n'{long}\n"
