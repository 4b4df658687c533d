"""Bad input: each exit code, the message on stderr, one document on stdout."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from cli_world import TINY_COHORT, VERBS, Run, environment, read_until, start_process

from costar_cli.cli import app as application
from costar_cli.errors import CostarError, ExitCode, HungUpRunError
from costar_cli.files import read_artifact, write_artifact

Call = Callable[..., Run]
REQUIRED = {"whatif": ["--subject", "1", "--plan", "plan.json"], "inspect": ["x.h5"], "verify": ["x.h5"]}


@pytest.fixture
def workspace(trained: Path, tmp_path: Path) -> Path:
    """A copy of the trained workspace, free to be broken."""
    return Path(shutil.copytree(trained, tmp_path / "workspace"))


def check(run: Run, code: ExitCode, *words: str) -> None:
    assert run.code == code, run.err
    assert run.out == ""
    assert run.err.startswith("error: ") or "\nerror: " in run.err
    assert "Traceback" not in run.err
    for word in words:
        assert word in run.err


@pytest.mark.parametrize("verb", VERBS)
def test_an_unknown_flag_is_one_document_under_json_for_every_verb(verb: str, call: Call) -> None:
    run = call(*verb.split(), "--jsno", "--json")
    assert run.code == ExitCode.USAGE
    assert run.document["status"] == "failed"
    assert run.document["verb"] == verb
    assert run.document["error"]["exit_code"] == ExitCode.USAGE
    assert "--jsno" in run.document["error"]["problem"]
    assert "`--json`" in run.document["error"]["fix"]
    assert run.err.startswith("error: ")


@pytest.mark.parametrize("verb", ["pretrain", "finetune", "evaluate", "whatif", "inspect", "verify"])
def test_a_missing_input_is_one_document_under_json_for_every_verb(verb: str, call: Call) -> None:
    run = call(verb, *REQUIRED.get(verb, []), "--json")
    assert run.code == ExitCode.ARTIFACT, run.err
    assert (run.document["verb"], run.document["status"]) == (verb, "failed")
    assert run.document["error"]["type"] == "ArtifactError"
    assert run.document["result"] is None


def test_several_processes_do_not_simulate_the_same(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "2", "RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    run = call("simulate", "linear", "--preset", "quick")
    assert run.code == ExitCode.USAGE
    assert "2 processes were started to do the same" in run.err
    assert not any(Path.cwd().iterdir())
    assert call("pretrain").code == ExitCode.ARTIFACT  # may be started so, and has no data


def test_an_error_of_another_process_than_the_first_is_told_and_nothing_else(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "2", "RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    run = call("pretrain", "--json")
    assert (run.code, run.out) == (ExitCode.ARTIFACT, "")
    assert run.err.startswith("process 1: error: no dataset found")
    assert run.err.count("error") == 1
    assert "process 1: Traceback" in call("--debug", "pretrain").err
    assert call("pretrain", "--help").out == ""


def test_settings_that_are_not_valid_are_one_document_under_json(call: Call) -> None:
    run = call("simulate", "tumor", "--gamma", "-1", "--train", "0", "--json")
    assert run.code == ExitCode.USAGE
    assert run.document["verb"] == "simulate tumor"
    assert len(run.document["error"]["details"]) == 2


def test_a_doctor_that_finds_a_broken_file_fails_and_says_so_in_its_document(workspace: Path, call: Call) -> None:
    (workspace / "model.h5").write_bytes(b"not an artifact")
    run = call("doctor", "--workspace", workspace, "--json")
    assert (run.code, run.document["status"]) == (ExitCode.ARTIFACT, "failed")
    broken = [check for check in run.document["result"]["checks"] if check["status"] == "broken"]
    assert [check["name"] for check in broken] == ["model.h5"]


def test_doctor_names_what_is_no_file_in_the_place_of_one(workspace: Path, call: Call) -> None:
    for path in workspace.glob("*.h5"):
        path.unlink()
    os.mkfifo(workspace / "data.h5")
    (workspace / "encoder.h5").symlink_to("/dev/zero")
    (workspace / "model-crn.h5").mkdir()
    (workspace / "evaluation.h5").symlink_to("missing.h5")
    run = call("doctor", "--workspace", workspace, "--json")
    assert run.code == ExitCode.ARTIFACT
    broken = {
        check["name"]: check["found"] for check in run.document["result"]["checks"] if check["status"] == "broken"
    }
    assert broken == {
        "data.h5": "not a regular file",
        "encoder.h5": "not a regular file",
        "model-crn.h5": "a folder, not a file",
        "evaluation.h5": "there is no artifact here",
    }


def test_doctor_names_another_package_called_simulators(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other" / "simulators"
    other.mkdir(parents=True)
    (other / "__init__.py").touch()
    monkeypatch.delitem(sys.modules, "simulators", raising=False)
    monkeypatch.syspath_prepend(other.parent)
    run = call("doctor", "--json")
    assert run.code == ExitCode.FAILURE
    (check,) = (check for check in run.document["result"]["checks"] if check["status"] == "broken")
    assert (check["name"], check["found"]) == ("simulators", f"{other} is another package than costar's")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["finetuen"], "'finetune'"),
        (["simulate", "tumr"], "'tumor'"),
        (["pretrain", "--epoch", "3"], "`--epochs`"),
        (["pretrain", "--epochs", "three"], "--epochs"),
        (["pretrain", "--device", "gpu"], "'cuda'"),
        (["finetune", "--domain", "targt"], "'target'"),
        (["whatif", "--plan", "plan.json"], "--subject"),
        (["inspect", "a.h5", "b.h5"], "b.h5"),
        (["pretrain", "--config", "nowhere.toml"], "nowhere.toml"),
        (["pretrain", "--epochs", "0"], "at least 1"),
        (["--quiet", "doctor"], "--quiet goes after the command"),
    ],
)
def test_usage_errors_exit_2_and_name_the_way_out(words: list[str], hint: str, call: Call) -> None:
    check(call(*words), ExitCode.USAGE, hint)


def test_a_plan_with_an_unknown_treatment_exits_2(trained: Path, tmp_path: Path, call: Call) -> None:
    (tmp_path / "plan.json").write_text('[{"chemo": 1}]')
    run = call("whatif", "-w", trained, "--subject", 1, "--plan", "plan.json")
    check(run, ExitCode.USAGE, "chemotherapy")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--subject", "999"], "0 to 23"),
        (["--subject", "1", "--origin", "99"], "0 to"),
        (["--subject", "1", "--level", "2"], "level"),
        (["--subject", "1", "--reference", "wach"], "watch"),
        (["--subject", "1", "--plot", "plot.bmp"], ".png"),
    ],
)
def test_questions_out_of_range_exit_2_and_name_the_range(
    words: list[str], hint: str, trained: Path, plan: Path, call: Call
) -> None:
    check(call("whatif", "-w", trained, "--plan", plan, *words), ExitCode.USAGE, hint)


def test_data_with_nan_exit_3(workspace: Path, call: Call) -> None:
    path = workspace / "data.h5"
    artifact = read_artifact(path)
    arrays = {name: np.array(values) for name, values in artifact.arrays.items()}
    arrays["source/train/panel/outcomes"][2, 1] = np.nan
    write_artifact(path, kind="dataset", arrays=arrays, meta=artifact.meta, overwrite=True)
    check(call("pretrain", "-w", workspace, "--overwrite"), ExitCode.DATA, "outcomes")


@pytest.mark.parametrize("verb", ["inspect", "verify"])
@pytest.mark.parametrize("content", [b"", b"not an artifact", b"\x89HDF\r\n\x1a\n" + bytes(100)])
def test_foreign_files_exit_4(verb: str, content: bytes, tmp_path: Path, call: Call) -> None:
    (tmp_path / "file.h5").write_bytes(content)
    check(call(verb, "file.h5"), ExitCode.ARTIFACT, "file.h5")


def test_a_damaged_byte_is_found_by_verify(workspace: Path, call: Call) -> None:
    path = workspace / "model.h5"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    check(call("verify", path), ExitCode.ARTIFACT, "model.h5")


def test_an_artifact_of_another_kind_exits_4(trained: Path, call: Call) -> None:
    run = call("pretrain", "--data", trained / "model.h5")
    check(run, ExitCode.ARTIFACT, "holds a model, not a dataset")


def test_a_model_of_other_variables_exits_5(workspace: Path, plan: Path, call: Call) -> None:
    path = workspace / "model.h5"
    artifact = read_artifact(path)
    meta = {**artifact.meta, "schema": {**artifact.meta["schema"], "statics": []}}
    arrays = dict(artifact.arrays) | {"scaler/statics": np.zeros((2, 0))}
    write_artifact(path, kind="model", arrays=arrays, meta=meta, parents=artifact.parents, overwrite=True)
    run = call("whatif", "-w", workspace, "--subject", 1, "--plan", plan)
    check(run, ExitCode.MISMATCH, "patient_type")


def test_an_output_made_otherwise_exits_5_and_says_what_differs(workspace: Path, call: Call) -> None:
    before = (workspace / "data.h5").read_bytes()
    run = call("simulate", "tumor", *TINY_COHORT, "--gamma", 3, "-w", workspace)
    check(run, ExitCode.MISMATCH, "gamma: was 10.0, now 3.0", "--overwrite")
    assert (workspace / "data.h5").read_bytes() == before


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
@pytest.mark.parametrize("verb", ["pretrain", "finetune", "whatif"])
def test_cuda_without_a_gpu_exits_6(verb: str, workspace: Path, plan: Path, call: Call) -> None:
    words = ["--subject", 1, "--plan", plan] if verb == "whatif" else ["--fresh", "--overwrite"]
    check(call(verb, "-w", workspace, *words, "--device", "cuda"), ExitCode.DEVICE, "--device cpu")


def test_a_second_process_in_the_workspace_exits_7_and_names_the_first(tmp_path: Path, call: Call) -> None:
    holder = (
        "import sys; from pathlib import Path; from costar_cli.cli.workspace import Workspace\n"
        "with Workspace(Path('workspace')).lock():\n"
        "    print('locked', flush=True); sys.stdin.readline()\n"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", holder], cwd=tmp_path, env=environment(), **pipes) as first:  # type: ignore[call-overload]
        assert first.stdout.readline() == "locked\n"
        run = call("simulate", "tumor", *TINY_COHORT, "-w", "workspace")
        first.communicate("\n")
    check(run, ExitCode.LOCKED, f"process {first.pid}")
    assert call("simulate", "tumor", *TINY_COHORT, "-w", "workspace").code == ExitCode.OK


def test_a_place_that_cannot_be_written_exits_8(call: Call) -> None:
    run = call("simulate", "tumor", *TINY_COHORT, "-w", "/proc/costar")
    check(run, ExitCode.STORAGE, "/proc/costar")


def test_an_output_folder_that_does_not_exist_exits_8_before_any_work(call: Call) -> None:
    run = call("simulate", "tumor", "--preset", "paper", "--out", "nowhere/data.h5")
    check(run, ExitCode.STORAGE, "mkdir -p nowhere")


def test_a_full_disk_under_stdout_exits_8(trained: Path, tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "costar_cli", "verify", trained / "data.h5", "--json"]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment(), stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == ExitCode.STORAGE
    assert b"Traceback" not in done.stderr


def test_a_reader_that_leaves_early_is_no_error(trained: Path, tmp_path: Path) -> None:
    with start_process("inspect", trained / "data.h5", "--show", "all", "--arrays", "--quiet", cwd=tmp_path) as process:
        process.stdout.close()
        err = process.stderr.read()
        assert (process.wait(), err) == (0, "")


def test_training_that_diverges_exits_9(workspace: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSTAR_PRETRAIN_TEMPERATURE", "1e-300")
    words = ["pretrain", "-w", workspace, "--epochs", 1, "--out", "encoder-2.h5", "--threads", 1]
    check(call(*words), ExitCode.TRAINING, "not finite")


@pytest.mark.parametrize("moment", ["import", "training"])
def test_sigterm_exits_143_with_message_and_document(moment: str, workspace: Path) -> None:
    (workspace / ".lock-holder").unlink()
    words = ["finetune", "-w", workspace, "--overwrite", "--epochs", "9999", "--patience", "9999", "--threads", "1"]
    with start_process(*words, "--json", "--seed", "77", cwd=workspace, watched=moment == "training") as process:
        while not (workspace / ".lock-holder").exists() and process.poll() is None:
            time.sleep(0.05)
        line = read_until(process, "epoch ") if moment == "training" else ""
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate()
    run = Run(process.returncode, out, line + err)
    assert run.code == ExitCode.TERMINATED == 143
    assert (run.document["status"], run.document["error"]["exit_code"]) == ("interrupted", 143)
    assert "run the same command to continue" in run.document["error"]["fix"]
    assert "error: terminated\n" in run.err
    assert any((workspace / "runs").glob("*.h5")) == (moment == "training")


def test_a_sigterm_that_is_ignored_stays_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "from costar_cli.cli import app\n"
        "app._run = lambda *_: signal.raise_signal(signal.SIGTERM) or 0\n"
        "raise SystemExit(app.main(['doctor']))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment(), check=False)
    assert done.returncode == 0


def test_a_sigterm_in_code_that_c_runs_exits_143(tmp_path: Path) -> None:
    """A plain KeyboardInterrupt that leaves code run from C, as imports and `exec` do, ends `python -m` by SIGINT."""
    (tmp_path / "stopped.py").write_text(
        "from costar_cli.cli import app\n"
        "app._run = lambda *_: exec('import signal; signal.raise_signal(signal.SIGTERM)') or 0\n"
        "raise SystemExit(app.main(['doctor']))"
    )
    done = subprocess.run([sys.executable, "-m", "stopped"], cwd=tmp_path, env=environment(), check=False)
    assert done.returncode == ExitCode.TERMINATED


@pytest.mark.parametrize(
    ("raised", "code", "words"),
    [
        (
            RuntimeError("odd [red]thing[/red]"),
            ExitCode.FAILURE,
            ["RuntimeError: odd [red]thing[/red]", "COSTAR_DEBUG"],
        ),
        (OSError(28, "No space left on device", "x.h5"), ExitCode.STORAGE, ["the disk is full", "x.h5", "--workspace"]),
        (PermissionError(13, "Permission denied", "x.h5"), ExitCode.STORAGE, ["Permission denied"]),
        (OSError(30, "Read-only file system", "x.h5"), ExitCode.STORAGE, ["the disk is read-only"]),
        (MemoryError(), ExitCode.DEVICE, ["memory"]),
        (torch.OutOfMemoryError("CUDA"), ExitCode.DEVICE, ["--batch-size"]),
        (ImportError("no torch"), ExitCode.FAILURE, ["costar doctor"]),
        (KeyboardInterrupt(), ExitCode.INTERRUPTED, ["interrupted"]),
    ],
)
def test_exceptions_of_any_kind_become_a_message_and_a_code(
    raised: BaseException,
    code: ExitCode,
    words: list[str],
    call: Call,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise raised

    monkeypatch.setattr(application, "_run", fail)
    check(call("doctor"), code, *words)
    run = call("doctor", "--json")
    assert (run.code, run.document["error"]["exit_code"]) == (code, code)


def test_debug_adds_the_traceback(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, asked = call("verify", "nothing.h5"), call("--debug", "verify", "nothing.h5")
    monkeypatch.setenv("COSTAR_DEBUG", "1")
    for run in (asked, call("verify", "nothing.h5")):
        assert "Traceback" in run.err
        assert run.err.endswith(plain.err)
        assert run.code == plain.code


def test_every_costar_error_has_an_exit_code_of_its_own() -> None:
    kinds = [*CostarError.__subclasses__(), HungUpRunError]
    codes = [kind.exit_code for kind in kinds]
    assert len(set(codes)) == len(codes)
    assert set(codes) == set(ExitCode) - {ExitCode.OK}
