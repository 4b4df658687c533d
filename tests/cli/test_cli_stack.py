"""`--method stack` and `--method auto` through the verbs: what they print, record, and refuse."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_world import TINY_COHORT, Run

from costar_cli.cli.app import main
from costar_cli.errors import DataError
from costar_cli.files import read_artifact, read_header, write_artifact
from costar_cli.methods.registry import METHODS
from costar_cli.methods.stack import method as stack_method

Call = Callable[..., Run]
INSTANT = ("--minutes", "1e-9")  # no time for a second part


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with a data set, a stack of three methods, and the stack adapted to the target."""
    folder = tmp_path_factory.mktemp("stack") / "w"
    place = ["--workspace", str(folder), "--quiet"]
    assert main(["simulate", "tumor", *TINY_COHORT, *place]) == 0
    place += ["--threads", "1"]
    assert main(["finetune", "--method", "stack", "--parts", "last-value, ridge,mixed", *place]) == 0
    assert main(["finetune", "--method", "stack", "--domain", "target", *place]) == 0
    return folder


@pytest.fixture
def place(made: Path, tmp_path: Path) -> list[str]:
    """A copy of the data set in a workspace of its own."""
    (tmp_path / "w").mkdir()
    shutil.copy(made / "data.h5", tmp_path / "w")
    return ["--workspace", str(tmp_path / "w"), "--threads", "1"]


def test_the_leaderboard_is_printed_and_in_the_document_also_when_the_model_is_up_to_date(
    made: Path, call: Call
) -> None:
    again = "finetune", "--method", "stack", "--parts", "last-value, ridge,mixed", "-w", made, "--threads", "1"
    run = call(*again, "--show", "members")
    assert run.out.startswith("up to date")
    rows = [line.split() for line in run.out.splitlines() if line.startswith(("ridge", "mixed", "last-value", "stack"))]
    assert [row[0] for row in rows][-1] == "stack"
    assert {row[0] for row in rows} == {"ridge", "mixed", "last-value", "stack"}
    result = call(*again, "--json").document["result"]
    assert {row["method"] for row in result["leaderboard"]} == {"ridge", "mixed", "last-value", "stack"}
    assert result["left_out"] == {}
    inspected = call("inspect", made / "model-stack.h5")
    assert "errors on validation, as a share of the outcome's level at the origin\n" in inspected.out
    assert next(line.split() for line in inspected.out.splitlines() if line.startswith("mixed ")) in rows


def test_the_leaderboard_says_what_its_errors_are_in(made: Path, tmp_path: Path, call: Call) -> None:
    content = read_artifact(made / "model-stack.h5", kind="model")
    for relative, unit in (([False], "in sd of the outcome"), ([True, False], "or in its sd where it may be negative")):
        path = tmp_path / f"{len(relative)}.h5"
        meta = {**content.meta, "relative": relative}
        write_artifact(path, kind="model", arrays=content.arrays, meta=meta, parents=content.parents)
        assert unit in call("inspect", path).out


def test_other_verbs_take_a_stack_like_any_model_and_call_it_by_its_name(made: Path, plan: Path, call: Call) -> None:
    models = ["--model", made / "model-stack.h5", "--model", made / "model-stack-target.h5"]
    run = call("evaluate", *models, "--workspace", made, "--json", "--threads", "1", "--overwrite")
    rows = [row for row in run.document["result"]["rows"] if row["label"] == "Stacking"]
    assert {row["setup"] for row in rows} == {"zero-shot", "few-shot", "supervised"}
    assert all(row["mean"]["average"] > 0 for row in rows)
    asked = call("whatif", "--subject", "0", "--plan", plan, "--workspace", made, *models[:2], "--json")
    assert asked.code == 0, asked.err
    assert list(asked.document["result"]["models"]) == ["model-stack"]


def test_auto_takes_the_short_list_in_its_order_and_says_what_no_time_was_left_for(
    place: list[str], call: Call
) -> None:
    run = call("finetune", "--method", "auto", *INSTANT, *place, "--json")
    first, *others = (name for name in METHODS.short_list() if not METHODS[name].pretrained)
    result = run.document["result"]
    assert [row["method"] for row in result["leaderboard"]] == [first, "stack"]
    assert result["leaderboard"][0]["seconds"] >= 0
    assert result["left_out"] == dict.fromkeys(others, "no time was left for it")
    assert run.document["config"]["stack.parts"] == {"value": "short-list", "origin": "--parts"}
    model = Path(run.document["outputs"]["model"]["path"])
    assert model.name == "model-stack.h5"
    assert read_header(model).meta["settings"]["minutes"] == pytest.approx(1e-9)
    again = call("finetune", "--method", "auto", *INSTANT, *place, "--show", "members")
    assert again.out.startswith("up to date")
    assert f"{others[0]} is not a part: no time was left for it" in again.err


def test_auto_takes_costar_where_the_workspace_has_an_encoder(trained: Path, tmp_path: Path, call: Call) -> None:
    shutil.copytree(trained, tmp_path / "w", ignore=shutil.ignore_patterns("model*", "runs"))
    place = "--workspace", tmp_path / "w", "--threads", "1"
    run = call("finetune", "--method", "auto", *INSTANT, *place, "--json")
    assert run.document["inputs"]["encoder"]["path"] == str(tmp_path / "w" / "encoder.h5")
    assert "costar" in run.document["result"]["left_out"]
    parts = "finetune", "--method", "stack", "--parts", "costar,ridge", "--epochs", "1", *place, "--overwrite"
    run = call(*parts, "--json")
    assert {row["method"] for row in run.document["result"]["leaderboard"]} == {"costar", "ridge", "stack"}
    assert [stage["name"].partition(":")[0] for stage in run.document["result"]["stages"]] == ["costar"]
    assert read_header(tmp_path / "w" / "model-stack.h5").meta["members"] == 2


def test_a_part_that_fails_is_told_once(place: list[str], call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    fit_part = stack_method._fit_part

    def maybe(task, name, start):
        if name == "mixed":
            raise DataError("nothing to learn")
        return fit_part(task, name, start)

    monkeypatch.setattr(stack_method, "_fit_part", maybe)
    fit = "finetune", "--method", "stack", "--parts", "last-value,ridge,mixed", *place
    for run in (call(*fit), call(*fit)):
        assert run.err.count("nothing to learn") == 1, run.err


def test_a_changed_setting_of_a_part_makes_another_stack(
    made: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COSTAR_MIXED_HIDDEN", "3")
    run = call("finetune", "--method", "stack", "--parts", "last-value,ridge,mixed", "-w", made, "--threads", "1")
    assert run.code != 0
    assert "made from other inputs or settings" in run.err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("ridge", "--parts", "mixed"), "`--parts` applies to `stack` and `auto` only"),
        (("ridge", "--minutes", "3"), "`--minutes` applies to `stack` and `auto` only"),
        (("stack", "--parts", "mixed,stack"), "'stack' cannot be a part"),
        (("auto", "--minutes", "0"), "stack.minutes = 0.0 (--minutes): expected a number, above 0, or nothing"),
    ],
)
def test_what_cannot_be_combined_is_said(words: tuple[str, ...], problem: str, place: list[str], call: Call) -> None:
    run = call("finetune", "--method", *words, *place)
    assert run.code == 2
    assert problem in run.err
