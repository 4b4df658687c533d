"""`costar ingest omop`: from a database to answers with a known effect, new patients, and what it refuses."""

import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from cli_world import Run

import costar_cli as costar
from costar_cli.data.table.schema_file import toml_row, toml_value
from costar_cli.errors import ExitCode
from tests.datasets.omop_world import EFFECT, PRESSURE, SIGNALS, make_tables, write_omop

Call = Callable[..., Run]


@pytest.fixture(scope="module")
def cdm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("omop")
    lines = [toml_row("name", SIGNALS["name"]), toml_row("horizon", SIGNALS["horizon"])]
    lines += [f"{table} = {toml_value(SIGNALS[table])}" for table in ("time", "columns")]
    (folder / "signals.toml").write_text("\n".join(lines))
    (folder / "plan.json").write_text(json.dumps({"plans": {"ace": [{"ace": 1}, {}], "none": [{}, {}]}}))
    (folder / "cdm").mkdir()
    return write_omop(folder / "cdm", make_tables(60))


def test_a_database_becomes_answers_with_the_known_effect_and_takes_new_patients(
    cdm: Path, tmp_path: Path, call: Call
) -> None:
    signals, plan = cdm.parent / "signals.toml", cdm.parent / "plan.json"
    made = call("ingest", "omop", cdm, "--signals", signals, "-w", tmp_path, "--json").document
    assert sum(part["subjects"] for part in made["result"]["parts"]) == 60
    assert (
        call("ingest", "omop", cdm, "--signals", signals, "-w", tmp_path, "--json").document["status"] == "up_to_date"
    )
    assert call("finetune", "--method", "ridge", "-w", tmp_path).code == 0
    asked = ("whatif", "--subject", 5, "--origin", 3, "--plan", plan, "-w", tmp_path, "--json")
    rows = {(row["plan"], row["step"]): row["estimate"] for row in call(*asked).document["result"]["estimates"]}
    assert rows["ace", 1] - rows["none", 1] == pytest.approx(EFFECT, abs=0.4)
    new = tmp_path / "new"
    new.mkdir()
    kept = {name: [row for row in own if row.get("person_id", 7) in (7, 8)] for name, own in make_tables(60).items()}
    write_omop(new, kept | {"death": make_tables(60)["death"]})
    run = call("ingest", "omop", new, "--like", tmp_path / "model-ridge.h5", "-w", tmp_path)
    assert run.code == 0, run.err
    read = costar.read_dataset(tmp_path / "new.h5")
    assert sorted(who for panel in read.panels.values() for who in panel.subject_id.tolist()) == [7, 8]
    asked = ("whatif", "--subjects", "all", "--origin", "last", "--plan", plan, "-w", tmp_path)
    assert call(*asked, "--data", tmp_path / "new.h5", "--csv", tmp_path / "answers.csv").code == 0
    first = pl.read_csv(tmp_path / "answers.csv").filter(step=1, subject=8)
    (ace, none) = (first.filter(plan=plan)["estimate"].item() for plan in ("ace", "none"))
    assert ace - none == pytest.approx(EFFECT, abs=0.4)


def test_signals_are_proposed_and_python_reads_the_same(cdm: Path, tmp_path: Path, call: Call) -> None:
    out = tmp_path / "signals.toml"
    run = call("ingest", "omop", cdm, "--init", "--out", out)
    assert run.code == 0, run.err
    text = out.read_text()
    assert f'systolic_blood_pressure = {{ role = "outcome", code = "measurement//{PRESSURE}"' in text
    assert 'role = "treatment", code = "drug_exposure//1308216"' in text
    assert 'left = { role = "censored", code = "observation_period//end" }' in text
    assert 'prefix = "gender//"' in text
    read = costar.read_events(cdm, form="omop", signals=cdm.parent / "signals.toml")
    assert read.schema.outcomes[0].unit == "mm[Hg]"


def test_what_cannot_be_used_is_refused_with_the_nearest_code(cdm: Path, tmp_path: Path, call: Call) -> None:
    signals = tmp_path / "signals.toml"
    signals.write_text((cdm.parent / "signals.toml").read_text().replace(str(PRESSURE), "3004248"))
    run = call("ingest", "omop", cdm, "--signals", signals, "-w", tmp_path)
    assert run.code == ExitCode.DATA
    assert "no event has the code 'measurement//3004248'" in run.err
    assert f"measurement//{PRESSURE}" in run.err
    assert "no signals given" in call("ingest", "omop", cdm, "-w", tmp_path).err
    assert "there is no table person" in call("ingest", "omop", tmp_path, "--signals", signals, "-w", tmp_path).err
