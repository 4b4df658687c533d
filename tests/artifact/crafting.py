"""Artifacts for tests: sound ones, and ones changed with h5py and given a correct header again."""

import dataclasses
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from costar_cli.errors import ArtifactError
from costar_cli.files import Artifact, describe, read_artifact, read_header, verify_artifact, write_artifact
from costar_cli.files.digest import canonical_json, parse_json, sha256
from costar_cli.files.header import HEADER_BYTES, body_sha256, read_file_header
from costar_cli.files.tables import BLANK, WRITTEN, seal

META = {"finished": [], "current": None, "fingerprint": "f"}


def write(path: Path, arrays: dict[str, Any], *, meta: dict[str, Any] | None = None, **options: Any) -> Artifact:
    """Write a run state: the kind that may hold any array."""
    return write_artifact(path, kind="run-state", arrays=arrays, meta=META | (meta or {}), **options)


def sample_arrays(seed: int = 0) -> dict[str, Any]:
    """Return a little of everything: large, small, empty, scalar, boolean, text."""
    rng = np.random.default_rng(seed)
    return {
        "source/train/outcomes": np.repeat(rng.normal(size=(40, 20, 1)), 4, axis=0).astype(np.float32),
        "source/train/length": np.full(40, 20),
        "source/train/covariates": np.empty((40, 20, 0), np.float32),
        "plan": rng.integers(0, 2, (3000, 6), dtype=np.uint8),
        "scored": rng.integers(0, 2, (3000, 6)).astype(bool),
        "names": np.array(["Ärztin", "", "日本"]),
        "sigma": np.array(0.25),
    }


OLD, NEW = sample_arrays(1), sample_arrays(2)


def assert_old_and_alone(path: Path) -> None:
    """Check that a folder holds the artifact of `OLD` and nothing else."""
    np.testing.assert_array_equal(read_artifact(path).arrays["plan"], OLD["plan"])
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def reseal(path: Path, *, manifest: bytes | None = None, **changes: Any) -> None:
    """Give a changed file a header that fits it; `changes` are fields of the header."""
    header = read_file_header(path)
    if manifest is not None:
        changes = {"digest": sha256(manifest)} | changes
    fields = {"total_bytes": path.stat().st_size, "body_sha256": body_sha256(path)} | changes
    with path.open("r+b") as file:
        file.write(dataclasses.replace(header, **fields).render())


def reseal_part(path: Path) -> bool:
    """Give a changed part of answers a seal that fits it, as anybody can, and return whether it has a place for one."""
    path.write_bytes(WRITTEN.sub(lambda found: found[0][: -len(BLANK)] + BLANK.encode(), path.read_bytes()))
    try:
        with path.open("r+b") as file:
            seal(file)
    except ValueError:
        return False
    return True


def tamper(path: Path, change: Callable[..., object], *arguments: object) -> None:
    """Change the HDF5 part with h5py; the manifest stays."""
    with h5py.File(path, "r+", libver=("v110", "v110")) as file:
        change(file, *arguments)
    # h5py may shorten the file; the header's size is only a lower bound until it is sealed again
    with path.open("r+b") as file:
        file.seek(0, 2)
        missing = read_size(path) - file.tell()
        file.write(bytes(max(0, missing)))
    reseal(path)


def read_size(path: Path) -> int:
    """Return the size that the header declares."""
    lines = path.read_bytes()[:HEADER_BYTES].split(b"\n")
    return int(next(line for line in lines if line.startswith(b"bytes ")).split()[1])


def replace_manifest(path: Path, text: bytes) -> None:
    """Put any bytes in the place of the manifest."""

    def change(file: h5py.File) -> None:
        del file["manifest"]
        large = len(text) > 4096
        options: dict[str, Any] = {"chunks": (min(len(text), 262144),), "compression": "gzip"} if large else {}
        file.create_dataset("manifest", data=np.frombuffer(text, np.uint8), **options)

    tamper(path, change)
    reseal(path, manifest=text)


def edit_manifest(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the JSON of the manifest, and its digest with it."""
    with h5py.File(path, "r") as file:
        content = parse_json(file["manifest"][:].tobytes())
    change(content)
    replace_manifest(path, canonical_json(content))


def declare(path: Path, name: str, dtype: str, shape: tuple[int, ...], digest: str = "0" * 64) -> None:
    """Let the manifest say that there is an array."""

    def change(content: dict[str, Any]) -> None:
        content["arrays"][name] = {"dtype": dtype, "shape": list(shape), "sha256": digest}

    edit_manifest(path, change)


def processor_s() -> float:
    """Return the processor time of this process and of those that it has waited for: some files are read in another."""
    return sum(os.times()[:4])


def refused(path: Path, words: str, group: str = "") -> ArtifactError:
    """Check that every door refuses the file, soon and in little memory, and return the error."""
    start = processor_s()
    tracemalloc.start()
    errors = []
    for read in (read_header, describe, read_artifact, verify_artifact):
        with pytest.raises(ArtifactError) as caught:
            read(path)
        errors.append(caught.value)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    error = errors[-1]
    assert {str(e) for e in errors} == {str(error)}
    assert words in " ".join([error.problem, *error.details])
    assert error.where is not None
    assert str(path) in error.where
    assert group in error.where
    assert error.fix
    assert processor_s() - start < 5
    assert peak < 100e6
    return error
