"""Training in two processes, as `torchrun` starts them: the gradients of one, also after the number of them changed."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from costar_cli.methods.base import Stage
from costar_cli.methods.shared import processes
from costar_cli.methods.shared.streams import Stream
from costar_cli.panel import Dataset
from costar_cli.panel.store import write_dataset
from costar_cli.reporting import NullReporter
from costar_cli.train import Runtime, runtime
from costar_cli.train.group import GroupState
from tests.train.worlds import CPU, EXACT, close, pretrain_stage, run_pretrain, supervised_stage

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
    """The folder in which two processes took the same steps, until the second one was interrupted."""
    folder = tmp_path_factory.mktemp("together")
    write_dataset(folder / "data.h5", tumor_dataset)
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


def test_gradients_of_two_processes_are_those_of_one(together: Path, tumor_dataset: Dataset) -> None:
    expected = gradients(tumor_dataset, Runtime.resolve(CPU))
    for rank in (0, 1):
        with np.load(together / f"gradients-{rank}.npz") as found:
            close(expected, dict(found), atol=1e-6)
    assert any("predictor" in name for name in expected)


def test_a_run_of_two_processes_stops_in_both_and_goes_on_in_one(
    together: Path, tumor_dataset: Dataset, whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []
    monkeypatch.setattr(NullReporter, "note", lambda self, message: notes.append(message))
    close(whole(run_pretrain, runtime=EXACT, members=2).arrays, run_pretrain(tumor_dataset, together, EXACT).arrays)
    assert any("continuing at epoch 2" in note for note in notes)


def test_processes_of_somebody_else_compute_alone_and_those_that_train_together_share_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "RANK": "3"}.items():
        monkeypatch.setenv(name, value)
    found: list[float] = []
    monkeypatch.setattr(runtime, "keep_microbatches", found.append)
    Runtime.resolve(CPU.model_copy(update={"max_memory": 8.0}))  # would wait for the others if it joined them
    assert (processes.count(), processes.rank(), list(processes.share(2))) == (1, 0, [0, 1])
    monkeypatch.setattr(processes, "join", lambda device: device)
    with processes.together():
        Runtime.resolve(CPU.model_copy(update={"max_memory": 8.0}))
        assert (processes.count(), processes.rank(), list(processes.share(4))) == (4, 3, [3])
    assert (processes.count(), found) == (1, [8.0, 4.0])


@pytest.mark.slow
def test_torchrun_makes_one_file_and_says_everything_once(tumor_dataset: Dataset, tmp_path: Path) -> None:
    write_dataset(tmp_path / "data.h5", tumor_dataset)
    words = ["pretrain", "-w", str(tmp_path), "--preset", "quick", "--epochs", "1", "--members", "1", "--json"]
    torchrun = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "costar_cli"]
    for launcher, status in ((torchrun, "done"), (["costar_cli"], "up_to_date")):
        run = subprocess.run(
            [sys.executable, "-m", *launcher, *words], cwd=ROOT, capture_output=True, text=True, check=True
        )
        assert json.loads(run.stdout)["status"] == status
    assert sorted(path.name for path in tmp_path.glob("*.h5")) == ["data.h5", "encoder.h5"]
    assert not list((tmp_path / "runs").glob("*.h5"))
