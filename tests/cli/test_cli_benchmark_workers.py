"""Benchmarks in several processes, and in parts: the tables of one process, also after kills and Ctrl-C."""

import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from cli_world import Run, run_process, start_process
from test_cli_benchmark import METHOD_WORDS, done, settings, timeless, wait_for

Call = Callable[..., Run]

__all__ = ["done", "settings"]  # fixtures

pytestmark = pytest.mark.slow


def words(settings: Path, folder: Path, *more: object) -> list[object]:
    return ["benchmark", "tumor", *METHOD_WORDS, "-c", settings, "--folder", folder, "--no-plots", *more]


def workers_of(pid: int) -> Iterator[psutil.Process]:
    """The workers of a process, without the resource tracker."""
    for child in psutil.Process(pid).children():
        if "spawn_main" in " ".join(child.cmdline()):
            yield child


def test_two_workers_make_the_tables_of_one_and_the_ledger_has_each_cell_once(
    done: Path, settings: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "b"
    run = run_process(*words(settings, folder, "--workers", 2, "--json"), cwd=tmp_path)
    assert run.code == 0, run.err
    assert run.document["result"]["made"] == 8
    assert timeless(folder) == timeless(done)
    ours, theirs = (json.loads((place / "ledger.json").read_text())["records"] for place in (folder, done))
    assert set(ours) == set(theirs)
    assert all(record["status"] == "done" and not record["partial"] for record in ours.values())
    for path in done.glob("seed-10/*.h5"):
        assert (folder / "seed-10" / path.name).read_bytes() == path.read_bytes()


def test_ctrl_c_stops_all_workers_and_the_same_command_continues(done: Path, settings: Path, tmp_path: Path) -> None:
    folder = tmp_path / "b"
    run = start_process(*words(settings, folder, "--workers", 2, "--json"), cwd=tmp_path)
    wait_for(run, folder / "seed-10" / "data.h5")
    time.sleep(1.0)
    workers = list(workers_of(run.pid))
    assert workers
    os.kill(run.pid, signal.SIGINT)
    out, err = run.communicate(timeout=60)
    assert (run.returncode, json.loads(out)["status"]) == (130, "interrupted"), err
    assert not any(worker.is_running() for worker in workers)
    assert run_process(*words(settings, folder), cwd=tmp_path).code == 0
    assert timeless(folder) == timeless(done)


def test_the_cell_of_a_killed_worker_is_made_again_and_workers_end_with_their_parent(
    done: Path, settings: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "b"
    run = start_process(*words(settings, folder, "--workers", 2, "--json"), cwd=tmp_path)
    wait_for(run, folder / "seed-10" / "data.h5")
    next(workers_of(run.pid)).kill()
    out, err = run.communicate(timeout=120)
    assert (run.returncode, json.loads(out)["result"]["failures"]) == (0, []), err
    assert timeless(folder) == timeless(done)
    orphaned = start_process(*words(settings, tmp_path / "c", "--workers", 2), cwd=tmp_path)
    wait_for(orphaned, tmp_path / "c" / "seed-10" / "data.h5")
    workers = list(workers_of(orphaned.pid))
    os.kill(orphaned.pid, signal.SIGKILL)
    orphaned.communicate()
    assert not psutil.wait_procs(workers, timeout=30)[1]


def test_parts_merge_into_the_benchmark(settings: Path, tmp_path: Path, call: Call) -> None:
    common = ["benchmark", "tumor", "--methods", "ridge,last-value", "-c", settings, "--no-plots", "--json"]
    whole, folder = tmp_path / "whole", tmp_path / "b"
    assert call(*common, "--folder", whole).code == 0
    for part in ("1/2", "2/2"):
        early = call("merge", folder, "--json")
        assert (early.code, early.document["error"]["type"]) == (2, "UsageError")
        assert call(*common, "--folder", folder, "--shard", part).code == 0
    merged = call("merge", folder, "--json").document
    names = {path.name for path in whole.glob("seed-10/*.h5")}
    assert {Path(path).name for path in merged["result"]["merged"]} == names
    assert call("merge", folder, "--json").document["status"] == "up_to_date"
    again = call(*common, "--folder", folder).document
    assert (again["status"], again["result"]["made"]) == ("up_to_date", 0)
    assert timeless(folder) == timeless(whole)
    ours, theirs = (json.loads((place / "ledger.json").read_text())["records"] for place in (folder, whole))
    assert set(ours) == set(theirs)
    assert all(record["status"] == "done" for record in ours.values())
    other = folder / "shard-2-of-2" / "seed-10" / "data.h5"
    shutil.copy(whole / "seed-10" / "model-ridge.h5", other)
    shutil.rmtree(folder / "seed-10")
    refused = call("merge", folder, "--json").document
    assert "differently" in refused["error"]["problem"]
    assert not (folder / "seed-10").exists()
