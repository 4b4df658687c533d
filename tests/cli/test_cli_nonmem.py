"""`costar ingest nonmem`: from a file of records to answers with a known effect, and a patient new to the model."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_world import Run

import costar_cli as costar
from costar_cli.data.nonmem.settings import NonmemConfig
from costar_cli.errors import ExitCode
from tests.datasets.test_nonmem import trial

Call = Callable[..., Run]
PLAN = {"plans": {"none": [{"AMT": 0}, {"AMT": 0}], "100": [{"AMT": 100}, {"AMT": 0}]}}
KEPT = 0.5 ** (4 / 6)  # of a concentration after four hours
NEW = "ID,TIME,DV,AMT,EVID,WT\nnew,0,1.0,.,0,70\nnew,0,.,100,1,70\nnew,4,7.3,.,0,70\nnew,8,4.9,.,0,70\n"


@pytest.fixture
def workspace(tmp_path: Path, call: Call) -> Path:
    assert call("ingest", "nonmem", trial(tmp_path / "trial.csv", 60), "--horizon", 2, "-w", tmp_path).code == 0
    assert call("finetune", "--method", "ridge", "-w", tmp_path).code == 0
    (tmp_path / "plan.json").write_text(json.dumps(PLAN))
    return tmp_path


def test_a_new_patient_is_read_as_the_records_of_the_model_and_asked_about(workspace: Path, call: Call) -> None:
    (workspace / "patient.csv").write_text(NEW)
    asked = ("ingest", "nonmem", workspace / "patient.csv", "--like", workspace / "model-ridge.h5", "-w", workspace)
    run = call(*asked)
    assert run.code == 0, run.err
    assert "--subjects all --origin last --plan plan.json" in " ".join(run.err.split())
    assert call(*asked, "--json").document["status"] == "up_to_date"
    panel = costar.read_dataset(workspace / "new.h5").panel("source", "test")
    assert panel.names == ["new"]
    answer = call(
        "whatif", "--subject", "new", "--origin", "last", "--plan", workspace / "plan.json", "-w", workspace,
        "--data", workspace / "new.h5", "--json",
    )  # fmt: skip
    assert answer.code == 0, answer.err
    found = {(row["plan"], row["step"]): row["estimate"] for row in answer.document["result"]["estimates"]}
    assert found["100", 1] - found["none", 1] == pytest.approx(10 * KEPT, rel=0.1)
    assert found["100", 2] - found["none", 2] == pytest.approx(10 * KEPT**2, rel=0.15)


def test_a_new_file_takes_no_settings_and_a_model_of_other_data_reads_none(workspace: Path, call: Call) -> None:
    (workspace / "patient.csv").write_text(NEW)
    new = ("ingest", "nonmem", workspace / "patient.csv", "-w", workspace)
    run = call(*new, "--like", workspace / "model-ridge.h5", "--step", 4, "--below", "half")
    assert run.code == ExitCode.USAGE
    assert "so --step and --below say nothing" in run.err
    assert call("simulate", "linear", "--preset", "quick", "-o", workspace / "other.h5").code == 0
    run = call(*new, "--like", workspace / "other.h5")
    assert run.code == ExitCode.MISMATCH
    assert "was not made of NONMEM's records" in run.err


def test_values_below_quantification_are_refused_until_a_number_stands_for_them(tmp_path: Path, call: Call) -> None:
    path = trial(tmp_path / "trial.csv")
    header, *lines = path.read_text().splitlines()
    path.write_text("\n".join([f"{header},BLQ", *(f"{line},{int(i == 5)}" for i, line in enumerate(lines))]))
    run = call("ingest", "nonmem", path, "--step", 4, "-w", tmp_path)
    assert run.code == ExitCode.DATA
    assert "methods learn from values, not from limits" in run.err
    assert "`--below half` or `limit` puts numbers in their place, `--below missing` leaves them out" in run.err
    run = call("ingest", "nonmem", path, "--step", 4, "-w", tmp_path, "--below", "half")
    assert run.code == 0
    assert "1 value beyond a limit" in run.err
    about = NonmemConfig.model_fields["below"].description  # what `--help` shows
    assert about
    assert about.startswith("Values that are known only to be beyond a limit (CENS, BLQ): refused, left out, at half")
