"""Doses from the command line: effects that are recovered, curves of one and of many, searches, and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from cli_world import Run

from costar_cli.cli.app import main
from costar_cli.errors import ExitCode
from simulators.linear_gaussian import LinearGaussian

Call = Callable[..., Run]
SETTINGS = """
[simulate.linear]
doses = true
gamma = 0.5
train = 300
val = 100
test = 30
target_train = 5
target_val = 10
target_test = 10
steps = 16
horizon = 3
[runtime]
threads = 1
"""
SWEEP = ["--origin", 9, "--sweep", "treatment 0:2:1"]


def place_of(folder: Path) -> list[str]:
    return ["--workspace", str(folder), "--config", str(folder / "settings.toml"), "--quiet"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("doses")
    (folder / "settings.toml").write_text(SETTINGS)
    assert main(["simulate", "linear", *place_of(folder)]) == 0
    assert main(["finetune", "--method", "ridge", *place_of(folder)]) == 0
    return folder


def asked(made: Path, *words: object) -> list[object]:
    return ["whatif", "-w", made, "--model", made / "model-ridge.h5", *words]


def slopes(call: Call, made: Path, model: str) -> np.ndarray:
    """Return by how much a unit of the dose at each step moves the mean outcome after each step, from a sweep."""
    words = ["whatif", "-w", made, "--model", made / f"model-{model}.h5", "--subjects", "source/test", *SWEEP]
    run = call(*words, "--average", "--json")
    assert run.code == 0, run.err
    rows = [row for row in run.document["result"]["averages"] if row["quantity"] == "difference"]
    return np.array([row["estimate"] for row in rows if row["dose"] == 1.0])


TRUE = LinearGaussian(doses=True).total_effect(3)


def test_the_effect_of_a_dose_on_the_next_step_is_recovered_from_the_command_line(made: Path, call: Call) -> None:
    assert slopes(call, made, "ridge")[0] == pytest.approx(TRUE[0], rel=0.05)  # later doses react: biased for ridge


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "words", "within"),
    [
        ("mixed", [], 0.05),
        ("msm", [], 0.35),  # sums of doses, weighted: no carry-over of its own
        ("growth", ["--preset", "quick", "--members", "1"], 0.25),
        ("costar", ["--preset", "quick", "--members", "1", "--from", "scratch"], 0.3),
        ("auto", ["--preset", "quick", "--members", "1", "--minutes", "2"], 0.1),
    ],
)
def test_other_methods_recover_it_too(made: Path, call: Call, method: str, words: list[str], within: float) -> None:
    out = made / f"model-{method}.h5"
    assert main(["finetune", "--method", method, "--out", str(out), *words, *place_of(made)]) == 0
    assert slopes(call, made, method) == pytest.approx(TRUE, rel=within)


@pytest.mark.parametrize("method", ["crn", "rmsn", "gnet", "ct"])
def test_methods_that_classify_treatments_say_that_they_take_no_doses(made: Path, call: Call, method: str) -> None:
    run = call("finetune", "--method", method, "-w", made, "--out", made / "no.h5")
    assert run.code == ExitCode.USAGE, run.err
    assert "dose" in run.err
    assert not (made / "no.h5").exists()


def test_a_cohort_is_swept_to_a_file_with_the_doses_of_its_plans(made: Path, call: Call) -> None:
    run = call(*asked(made, "--subjects", "source/test", *SWEEP, "--csv", "a.parquet", "--truth", "--json"))
    assert run.code == 0, run.err
    rows = pl.read_parquet("a.parquet")
    assert rows.height == 30 * 3 * 3
    assert rows.group_by("plan").agg(pl.col("dose").unique().first()).sort("dose")["plan"].to_list() == [
        "treatment=0", "treatment=1", "treatment=2"
    ]  # fmt: skip
    assert run.document["result"]["sweep"]["values"] == [0, 1, 2]
    alone = call(*asked(made, "-s", rows["subject"][0], *SWEEP, "--json")).document["result"]
    first = rows.filter(pl.col("subject") == rows["subject"][0])
    assert first["estimate"].to_list() == pytest.approx([row["estimate"] for row in alone["estimates"]], rel=1e-4)


def test_a_cohort_has_an_average_curve_with_groups_lights_a_table_and_a_figure(made: Path, call: Call) -> None:
    words = ["--subjects", "source/test", *SWEEP, "--average", "--by", "outcome:2", "--truth"]
    run = call(*asked(made, *words, "--csv", "b.csv", "--plot", "b.svg", "--json"))
    assert run.code == 0, run.err
    rows, drawn = pl.read_csv("b.csv"), Path("b.svg").read_text()
    assert len(rows["group"].unique()) == 3
    whole = rows.filter((pl.col("group") == "all") & (pl.col("quantity") == "outcome") & (pl.col("step") == 3))
    assert whole["dose"].to_list() == [0, 1, 2]
    assert (whole["amber"] + whole["red"] <= 30).all()
    assert all(words in drawn for words in ("estimate after 3 steps", "range in the training data", "(simulator)"))
    shown = call(*asked(made, *words)).out
    assert "Mean outcome after 3 steps" in shown
    assert "difference from treatment=0" in shown
    by_group = [line for line in shown.splitlines() if line.startswith("all ")]
    assert [line.split()[1] for line in by_group] == ["0", "1", "2"]
    shown = call(*asked(made, *words, "--show", "all")).out
    assert "were given" in shown
    assert " ".join(["after 1 step", "truth", "after 2 steps", "truth"]) in " ".join(shown.split())
    assert "difference from `treatment=0`" in shown


def test_doses_beyond_what_was_given_and_in_gaps_are_marked(made: Path, call: Call) -> None:
    words = ["--subjects", "source/test", "--origin", 9, "--sweep", "treatment 0,1,12", "--average", "--json"]
    rows = call(*asked(made, *words)).document["result"]["averages"]
    marked = {row["dose"]: row["amber"] + row["red"] for row in rows if row["group"] == "all"}
    assert marked[12] == 30
    assert marked[1] < 30


def test_a_search_says_which_doses_it_tried(made: Path, call: Call) -> None:
    words = ["search", "-w", made, "--model", made / "model-ridge.h5", "--subjects", "source/test", "--origin", 9]
    run = call(*words, "--minimise", "outcome at end", "--levels", "treatment 0,1", "--unsupported", "--json")
    assert run.code == 0, run.err
    assert run.document["result"]["possible_plans"] == 2**3
    given = [step["treatment"] for step in run.document["result"]["subjects"][0]["plans"][0]["given"]]
    assert given == ["1", "1", "1"]
    assert "doses to choose from at each step: treatment 0, 1 (others: --levels)" in run.document["result"]["notes"]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (-1, "a dose is not negative"),
        (1e30, "more than 10 times what was ever given"),
        ("much", "much"),
        (float("nan"), "NaN"),
        (float("inf"), "Infinity"),
        (None, "treatment"),
        ([1], "treatment"),
    ],
)
def test_a_plan_with_a_bad_dose_is_one_error(made: Path, call: Call, value: object, said: str) -> None:
    Path("p.json").write_text(json.dumps({"plans": {"a": [{"treatment": value}]}}))
    run = call(*asked(made, "-s", 405, "--plan", "p.json"))
    assert run.code == ExitCode.USAGE, run.err
    assert said in run.err
    assert run.err.count("error") == 1


@pytest.mark.parametrize(
    ("cell", "said"),
    [("-1", "not negative"), ("1e30", "more than 10 times"), ("much", "much"), ("nan", "nan"), ("inf", "inf")],
)
def test_a_table_of_plans_with_a_bad_dose_is_one_error_that_names_its_step(
    made: Path, call: Call, cell: str, said: str
) -> None:
    Path("p.csv").write_text(f"plan,step,treatment\na,1,1\na,2,{cell}\n")
    run = call(*asked(made, "-s", 405, "--plan", "p.csv"))
    assert run.code == ExitCode.USAGE, run.err
    assert said in run.err.lower()
    assert "plan 'a', step 2" in run.err
    assert run.err.count("error") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--sweep", "treatment 0:2:1", "--plan", "p.json", "-s", 405], "both --sweep and --plan are given"),
        (["--sweep", "treatment 0:2:1"], "missing option '--subject'"),
        (["--sweep", "", "-s", 405], "the value of `--sweep` is empty"),
        (["--sweep", "treatment 0,1e30", "--subjects", "all"], "more than 10 times what was ever given"),
        (["--sweep", "treatment nan,1", "--subjects", "all"], "are no doses"),
        (["--sweep", "treatment 0:2:1", "--subjects", "all", "--plot", "a.png"], "--plot of a cohort is for averages"),
    ],
)
def test_a_sweep_that_cannot_be_is_one_error(made: Path, call: Call, words: list[object], said: str) -> None:
    run = call(*asked(made, *words))
    assert run.code == ExitCode.USAGE, run.err
    assert said in run.err
