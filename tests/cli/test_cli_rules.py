"""Rules, shifts and tables of plans through `costar whatif`."""

import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from cli_world import Run

from costar_cli.cli.app import main
from costar_cli.errors import ExitCode

Call = Callable[..., Run]

RULES = {
    "plans": {
        "watch": {"repeat": {}, "times": 3},
        "large": {"rule": "chemotherapy if tumour_volume > 2 and chemotherapy in last 2 < 1", "times": 3},
        "coin": {"rule": "chemotherapy", "with probability": 0.3, "until": "end"},
    }
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rules")
    place = ["--workspace", str(folder), "--quiet"]
    sizes = ["--train", "60", "--val", "20", "--test", "8", "--target-train", "6", "--target-val", "6"]
    sizes += ["--target-test", "6", "--steps", "20", "--horizon", "3"]
    assert main(["simulate", "tumor", *sizes, *place]) == 0
    assert main(["finetune", "--method", "mixed", *place]) == 0
    assert main(["finetune", "--method", "ridge", *place]) == 0
    (folder / "rules.json").write_text(json.dumps(RULES))
    return folder


@pytest.fixture
def subject(made: Path, call: Call) -> str:
    (made / "blind.json").write_text('{"rule": "chemotherapy if plan_step = 1", "times": 2}')
    run = call("whatif", "-w", made, "--model", made / "model-mixed.h5", "--subjects", "source/test", "--plan",
               made / "blind.json", "--origin", 1, "--skip-unknown", "--csv", "who.csv", "--json")  # fmt: skip
    assert run.code == 0, run.err
    return str(pl.read_csv("who.csv")["subject"][0])


def test_rules_are_answered_with_truth_and_what_they_gave(made: Path, subject: str, call: Call) -> None:
    words = ["whatif", "-w", made, "--model", made / "model-mixed.h5", "-s", subject, "--plan", made / "rules.json"]
    files = ["--csv", made / "a.csv", "--plot", made / "a.png", "--out", made / "a.h5"]
    run = call(*words, "--origin", 1, "--truth", "--unsupported", *files, "--overwrite", "--show", "all")
    assert run.code == 0, run.err
    assert "plan large: chemotherapy if tumour_volume > 2 and chemotherapy in last 2 < 1; else none" in run.out
    assert "rule coin gives: day 1" in run.out
    assert "1,000 courses that model `model-mixed` draws (seed 0)" in run.err + run.out
    rows = pl.read_csv(made / "a.csv").filter(pl.col("quantity") == "outcome")
    assert rows["plan"].unique().sort().to_list() == ["coin", "large", "watch"]
    assert rows["truth"].is_not_null().all()
    assert (made / "a.png").stat().st_size > 10_000


def test_the_document_has_the_rules_and_their_treatments(made: Path, subject: str, call: Call) -> None:
    words = ("-s", subject, "--origin", 1, "--plan", made / "rules.json", "--unsupported", "--json")
    result = call("whatif", "-w", made, "--model", made / "model-mixed.h5", *words).document["result"]
    assert set(result["rules"]) == {"large", "coin"}
    given = result["models"]["model-mixed"]["rules"]["coin"]["given"]
    assert [round(step["chemotherapy"], 1) for step in given] == [0.3, 0.3, 0.3]


def test_a_method_without_courses_refuses_and_says_who_can(made: Path, subject: str, call: Call) -> None:
    words = ("--origin", 1, "--plan", made / "rules.json", "--unsupported")
    for who in (("-s", subject), ("--subjects", "source/test", "--skip-unknown")):
        run = call("whatif", "-w", made, "--model", made / "model-ridge.h5", *who, *words)
        assert run.code == ExitCode.USAGE
        assert "rule 'large' reads tumour_volume, and model `model-ridge` predicts no course" in run.err
        assert "ask a model of" in run.err


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ({"rule": "chemotherapy if tumour_volume in next 2 > 0", "times": 2}, "reads the future"),
        ({"rule": "chemotherapy if tumour_volume > 2"}, "it never ends"),
    ],
)
def test_a_rule_that_reads_the_future_or_never_ends_is_refused(
    made: Path, rule: dict[str, object], problem: str, call: Call
) -> None:
    Path("rule.json").write_text(json.dumps({"plans": {"odd": rule}}))
    words = ("--subjects", "all", "--plan", "rule.json", "--csv", "answers.csv")
    run = call("whatif", "-w", made, "--model", made / "model-mixed.h5", *words)
    assert run.code == ExitCode.USAGE
    assert "plan 'odd'" in run.err
    assert problem in run.err
    assert "fix:" in run.err
    assert not Path("answers.csv").exists()


