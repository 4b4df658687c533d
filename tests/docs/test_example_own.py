"""The example of one's own table runs, and its table is what its script makes."""

import csv
import json
import re
import subprocess
import sys
from pathlib import Path
from statistics import mean

import pytest

from tests.cli.cli_world import environment
from tests.docs.pages import runnable_blocks
from tests.docs.test_examples_run import Script

SMALL = {"COSTAR_PRETRAIN_EPOCHS": "1", "COSTAR_FINETUNE_EPOCHS": "1", "COSTAR_EVALUATE_BOOTSTRAP": "50"}


@pytest.mark.slow
def test_the_script_goes_from_a_table_to_a_what_if(tmp_path: Path, repository: Path, run_script: Script) -> None:
    done = run_script("own-data/run.sh", cwd=tmp_path, **SMALL)
    assert done.returncode == 0, done.stderr
    for text in ("Shift from source to target", "zero-shot", "few-shot", "supervised", "subject S-012 (target/test)"):
        assert text in done.stdout
    assert "glucose (mg/dL), by " in done.stdout
    for name in json.loads((repository / "examples" / "own-data" / "plan-own.json").read_text())["plans"]:
        assert name in done.stdout
    made = {path.name for path in (tmp_path / "own-data-workspace").iterdir()}
    assert {"data.h5", "new.h5", "new.csv", "report.html", "model-target.h5", "whatif.png"} <= made


