"""Groups of many names: HDF5 keeps them in B-trees and heaps that end the process where they are changed."""

import json
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from costar_cli.errors import ArtifactError
from costar_cli.files import read_artifact, read_header, sandbox
from costar_cli.files.sandbox import UNSAFE
from tests.artifact.crafting import reseal, tamper, write
from tests.campaigns.hdf5_blocks import blocks_of, repaired

MANY = {f"params/{i:03}": np.arange(3) for i in range(40)}


def large_group(path: Path) -> Path:
    """Write an artifact whose arrays h5py has put into a group as it does by default."""

    def move(file: h5py.File) -> None:
        del file["arrays/params"]
        for name, array in MANY.items():
            file.create_dataset(f"arrays/{name}", data=array, track_times=False)

    write(path, MANY)
    tamper(path, move)
    return path


def change(path: Path, name: str, at: int, value: int) -> None:
    """Change one byte of a block of metadata, with a right checksum."""
    data = bytearray(path.read_bytes())
    block = next(b for b in blocks_of(bytes(data)) if b.name == name)
    data[block.start + at] = value
    repaired(data, block)
    path.write_bytes(data)
    reseal(path)


def test_groups_of_many_arrays_are_written_without_trees_and_heaps(tmp_path):
    write(tmp_path / "a.h5", MANY)
    assert not any(word in (tmp_path / "a.h5").read_bytes() for word in UNSAFE)
    assert set(read_artifact(tmp_path / "a.h5").arrays) == set(MANY)


def test_files_with_large_groups_stay_readable(tmp_path):
    path = large_group(tmp_path / "a.h5")
    assert sum(word in path.read_bytes() for word in UNSAFE) == 2
    assert set(read_artifact(path).arrays) == set(MANY)


def test_large_files_are_not_looked_through_but_read_elsewhere_first(tmp_path, monkeypatch):
    write(tmp_path / "a.h5", MANY)
    change(large_group(tmp_path / "b.h5"), "BTHD", 9, 255)
    monkeypatch.setattr(sandbox, "LOOKED_THROUGH", 0)
    monkeypatch.setattr(sandbox, "_holds_any", None)
    assert set(read_artifact(tmp_path / "a.h5").arrays) == set(MANY)
    with pytest.raises(ArtifactError, match="damaged"):
        read_header(tmp_path / "b.h5")


def test_a_tree_that_would_end_the_process_is_told(tmp_path):
    path = large_group(tmp_path / "a.h5")
    change(path, "BTHD", 11, 255)
    command = [sys.executable, "-m", "costar_cli", "verify", str(path), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 4, done.stderr
    error = json.loads(done.stdout)["error"]
    assert error["problem"] == "the file is damaged"
    [reason] = error["details"]  # versions of HDF5 end it in different ways
    assert reason in {f"it ends the process that reads it ({name})" for name in ("SIGSEGV", "SIGABRT")}
    assert str(path) in error["where"]


@pytest.mark.parametrize(("name", "at", "value"), [("BTHD", 9, 255), ("FRHP", 113, 0)], ids=["memory", "heap"])
def test_a_tree_or_heap_that_would_do_other_harm_is_refused(tmp_path, name, at, value):
    path = large_group(tmp_path / "a.h5")
    change(path, name, at, value)
    with pytest.raises(ArtifactError, match="damaged"):
        read_header(path)