def test_policies_on_the_natural_treatment_are_answered_and_compared_with_the_natural_course(
    made: Path, subject: str, call: Call
) -> None:
    plans = {
        "natural": {"natural": True, "times": 3},
        "stop small": {"rule": "none if tumour_volume < 2", "else": "natural", "times": 3},
        "all": {"rule": "chemotherapy and radiotherapy if natural chemotherapy = 1", "times": 3},
    }
    Path("natural.json").write_text(json.dumps(plans))
    words = ("--origin", 1, "--plan", "natural.json", "--reference", "natural", "--truth", "--unsupported")
    words += ("--show", "all")
    for who in (("-s", subject), ("--subjects", "source/test", "--skip-unknown", "--average")):
        run = call("whatif", "-w", made, "--model", made / "model-mixed.h5", *who, *words)
        assert run.code == 0, run.err
        shown = " ".join((run.out + run.err).split())
        assert "none if tumour_volume < 2; else natural" in shown
        assert shown.count("the natural treatment in `natural`, `stop small`, `all` is what the data gave") == 1
    assert "difference from natural" in run.out


def test_odds_are_refused_before_anything_is_written(made: Path, subject: str, call: Call) -> None:
    Path("odds.json").write_text('{"twice": {"odds": {"chemotherapy": 2}, "times": 3}}')
    for who in (("-s", subject), ("--subjects", "all")):
        run = call(
            "whatif", "-w", made, "--model", made / "model-mixed.h5", *who, "--plan", "odds.json", "--csv", "o.csv"
        )
        assert run.code == ExitCode.USAGE
        assert "plan 'twice' multiplies the odds of chemotherapy" in run.err
        assert "ask `costar effect`" in run.err
        assert not Path("o.csv").exists()


def test_sensitivity_is_about_plans_alone(made: Path, subject: str, call: Call) -> None:
    words = ("--origin", 1, "--plan", made / "rules.json", "--unsupported", "--sensitivity")
    run = call("whatif", "-w", made, "--model", made / "model-mixed.h5", "-s", subject, *words)
    assert run.code == ExitCode.USAGE
    assert "depend on the course" in run.err


def test_a_cohort_is_told_once_what_its_rules_are_and_were_played_on(made: Path, call: Call) -> None:
    words = ("--subjects", "source/train", "--skip-unknown", "--origin", 1, "--plan", made / "rules.json")
    run = call("whatif", "-w", made, "--model", made / "model-mixed.h5", *words, "--unsupported", "--show", "all")
    said = " ".join((run.out + run.err).split())
    assert said.count("rule `coin`: chemotherapy with probability 0.3; else none") == 1
    assert said.count("rule `coin` was played on 200 draws of chance") == 1
    run = call("whatif", "-w", made, "--model", made / "model-mixed.h5", *words, "--unsupported", "--json")
    assert all(note in said for note in run.document["result"]["notes"])
    assert len(run.document["result"]["notes"]) == 6
    assert (
        said.count(
            "support ratings of rule `coin` by model `model-mixed` are those of each subject's most common course"
        )
        == 1
    )


def test_averages_of_rules_and_their_truth(made: Path, call: Call) -> None:
    words = ("--subjects", "source/train", "--skip-unknown", "--origin", 1, "--plan", made / "rules.json")
    run = call("whatif", "-w", made, "--model", made / "model-mixed.h5", *words, "--average", "--truth",
               "--unsupported", "--json")  # fmt: skip
    assert run.code == 0, run.err
    rows = run.document["result"]["averages"]
    large = [row for row in rows if row["plan"] == "large" and row["quantity"] == "difference"]
    assert large
    assert all(abs(row["estimate"] - row["truth"]) < 0.5 * abs(row["truth"]) + 0.05 for row in large)


def test_a_table_of_plans_is_read_by_its_ending(made: Path, subject: str, call: Call) -> None:
    Path("plans.csv").write_text("plan,step,chemotherapy\nwatch,1,\nchemo,1,1\n")
    words = ("-s", subject, "--origin", 1, "--unsupported", "--json")
    run = call("whatif", "-w", made, "--model", made / "model-ridge.h5", "--plan", "plans.csv", *words)
    assert set(run.document["result"]["plans"]) == {"watch", "chemo"}
