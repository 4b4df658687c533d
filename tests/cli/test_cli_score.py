"""`costar score` through the command line, and the examples of programs that it scores."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from cli_world import REPOSITORY, Run

from tests.contract.outputs import WORLD

Call = Callable[..., Run]
DATA = WORLD / "tumor" / "data.h5"
PLACE = ["--data", DATA, "--bootstrap", 0]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("score")
    command = [sys.executable, "-m", "costar_cli", "inspect", str(DATA), "--export", str(folder), "--quiet"]
    for form in ("parquet", "csv"):
        subprocess.run([*command, "--format", form, "--overwrite"], check=True, cwd=folder, capture_output=True)
    return folder


def test_queries_are_written_without_answers_under_the_digest_of_the_data(tmp_path: Path, call: Call) -> None:
    run = call("inspect", DATA, "--queries", tmp_path, "--json")
    path = Path(run.document["result"]["queries"])
    assert path.name == f"queries-{run.document['result']['digest'][:8]}.parquet"
    frame = pl.read_parquet(path)
    assert "tumour_volume" not in frame.columns
    assert {"set", "query", "subject", "origin", "step", "chemotherapy", "scored"} <= set(frame.columns)
    assert call("inspect", DATA, "--queries", path).code == 5  # it exists
    assert call("inspect", WORLD / "tumor" / "model-ridge.h5", "--queries", tmp_path / "q.csv").code == 4


def test_a_network_that_knows_nothing_of_costar_is_scored_beside_a_model(tables: Path, call: Call) -> None:
    script, answers = REPOSITORY / "examples" / "foreign" / "network.py", tables / "mine.parquet"
    assert "costar" not in [line.split()[1] for line in script.read_text().splitlines() if line.startswith("import")]
    subprocess.run([sys.executable, str(script), str(tables), str(answers)], check=True, cwd=tables)
    model = WORLD / "tumor" / "model-ridge.h5"
    run = call("score", answers, *PLACE, "--model", model, "--out", tables / "s.h5", "--json")
    rows = {(row["setup"], row["label"]): row for row in run.document["result"]["rows"]}
    mine, naive = rows["zero-shot", "mine"], rows["zero-shot", "Last value carried forward"]
    assert mine["mean"]["average"] < naive["mean"]["average"] / 2
    assert mine["calibration"]["0.9"]["coverage"]["average"] > 0.6
    assert ("zero-shot", "Linear ridge") in rows or any("idge" in label for _, label in rows)
    again = call("score", answers, *PLACE, "--model", model, "--out", tables / "s.h5", "--json")
    assert again.document["status"] == "up_to_date"


@pytest.mark.skipif(shutil.which("Rscript") is None, reason="R is not installed")
def test_a_regression_in_r_is_scored(tables: Path, call: Call) -> None:
    script = REPOSITORY / "examples" / "foreign" / "regression.R"
    subprocess.run(["Rscript", str(script), str(tables), str(tables / "r.csv")], check=True, cwd=tables)
    run = call("score", tables / "r.csv", *PLACE, "--out", tables / "r.h5", "--csv", tables / "rows.csv", "--json")
    assert {row["label"] for row in run.document["result"]["rows"]} >= {"r", "Last value carried forward"}


def test_gates_name_files_of_predictions(tables: Path, call: Call) -> None:
    frame = pl.read_parquet(tables / "queries.parquet").rename({"tumour_volume": "estimate"})
    frame.write_parquet(tables / "oracle.parquet")
    words = ["score", tables / "oracle.parquet", *PLACE, "--out", tables / "o.h5"]
    assert call(*words, "--fail-if", "zero-shot.oracle.average > 0.01").code == 0
    assert call(*words, "--fail-if", "zero-shot.oracle.average < 0.01").code == 10
    assert call(*words, "--fail-if", "zero-shot.other.average < 0.01").code == 2


def test_two_files_of_one_name_and_a_missing_one_are_errors(tables: Path, tmp_path: Path, call: Call) -> None:
    (tmp_path / "oracle.parquet").write_bytes(b"PAR1")
    words = ["score", tables / "queries.parquet", tmp_path / "queries.parquet", *PLACE]
    assert "no such file" in call(*words).err
    shutil.copy(tables / "queries.parquet", tmp_path / "queries.parquet")
    assert "two files" in call(*words).err
    assert call("score", tmp_path / "oracle.parquet", *PLACE).code != 0
    assert "no column" in call("score", tables / "queries.parquet", *PLACE).err
