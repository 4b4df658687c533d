"""Training in two processes, as `torchrun` starts them: the results of one, also after the number of them changed."""

import csv
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch

from costar_cli.data import Dataset
from costar_cli.data.store import write_dataset
from costar_cli.files import read_header
from costar_cli.methods.base import Stage
from costar_cli.methods.shared import microbatches, processes
from costar_cli.methods.shared.streams import Stream
from costar_cli.reporting import NullReporter
from costar_cli.training import Runtime
from costar_cli.training.group import GroupState
from tests.fits import KilledError, die_at_step
from tests.train.worlds import (
    CPU,
    EXACT,
    LEAVING,
    ONE_BY_ONE,
    close,
    pretrain_stage,
    run_finetune,
    run_pretrain,
    same,
    supervised_stage,
)

ONE_THREAD = ONE_BY_ONE.model_copy(update={"threads": 1})
ROOT = Path(__file__).parents[2]


def gradients(dataset: Dataset, runtime: Runtime) -> dict[str, np.ndarray]:
    """The gradients of a step of two members, of an odd number of rows: shares differ."""
    stages: list[Stage] = [pretrain_stage(dataset), supervised_stage(dataset)]
    found: dict[str, np.ndarray] = {}
    for stage in stages:
        state = GroupState.fresh(stage, [0, 1], runtime)
        streams = [Stream(stage.name, member) for member in range(2)]
        loss_R, _ = stage.loss(state.params, state.state, torch.arange(15).expand(2, -1), streams)
        loss_R.sum().backward()
        grads = {name: value.grad for name, value in state.params.items() if value.grad is not None}
        found |= {f"{stage.name}/{name}": grad.numpy() for name, grad in grads.items()}
    return found


