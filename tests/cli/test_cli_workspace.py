import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_world import Run

from costar_cli.cli.workspace import Workspace
from costar_cli.errors import ExitCode, LockedError, StorageError

Call = Callable[..., Run]


def test_models_of_every_kind_have_files_of_their_own(tmp_path: Path) -> None:
    place = Workspace(tmp_path)
    assert place.model().name == "model.h5"
    assert place.model(domain="target").name == "model-target.h5"
    assert place.model(init="scratch").name == "model-scratch.h5"
    assert place.model(init="scratch", domain="target").name == "model-scratch-target.h5"
    assert place.model("crn", domain="target").name == "model-crn-target.h5"


def test_files_are_listed_in_the_order_in_which_they_are_made(tmp_path: Path) -> None:
    place = Workspace(tmp_path)
    assert place.files() == place.models() == []
    for name in ("model-target.h5", "evaluation.h5", "model.h5", "encoder.h5", "data.h5", "other.h5"):
        (tmp_path / name).touch()
    names = [path.name for path in place.files()]
    assert names == ["data.h5", "encoder.h5", "model.h5", "model-target.h5", "evaluation.h5"]


def test_states_of_runs_into_different_folders_do_not_meet(tmp_path: Path) -> None:
    place = Workspace(tmp_path / "w")
    states = {place.run_state(path) for path in (place.encoder, tmp_path / "encoder.h5", tmp_path / "x" / "encoder.h5")}
    assert len(states) == 3
    assert all(state.parent == place.runs for state in states)
    assert place.run_state(place.encoder).name == "encoder.h5"


def test_the_lock_makes_the_folder_and_is_free_again_after_an_error(tmp_path: Path) -> None:
    place = Workspace(tmp_path / "deep" / "w")
    with pytest.raises(ValueError, match="stop"), place.lock():
        raise ValueError("stop")
    with place.lock():
        pass


def test_a_second_holder_is_refused_at_once(tmp_path: Path) -> None:
    place = Workspace(tmp_path)
    errors: list[Exception] = []

    def intrude() -> None:
        try:
            with Workspace(tmp_path).lock():
                pass
        except LockedError as error:
            errors.append(error)

    with place.lock():
        thread = threading.Thread(target=intrude)
        thread.start()
        thread.join(5)
    (error,) = errors
    assert "another costar process works in this workspace: process" in str(error)


def test_a_file_in_the_place_of_the_workspace_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "w").write_text("a file")
    with pytest.raises(StorageError, match="a file of that name exists"), Workspace(tmp_path / "w").lock():
        pass


def test_a_read_only_workspace_is_a_storage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("filelock.FileLock.acquire", refuse)
    with pytest.raises(StorageError, match="the disk is read-only") as caught, Workspace(tmp_path).lock():
        pass
    assert caught.value.where == str(tmp_path)


OWN = [".lock", ".lock-holder", "runs", "runs/model.1.h5", "plots", "encoder.h5"]
OWN += ["benchmark", "benchmark/tumor-quick", "seed-0", "gamma-2", "shard-1-of-2", "ledger.json", "part.json"]


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("kind", ["link", "dangling link", "pipe"])
def test_what_leads_out_of_a_workspace_is_refused_and_written_by_nobody(tmp_path: Path, name: str, kind: str) -> None:
    elsewhere, path = tmp_path / "elsewhere", tmp_path / "w" / name
    path.parent.mkdir(parents=True)
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(elsewhere)
    if kind == "link":
        elsewhere.write_text("mine")
    place = Workspace(tmp_path / "w")
    with pytest.raises(StorageError, match=f"`{path.name}` of the workspace is") as caught, place.lock():
        place.refuse_links(place.encoder)
    assert caught.value.where == str(path)
    assert (elsewhere.read_text() == "mine") if kind == "link" else not elsewhere.exists()


@pytest.mark.parametrize("name", ["benchmark", "benchmark/linear-quick", "benchmark/linear-quick/seed-0"])
@pytest.mark.parametrize("words", [[], ["--shard", "1/2"], ["--gamma", "1,2"]], ids=["whole", "part", "sweep"])
def test_a_benchmark_writes_through_no_link_of_its_workspace(
    tmp_path: Path, name: str, words: list[str], call: Call
) -> None:
    dataset = "tumor" if "--gamma" in words else "linear"
    path = tmp_path / "w" / name.replace("linear", dataset)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    path.parent.mkdir(parents=True)
    path.symlink_to(elsewhere)
    ran = call("benchmark", dataset, "--preset", "quick", "--methods", "mean", "--workspace", tmp_path / "w", *words)
    assert (ran.code, list(elsewhere.iterdir())) == (ExitCode.STORAGE, [])
    assert f"`{path.name}` of the workspace is a link" in ran.err


def test_files_that_have_another_name_elsewhere_are_not_emptied(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("mine")
    (tmp_path / "w").mkdir()
    os.link(mine, tmp_path / "w" / ".lock-holder")
    with Workspace(tmp_path / "w").lock():
        assert mine.read_text() == "mine"
    (tmp_path / "w" / ".lock").unlink()
    os.link(mine, tmp_path / "w" / ".lock")
    with pytest.raises(StorageError, match=r"`.lock` of the workspace is a link"), Workspace(tmp_path / "w").lock():
        pass
    assert mine.read_text() == "mine"


def test_a_workspace_that_is_a_link_itself_and_inputs_that_are_may_be_used(tmp_path: Path) -> None:
    (tmp_path / "large").mkdir()
    (tmp_path / "w").symlink_to(tmp_path / "large")
    (tmp_path / "w" / "data.h5").symlink_to(tmp_path / "data.h5")
    with Workspace(tmp_path / "w").lock():
        assert (tmp_path / "large" / ".lock-holder").read_text().startswith("process")
        Workspace(tmp_path / "w").refuse_links(tmp_path / "elsewhere.h5")
