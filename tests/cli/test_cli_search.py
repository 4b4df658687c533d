"""`costar search`: the best plan of a subject and of many, in files that `costar whatif` reads."""

import csv
import json
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from cli_world import Run, write_ward

from costar_cli.cli.app import main
from costar_cli.cli.search import letters_of
from costar_cli.errors import ExitCode
from costar_cli.files import read_header

Call = Callable[..., Run]
OBJECTIVE = ("--minimise", "tumour_volume at end")
SETTINGS = """
[simulate.tumor]
gamma = 4
train = 60
val = 30
test = 6
target_train = 6
target_val = 6
target_test = 6
steps = 30
[runtime]
threads = 1
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("search")
    (folder / "settings.toml").write_text(SETTINGS)
    place = ["--workspace", str(folder), "--config", str(folder / "settings.toml"), "--quiet"]
    assert main(["simulate", "tumor", *place]) == 0
    assert main(["finetune", "--method", "mixed", *place]) == 0
    return folder


def asked(made: Path, *words: object) -> list[object]:
    return ["search", "-w", made, "--model", made / "model-mixed.h5", "--origin", 10, *words]


def test_the_best_plan_is_what_a_whatif_answers_and_meets_its_constraints(
    made: Path, tmp_path: Path, call: Call
) -> None:
    words = [*OBJECTIVE, "--subject", 62, "--at-most", "chemotherapy 1", "--not-consecutive", "radiotherapy"]
    plan, table, plot = (tmp_path / name for name in ("best.json", "best.csv", "best.png"))
    run = call(*asked(made, *words, "--out", plan, "--csv", table, "--plot", plot, "--json"))
    assert run.code == 0, run.err
    found = run.document["result"]["subjects"][0]
    best = found["plans"][0]
    chemo, radio = ([step[name] == "on" for step in best["given"]] for name in ("chemotherapy", "radiotherapy"))
    assert sum(chemo) <= 1
    assert not any(a and b for a, b in pairwise(radio))
    assert found["considered"] < run.document["result"]["possible_plans"] == 4**6
    assert sum(row["probability_best"] for row in found["plans"]) <= 1 + 1e-9
    answer = call("whatif", "-w", made, "--model", made / "model-mixed.h5", "-s", 62, "--plan", plan, "--json")
    [*_, last] = answer.document["result"]["estimates"]
    assert last["time"] == 16
    assert last["estimate"] == pytest.approx(best["objective"], abs=1e-6)
    assert last["upper"] == pytest.approx(best["upper"], abs=1e-6)
    assert best["support"] in [row["support"] for row in answer.document["result"]["estimates"]]
    assert [row["rank"] for row in csv.DictReader(table.read_text().splitlines())] == ["1", "2", "3", "4", "5", ""]
    assert plot.read_bytes()[:4] == b"\x89PNG"


def test_people_read_ranks_intervals_and_how_sure_it_is(made: Path, call: Call) -> None:
    run = call(*asked(made, *OBJECTIVE, "--subject", 62, "--cost", "chemotherapy 0.5", "--steps", 3))
    who, first, second, *_ = run.out.splitlines()
    assert who == "Subject 62 from day 10 by model-mixed:"
    assert first == "   minimise tumour_volume at end + 0.5 per chemotherapy in cm3"
    assert second.startswith("Best supported of 64 plans: ")
    assert "the best is estimated to be better than the second by" not in run.out
    words = asked(made, *OBJECTIVE, "--subject", 62, "--cost", "chemotherapy 0.5", "--steps", 3, "--show", "all")
    whole = call(*words)
    assert "difference from `no treatment`" in whole.out
    assert "the best is estimated to be better than the second by" in whole.out
    assert "searched all 64 plans of 3 steps" in whole.err


def test_a_search_writes_a_page_of_its_answer(made: Path, tmp_path: Path, call: Call) -> None:
    words = asked(made, *OBJECTIVE, "--subject", 62, "--steps", 2, "--report", tmp_path / "page.html")
    run = call(*words, "--json")
    assert run.code == 0, run.err
    assert run.document["outputs"]["report"] == {"path": str(tmp_path / "page.html"), "kind": "html", "digest": ""}
    page = (tmp_path / "page.html").read_text("utf-8")
    assert read_header(made / "model-mixed.h5").digest in page
    assert run.document["result"]["subjects"][0]["plans"][0]["plan"] in page
    assert call(*words).code == ExitCode.MISMATCH


def test_many_subjects_have_a_plan_each_in_a_table_that_whatif_reads(made: Path, tmp_path: Path, call: Call) -> None:
    plans, table = tmp_path / "plans.csv", tmp_path / "best.jsonl"
    words = [*OBJECTIVE, "--steps", 2, "--subjects", "target/test", "--unsupported", "--out", plans, "--csv", table]
    run = call(*asked(made, *words))
    assert run.code == 0, run.err
    assert "6 subjects: minimise tumour_volume at end, by model-mixed" in run.out
    rows = list(csv.DictReader(plans.read_text().splitlines()))
    assert len(rows) == 6 * 2
    ranked = [json.loads(line) for line in table.read_text().splitlines()]
    assert len({row["subject"] for row in ranked}) == 6
    subject = rows[0]["subject"]
    words = ["whatif", "-w", made, "--model", made / "model-mixed.h5", "-s", subject, "--plan", plans, "--origin", 10]
    answer = call(*words, "--json").document["result"]["estimates"][-1]
    mine = next(row for row in ranked if str(row["subject"]) == subject and row["rank"] == 1)
    assert answer["estimate"] == pytest.approx(mine["objective"], abs=1e-6)


@pytest.mark.parametrize(
    ("words", "code", "hint"),
    [
        ([*OBJECTIVE], ExitCode.USAGE, "neither --subject nor --subjects"),
        (["-s", 62], ExitCode.USAGE, "no objective is given"),
        (["-s", 62, "--minimise", "volume at end"], ExitCode.USAGE, "did you mean 'tumour_volume'?"),
        (["-s", 62, *OBJECTIVE, "--steps", 9], ExitCode.USAGE, "the model answers 1 to 6"),
        (["-s", 62, *OBJECTIVE, "--origin", "all"], ExitCode.USAGE, "more than one value for --origin"),
        (["-s", 62, *OBJECTIVE, "--at-least", "chemotherapy 3", "--at-most", "chemotherapy 2"], ExitCode.USAGE,
         "no plan of 6 steps meets --at-most 'chemotherapy 2' and --at-least 'chemotherapy 3'"),
        (["-s", 62, *OBJECTIVE, "--out", "plan.csv"], ExitCode.USAGE, "written as .json"),
        (["--subjects", "target/test", *OBJECTIVE, "--plot", "p.png"], ExitCode.USAGE, "figures are of one subject"),
        (["--subjects", "target/test", *OBJECTIVE, "--report", "p.html"], ExitCode.USAGE, "the page is of one subject"),
        (["-s", 62, *OBJECTIVE, "--csv", "nowhere/t.csv"], ExitCode.STORAGE, "there is no folder"),
        (["-s", 999, *OBJECTIVE], ExitCode.USAGE, "999"),
        (["-s", 62, *OBJECTIVE, "--level", 1], ExitCode.USAGE, "level 1 is not above 0 and below 1"),
        (["-s", 62, *OBJECTIVE, "--only-from", "none.json"], ExitCode.USAGE, "where: --only-from"),
        (["-s", 62, *OBJECTIVE, "--reference", "none.json"], ExitCode.USAGE, "where: --reference"),
        (["-s", 62, "--minimise", "tumour_volume time above x"], ExitCode.USAGE,
         'such as --minimise "tumour_volume time above 30"'),
    ],
)  # fmt: skip
def test_a_search_that_makes_no_sense_is_refused(
    made: Path, words: list[object], code: ExitCode, hint: str, call: Call
) -> None:
    run = call(*asked(made, *words))
    assert run.code == code, run.err
    assert hint in run.err


def test_an_evaluation_says_what_the_best_plans_lose(made: Path, tmp_path: Path, call: Call) -> None:
    words = ["evaluate", "-w", made, "--model", made / "model-mixed.h5", "--out", tmp_path / "e.h5", "--no-plots"]
    wrong = call(*words, "--cost", "chemotherapy 1")
    assert (wrong.code, "without --search" in wrong.err) == (ExitCode.USAGE, True)
    run = call(*words, "--search", "--cost", "chemotherapy 0.5", "--json")
    assert run.code == 0, run.err
    rows = run.document["result"]["search"]
    assert {row["part"] for row in rows} == {"source/test", "target/test"}
    policies = {row["policy"]: row for row in rows if row["part"] == "target/test"}
    assert set(policies) >= {"never", "always", "random", "last treatment", "best single plan"}
    assert policies["random"]["relative"] == pytest.approx(1)
    assert all(row["mean"] >= 0 for row in rows)
    assert policies["model-mixed"]["relative"] < 1
    assert policies["model-mixed"]["plans"] == 4**6
    written = list(csv.DictReader((tmp_path / "e-search.csv").read_text().splitlines()))
    assert [row["policy"] for row in written] == [row["policy"] for row in rows]
    again = call(*words, "--search", "--maximise", "tumour_volume mean", "--overwrite")
    assert again.code == 0, again.err
    assert "regret of the best plans (larger tumour_volume mean)" in again.out
    assert "4,096 plans of 6 steps each" in again.err
    lines = [line for line in again.out.splitlines() if "random" in line and "100 %" in line]
    assert len(lines) == 2


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--minimise", "volume at end"], "did you mean 'tumour_volume'?"),
        (["--minimise", "tumour_volume at step 7"], "step 7"),
        (["--cost", "chemo 1"], "did you mean 'chemotherapy'?"),
    ],
)
def test_a_regret_that_makes_no_sense_is_refused_before_anything_is_scored(
    made: Path, tmp_path: Path, words: list[object], hint: str, call: Call
) -> None:
    files = ["--out", tmp_path / "e.h5", "--no-plots"]
    run = call("evaluate", "-w", made, "--model", made / "model-mixed.h5", *files, "--search", *words)
    assert run.code == ExitCode.USAGE, run.err
    assert hint in run.err
    assert not list(tmp_path.iterdir())


def test_the_regret_of_observed_data_is_unknown(tmp_path: Path, call: Call) -> None:
    rows = (f"p{i},{day},{80 + i + day % 3},{(i + day) % 2}" for i in range(40) for day in range(8))
    place = ["-w", tmp_path / "ward"]
    assert call(*write_ward(tmp_path, ["patient,day,pressure,drug", *rows], horizon=2), *place).code == 0
    assert call("finetune", "--method", "ridge", *place).code == 0
    run = call("evaluate", *place, "--no-plots", "--search")
    assert run.code == ExitCode.USAGE, run.err
    assert "holds no simulator's truth" in run.err
    assert not (tmp_path / "ward" / "evaluation.h5").exists()


def test_a_file_that_exists_is_kept(made: Path, tmp_path: Path, call: Call) -> None:
    (tmp_path / "best.json").write_text("mine")
    run = call(*asked(made, *OBJECTIVE, "-s", 62, "--out", tmp_path / "best.json"))
    assert run.code == ExitCode.MISMATCH
    assert (tmp_path / "best.json").read_text() == "mine"


def test_plans_to_choose_from_and_the_one_to_compare_with_come_from_files(
    made: Path, tmp_path: Path, call: Call
) -> None:
    plans = {"a": [{"chemotherapy": 1}, {}], "b": [{}, {"radiotherapy": 1}], "c": [{}, {}]}
    (tmp_path / "list.json").write_text(json.dumps({"plans": plans}))
    (tmp_path / "one.json").write_text(json.dumps([{"chemotherapy": 1}, {"chemotherapy": 1}]))
    words = [*OBJECTIVE, "-s", 62, "--only-from", tmp_path / "list.json", "--reference", tmp_path / "one.json"]
    result = call(*asked(made, *words, "--unsupported", "--json")).document["result"]
    assert result["possible_plans"] == 3
    assert len(result["subjects"][0]["plans"]) == 3
    assert [step["chemotherapy"] for step in result["subjects"][0]["reference"]["given"]] == ["on", "on"]


def test_treatments_at_one_step_have_no_letter_that_reads_as_one_of_them() -> None:
    assert letters_of(["chemotherapy+radiotherapy", "none"]) == {"chemotherapy+radiotherapy": "B", "none": "."}
    assert letters_of(["chemotherapy", "radiotherapy", "chemotherapy+radiotherapy"])["radiotherapy"] == "R"
    assert letters_of(["bolus+insulin"])["bolus+insulin"] not in "BI"
    assert letters_of(["a+b+c"])["a+b+c"] not in "ABC"
    assert set(letters_of(["price=+10 %", "price=-10 %"]).values()) == {"A", "B"}  # levels, and no two treatments


def test_a_legend_says_what_is_given_together(made: Path, call: Call) -> None:
    run = call(*asked(made, *OBJECTIVE, "--subject", 62, "--unsupported"))
    assert run.code == 0, run.err
    [legend] = [line for line in run.out.splitlines() if "both" in line]
    assert "B both chemotherapy and radiotherapy" in legend


def test_each_letter_stands_under_the_last_digit_of_its_day(made: Path, call: Call) -> None:
    words = asked(made, *OBJECTIVE, "--subject", 62, "--unsupported")
    words[words.index("--origin") + 1] = 8
    [head, *lines] = call(*words).out.split("Best", 1)[1].splitlines()[1:]
    days = [found.end() - 1 for found in re.finditer(r"\b(?:8|9|10|11|12|13)\b", head)]
    assert len(days) == 6
    [best] = [line for line in lines if line.split()[:1] == ["1"]]
    letters = best[: days[-1] + 1]
    assert [at for at, letter in enumerate(letters) if letter in ".CRB"] == days
