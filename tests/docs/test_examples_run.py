"""Everything in examples/ does what it says."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from costar_cli.cli.app import main
from tests.cli.cli_world import REPOSITORY

PLANS = sorted((REPOSITORY / "examples").rglob("*.json"))  # those of other data sets are called plan-<data set>.json
PLANS = [path for path in PLANS if not path.name.startswith("plan-") and path.parent.name != "fhir"]  # these are views
Script = Callable[..., "subprocess.CompletedProcess[str]"]


def test_the_ci_script_runs_every_verb_and_keeps_their_documents(tmp_path: Path, run_script: Script) -> None:
    done = run_script("ci.sh", tmp_path / "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert all(line.startswith("warning: ") for line in done.stderr.splitlines())  # toy models lose to the last value
    documents = {path.stem: json.loads(path.read_text()) for path in (tmp_path / "out").glob("*.json")}
    verbs = {document["verb"].split()[0] for document in documents.values()}
    assert verbs == {"simulate", "pretrain", "finetune", "evaluate", "whatif", "verify"}
    assert documents["pretrain-again"]["status"] == "up_to_date"
    assert any(line.startswith("zero-shot ") for line in done.stdout.splitlines())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


def test_the_ci_script_stops_with_the_exit_code_of_the_verb_that_failed(tmp_path: Path, run_script: Script) -> None:
    done = run_script("ci.sh", cwd=tmp_path, COSTAR_PRETRAIN_EPOCHS="0")
    assert done.returncode == 2
    assert "pretrain.epochs" in done.stderr
    assert "finetune" not in done.stdout


@pytest.mark.parametrize("plan", PLANS, ids=lambda path: path.name)
def test_every_plan_file_is_answered(plan: Path, tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    words = ["whatif", "-w", str(tiny), "--subject", "33", "--plan", str(plan), "--origin", "2", "--truth", "--json"]
    code = main(words)
    document = json.loads(capsys.readouterr().out)
    assert (code, document["status"]) == (0, "done")
    content = json.loads(plan.read_text())
    named = content["plans"] if isinstance(content, dict) else {"plan": content}
    answered: dict[str, list[int]] = {}
    for row in document["result"]["estimates"]:
        answered.setdefault(row["plan"], []).append(row["step"])
    assert list(answered) == list(named)
    for name, steps in answered.items():
        assert steps == list(range(1, len(steps) + 1))
        if isinstance(named[name], list) and not any("repeat" in step for step in named[name]):
            assert len(steps) == len(named[name])


@pytest.mark.parametrize("script", sorted((REPOSITORY / "examples").glob("*.sh")), ids=lambda path: path.name)
def test_scripts_stop_at_the_first_error(script: Path) -> None:
    assert any(line.startswith("set -eu") for line in script.read_text().splitlines())


def test_the_examples_page_names_every_example(repository: Path) -> None:
    page = (repository / "examples" / "README.md").read_text()
    here = repository / "examples"
    files = {path.relative_to(here).as_posix() for path in here.rglob("*") if path.is_file()}
    files = {name for name in files if not name.endswith(".pyc")} - {"README.md"}
    assert {name for name in files if f"`{name}`" not in page} == set()
