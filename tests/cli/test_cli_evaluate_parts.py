"""Evaluations in parts on the command line: scored by shard, merged, and shown by the command without it."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from cli_world import DOCUMENTS, Run, assert_no_merge

from costar_cli.cli.workspace import Workspace
from costar_cli.errors import ExitCode
from costar_cli.files import read_artifact, read_header, write_artifact

Call = Callable[..., Run]
WHOLE = Path("e.h5")
ASKED = ("evaluate", "--bootstrap", 40, "--out", WHOLE)


@pytest.fixture
def place(trained: Path, tmp_path: Path, call: Call) -> tuple[object, ...]:
    """What names the data and two models, which score in a moment."""
    for method in ("ridge", "last-value"):
        assert call("finetune", "-w", trained, "--method", method, "--out", tmp_path / f"{method}.h5").code == 0
    return ("-w", trained, "--model", "ridge.h5", "--model", "last-value.h5")


@pytest.fixture
def parts(place: tuple[object, ...], call: Call) -> list[Path]:
    for number in (1, 2):
        run = call(*ASKED, *place, "--shard", f"{number}/2", "--predictions", "p.parquet", "--json")
        assert run.code == 0, run.err
        assert DOCUMENTS.is_valid(run.document)
        assert run.document["result"] == {"shard": f"{number}/2", "whole": "e.h5"}
    return [Path(f"e.shard-{number}-of-2.h5") for number in (1, 2)]


def test_merged_parts_are_up_to_date_and_shown_without_scoring(
    place: tuple[object, ...], parts: list[Path], call: Call
) -> None:
    assert call("merge", WHOLE, "--json").document["result"]["merged"] == [str(path) for path in parts]
    assert call("merge", WHOLE, "--json").document["status"] == "up_to_date"
    shown = call(*ASKED, *place, "--plots", "plots", "--json").document
    assert shown["status"] == "up_to_date"
    assert Path("e.csv").exists()
    assert Path("plots/rmse.png").exists()
    alone = call("evaluate", "--bootstrap", 40, "--out", "one.h5", *place, "--no-plots", "--json").document
    for ours, whole in zip(shown["result"]["rows"], alone["result"]["rows"], strict=True):
        assert (ours["label"], ours["scored"], ours["subjects"]) == (whole["label"], whole["scored"], whole["subjects"])
        assert ours["mean"]["steps"] == pytest.approx(whole["mean"]["steps"], rel=1e-5)
    assert read_header(WHOLE).parents == read_header(Path("one.h5")).parents


def test_predictions_of_parts_become_one_table(place: tuple[object, ...], parts: list[Path], call: Call) -> None:
    assert call("merge", "p.parquet").code == 0
    assert call("evaluate", "--out", "one.h5", *place, "--no-plots", "--predictions", "one.parquet").code == 0
    keys = ["setup", "model", "queries", "kind", "subject", "origin", "plan", "step"]
    ours, whole = (pl.read_parquet(path).sort(keys) for path in ("p.parquet", "one.parquet"))
    assert ours.select(keys).equals(whole.select(keys))
    assert (ours["estimate"] - whole["estimate"]).abs().max() == pytest.approx(0, abs=1e-4)


def test_a_part_is_made_once_and_needs_no_lock(
    place: tuple[object, ...], parts: list[Path], trained: Path, call: Call
) -> None:
    again = call(*ASKED, *place, "--shard", "2/2", "--json").document
    assert again["status"] == "up_to_date"
    parts[1].unlink()
    folder = Path(shutil.copytree(trained, "shared"))
    with Workspace(folder).lock():  # as another job would hold it
        assert call(*ASKED, "-w", folder, *place[2:], "--shard", "2/2").code == 0


def test_parts_of_other_evaluations_or_under_another_name_are_refused(
    place: tuple[object, ...], parts: list[Path], call: Call
) -> None:
    parts[1].unlink()
    assert_no_merge(call, WHOLE, ExitCode.USAGE, "1 of 2 parts is missing", "2/2")
    shutil.copy(parts[0], parts[1])
    assert_no_merge(call, WHOLE, ExitCode.MISMATCH, f"{parts[1]} is part 1/2")
    assert call(*ASKED, *place, "--level", "0.8", "--shard", "2/2", "--overwrite").code == 0
    assert_no_merge(call, WHOLE, ExitCode.MISMATCH, "not of one evaluation", parts[1])
    shutil.copy("ridge.h5", parts[1])
    assert_no_merge(call, WHOLE, ExitCode.ARTIFACT, "holds a model, not an evaluation-part")


def test_damaged_parts_and_a_foreign_file_in_the_place_of_the_whole_are_refused(
    parts: list[Path], trained: Path, call: Call
) -> None:
    sound = read_artifact(parts[0])
    meta = {**sound.meta, "scores": {**sound.meta["scores"], "rows": []}}
    shutil.copy(parts[0], "kept.h5")
    write_artifact(parts[0], kind=sound.kind, arrays=sound.arrays, meta=meta, parents=sound.parents, overwrite=True)
    assert_no_merge(call, WHOLE, ExitCode.ARTIFACT, "incomplete or damaged")
    data = bytearray(Path("kept.h5").read_bytes())
    data[len(data) // 2] ^= 4
    parts[0].write_bytes(data)
    assert_no_merge(call, WHOLE, ExitCode.ARTIFACT, parts[0])
    shutil.copy("kept.h5", parts[0])
    shutil.copy(trained / "encoder.h5", WHOLE)
    before = WHOLE.read_bytes()
    error = call("merge", WHOLE, "--json").document["error"]
    assert (error["exit_code"], error["problem"]) == (
        ExitCode.MISMATCH,
        "`e.h5` exists, and is another file or damaged",
    )
    assert WHOLE.read_bytes() == before
    WHOLE.write_bytes(before[:-9])
    assert "remove it" in call("merge", WHOLE).err


@pytest.mark.parametrize(
    "words",
    [["--fail-if", "zero-shot.ridge.average > 1"], ["--csv", "rows.csv"], ["--plots", "plots"], ["--refute"],
     ["--predictions", "p.csv"], ["--shard", "3/2"], ["--shard", "one"], ["--out", "e"], ["--out", "e.hdf5"],
     ["--out", "p.parquet", "--predictions", "p.parquet"]],
)  # fmt: skip
def test_a_part_is_not_asked_for_what_is_about_all(words: list[str], trained: Path, call: Call) -> None:
    ended = call(*ASKED, "-w", trained, "--shard", "1/2", *words, "--json")
    assert ended.code == ExitCode.USAGE
    assert json.loads(ended.out)["error"]["fix"]
    assert not list(Path().glob("*shard*"))


def test_a_part_is_written_into_its_own_workspace_alone(
    place: tuple[object, ...], trained: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(shutil.copytree(trained, "shared"))
    (folder / "e.shard-1-of-2.h5").symlink_to(Path("outside.h5").resolve())
    ask = ("evaluate", "--bootstrap", 40, "-w", folder, *place[2:], "--out", folder / "e.h5", "--shard")
    ended = call(*ask, "1/2")
    assert ended.code == ExitCode.STORAGE
    assert "a link, which is not followed there" in ended.err
    assert not Path("outside.h5").exists()
    denied = (folder, os.W_OK)  # root may write anywhere
    monkeypatch.setattr(os, "access", lambda path, mode, **_: (path, mode) != denied)
    ended = call(*ask, "2/2")
    assert ended.code == ExitCode.STORAGE
    assert "Scoring" not in ended.err
    (folder / "e.h5").mkdir()
    assert "is a folder" in call(*ask, "2/2").err
