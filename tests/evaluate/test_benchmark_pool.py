"""Cells side by side: when each begins, what follows from a failure, and which belong to a part."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from costar_cli.cli.benchmarking import pool as pools
from costar_cli.cli.benchmarking.cost_log import merge_shards, note_shard
from costar_cli.cli.benchmarking.jobs import Job, JobEnd, Outcome, jobs_of, plan_jobs
from costar_cli.cli.benchmarking.methods import BenchmarkMethod
from costar_cli.cli.benchmarking.pool import CONTEXT, ProcessPool, _Worker, run_jobs
from costar_cli.cli.benchmarking.ray_pool import require_capacity
from costar_cli.cli.benchmarking.run import Plan
from costar_cli.cli.workspace import Workspace
from costar_cli.errors import ArtifactError, CostarError, LockedError, MismatchError, UsageError
from costar_cli.files.shards import Shard
from tests.artifact.crafting import sample_arrays, write
from tests.evaluate import orphans

JOBS = plan_jobs([10, 11], [BenchmarkMethod(name, name) for name in ("crn", "costar", "ridge")], few_shot=True)


class OneAfterAnother:
    """A pool of a given size whose oldest job ends first, some with an error, some by death."""

    def __init__(self, size: int, *, failing: Sequence[str] = (), dying: Sequence[str] = ()) -> None:
        self.size, self.failing, self.dying = size, failing, list(dying)
        self.running: list[Job] = []
        self.begun: list[str] = []
        self.most, self.events = 0, ""

    @property
    def busy(self) -> int:
        return len(self.running)

    @property
    def has_capacity(self) -> bool:
        return self.busy < self.size

    def begin(self, job: Job) -> None:
        self.begun.append(job.key)
        self.running.append(job)
        self.most = max(self.most, self.busy)

    def ends(self) -> list[JobEnd]:
        job = self.running.pop(0)
        if job.key in self.dying:
            self.dying.remove(job.key)
            return [JobEnd(job, error=CostarError("died"), died=True)]
        return [JobEnd(job, error=CostarError("failed") if job.key in self.failing else None, took_s=1.0)]

    def interrupt(self) -> None:
        self.events += "interrupted "

    def close(self) -> None:
        self.events += "closed"


def run(pool: OneAfterAnother) -> tuple[list[JobEnd], Outcome]:
    outcome, ends = Outcome(), []
    for end in run_jobs(pool, JOBS, outcome):  # type: ignore[arg-type] - it has all that is used
        ends.append(end)
        if end.error:
            outcome.failed[end.job.key] = end.error
        elif end.blocked:
            outcome.blocked[end.job.key] = end.blocked
    return ends, outcome


@pytest.mark.parametrize("size", [1, 2, 3, 50])
def test_each_cell_is_made_once_and_after_what_it_needs(size: int) -> None:
    pool = OneAfterAnother(size)
    ended, done = [], set()
    for end in run_jobs(pool, JOBS, Outcome()):  # type: ignore[arg-type]
        assert set(end.job.needs) <= done
        done.add(end.job.key)
        ended.append(end.job.key)
    assert sorted(ended) == sorted(job.key for job in JOBS) == sorted(pool.begun)
    assert 1 <= pool.most <= size
    assert size == 1 or pool.most > 1
    assert pool.events == "closed"


def test_a_failure_blocks_only_what_needs_it() -> None:
    ends, outcome = run(OneAfterAnother(3, failing=["costar/encoder/10"]))
    assert set(outcome.failed) == {"costar/encoder/10"}
    assert outcome.blocked == {
        "costar/source/10": "costar/encoder/10",
        "costar/target/10": "costar/source/10",
    }
    assert len(ends) == len(JOBS)


def test_a_cell_whose_process_dies_is_begun_once_more() -> None:
    once = OneAfterAnother(2, dying=["crn/source/10"])
    assert not run(once)[1].failed
    assert once.begun.count("crn/source/10") == 2
    twice = OneAfterAnother(2, dying=["crn/source/10"] * 2)
    assert set(run(twice)[1].failed) == {"crn/source/10"}


def test_what_was_made_from_a_job_that_is_made_again_is_made_again_by_workers_too() -> None:
    states = {job.key: "stale" if job.key == "costar/encoder/10" else "done" for job in JOBS}
    left = Plan(cast("Any", None), (), JOBS, cast("Any", states)).left
    assert [job.key for job in left] == ["costar/encoder/10", "costar/source/10", "costar/target/10"]
    pool = OneAfterAnother(2)
    assert len(list(run_jobs(cast("Any", pool), left, Outcome()))) == len(left)
    assert pool.begun == [job.key for job in left]


def test_an_interruption_reaches_the_workers() -> None:
    pool = OneAfterAnother(2)
    ends = run_jobs(pool, JOBS, Outcome())  # type: ignore[arg-type]
    next(ends)
    with pytest.raises(KeyboardInterrupt):
        ends.throw(KeyboardInterrupt())
    assert pool.events == "interrupted closed"


@pytest.mark.parametrize("of", [1, 2, 4, 6, 9])
def test_parts_make_every_scored_cell_once_and_have_all_that_they_need(of: int) -> None:
    parts = [jobs_of(Shard(number, of), JOBS) for number in range(1, of + 1)]
    scored = [job.key for part in parts for job in part if job.is_scored]
    assert sorted(scored) == sorted(job.key for job in JOBS if job.is_scored)
    for part in parts:
        keys = [job.key for job in part]
        assert all(set(job.needs) <= set(keys[:place]) for place, job in enumerate(part))


NO_PARTS = ["0/2", "3/2", "1", "a/b", "1/0", "-1/2", "1/2/3", "01/2", "1/02", "\u0661/2", "1/9999999"]


@pytest.mark.parametrize("text", NO_PARTS)
def test_what_is_no_part_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        Shard.parse(text)


def test_a_worker_that_died_before_it_was_given_a_cell_is_heard_of(tmp_path: Path) -> None:
    pool = ProcessPool(cast("Any", None), cast("Any", None), cast("Any", None), 1)
    ours, theirs = CONTEXT.Pipe()
    theirs.close()
    pool._workers.append(_Worker(SimpleNamespace(join=lambda: None, exitcode=-9), ours))
    pool.begin(JOBS[0])
    (end,) = pool.ends()
    assert (end.job, end.died) == (JOBS[0], True)
    assert not pool.busy


@pytest.mark.skipif(not hasattr(os, "setsid"), reason="of terminals' groups of processes")
def test_an_interrupt_while_a_worker_starts_ends_it_without_a_traceback(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "for_workers", lambda *_: None)
    pool = ProcessPool(cast("Any", None), cast("Any", None), len, 1)
    pool.begin(JOBS[0])
    time.sleep(0.4)
    os.kill(pool._workers[0].process.pid, signal.SIGINT)  # as a terminal sends it to the whole group
    time.sleep(0.2)
    pool.interrupt()
    pool.close()
    assert not pool.busy
    assert capfd.readouterr().err == ""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="of systems that have it")
@pytest.mark.parametrize("name", orphans.MAKERS)
def test_a_worker_whose_parent_is_killed_ends_without_a_word(name: str) -> None:
    command = [sys.executable, "-m", orphans.__name__, name]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    assert parent.stdout.readline() == "ready\n"
    parent.kill()
    assert parent.communicate(timeout=60) == ("", "")  # once the worker has closed them, too


def test_a_ray_cluster_whose_nodes_are_too_small_is_refused_in_the_place_of_waiting() -> None:
    nodes = [{"Alive": True, "Resources": {"CPU": 2.0}}, {"Alive": False, "Resources": {"CPU": 64.0, "GPU": 8.0}}]
    ray = SimpleNamespace(nodes=lambda: nodes)
    require_capacity(ray, {"CPU": 2, "GPU": 0})
    for needs, asked in (({"CPU": 4, "GPU": 0}, "4 CPUs"), ({"CPU": 1, "GPU": 1}, "1 CPU and 1 GPU")):
        with pytest.raises(UsageError, match=f"no node of the Ray cluster has {asked} for a cell") as caught:
            require_capacity(ray, needs)
        assert list(caught.value.details) == ["2 CPUs, 0 GPUs"]


def test_parts_that_still_run_are_not_merged(tmp_path: Path) -> None:
    note_shard(part := tmp_path / "shard-1-of-1", Shard(1, 1))
    with Workspace(part).lock(), pytest.raises(LockedError, match="another costar process") as caught:
        merge_shards(tmp_path)
    assert caught.value.where == str(part)
    assert merge_shards(tmp_path) == []


def test_a_part_under_the_name_of_another_one_is_not_merged(tmp_path: Path) -> None:
    note_shard(tmp_path / "shard-1-of-2", Shard(1, 2))
    shutil.copytree(tmp_path / "shard-1-of-2", other := tmp_path / "shard-2-of-2")
    with pytest.raises(MismatchError, match="is part 1/2") as caught:
        merge_shards(tmp_path)
    assert str(other) in caught.value.problem
    (other / "part.json").write_text("[")
    with pytest.raises(MismatchError, match="does not say"):
        merge_shards(tmp_path)
    note_shard(other, Shard(2, 2))
    assert merge_shards(tmp_path) == []


def test_a_damaged_artifact_of_a_part_is_not_merged(tmp_path: Path) -> None:
    for number in (1, 2):
        note_shard(part := tmp_path / f"shard-{number}-of-2", Shard(number, 2))
        (part / "seed-0").mkdir()
        write(part / "seed-0" / f"model-{number}.h5", sample_arrays(number))
    path = tmp_path / "shard-2-of-2" / "seed-0" / "model-2.h5"
    sound = path.read_bytes()
    path.write_bytes(sound[: (at := len(sound) // 2)] + bytes([sound[at] ^ 1]) + sound[at + 1 :])
    with pytest.raises(ArtifactError) as caught:
        merge_shards(tmp_path)
    assert str(path) in str(caught.value.where)
    assert not (tmp_path / "seed-0").exists()
    path.write_bytes(sound)
    assert [path.name for path in merge_shards(tmp_path)] == ["model-1.h5", "model-2.h5"]