@pytest.fixture(scope="module")
def together(tumor_dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which two processes have trained: see `tests/train/one_of_several.py`."""
    folder = tmp_path_factory.mktemp("together")
    write_dataset(folder / "data.h5", tumor_dataset)
    for name, steps in {"goes-on": 8, "failed-early": 3}.items():  # in the second and in the first of three members
        with pytest.MonkeyPatch.context() as patched:
            die_at_step(patched, steps)
            with pytest.raises(KilledError):
                run_pretrain(tumor_dataset, folder / name, ONE_THREAD, members=3)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    asked = {"TORCHELASTIC_RUN_ID": "test", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    command = [sys.executable, "-m", "tests.train.one_of_several", str(folder)]
    started = [
        subprocess.Popen(
            command, cwd=ROOT, env=os.environ | asked | {"RANK": str(rank)}, stderr=subprocess.PIPE, text=True
        )
        for rank in (0, 1)
    ]
    said = [process.communicate(timeout=120)[1] for process in started]
    assert [process.returncode for process in started] == [0, 0], said
    return folder


def arrays_of(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as found:
        return dict(found)


def test_gradients_of_two_processes_are_those_of_one(together: Path, tumor_dataset: Dataset) -> None:
    expected = gradients(tumor_dataset, Runtime.resolve(CPU))
    for rank in (0, 1):
        close(expected, arrays_of(together / f"gradients-{rank}.npz"), atol=1e-6)
    assert any("predictor" in name for name in expected)


def test_two_processes_divide_three_members_which_are_those_of_one_process_to_the_bit(together: Path, whole) -> None:
    expected = whole(run_pretrain, members=3, runtime=ONE_THREAD).arrays
    for rank, steps in enumerate([[[0]] * 6 + [[2]] * 6, [[1]] * 6]):
        assert same(expected, arrays_of(together / f"whole-{rank}.npz"))
        assert json.loads((together / f"taken-{rank}.json").read_text()) == steps


def test_members_that_leave_a_group_of_one_of_two_processes_are_those_of_one_process(together: Path, whole) -> None:
    expected = whole(run_finetune, runtime=EXACT, **LEAVING)
    assert len(set(expected.meta["stages"][0]["steps"])) > 1
    for rank in (0, 1):
        close(expected.arrays, arrays_of(together / f"parted-{rank}.npz"))


def test_the_log_of_divided_members_has_each_epoch_once(together: Path) -> None:
    rows = list(csv.DictReader((together / "log.csv").read_text().splitlines()))
    assert sorted((row["member"], row["epoch"]) for row in rows) == [(m, e) for m in "123" for e in "123"]
    assert all(row["seconds"] and row["loss"] for row in rows)


def test_two_processes_divide_what_one_has_begun(together: Path, whole) -> None:
    expected = whole(run_pretrain, members=3, runtime=ONE_THREAD).arrays
    assert all(same(expected, arrays_of(together / f"goes-on-{rank}.npz")) for rank in (0, 1))


@pytest.mark.parametrize(("name", "members", "runtime"), [("shared", 1, EXACT), ("divided", 3, ONE_THREAD)])
def test_a_run_of_two_processes_stops_in_both_and_goes_on_in_one(
    name: str, members: int, runtime, together: Path, tumor_dataset: Dataset, whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []
    monkeypatch.setattr(NullReporter, "note", lambda self, message: notes.append(message))
    expected = whole(run_pretrain, members=members, runtime=runtime).arrays
    continued = run_pretrain(tumor_dataset, together / name, runtime, members=members).arrays
    assert any("continuing at epoch 2" in note for note in notes)
    close(expected, continued)
    assert name == "shared" or same(expected, continued)


def test_an_error_in_one_process_is_that_of_all(together: Path) -> None:
    told = [json.loads((together / f"failed-{rank}.json").read_text()) for rank in (0, 1)]
    assert told[0] == told[1]
    assert told[0]["details"][:2] == ["one", "two"]
    assert told[0]["where"] == "a member of the second process"


def test_an_error_right_after_a_resume_loses_no_saved_progress(together: Path, tumor_dataset: Dataset, whole) -> None:
    saved = read_header(together / "failed-early" / "pretrain.h5").meta["waiting"]
    assert [(group["members"], group["epoch"], group["step"]) for group in saved] == [([0], 1, 1)]
    assert len(saved[0]["records"][0]["train_loss"]) == 1
    continued = run_pretrain(tumor_dataset, together / "failed-early", ONE_THREAD, members=3).arrays
    assert same(whole(run_pretrain, members=3, runtime=ONE_THREAD).arrays, continued)


@pytest.mark.parametrize(
    ("name", "told", "finished", "waiting"),
    [
        ("full", {0: "the disk is full", 1: "the disk is full"}, [[0], [2], [1]], []),
        ("full-stopped", {0: "the disk is full"}, [[0], [2]], [([1], 1, 2)]),
        ("full-failed", {0: "the disk is full", 1: "the loss is not finite"}, [[0], [2]], []),
    ],
)
def test_a_log_that_cannot_be_written_keeps_no_process_from_saving_and_all_are_told(
    name: str,
    told: dict[int, str],
    finished: list[list[int]],
    waiting: list[tuple[list[int], int, int]],
    together: Path,
) -> None:
    errors = {rank: json.loads((together / f"{name}-{rank}.json").read_text()) for rank in told}
    assert {rank: error["problem"] for rank, error in errors.items()} == told
    saved = read_header(together / name / "pretrain.h5").meta
    assert [group["members"] for group in saved["finished"]] == finished
    assert [(group["members"], group["epoch"], group["step"]) for group in saved["waiting"]] == waiting


def test_processes_of_somebody_else_compute_alone_and_those_that_train_together_share_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "RANK": "3"}.items():
        monkeypatch.setenv(name, value)
    found: list[float] = []
    monkeypatch.setattr(microbatches, "keep_microbatches", found.append)
    Runtime.resolve(CPU.model_copy(update={"max_memory": 8.0}))  # would wait for the others if it joined them
    assert (processes.count(), processes.rank(), list(processes.share(2))) == (1, 0, [0, 1])
    monkeypatch.setattr(processes, "join", lambda device: device)
    with processes.together():
        Runtime.resolve(CPU.model_copy(update={"max_memory": 8.0}))
        assert (processes.count(), processes.rank(), list(processes.share(4))) == (4, 3, [3])
    assert (processes.count(), found) == (1, [8.0, 4.0])


PRETRAIN = ["pretrain", "--preset", "quick", "--json", "--threads", "1"]
TORCHRUN = [
    *["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "--"],
    "costar_cli",
    *PRETRAIN,
]


def run_cli(words: list[str], *more: str | Path) -> dict[str, Any]:
    """Run Python and return its one document."""
    run = subprocess.run(
        [sys.executable, *words, *map(str, more)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return json.loads(run.stdout)


@pytest.mark.slow
def test_torchrun_makes_one_file_and_says_everything_once(tumor_dataset: Dataset, tmp_path: Path) -> None:
    write_dataset(tmp_path / "data.h5", tumor_dataset)
    words = ["-w", tmp_path, "--epochs", "1", "--members", "1"]
    assert run_cli(TORCHRUN, *words)["status"] == "done"
    assert run_cli(["-m", "costar_cli", *PRETRAIN], *words)["status"] == "up_to_date"
    assert sorted(path.name for path in tmp_path.glob("*.h5")) == ["data.h5", "encoder.h5"]
    assert not list((tmp_path / "runs").glob("*.h5"))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_process_of_torchrun_that_is_stopped_stops_all_and_the_members_go_on_in_one(
    number: int, tumor_dataset: Dataset, tmp_path: Path
) -> None:
    log, apart = tmp_path / "log.csv", tmp_path / "apart"
    words = ["--epochs", "15", "--members", "3", "-w"]
    for folder in (tmp_path, apart):
        folder.mkdir(exist_ok=True)
        write_dataset(folder / "data.h5", tumor_dataset)
    torchrun = subprocess.Popen(
        [sys.executable, *TORCHRUN, *words, tmp_path, "--log", log], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    while not log.exists() or len(log.read_text().splitlines()) < 4:
        assert torchrun.poll() is None
        time.sleep(0.05)
    _, second = sorted(child.pid for child in psutil.Process(torchrun.pid).children())
    os.kill(second, number)
    stopped = json.loads(torchrun.communicate(timeout=60)[0])
    assert stopped["status"] in {"interrupted", "failed"}
    assert "again" in stopped["error"]["fix"] or "continue" in stopped["error"]["fix"]
    assert torchrun.returncode == 1
    finished, whole = (run_cli(["-m", "costar_cli", *PRETRAIN], *words, where) for where in (tmp_path, apart))
    assert finished["outputs"]["encoder"]["digest"] == whole["outputs"]["encoder"]["digest"]
    rows = list(csv.DictReader(log.read_text().splitlines()))
    assert len({(row["member"], row["epoch"]) for row in rows}) == len(rows) > 3
