"""Training that is interrupted, as a real process, and called again with other settings."""

import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_world import TINY_COHORT, Run, read_until, start_process

from costar_cli.errors import ExitCode

Call = Callable[..., Run]


def words(workspace: Path, epochs: int) -> list[object]:
    return ["pretrain", "-w", workspace, "--epochs", epochs, "--members", 1, "--threads", 1]


def interrupt(workspace: Path, epochs: int, *, after: str, by: signal.Signals) -> str:
    """Start training in a process of its own, and end it after a line on stderr, which is returned."""
    with start_process(*words(workspace, epochs), cwd=workspace, watched=True) as process:
        line = read_until(process, after)
        process.send_signal(by)
        _, err = process.communicate(timeout=120)
    assert process.returncode in {ExitCode.INTERRUPTED, ExitCode.TERMINATED}, err
    return line


@pytest.fixture(scope="module")
def begun(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace in which 5,000 epochs of pretraining were begun; look, but do not write."""
    workspace = tmp_path_factory.mktemp("begun")
    shutil.copy(trained / "data.h5", workspace)
    interrupt(workspace, 5000, after="epoch 1", by=signal.SIGTERM)
    assert (workspace / "runs" / "encoder.h5").exists()
    return workspace


@pytest.fixture
def interrupted(begun: Path, tmp_path: Path) -> Path:
    """A copy of that workspace."""
    return Path(shutil.copytree(begun, tmp_path / "workspace"))


def test_other_epochs_after_an_interruption_exit_5_and_keep_the_work(interrupted: Path, call: Call) -> None:
    state = (interrupted / "runs" / "encoder.h5").read_bytes()
    run = call(*words(interrupted, 1), "--seed", 3, "--json")
    document = run.document
    assert (run.code, document["status"]) == (ExitCode.MISMATCH, "failed"), run.err
    assert document["error"]["details"] == ["epochs: was 5000, now 1", "seed: was 10, now 3"]
    assert document["error"]["where"] == str(interrupted / "runs" / "encoder.h5")
    assert "--fresh" in document["error"]["fix"]
    assert "epochs: was 5000, now 1" in run.err
    assert (interrupted / "runs" / "encoder.h5").read_bytes() == state
    line = interrupt(interrupted, 5001, after="continuing at epoch", by=signal.SIGINT)
    assert "with 5001 epochs instead of 5000" in line
    fresh = call(*words(interrupted, 1), "--fresh", "--json")
    assert fresh.code == 0, fresh.err
    assert [member["epochs"] for member in fresh.document["result"]["members"]] == [1]
    assert not (interrupted / "runs" / "encoder.h5").exists()


def test_other_data_after_an_interruption_exit_5(interrupted: Path, call: Call) -> None:
    other = call("simulate", "tumor", *TINY_COHORT, "--gamma", 1, "--out", "other.h5", "--json")
    assert other.code == 0, other.err
    digest = other.document["outputs"]["dataset"]["digest"]
    run = call(*words(interrupted, 5000), "--data", "other.h5")
    assert run.code == ExitCode.MISMATCH, run.err
    assert f", now {digest[:8]}" in run.err


def test_a_training_verb_writes_a_log_of_its_epochs_and_refuses_a_file_that_is_none(
    trained: Path, tmp_path: Path, call: Callable[..., Run]
) -> None:
    words = ["finetune", "-w", trained, "--epochs", 2, "--members", 2, "--from", "scratch", "--out", tmp_path / "m.h5"]
    (tmp_path / "own.csv").write_text("a,b\n1,2\n")
    refused = call(*words, "--log", tmp_path / "own.csv")
    assert refused.code == 5
    assert not (tmp_path / "m.h5").exists()
    run = call(*words, "--log", tmp_path / "log.csv", "--json")
    assert run.code == 0, run.err
    assert run.document["outputs"]["log"]["path"] == str(tmp_path / "log.csv")
    lines = (tmp_path / "log.csv").read_text("utf-8").splitlines()
    assert lines[0].startswith("run,stage,member,epoch,step,loss,")
    assert len(lines) == 1 + 2 * 2
    again = call(*words, "--log", tmp_path / "log.csv")
    assert "nothing was trained" in again.err
    assert (tmp_path / "log.csv").read_text("utf-8").splitlines() == lines
