"""`costar effect` as it is typed: what the screen holds, the files that it writes, and inputs that do not fit."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_world import Run

from costar_cli.cli.app import main
from costar_cli.data.store import write_dataset
from tests.effect_worlds import OVERLAP
from tests.pages.reading import read_alone

Call = Callable[..., Run]

PLANS = {"plans": {name: regime.steps(3) for name, regime in OVERLAP.regimes.items()}}
SCHEMA = """
name = "ward"
horizon = 3

[columns]
id = { role = "subject" }
t = { role = "time" }
x = { role = "covariate" }
y = { role = "outcome" }
a = { role = "treatment", levels = ["off", "on"] }
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a data set of 300 subjects and plans, in which commands are typed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "w").mkdir()
    write_dataset(tmp_path / "w" / "data.h5", OVERLAP.dataset(300, 1))
    (tmp_path / "plans.json").write_text(json.dumps(PLANS), "utf-8")
    return tmp_path


LINE = ("effect", "--plan", "plans.json", "--workspace", "w", "--learner", "regression")


def test_the_screen_ends_with_the_answer(here: Path, call: Call) -> None:
    run = call(*LINE)
    assert run.code == 0, run.err
    *_, title, head, never, always, threshold = run.out.splitlines()
    assert title == "y after 3 steps, sequentially doubly robust"
    assert head.split() == ["plan", "mean", "(90", "%)", "difference", "followers"]
    assert [line.split()[0] for line in (never, always, threshold)] == ["never", "always", "threshold"]
    assert max(map(len, run.out.splitlines())) <= 80
    assert len(run.out.splitlines() + run.err.splitlines()) <= 24
    assert "details  --show days|all" in run.err
    assert "Every step" in call(*LINE, "--show", "all").out


def test_estimators_of_a_plan_stand_below_each_other_and_share_its_followers(here: Path, call: Call) -> None:
    lines = call(*LINE, "-e", "all").out.splitlines()
    table = lines[lines.index("y after 3 steps") + 2 :]
    assert [line.split()[1] for line in table[:4]] == ["sdr", "tmle", "gformula", "ipw"]
    assert {line.split()[0] for line in table[:4]} == {"never"}
    assert lines[1] == "Who follows"


def test_files_hold_what_the_screen_shows_and_the_document_names_them(here: Path, call: Call) -> None:
    document = call(*LINE, "--csv", "e.csv", "--plot", "e.svg", "--report", "e.html", "--json").document
    assert {role: file["kind"] for role, file in document["outputs"].items()} == {
        "effects": "effects", "plot": "plot", "report": "html",
    }  # fmt: skip
    rows = document["result"]["effects"]
    last = next(row for row in rows if (row["quantity"], row["plan"], row["step"]) == ("difference", "always", 3))
    assert f"{last['estimate']:.4g}" in read_alone(Path("e.html").read_text("utf-8")).text
    assert "<svg" in Path("e.svg").read_text("utf-8")
    assert len(Path("e.csv").read_text("utf-8").splitlines()) == len(rows) + 1


BAD = {
    "a figure of no kind": (("--plot", "e.gif"), "cannot draw `e.gif`"),
    "a page of no kind": (("--report", "e.txt"), "a report is an HTML page, not `e.txt`"),
    "one file for two": (("--plot", "e.png", "--csv", "e.png"), "e.png"),
    "a figure that exists": (("--plot", "old.png"), "`old.png` exists"),
    "a condition that never holds": (("--when", "x > 99"), "holds at none"),
    "an unknown estimator": (("--estimator", "sdrr"), "did you mean"),
}


@pytest.mark.parametrize(("words", "text"), BAD.values(), ids=BAD)
def test_what_does_not_fit_is_said_and_nothing_is_written(
    here: Path, call: Call, words: tuple[str, ...], text: str
) -> None:
    (here / "old.png").write_text("mine", "utf-8")
    before = {path.name: path.stat().st_size for path in here.iterdir()}
    run = call(*LINE, *words)
    assert run.code == (5 if "exists" in text else 2), run.out
    assert text.lower() in run.err.lower()
    assert "fix:" in run.err
    assert {path.name: path.stat().st_size for path in here.iterdir()} == before


def test_a_table_goes_from_csv_to_a_page(here: Path, call: Call) -> None:
    OVERLAP.table(120, 2).write_csv(here / "t.csv")
    (here / "s.toml").write_text(SCHEMA, "utf-8")
    assert main(["ingest", "table", "t.csv", "--schema", "s.toml", "--out", "t.h5", "--quiet"]) == 0
    run = call(*LINE, "--data", "t.h5", "--report", "t.html", "--unsupported")
    assert run.code == 0, run.err
    text = read_alone(Path("t.html").read_text("utf-8")).text
    assert "Target trial" in text
    assert "ward" in text
    assert "all (n = 120)" in text
    assert "always (n = " in text
