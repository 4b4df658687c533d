"""Each verb that writes is a build step: up to date, refused, replaced, started over."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_world import TINY_COHORT, Run, refuse_writes

from costar_cli.files import read_header, write_artifact
from costar_cli.training import RunIdentity

Call = Callable[..., Run]
ONE = ["--threads", "1", "--members", "2"]


@pytest.fixture
def workspace(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "workspace"))


@pytest.mark.parametrize(
    "words",
    [
        ["simulate", "tumor", *TINY_COHORT],
        ["pretrain", "--epochs", "1", *ONE],
        ["pretrain", "--epochs", "1", "--members", "2", "--threads", "2", "--device", "cpu"],
        ["finetune", "--epochs", "2", *ONE],
        ["finetune", "--epochs", "2"],
        ["finetune", "--epochs", "1", "--domain", "target", *ONE],
    ],
    ids=" ".join,
)
def test_unchanged_inputs_and_settings_are_up_to_date(words: list[str], trained: Path, call: Call) -> None:
    before = {path: path.read_bytes() for path in trained.glob("*.h5")}
    run = call(*words, "-w", trained, "--json")
    assert (run.code, run.document["status"]) == (0, "up_to_date")
    assert run.document["result"]
    assert {path: path.read_bytes() for path in trained.glob("*.h5")} == before


def test_changed_data_make_everything_after_them_stale(workspace: Path, call: Call) -> None:
    encoder, model = (workspace / "encoder.h5").read_bytes(), (workspace / "model.h5").read_bytes()
    assert call("simulate", "tumor", *TINY_COHORT, "--gamma", "5", "-w", workspace, "--overwrite").code == 0
    refused = call("pretrain", "--epochs", "1", *ONE, "-w", workspace)
    assert refused.code == 5
    assert "dataset: " in refused.err
    stale = call("finetune", "--epochs", "2", *ONE, "-w", workspace, "--json")
    assert stale.code == 5
    assert any("another data set" in warning for warning in stale.document["warnings"])
    assert (encoder, model) == ((workspace / "encoder.h5").read_bytes(), (workspace / "model.h5").read_bytes())


def test_overwrite_replaces_and_records_the_new_parents(workspace: Path, call: Call) -> None:
    assert call("simulate", "tumor", *TINY_COHORT, "--gamma", "5", "-w", workspace, "--overwrite").code == 0
    run = call("pretrain", "--epochs", "1", *ONE, "-w", workspace, "--overwrite", "--json")
    assert (run.code, run.document["status"]) == (0, "done")
    assert read_header(workspace / "encoder.h5").parents == {"dataset": read_header(workspace / "data.h5").digest}


def test_fresh_trains_again_and_gives_the_same_bytes(workspace: Path, call: Call) -> None:
    before = (workspace / "encoder.h5").read_bytes()
    run = call("pretrain", "--epochs", "1", *ONE, "-w", workspace, "--fresh", "--json")
    assert (run.code, run.document["status"]) == (0, "done")
    assert (workspace / "encoder.h5").read_bytes() == before


@pytest.mark.parametrize("content", [b"", b"my thesis"])
def test_a_file_that_is_no_artifact_is_not_replaced_unless_told_to(content: bytes, tmp_path: Path, call: Call) -> None:
    path = tmp_path / "thesis.h5"
    path.write_bytes(content)
    words = ["simulate", "tumor", *TINY_COHORT, "--out", path]
    refused = call(*words)
    assert refused.code == 5
    assert path.read_bytes() == content
    assert call(*words, "--overwrite").code == 0
    assert read_header(path).kind == "dataset"


def test_explicit_files_need_no_workspace_content(trained: Path, tmp_path: Path, call: Call) -> None:
    words = ["--data", trained / "data.h5", "--threads", "1", "--members", "1", "--epochs", "1"]
    assert call("pretrain", *words, "--out", tmp_path / "e.h5").code == 0
    assert call("finetune", *words, "--start", tmp_path / "e.h5", "--out", tmp_path / "m.h5").code == 0
    target = ["--domain", "target", "--start", tmp_path / "m.h5", "--out", tmp_path / "t.h5"]
    assert call("finetune", *words, *target).code == 0
    assert read_header(tmp_path / "t.h5").parents["model"] == read_header(tmp_path / "m.h5").digest
    assert not list((tmp_path / "costar-workspace").glob("*.h5"))


def test_finetune_trains_as_many_members_as_there_are_to_start_from(workspace: Path, call: Call) -> None:
    run = call("finetune", "--epochs", "1", "--threads", "1", "-w", workspace, "--overwrite", "--json")
    assert len(run.document["result"]["members"]) == 2
    run = call("finetune", "--epochs", "1", "--members", "3", "-w", workspace, "--overwrite")
    assert run.code == 5
    assert "--members 2" in run.err


def test_from_scratch_writes_a_model_of_its_own_and_says_what_it_is(workspace: Path, call: Call) -> None:
    before = (workspace / "model.h5").read_bytes()
    words = ["--epochs", "1", "--members", "1", "--threads", "1", "-w", workspace, "--json"]
    scratch = call("finetune", "--from", "scratch", *words)
    assert scratch.document["outputs"]["model"]["path"].endswith("model-scratch.h5")
    assert "encoder" not in scratch.document["inputs"]
    target = call("finetune", "--from", "scratch", "--domain", "target", *words)
    assert target.document["inputs"]["model"]["path"].endswith("model-scratch.h5")
    assert read_header(workspace / "model-scratch-target.h5").meta["init"] == "scratch"
    assert (workspace / "model.h5").read_bytes() == before


def test_start_and_from_scratch_contradict_each_other(trained: Path, call: Call) -> None:
    run = call("finetune", "--from", "scratch", "--start", trained / "encoder.h5", "-w", trained)
    assert run.code == 2


def test_a_finished_output_and_an_interrupted_run_of_other_settings_are_refused_together(
    workspace: Path, call: Call
) -> None:
    begun = RunIdentity("another run", settings={"epochs": 9})
    state = workspace / "runs" / "encoder.h5"
    state.parent.mkdir(exist_ok=True)
    write_artifact(state, kind="run-state", arrays={}, meta={**begun.to_json(), "finished": [], "current": None})
    words = ["pretrain", "--epochs", "2", *ONE, "-w", workspace]
    error = call(*words, "--json").document["error"]
    assert error["exit_code"] == 5
    assert "epochs: was 1, now 2" in error["details"]
    assert f"interrupted run in {state}: epochs: was 9, now 2" in error["details"]
    assert "--overwrite --fresh" in error["fix"]
    assert call(*words, "--overwrite", "--fresh").code == 0


def test_what_is_up_to_date_is_so_in_a_read_only_workspace_too(
    workspace: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call("evaluate", "-w", workspace, "--quiet", "--no-plots").code == 0
    verbs = [["simulate", "tumor", *TINY_COHORT], ["pretrain", "--epochs", "1", *ONE], ["finetune", "--epochs", "2"]]
    refuse_writes(monkeypatch, workspace)
    for words in [*verbs, ["evaluate", "--no-plots"]]:
        run = call(*words, "-w", workspace, "--json")
        assert (run.code, run.document["status"]) == (0, "up_to_date"), run.err
    refused = call("finetune", "--epochs", "1", "--domain", "target", *ONE, "--fresh", "-w", workspace)
    assert (refused.code, "the disk is read-only" in refused.err) == (8, True)


def test_an_evaluation_at_another_level_says_what_differs(workspace: Path, call: Call) -> None:
    assert call("evaluate", "-w", workspace, "--quiet", "--no-plots", "--bootstrap", "50").code == 0
    run = call("evaluate", "-w", workspace, "--no-plots", "--bootstrap", "60", "--level", "0.8", "--json")
    assert run.code == 5
    assert run.document["error"]["details"] == ["bootstrap: was 50, now 60", "level: was 0.95, now 0.8"]
    other = call("evaluate", "-w", workspace, "--no-plots", "--bootstrap", "50", "--setup", "few-shot")
    assert "  - setups: was not set, now few-shot\n" in other.err