@pytest.mark.slow
def test_the_script_of_deaths_ends_with_survival_under_plans(tmp_path: Path, run_script: Script) -> None:
    done = run_script("own-data/deaths.sh", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "ends of 689 source subjects in 8262 steps: death 137, dropout 142" in done.stdout
    none, drug = re.findall(r"^  10 +([\d.]+) % +([\d.]+) %$", done.stdout, re.MULTILINE)[-1]
    assert float(none) > float(drug)  # the drug is toxic within the plan
    assert float(none) - float(drug) < 20


@pytest.mark.slow
def test_the_script_of_doses_draws_a_curve(tmp_path: Path, run_script: Script) -> None:
    done = run_script("own-data/doses.sh", cwd=tmp_path, PYTHON=sys.executable)
    assert done.returncode == 0, done.stderr
    assert "insulin (IU)" in done.stdout
    assert (tmp_path / "doses-workspace" / "curve.png").stat().st_size > 10_000


def test_the_page_goes_from_a_table_of_new_subjects_to_an_answer(
    tmp_path: Path, repository: Path, script_path: str
) -> None:
    (tmp_path / "examples").symlink_to(repository / "examples")
    (block,) = runnable_blocks(repository / "docs" / "new-subjects.md")
    own = "examples/own-data"
    script = f"""set -eu
costar ingest table {own}/small.csv --schema {own}/schema.toml
costar finetune --method last-value --out costar-workspace/model.h5
{block.script}"""
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment(PATH=script_path), capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "target/test         1      3" in done.stdout
    assert re.search(r"Subject X-2 .* from day 3 \(\d{4}-\d\d-\d\d\) by model", done.stdout)
    assert "columns that are not used: 'ward'" in done.stderr
    assert "another data set" not in done.stderr + done.stdout
    files = "--data costar-workspace/new.h5 --model costar-workspace/model.h5"
    assert f"whatif --subjects all --origin last --plan plan.json {files}" in done.stderr


def test_the_table_is_what_its_script_makes(tmp_path: Path, repository: Path) -> None:
    folder = repository / "examples" / "own-data"
    command = [sys.executable, folder / "make_small_csv.py", tmp_path / "again.csv"]
    subprocess.run(command, env=environment(), check=True)
    assert (tmp_path / "again.csv").read_bytes() == (folder / "small.csv").read_bytes()


def test_the_tables_of_other_shapes_are_what_their_script_makes(tmp_path: Path, repository: Path) -> None:
    folder = repository / "examples" / "own-data"
    subprocess.run([sys.executable, folder / "make_shapes.py", tmp_path], env=environment(), check=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.csv", "shelves.csv", "stores.csv"]
    for made in tmp_path.iterdir():
        assert made.read_bytes() == (folder / made.name).read_bytes()


# files, method, treatment, and bounds of its effect on the next step: 1.5 times the sales of shelves and shops, 4 mmHg
SHAPES = {
    "shelves": ("shelves.csv --statics stores.csv", "ridge", "promotion", (20, 60)),
    "log": ("log.csv", "mixed", "fluid", (2.5, 5.5)),
    "sales": ("sales.csv", "mixed", "promotion", (300, 480)),
}


@pytest.mark.parametrize("name", SHAPES)
def test_tables_of_other_shapes_go_to_a_what_if(name: str, tmp_path: Path, repository: Path, script_path: str) -> None:
    files, method, treatment, (low, high) = SHAPES[name]
    plans = {"plans": {"none": [{}], "now": [{treatment: 1}]}}
    (tmp_path / "plan.json").write_text(json.dumps(plans))
    script = f"""set -eu
cd {repository / "examples" / "own-data"}
export COSTAR_WORKSPACE={tmp_path}
costar ingest table {files} --schema {name}.toml
costar finetune --method {method} --out {tmp_path}/model.h5
costar ingest table {files} --like {tmp_path}/model.h5
costar whatif --subjects all --plan {tmp_path}/plan.json --data {tmp_path}/new.h5 --csv {tmp_path}/answers.csv"""
    done = subprocess.run(
        ["bash", "-c", script], env=environment(PATH=script_path), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    with (tmp_path / "answers.csv").open() as file:
        estimates = [
            (row["plan"], float(row["estimate"])) for row in csv.DictReader(line for line in file if line[0] != "#")
        ]
    effect = mean(x for plan, x in estimates if plan == "now") - mean(x for plan, x in estimates if plan == "none")
    assert low < effect < high


def test_the_keys_in_the_page_on_schemas_are_up_to_date(repository: Path) -> None:
    command = [sys.executable, repository / "docs" / "schema_reference.py", "--check"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_schema_in_the_page_is_the_examples(repository: Path) -> None:
    page = (repository / "docs" / "data-own.md").read_text("utf-8")
    schema = (repository / "examples" / "own-data" / "schema.toml").read_text("utf-8")
    shown, used = ([line.partition("#")[0].rstrip() for line in text.splitlines() if line.find(" = { role") > 0]
                   for text in (page, schema))  # fmt: skip
    assert shown == used


def test_the_table_in_the_page_is_the_examples(repository: Path) -> None:
    page = (repository / "docs" / "data-own.md").read_text("utf-8")
    table = (repository / "examples" / "own-data" / "small.csv").read_text("utf-8")
    assert "```text\n" + "".join(table.splitlines(keepends=True)[:4]) + "```" in page


def test_the_sales_are_what_their_script_makes(tmp_path: Path, repository: Path) -> None:
    folder = repository / "examples" / "own-data"
    subprocess.run([sys.executable, folder / "make_sales.py", tmp_path / "again.csv"], env=environment(), check=True)
    assert (tmp_path / "again.csv").read_bytes() == (folder / "sales.csv").read_bytes()


def test_the_visits_are_what_their_script_makes_and_plans_ask_at_dates(tmp_path: Path, repository: Path) -> None:
    from costar_cli.data import Part
    from costar_cli.data.table import TableInputs, ingest_table
    from costar_cli.data.table.schema_file import read_schema
    from costar_cli.plans.read import read_plans
    from costar_cli.reporting import NullReporter

    folder = repository / "examples" / "own-data"
    command = [sys.executable, folder / "make_visits.py", tmp_path / "again.csv"]
    subprocess.run(command, env=environment(), check=True)
    assert (tmp_path / "again.csv").read_bytes() == (folder / "visits.csv").read_bytes()
    dataset = ingest_table(TableInputs([folder / "visits.csv"]), read_schema(folder / "visits.toml"), NullReporter())
    assert [variable.name for variable in dataset.schema.covariates] == ["month, sine", "month, cosine"]
    assert dataset.panels[Part("source", "test")].since is not None
    plans = read_plans(folder / "plan-visits.json", dataset.schema, horizon=dataset.horizon).plans
    assert [plan.values[:, -1].tolist() for plan in plans] == [[7, 14]] * 3
