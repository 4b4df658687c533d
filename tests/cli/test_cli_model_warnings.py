"""What training warned of is said again by everything that uses the model."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_world import Run

from costar_cli.cli.app import main
from costar_cli.files import read_header

Call = Callable[..., Run]

SETTINGS = """
[simulate.linear]
gamma = 3
train = 60
val = 20
test = 20
target_train = 20
target_val = 20
target_test = 20
steps = 12
[evaluate]
bootstrap = 0
[runtime]
threads = 1
"""
DOUBT = "overlap is low"


@pytest.fixture(scope="module")
def doubtful(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace whose marginal structural models have weights that are not to be believed; look, but do not write."""
    folder = tmp_path_factory.mktemp("doubtful")
    (folder / "settings.toml").write_text(SETTINGS)
    place = ["--workspace", str(folder), "--config", str(folder / "settings.toml"), "--quiet"]
    assert main(["simulate", "linear", *place]) == 0
    assert main(["finetune", "--method", "msm", *place]) == 0
    assert main(["finetune", "--method", "msm", "--domain", "target", *place]) == 0
    return folder


def doubts(run: Run) -> list[str]:
    """The warnings of a document that speak of overlap; each is on stderr, too."""
    assert run.code == 0, run.err
    told = [warning for warning in run.document["warnings"] if DOUBT in warning]
    assert all(f"warning: {warning}" in run.err for warning in told)
    return told


def test_evaluate_repeats_them_and_keeps_them(doubtful: Path, tmp_path: Path, call: Call) -> None:
    words = [
        "evaluate",
        "-w",
        doubtful,
        "--config",
        doubtful / "settings.toml",
        "--out",
        tmp_path / "e.h5",
        "--no-plots",
    ]
    model = ["--model", doubtful / "model-msm.h5"]
    first, again = (call(*words, *model, "--json") for _ in range(2))
    assert again.document["status"] == "up_to_date"
    for run in (first, again):
        [warning] = doubts(run)
        assert warning.startswith("model MSM (source): ")
        assert warning in run.document["result"]["warnings"]
    assert doubts(first)[0] in read_header(tmp_path / "e.h5").meta["report"]["warnings"]
    assert any(DOUBT in line for line in doubts(call("inspect", tmp_path / "e.h5", "--json")))


def test_whatif_repeats_them_and_keeps_them(doubtful: Path, tmp_path: Path, call: Call) -> None:
    treatment = read_header(doubtful / "model-msm.h5").meta["schema"]["treatments"]["names"][0]
    (tmp_path / "plan.json").write_text(json.dumps([{treatment: 1}]))
    words = ["whatif", "-w", doubtful, "--subject", "1", "--plan", tmp_path / "plan.json", "--out", tmp_path / "a.h5"]
    run = call(*words, "--model", doubtful / "model-msm.h5", "--json")
    [warning] = doubts(run)
    assert warning.startswith("model `model-msm`: ")
    assert run.document["result"]["warnings"] == [warning]
    assert read_header(tmp_path / "a.h5").meta["warnings"] == [warning]


def test_a_model_that_starts_from_another_inherits_its_warnings(doubtful: Path, call: Call) -> None:
    source, target = (read_header(doubtful / f"model-msm{domain}.h5").meta["warnings"] for domain in ("", "-target"))
    assert [f"what it started from: {warning}" for warning in source] == target[: len(source)]
    place = ["-w", doubtful, "--config", doubtful / "settings.toml", "--json"]
    again = call("finetune", "--method", "msm", "--domain", "target", *place)
    assert again.document["status"] == "up_to_date"
    assert doubts(again)[0].startswith("model `model-msm-target`: what it started from: ")


def test_inspect_repeats_them(doubtful: Path, call: Call) -> None:
    [warning] = doubts(call("inspect", doubtful / "model-msm.h5", "--json"))
    assert warning.startswith("model `model-msm`: ")


def test_a_benchmark_has_them_in_its_cells_also_of_models_that_were_there(doubtful: Path, tmp_path: Path, call: Call):
    settings = doubtful / "settings.toml"
    words = ["benchmark", "linear", "--methods", "msm", "--setups", "supervised", "--config", settings, "--no-plots"]
    for _ in range(2):
        run = call(*words, "--folder", tmp_path / "b", "--json")
        [warning] = doubts(run)
        assert warning.startswith("MSM, source, seed ")
        [told] = [cost["warnings"] for cost in run.document["result"]["costs"] if cost["cell"].startswith("msm/source")]
        assert DOUBT in told[0]
    assert DOUBT in (tmp_path / "b" / "tables.md").read_text()
    assert DOUBT in (tmp_path / "b" / "cells.csv").read_text()
