"""Baselines from the command line, trained and scored in processes of their own: the verbs are those of COSTAR."""

from pathlib import Path

import pytest

from costar_cli.app import main
from tests.cli.cli_world import run_process

COHORT = (
    *("--train", "24", "--val", "8", "--test", "6", "--target-train", "8", "--target-val", "6", "--target-test", "5"),
    *("--steps", "14", "--horizon", "3", "--seed", "1"),
)


def costar(folder: Path, *args: str) -> dict:
    """Run a verb in a process of its own; return what its JSON document holds."""
    run = run_process(*args, "--json", cwd=folder)
    assert run.code == 0, run.err
    return run.document


def test_ct_is_trained_scored_and_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert main(["simulate", "tumor", *COHORT, "--quiet"]) == 0
    document = costar(tmp_path, "finetune", "--method", "ct", "--epochs", "2", "--members", "2", "--threads", "1")
    assert document["status"] == "done"
    rows = costar(tmp_path, "evaluate", "--no-plots", "--bootstrap", "0")["result"]["rows"]
    ours = [row for row in rows if row["basis"] == "ours"]
    assert [(row["setup"], row["label"]) for row in ours] == [("zero-shot", "CT"), ("supervised", "CT")]
    assert all(len(row["mean"]["steps"]) == 3 and row["mean"]["average"] > 0 for row in ours)
    plan = tmp_path / "plan.json"
    plan.write_text('{"origin": 4, "plans": {"watch": [{}, {}], "chemo": [{"chemotherapy": 1}, {}]}}')
    model = "costar-workspace/model-ct.h5"
    assert main(["whatif", "--subject", "53", "--plan", str(plan), "--model", model, "--quiet"]) == 0


def test_crn_is_trained_adapted_scored_and_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert main(["simulate", "tumor", *COHORT, "--quiet"]) == 0
    train = ["finetune", "--method", "crn", "--epochs", "2", "--members", "2", "--threads", "1"]
    assert costar(tmp_path, *train)["status"] == "done"
    assert main([*train, "--domain", "target", "--quiet"]) == 0
    rows = costar(tmp_path, "evaluate", "--no-plots", "--bootstrap", "0")["result"]["rows"]
    ours = [row for row in rows if row["basis"] == "ours"]
    assert [(row["setup"], row["label"]) for row in ours] == [
        (setup, "CRN") for setup in ("zero-shot", "few-shot", "supervised")
    ]
    assert all(len(row["mean"]["steps"]) == 3 and row["mean"]["average"] > 0 for row in ours)
    plan = tmp_path / "plan.json"
    plan.write_text('{"origin": 4, "plans": {"watch": [{}, {}], "chemo": [{"chemotherapy": 1}, {}]}}')
    model = "costar-workspace/model-crn.h5"
    assert main(["whatif", "--subject", "53", "--plan", str(plan), "--model", model, "--quiet"]) == 0
