"""A model that loses to the last value carried forward says so, and the next command is no question to it."""

from collections.abc import Callable
from pathlib import Path
from shlex import split

import pytest
from cli_world import Run

Call = Callable[..., Run]
IDLE = ["--epochs", "1", "--members", "1", "--threads", "1", "--learning-rate", "1e-9"]


SCHEMA = """
name = "ward"
horizon = 3

[columns]
patient = { role = "subject" }
day = { role = "time" }
pressure = { role = "outcome" }
drug = { role = "treatment", levels = ["none", "drug"] }
"""


@pytest.fixture
def lost(tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A COSTAR that has learned nothing of patients whose pressure never changes."""
    monkeypatch.chdir(tmp_path)
    rows = [f"{n},{day},{n * 7 % 11 + 1},{'drug' if (n + day) % 3 else 'none'}" for n in range(40) for day in range(9)]
    Path("t.csv").write_text("\n".join(["patient,day,pressure,drug", *rows]) + "\n")
    Path("s.toml").write_text(SCHEMA)
    assert call("ingest", "table", "t.csv", "--schema", "s.toml", "-w", "idle").code == 0
    return call("finetune", "--from", "scratch", "-w", "idle", *IDLE, "--json")


def test_finetune_prints_validation_beside_the_last_value_and_suggests_to_train_on_where_it_loses(
    lost: Run, call: Call
) -> None:
    validation = lost.document["result"]["validation"]
    assert validation["score"] > validation["last_value"]
    said = f"validation ({validation['score']:.3f} against {validation['last_value']:.3f})"
    assert any(said in warning for warning in lost.document["warnings"])
    longer, other = lost.document["next"]
    assert "--from scratch --epochs 2 --overwrite" in longer
    assert "--method ridge" in other
    assert call(*split(other)[1:]).code == 0


def test_evaluate_warns_of_each_setup_and_suggests_no_whatif(lost: Run, call: Call) -> None:
    assert lost.document["status"] == "done"
    run = call("evaluate", "-w", "idle", "--no-plots", "--bootstrap", 0, "--json")
    rows = {(row["setup"], row["basis"]): row["mean"]["average"] for row in run.document["result"]["rows"]}
    losing = [setup for setup, basis in rows if basis == "ours" and rows[setup, basis] > rows[setup, "naive"]]
    assert losing
    for setup in losing:
        both = f"({rows[setup, 'ours']:.3f} against {rows[setup, 'naive']:.3f})"
        assert any(
            f"in {setup}: worse than the last value carried forward {both}" in w for w in run.document["warnings"]
        )
    assert not any("whatif" in command for command in run.document["next"])
    assert any("--epochs" in command for command in run.document["next"])
