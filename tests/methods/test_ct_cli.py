"""The causal transformer from the command line: trained and scored in processes of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from costar_cli.app import main

COHORT = (
    *("--train", "24", "--val", "8", "--test", "6", "--target-train", "8", "--target-val", "6", "--target-test", "5"),
    *("--steps", "14", "--horizon", "3", "--seed", "1"),
)


def costar(folder: Path, *args: str) -> dict:
    """Run a verb in a process of its own; return what its JSON document holds."""
    done = subprocess.run(
        [sys.executable, "-m", "costar_cli", *args, "--json"],
        cwd=folder,
        env={**os.environ, "PYTHONWARNINGS": "error", "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


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
