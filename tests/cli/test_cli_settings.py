"""`costar settings`, and that messages send nobody to pages that an installed package does not have."""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from costar_cli.settings.keys import all_keys
from tests.cli.cli_world import REPOSITORY, Run

Call = Callable[..., Run]


def listed(call: Call, *words: str) -> dict[str, dict[str, str]]:
    document = call("settings", *words, "--json").document
    return {row["name"]: row for row in document["result"]["settings"]}


def test_every_setting_is_listed_with_what_it_accepts_and_means(call: Call) -> None:
    rows = listed(call)
    assert list(rows) == list(all_keys())
    assert all(row["accepts"] and row["meaning"] for row in rows.values())
    assert rows["pretrain.epochs"]["accepts"] == "an integer, at least 1, at most 100000"


def test_a_section_or_one_setting_can_be_asked_for(call: Call) -> None:
    assert set(listed(call, "pretrain.encoder")) == {k for k in all_keys() if k.startswith("pretrain.encoder.")}
    assert set(listed(call, "runtime.device")) == {"runtime.device"}


def test_the_keys_of_a_tables_schema_are_listed(call: Call) -> None:
    rows = listed(call, "schema")
    assert rows["horizon"]["accepts"].startswith("a whole number")
    assert "`covariate`" not in rows["columns.NAME.role"]["accepts"]
    assert {"columns.NAME.role", "time.step", "split.train"} <= set(rows)


def test_an_unknown_name_is_a_usage_error_with_a_way_out(call: Call) -> None:
    run = call("settings", "pretrian")
    assert run.code == 2
    assert "did you mean `pretrain`? `costar settings all` lists all of them" in run.err
    assert "did you mean `pretrain.encoder`?" in call("settings", "pretrain.encodr").err
    assert "did you mean `pretrain.epochs`?" in call("settings", "pretrain.epoch").err


def strings(tree: ast.AST) -> Iterator[str]:
    """What a module may print: its strings without docstrings."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    docs = {id(node.body[0].value) for node in ast.walk(tree)
            if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)}  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.value


@pytest.mark.parametrize("folder", ["costar_cli", "simulators"])
def test_no_message_refers_to_a_file_that_the_wheel_lacks(folder: str) -> None:
    found = [
        (path.name, text)
        for path in (REPOSITORY / folder).rglob("*.py")
        for text in strings(ast.parse(path.read_text("utf-8")))
        if any(word in text for word in ("docs/", "README", "CHANGELOG", "examples/"))
    ]
    assert found == []


def test_chosen_epochs_say_that_the_updates_of_a_preset_do_not_apply(trained: Path, tmp_path: Path, call: Call) -> None:
    words = "finetune", "--from", "scratch", "-w", trained, "--preset", "quick", "--members", 1, "--threads", 1
    config = tmp_path / "settings.toml"
    config.write_text("[finetune]\nepochs = 1\n")
    for chosen, most in ((("--epochs", 2), "2 epochs, 6 updates"), (("--config", config), "1 epoch, 3 updates")):
        run = call(*words, *chosen, "--out", tmp_path / "m.h5", "--overwrite", "--show", "notes")
        assert run.code == 0, run.err
        said = f"{most} at most; the preset's 640 do not apply where `epochs` are chosen"
        assert run.err.count(said) == 1, run.err
    words = "pretrain", "-w", trained, "--preset", "quick", "--epochs", 1, "--out", tmp_path / "e.h5"
    run = call(*words, "--show", "notes")
    assert "1 epoch, 1 update at most; the preset's 54 do not apply" in run.err


def test_settings_that_a_method_does_not_use_are_named(
    trained: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["finetune", "--data", trained / "data.h5", "-w", tmp_path, "--method"]
    Path("own.toml").write_text("[finetune]\nhidden = 32\npatience = 3\n", "utf-8")
    mixed = call(*words, "mixed", "--epochs", 7, "--config", "own.toml", "--json").document
    [said] = [one for one in mixed["diagnostics"] if one["code"] == "settings-unused"]
    assert said["text"] == (
        "Mixed effects does not use `--epochs`, `finetune.patience` (own.toml), `finetune.hidden` (own.toml): "
        "the model is the same without"
    )
    crn = call(*words, "crn", "--epochs", 1, "--members", 1, "--config", "own.toml", "--quiet")
    assert crn.code == 0, crn.err
    assert "CRN does not use `finetune.hidden` (own.toml): the model is the same without" in crn.err
    monkeypatch.setenv("COSTAR_FINETUNE_EPOCHS", "7")  # set once, for all methods
    assert "does not use" not in call(*words, "ridge").err
