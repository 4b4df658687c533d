"""Files and folders whose names are no UTF-8, as older systems and archives leave them, are read and written."""

import os
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from cli_world import Run, write_ward

from costar_cli.data.table import scratch

Call = Callable[..., Run]


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """A folder whose name is no UTF-8."""
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("this file system has no such names")
    return folder


def ward(folder: Path) -> list[str]:
    rows = [f"{n},{day},{n % 3 + day},{'drug' if (n + day) % 2 else 'none'}" for n in range(30) for day in range(6)]
    return write_ward(folder, ["patient,day,pressure,drug", *rows], horizon=2)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_tables_of_odd_names_are_guessed_and_ingested(kind: str, odd: Path, call: Call) -> None:
    table = ward(odd)[2]
    if kind == "parquet":
        table = str(odd / "t.parquet")
        with open(table, "wb") as file:
            pl.read_csv((odd / "t.csv").read_bytes()).write_parquet(file)
    assert call("ingest", "table", table, "--init", "--out", odd / "g.toml").code == 0
    ingested = call("ingest", "table", table, "--schema", odd / "s.toml", "--out", odd / "o.h5")
    assert ingested.code == 0, ingested.err


def test_rows_of_a_large_table_wait_in_a_folder_of_an_odd_name(odd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "MOST_VALUES_HELD", 1)
    with scratch.Scratch(odd) as held:
        assert held.hold(pl.LazyFrame({"x": [1, 2, 3]}), 3).select(pl.col("x").sum()).collect().item() == 6
    assert not list(odd.iterdir())


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_data_set_is_exported_to_an_odd_folder_and_read_back(form: str, odd: Path, call: Call) -> None:
    assert call(*ward(odd), "--out", odd / "o.h5").code == 0
    exported = call("inspect", odd / "o.h5", "--export", odd / "x", "--format", form)
    assert exported.code == 0, exported.err
    words = [odd / "x" / f"table.{form}", "--schema", odd / "x" / "schema.toml"]
    assert call("ingest", "table", *words, "--out", odd / "again.h5").code == 0


def test_answers_of_odd_names_are_written_and_merged(odd: Path, trained: Path, plan: Path, call: Call) -> None:
    ask = ["whatif", "--workspace", trained, "--plan", plan, "--csv"]
    alone = call(*ask, odd / "a.parquet", "--subject", "1")
    assert alone.code == 0, alone.err
    for part in ("1/2", "2/2"):
        assert call(*ask, odd / "b.parquet", "--subjects", "target/test", "--shard", part).code == 0
    merged = call("merge", odd / "b.parquet")
    assert merged.code == 0, merged.err
    assert call("merge", odd / "b.parquet").code == 0
    assert len(pl.read_parquet((odd / "b.parquet").read_bytes())) > 0


def test_the_tables_of_m5_may_lie_in_an_odd_folder(odd: Path, call: Call) -> None:
    made = call("simulate", "m5", "--preset", "quick", "--export", odd / "m5", "--out", odd / "a.h5")
    assert made.code == 0, made.err
    ingested = call("ingest", "m5", odd / "m5", "--preset", "quick", "--out", odd / "b.h5")
    assert ingested.code == 0, ingested.err
