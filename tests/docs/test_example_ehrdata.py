"""The script that turns EHRData and AnnData into tables: both places of layers, every kind of column, and ingestion."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import polars as pl
import pytest

import costar_cli as costar

SCRIPT = Path(__file__).resolve().parents[2] / "examples/own-data/ehrdata_to_table.py"
N, V, T = 40, 2, 6


def frame(file: h5py.File, name: str, index: list[str], **columns: Any) -> None:
    group = file.create_group(name)
    group.attrs["_index"] = "_index"
    group.attrs["column-order"] = list(columns)
    group["_index"] = index
    for column, values in columns.items():
        if isinstance(values, dict):
            inner = group.create_group(column)
            for key, value in values.items():
                inner[key] = value
        else:
            group[column] = values


def write(path: Path, *, at: str) -> np.ndarray:
    """Write a file of EHRData with a known course: treated where it is high, by which it falls by 2."""
    rng = np.random.default_rng(1)
    glucose, insulin = np.full((N, T), np.nan), np.full((N, T), np.nan)
    glucose[:, 0] = rng.normal(10, 1, N)
    for t in range(T):
        insulin[:, t] = (glucose[:, t] + rng.normal(0, 1, N) > 10).astype(float)
        if t + 1 < T:
            glucose[:, t + 1] = 10 + 0.5 * (glucose[:, t] - 10) - 2 * insulin[:, t] + rng.normal(0, 0.1, N)
    glucose[3, 4:], insulin[3, 4:] = np.nan, np.nan  # a shorter series
    values = np.stack([glucose, insulin], axis=1)
    with h5py.File(path, "w") as file:
        file.attrs["encoding-type"] = "anndata"
        sex = {"categories": np.array(["f", "m"], dtype=object), "codes": np.arange(N, dtype=np.int8) % 2}
        age = {"values": np.arange(20, 20 + N), "mask": np.arange(N) == 5}
        frame(file, "obs", [f"p{i}" for i in range(N)], sex=sex, age=age)
        frame(file, "var", ["glucose", "insulin"])
        frame(file, "tem", [f"t{i}" for i in range(T)], hour=np.arange(T) * 6)
        file[at] = values
    return values


@pytest.mark.parametrize("at", ["layers/measured", "obsm/_ed_ondisk_layers_measured"])
def test_layers_become_rows_that_are_ingested(at: str, tmp_path: Path) -> None:
    values = write(tmp_path / "cohort.h5ed", at=at)
    command = [sys.executable, str(SCRIPT), str(tmp_path / "cohort.h5ed"), str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    table, statics = (pl.read_parquet(tmp_path / "out" / f"{name}.parquet") for name in ("table", "statics"))
    assert table.height == N * T - 2, "steps at which nothing is there are no rows"
    assert table["time"].unique().sort().to_list() == [0, 6, 12, 18, 24, 30]
    assert statics["sex"][:3].to_list() == ["f", "m", "f"]
    assert statics["age"][4:7].to_list() == [24, None, 26]
    schema = {
        "name": "ehrdata",
        "horizon": 1,
        "columns": {
            "subject": {"role": "subject"},
            "time": {"role": "time"},
            "glucose": {"role": "outcome"},
            "insulin": {"role": "treatment"},
            "sex": {"role": "static", "kind": "categorical"},
            "age": {"role": "static", "missing": "fill"},
        },
        "time": {"step": 6},
    }
    data = costar.read_table(tmp_path / "out/table.parquet", statics=tmp_path / "out/statics.parquet", schema=schema)
    for panel in data.panels.values():
        for row, label in enumerate(panel.names):
            length = int(panel.length[row])
            known = values[int(label[1:]), 0, :length].astype(np.float32)
            assert (panel.outcomes[row, :length, 0] == known).all()


def test_a_file_without_one_layer_says_which_there_are(tmp_path: Path) -> None:
    write(tmp_path / "cohort.h5ad", at="layers/measured")
    with h5py.File(tmp_path / "cohort.h5ad", "a") as file:
        file["layers/other"] = file["layers/measured"][()]
    command = [sys.executable, str(SCRIPT), str(tmp_path / "cohort.h5ad"), str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "give --layer, one of: measured, other" in done.stderr
