"""A method that an installed package adds is a method like any other: one file, one entry point, every verb."""

import csv
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_world import TINY_COHORT, Run, environment

from costar_cli.methods import METHODS
from tests.plugin_world import install

SOURCE = Path(__file__).with_name("mean_change.py")
PLAN = {"origin": 5, "plans": {"none": [{}, {}, {}]}}
FINETUNE = ["finetune", "--method", "mean-change"]
COMMANDS = {  # in this order
    "simulate": ["simulate", "tumor", *TINY_COHORT],
    "finetune": FINETUNE,
    "help": ["finetune", "--help"],
    "mistyped": ["finetune", "--method", "mean-chnge"],
    "more epochs": [*FINETUNE, "--epochs", "7", "--json"],
    "other share": [*FINETUNE, "--config", "half.toml"],
    "no share": [*FINETUNE, "--config", "twice.toml"],
    "quick": [*FINETUNE, "--preset", "quick", "--out", "quick.h5"],
    "quick model": ["inspect", "quick.h5", "--json"],
    "doctor": ["doctor"],
    "evaluate": ["evaluate", "--no-plots", "--json"],
    "whatif": ["whatif", "--subject", "0", "--plan", "plan.json", "--csv", "answers.csv"],
    "inspect": ["inspect", "costar-workspace/model-mean-change.h5", "--json"],
    "benchmark": [
        *("benchmark", "costar-workspace/data.h5", "--methods", "ridge,mean-change", "--no-plots", "--json"),
    ],
}
RUN_ALL = """
import contextlib, io, json, sys
from costar_cli.cli.app import main

runs = {}
for name, words in json.loads(sys.argv[1]).items():
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = main(words)
    runs[name] = code, out.getvalue(), err.getvalue()
print(json.dumps(runs))
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a package with the method is installed."""
    folder = tmp_path_factory.mktemp("site")
    entries = {"costar.methods": {"mean-change": "mean_change:MEAN_CHANGE"}}
    install(folder, "costar-mean-change", entries, mean_change=SOURCE.read_text("utf-8"))
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a plan and files of settings, where the commands run."""
    folder = tmp_path_factory.mktemp("place")
    (folder / "plan.json").write_text(json.dumps(PLAN), "utf-8")
    (folder / "half.toml").write_text("[mean_change]\nshare = 0.5\n", "utf-8")
    (folder / "twice.toml").write_text("[mean_change]\nshare = 2.0\n", "utf-8")
    return folder


@pytest.fixture(scope="module")
def runs(site: Path, place: Path) -> dict[str, Run]:
    """What the commands leave behind, run one after another in a process that finds the package."""
    done = subprocess.run(
        [sys.executable, "-c", RUN_ALL, json.dumps(COMMANDS)],
        cwd=place,
        env=environment(PYTHONPATH=str(site), COLUMNS="400"),
        capture_output=True,
        text=True,
        check=True,
    )
    found = {name: Run(*run) for name, run in json.loads(done.stdout).items()}
    assert {name for name in ("simulate", "finetune") if found[name].code} == set(), found
    return found


def test_the_help_lists_it_behind_costars_own(runs: dict[str, Run]) -> None:
    assert "|".join([*METHODS, "mean-change"]) in runs["help"].out


def test_a_mistyped_name_suggests_it(runs: dict[str, Run]) -> None:
    assert runs["mistyped"].code == 2
    assert "did you mean `mean-change`?" in runs["mistyped"].err


def test_its_own_settings_make_it_another_model_and_those_that_it_does_not_read_do_not(runs: dict[str, Run]) -> None:
    assert runs["more epochs"].document["status"] == "up_to_date"
    assert runs["other share"].code != 0
    assert "mean_change.share = 2.0 (twice.toml): expected a number, at least 0, at most 1" in runs["no share"].err


def test_presets_set_what_its_package_says(runs: dict[str, Run]) -> None:
    assert runs["quick model"].document["result"]["meta"]["settings"] == {"share": 0.75}


def test_doctor_tells_of_it(runs: dict[str, Run]) -> None:
    assert "method mean-change" in runs["doctor"].out


def test_it_is_evaluated_under_its_label_beside_the_last_value(runs: dict[str, Run]) -> None:
    labels = {row["label"] for row in runs["evaluate"].document["result"]["rows"]}
    assert {"Mean change", "Last value carried forward"} <= labels


def test_it_answers_plans(runs: dict[str, Run], place: Path) -> None:
    assert runs["whatif"].code == 0, runs["whatif"].err
    with (place / "answers.csv").open(encoding="utf-8") as answers:
        assert len(list(csv.DictReader(answers))) == 3


def test_inspect_says_which_settings_made_it(runs: dict[str, Run]) -> None:
    assert runs["inspect"].document["result"]["meta"]["settings"] == {"share": 1.0}


def test_benchmarks_compare_it_in_its_place(runs: dict[str, Run]) -> None:
    tables = runs["benchmark"].document["result"]["tables"]
    assert [row["label"] for row in tables[0]["rows"]] == ["Mean change", "Ridge regression"]


def test_where_the_package_is_missing_its_models_say_so(
    runs: dict[str, Run], place: Path, call: Callable[..., Run]
) -> None:
    run = call("evaluate", "--no-plots", "--overwrite", "--workspace", place / "costar-workspace")
    assert run.code != 0
    assert "'mean-change'" in run.err
    assert "install the package that adds it" in run.err
