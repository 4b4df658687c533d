"""`costar ingest table --like`: from a table of new subjects to their answers, and what it refuses."""

import csv
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_world import REPOSITORY, Run

Call = Callable[..., Run]
EXAMPLE = REPOSITORY / "examples" / "own-data"
NEW, PLAN = EXAMPLE / "new-patients.csv", EXAMPLE / "plan-own.json"


@pytest.fixture
def model(call: Call) -> str:
    """A model of the example's table, in the workspace."""
    assert call("ingest", "table", EXAMPLE / "small.csv", "--schema", EXAMPLE / "schema.toml").code == 0
    assert call("finetune", "--method", "last-value", "--out", "costar-workspace/model.h5").code == 0
    return "costar-workspace/model.h5"


def test_new_subjects_are_up_to_date_scored_where_they_can_be_and_never_trained_on(model: str, call: Call) -> None:
    table = ["ingest", "table", NEW, "--like", model]
    assert call(*table).code == 0
    assert "up to date" in call(*table).out
    data = ["--data", "costar-workspace/new.h5"]
    assert call("verify", "costar-workspace/new.h5").code == 0
    assert call("inspect", "costar-workspace/new.h5").code == 0
    answered = call("whatif", "--subjects", "all", "--plan", PLAN, *data, "--model", model, "--csv", "answers.csv")
    assert answered.code == 0, answered.err
    assert "another data set" not in answered.err + answered.out
    assert len(Path("answers.csv").read_text().splitlines()) == 1 + 2 * 3 * 4
    scored = call("evaluate", *data, "--no-plots")
    assert (scored.code, "the longest series has 4" in scored.err) == (5, True)
    long = ["ingest", "table", EXAMPLE / "small.csv", "--like", model, "--overwrite", "--out", "again.h5"]
    assert call(*long).code == 0
    drawn = call("evaluate", "--data", "again.h5", "--show", "notes")
    assert "skipped plot trajectories: it shows plans with known outcomes (query set `sequence`)" in drawn.err
    rows = call("evaluate", "--data", "again.h5", "--no-plots", "--json").document["result"]["rows"]
    assert {(row["setup"], row["truth"]) for row in rows} == {("zero-shot", "factual"), ("supervised", "factual")}
    trained = call("finetune", *data, "--method", "mean", "--out", "other.h5")
    assert (trained.code, "no source/train subjects" in trained.err) == (3, True)


def test_models_that_lose_on_new_subjects_are_not_to_be_trained_on_them(model: str, call: Call, tmp_path: Path) -> None:
    assert call("finetune", "--method", "mean").code == 0
    rising = tmp_path / "rising.csv"
    with NEW.open(encoding="utf-8") as file, rising.open("w", encoding="utf-8", newline="") as out:
        row = next(csv.DictReader(file))
        table = csv.DictWriter(out, row)
        table.writeheader()
        table.writerows({**row, "date": f"2024-09-{day:02d}", "glucose": 150 + 10 * day} for day in range(1, 9))
    assert call("ingest", "table", rising, "--like", model).code == 0
    asked = ["evaluate", "--data", "costar-workspace/new.h5", "--no-plots", "--json"]
    for models in (["--model", "costar-workspace/model-mean.h5"], ["--model", model]):
        scored = call(*asked, *models, "--out", f"{Path(models[1]).stem}.h5").document
        lost = any("worse than the last value carried forward" in line for line in scored["warnings"])
        assert lost == ("mean" in models[1])
        assert not [line for line in scored["next"] if "finetune" in line]


def test_what_does_not_go_with_like_is_refused(model: str, call: Call, tmp_path: Path) -> None:
    both = call("ingest", "table", NEW, "--like", model, "--schema", EXAMPLE / "schema.toml", "--seed", 3)
    assert both.code == 2
    assert "takes only the table and `--statics`, not --schema and --seed" in both.err
    odd = call("ingest", "table", NEW, "--like", NEW)
    assert odd.code == 4
    wrong = tmp_path / "wrong.csv"
    wrong.write_text(NEW.read_text().replace("carbs", "carbs (kg/day)").replace("basal", "bolus"))
    refused = call("ingest", "table", wrong, "--like", model)
    assert refused.code == 3
    assert all(text in refused.err for text in ("call it 'carbs'", "'bolus'", "do not fit `inpatient glucose`"))
    assert not Path("costar-workspace/new.h5").exists()
    Path("costar-workspace/new.h5").write_text("mine")
    again = call("ingest", "table", wrong, "--like", model)
    assert (again.code, "call it 'carbs'" in again.err) == (3, True)
