"""Training that is interrupted and called again with other settings, as real processes."""

import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from cli_world import TINY_COHORT, run_process, start_process

from costar_cli.errors import ExitCode

ENDED_BY_SIGNAL = {ExitCode.INTERRUPTED, 143, -signal.SIGINT, -signal.SIGTERM}


def words(workspace: Path, epochs: int) -> list[object]:
    return ["pretrain", "-w", workspace, "--epochs", epochs, "--members", 1, "--threads", 1]


def end(process: "subprocess.Popen[str]", number: signal.Signals) -> str:
    """Send a signal and return what stood on stderr since."""
    process.send_signal(number)
    _, err = process.communicate(timeout=120)
    assert process.returncode in ENDED_BY_SIGNAL, err
    return err


@pytest.fixture
def interrupted(trained: Path, tmp_path: Path) -> Path:
    """A workspace in which 5,000 epochs of pretraining were begun."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    shutil.copy(trained / "data.h5", workspace)
    for seconds in (3, 6, 15, 30):  # until the training loop is reached, however busy the machine
        with start_process(*words(workspace, 5000), cwd=tmp_path) as process:
            process.stderr.readline()
            time.sleep(seconds)
            end(process, signal.SIGTERM)
        if (workspace / "runs" / "encoder.h5").exists():
            return workspace
    raise AssertionError("the training loop was never reached")


def test_other_epochs_after_an_interruption_exit_5_and_keep_the_work(interrupted: Path, tmp_path: Path) -> None:
    state = (interrupted / "runs" / "encoder.h5").read_bytes()
    run = run_process(*words(interrupted, 1), "--seed", 3, "--json", cwd=tmp_path)
    document = run.document
    assert (run.code, document["status"]) == (ExitCode.MISMATCH, "failed"), run.err
    assert document["error"]["details"] == ["epochs: was 5000, now 1", "seed: was 10, now 3"]
    assert document["error"]["where"] == str(interrupted / "runs" / "encoder.h5")
    assert "--fresh" in document["error"]["fix"]
    assert "epochs: was 5000, now 1" in run.err
    assert (interrupted / "runs" / "encoder.h5").read_bytes() == state
    with start_process(*words(interrupted, 5001), cwd=tmp_path) as process:
        lines = iter(process.stderr.readline, "")
        assert any("with 5001 epochs instead of 5000" in line for line in lines)
        end(process, signal.SIGINT)
    fresh = run_process(*words(interrupted, 1), "--fresh", "--json", cwd=tmp_path)
    assert fresh.code == 0, fresh.err
    assert [member["epochs"] for member in fresh.document["result"]["members"]] == [1]
    assert not (interrupted / "runs" / "encoder.h5").exists()


def test_other_data_after_an_interruption_exit_5(interrupted: Path, tmp_path: Path) -> None:
    other = run_process("simulate", "tumor", *TINY_COHORT, "--gamma", 1, "--out", "other.h5", "--json", cwd=tmp_path)
    assert other.code == 0, other.err
    digest = other.document["outputs"]["dataset"]["digest"]
    run = run_process(*words(interrupted, 5000), "--data", "other.h5", cwd=tmp_path)
    assert run.code == ExitCode.MISMATCH, run.err
    assert f", now {digest[:8]}" in run.err
