"""Benchmarks on a Ray cluster: the tables of one process, with a full object store and a worker that is killed."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from secrets import token_hex

import psutil
import pytest
from cli_world import Run, run_process, start_process
from test_cli_benchmark import done, settings, timeless
from test_cli_benchmark_workers import words

__all__ = ["done", "settings"]  # fixtures

CLUSTER = """
import sys
import numpy as np
import ray

here = {"include_dashboard": False, "_temp_dir": sys.argv[1]}
context = ray.init(num_cpus=2, object_store_memory=80_000_000, **here)
kept = [ray.put(np.full(3_000_000, i)) for i in range(6)]
print(context.address_info["gcs_address"], flush=True)
sys.stdin.read()
assert [int(ray.get(one)[0]) for one in kept] == list(range(6))
"""
needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Path]]:
    """The address of a cluster of two workers, whose object store of 80 MB holds 144 MB, and where it keeps files."""
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", token_hex(32))  # of this cluster alone
    folder = Path(f"/tmp/ray-{os.getpid()}")  # noqa: S108 - names of sockets are short
    command = [sys.executable, "-c", CLUSTER, str(folder)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    address = process.stdout.readline().strip()
    assert address, process.stderr.read()
    yield address, folder
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err


@needs_ray
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_cell_of_a_killed_ray_worker_is_made_again_while_objects_are_spilled(
    cluster: tuple[str, Path], done: Path, settings: Path, tmp_path: Path
) -> None:
    address, files = cluster
    assert list(files.glob("session_*/*spilled_objects*/*")), "nothing was spilled"
    folder = tmp_path / "b"
    run = start_process(*words(settings, folder, "--ray", address, "--json"), cwd=tmp_path)
    _worker(folder / "ledger.json").kill()
    out, err = run.communicate(timeout=600)
    assert (run.returncode, json.loads(out)["result"]["failures"]) == (0, []), err
    assert timeless(folder) == timeless(done)
    ours, theirs = (json.loads((place / "ledger.json").read_text())["records"] for place in (folder, done))
    assert set(ours) == set(theirs)
    assert all(record["status"] == "done" for record in ours.values())
    for path in done.glob("seed-10/*.h5"):
        assert (folder / "seed-10" / path.name).read_bytes() == path.read_bytes()
    again = run_process(*words(settings, folder, "--ray", address, "--json"), cwd=tmp_path)
    assert again.document["status"] == "up_to_date"


def _worker(ledger: Path) -> psutil.Process:
    """A process of Ray's that makes a cell, once the encoder's is begun."""
    end = time.monotonic() + 400
    while time.monotonic() < end:
        begun = ledger.exists() and "costar/encoder/10/encoder" in ledger.read_text()
        for process in psutil.process_iter(["cmdline"]) if begun else ():
            if process.info["cmdline"] and process.info["cmdline"][0].startswith("ray::_run"):
                return process
        time.sleep(0.05)
    raise AssertionError("no worker of Ray's is there")


def test_ray_that_is_not_there_is_one_clear_error(tmp_path: Path) -> None:
    hidden = tmp_path / "ray"
    hidden.mkdir()
    (hidden / "__init__.py").write_text("raise ImportError")
    asked = ["benchmark", "linear", "--methods", "last-value", "--ray", "auto", "--json"]
    run = run_process(*asked, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)})
    error = run.document["error"]
    assert (run.code, error["problem"]) == (2, "Ray is not installed")
    assert "costar[ray]" in error["fix"]


def test_workers_and_ray_are_not_asked_for_together(call: Callable[..., Run]) -> None:
    run = call("benchmark", "linear", "--ray", "auto", "--workers", 2, "--json")
    assert (run.code, run.document["error"]["where"]) == (2, "--ray")
