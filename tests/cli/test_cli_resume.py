"""Training that is interrupted, as a real process, and called again with other settings."""

import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_world import TINY_COHORT, Run, read_until, start_process

from costar_cli.errors import ExitCode
from costar_cli.training import loop

Call = Callable[..., Run]


def words(workspace: Path, epochs: int) -> list[object]:
    return ["pretrain", "-w", workspace, "--epochs", epochs, "--members", 1, "--threads", 1]


@pytest.fixture(scope="module")
def begun(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Run]:
    """A workspace in which 5,000 epochs of pretraining were begun, which Ctrl-C ended; look, but do not write."""
    workspace = tmp_path_factory.mktemp("begun")
    shutil.copy(trained / "data.h5", workspace)
    with start_process(*words(workspace, 5000), cwd=workspace, watched=True) as process:
        line = read_until(process, "epoch 1")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    return workspace, Run(process.returncode, out, line + err)


@pytest.fixture
def interrupted(begun: tuple[Path, Run], tmp_path: Path) -> Path:
    """A copy of that workspace."""
    return Path(shutil.copytree(begun[0], tmp_path / "workspace"))


@pytest.fixture
def ctrl_c(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let Ctrl-C come with the next update of training."""
    step = loop.training_step

    def interrupted_step(*args: object) -> object:
        monkeypatch.setattr(loop, "training_step", step)
        signal.raise_signal(signal.SIGINT)
        return step(*args)

    return lambda: monkeypatch.setattr(loop, "training_step", interrupted_step)


def test_ctrl_c_exits_130_and_the_same_command_continues(
    begun: tuple[Path, Run], interrupted: Path, ctrl_c: Callable[[], None], call: Call
) -> None:
    ctrl_c()
    for run, after in ((begun[1], "epoch 1"), (call(*words(interrupted, 5000)), "continuing at epoch")):
        assert (run.code, run.out) == (ExitCode.INTERRUPTED, ""), run.err
        assert after in run.err
        assert "\nerror: interrupted\n" in run.err
        assert "run the same command to continue" in run.err
        assert "Traceback" not in run.err
    assert [path.name for path in (interrupted / "runs").glob("*.h5")] == ["encoder.h5"]


def test_other_epochs_after_an_interruption_exit_5_and_keep_the_work(
    interrupted: Path, ctrl_c: Callable[[], None], call: Call
) -> None:
    state = (interrupted / "runs" / "encoder.h5").read_bytes()
    run = call(*words(interrupted, 1), "--seed", 3, "--json")
    document = run.document
    assert (run.code, document["status"]) == (ExitCode.MISMATCH, "failed"), run.err
    assert document["error"]["details"] == ["epochs: was 5000, now 1", "seed: was 10, now 3"]
    assert document["error"]["where"] == str(interrupted / "runs" / "encoder.h5")
    assert "--fresh" in document["error"]["fix"]
    assert "epochs: was 5000, now 1" in run.err
    assert (interrupted / "runs" / "encoder.h5").read_bytes() == state
    ctrl_c()
    longer = call(*words(interrupted, 5001))
    assert longer.code == ExitCode.INTERRUPTED, longer.err
    [line] = [line for line in longer.err.splitlines() if "continuing at epoch" in line]
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
