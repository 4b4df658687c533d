"""A table of statics, a treatment and deaths, as it is typed: a schema, a data set, effects, and what refuses."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_world import Run

from costar_cli.data.store import read_dataset
from tests.effects.test_events_alone import PLANS, severe

Call = Callable[..., Run]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a table of 400 subjects and plans, in which commands are typed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    severe(400, 1).drop("noise").rename({"a": "drug"}).write_csv("deaths.csv")
    plans = json.dumps(PLANS).replace('"a"', '"drug"')
    Path("plans.json").write_text(plans, "utf-8")
    return tmp_path


def test_from_a_table_to_the_risk_of_death(here: Path, call: Call) -> None:
    assert call("ingest", "table", "deaths.csv", "--init").code == 0
    made = call("ingest", "table", "deaths.csv", "--schema", "schema.toml", "--accept-guesses", "-w", "w")
    assert made.code == 0, made.err
    assert made.err.rstrip().endswith("next  costar effect --workspace w --plan plans.json")
    shown = call("inspect", "w/data.h5", "--report", "page.html")
    assert shown.code == 0, shown.err
    assert [line.split() for line in call("inspect", "w/data.h5").out.splitlines()][-3:] == [
        ["statics", "s", "continuous"], ["treatments", "drug", "off/on", "multilabel"], ["ends", "death", "event"],
    ]  # fmt: skip
    for file in ("deaths.csv", "w/data.h5"):
        checked = call("check", file)
        assert checked.out.startswith("deaths: suitable")
        assert "outcome    none: `costar effect` estimates risks of the events" in checked.out
    assert "costar effect --plan plans.json --data w/data.h5" in checked.err
    words = ("effect", "--outcome", "death", "--measure", "risk,risk-ratio,rmst", "--plan", "plans.json", "-w", "w")
    run = call(*words, "--learner", "regression", "--csv", "rows.csv", "--report", "effect.html")
    assert run.code == 0, run.err
    start = next(i for i, line in enumerate(run.out.splitlines()) if line.startswith("death after"))
    title, head, *rows = run.out.splitlines()[start : start + 4]
    assert title == "death after 3 steps, sequentially doubly robust"
    assert head.split()[:2] == ["plan", "risk"]
    assert [row.split()[0] for row in rows] == ["never", "always"]
    written = {line.split(",")[0] for line in Path("rows.csv").read_text("utf-8").splitlines()[1:]}
    assert written == {"risk", "rmst", "risk ratio", "rmst difference"}


def test_what_needs_an_outcome_says_what_to_ask_instead(here: Path, call: Call) -> None:
    call("ingest", "table", "deaths.csv", "--init")
    call("ingest", "table", "deaths.csv", "--schema", "schema.toml", "--accept-guesses", "-w", "w")
    before = sorted(Path("w").iterdir())
    for verb in (
        ("finetune", "--method", "auto"), ("pretrain",), ("whatif", "--subject", "1", "--plan", "plans.json"),
        ("evaluate",), ("search", "--subject", "1"), ("explore",),
    ):  # fmt: skip
        run = call(*verb, "-w", "w")
        assert run.code == 3, verb
        assert run.err.count("error: the table has events alone, and no outcome that a model could predict") == 1
        assert "where: w/data.h5" in run.err
        assert "ask `costar effect --outcome death --plan PLANS`" in run.err
    assert sorted(Path("w").iterdir()) == before


def test_an_export_reads_back(here: Path, call: Call) -> None:
    call("ingest", "table", "deaths.csv", "--init")
    call("ingest", "table", "deaths.csv", "--schema", "schema.toml", "--accept-guesses", "-w", "w")
    assert call("inspect", "w/data.h5", "--export", "e", "--format", "csv").code == 0
    again = call("ingest", "table", "e/table.csv", "--schema", "e/schema.toml", "-w", "again")
    assert again.code == 0, again.err
    first, second = (read_dataset(Path(name) / "data.h5") for name in ("w", "again"))
    assert first.schema.ends == second.schema.ends
    for part, panel in first.panels.items():
        assert (panel.ends == second.panels[part].ends).all()
        assert (panel.treatments == second.panels[part].treatments).all()


def test_new_subjects_are_asked_about_effects(here: Path, call: Call) -> None:
    call("ingest", "table", "deaths.csv", "--init")
    call("ingest", "table", "deaths.csv", "--schema", "schema.toml", "--accept-guesses", "-w", "w")
    made = call("ingest", "table", "deaths.csv", "--like", "w/data.h5", "--out", "new.h5")
    assert made.code == 0, made.err
    assert made.err.rstrip().endswith("next  costar effect --plan plans.json --data new.h5")
    assert call("effect", "--plan", "plans.json", "--data", "new.h5", "--learner", "regression").code == 0
