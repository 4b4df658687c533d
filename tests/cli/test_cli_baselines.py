"""Baselines from the command line, trained and scored: the verbs are those of COSTAR."""

from collections.abc import Callable
from pathlib import Path

from cli_world import Run

Call = Callable[..., Run]

COHORT = (
    *("--train", "24", "--val", "8", "--test", "6", "--target-train", "8", "--target-val", "6", "--target-test", "5"),
    *("--steps", "14", "--horizon", "3", "--seed", "1"),
)


def document_of(run: Run) -> dict:
    """The document of a run that went well."""
    assert run.code == 0, run.err
    return run.document


def test_ct_is_trained_scored_and_asked(tmp_path: Path, call: Call):
    assert call("simulate", "tumor", *COHORT).code == 0
    train = ["finetune", "--method", "ct", "--epochs", "2", "--members", "2", "--threads", "1"]
    assert document_of(call(*train, "--json"))["status"] == "done"
    rows = document_of(call("evaluate", "--no-plots", "--bootstrap", "0", "--json"))["result"]["rows"]
    ours = [row for row in rows if row["basis"] == "ours"]
    assert [(row["setup"], row["label"]) for row in ours] == [("zero-shot", "CT"), ("supervised", "CT")]
    assert all(len(row["mean"]["steps"]) == 3 and row["mean"]["average"] > 0 for row in ours)
    plan = tmp_path / "plan.json"
    plan.write_text('{"origin": 4, "plans": {"watch": [{}, {}], "chemo": [{"chemotherapy": 1}, {}]}}')
    model = "costar-workspace/model-ct.h5"
    assert call("whatif", "--subject", "53", "--plan", plan, "--model", model).code == 0


def test_crn_is_trained_adapted_scored_and_asked(tmp_path: Path, call: Call):
    assert call("simulate", "tumor", *COHORT).code == 0
    train = ["finetune", "--method", "crn", "--epochs", "2", "--members", "2", "--threads", "1"]
    assert document_of(call(*train, "--json"))["status"] == "done"
    assert call(*train, "--domain", "target").code == 0
    rows = document_of(call("evaluate", "--no-plots", "--bootstrap", "0", "--json"))["result"]["rows"]
    ours = [row for row in rows if row["basis"] == "ours"]
    assert [(row["setup"], row["label"]) for row in ours] == [
        (setup, "CRN") for setup in ("zero-shot", "few-shot", "supervised")
    ]
    assert all(len(row["mean"]["steps"]) == 3 and row["mean"]["average"] > 0 for row in ours)
    plan = tmp_path / "plan.json"
    plan.write_text('{"origin": 4, "plans": {"watch": [{}, {}], "chemo": [{"chemotherapy": 1}, {}]}}')
    model = "costar-workspace/model-crn.h5"
    assert call("whatif", "--subject", "53", "--plan", plan, "--model", model).code == 0
