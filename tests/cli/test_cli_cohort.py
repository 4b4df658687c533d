"""`costar whatif` about many subjects: who is asked, the files of answers, the summary, and what is refused."""

import csv
import json
import re
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from shutil import copytree

import polars as pl
import pytest
from cli_world import Run

from costar_cli.errors import ExitCode
from costar_cli.files import read_artifact
from costar_cli.questions import answers as answers_module
from tests.contract.outputs import PLANS

Call = Callable[..., Run]
WORDS = ["--csv", "answers.parquet"]


def check(run: Run, code: ExitCode, hint: str) -> None:
    assert run.code == code, run.err
    assert hint in run.err


def ask(call: Call, trained: Path, plan: Path, *words: object) -> Run:
    return call("whatif", "-w", trained, "--plan", plan, *words)


def test_a_cohort_is_answered_to_a_file_and_summed_up(trained: Path, plan: Path, call: Call) -> None:
    run = ask(call, trained, plan, "--subjects", "target/test", *WORDS, "--truth", "--json")
    result, rows = run.document["result"], pl.read_parquet("answers.parquet")
    assert run.code == 0, run.err
    assert result["cohort"] == {"subjects": 5, "moments": 5, "parts": {"target/test": 5}}
    assert (result["plans"], result["answers"], rows.height) == (2, 10, 20)
    who = ["dataset", "subject", "label", "domain", "split", "origin", "quantity", "model", "plan", "reference"]
    assert rows.columns[:10] == who
    assert {"estimate", "lower", "upper", "level", "precision", "practice", "support", "truth"} <= set(rows.columns)
    for listed in result["models"]["model-target"]["plans"]:
        mine = rows.filter((pl.col("plan") == listed["plan"]) & (pl.col("step") == 2))
        assert listed["mean"][-1] == pytest.approx(mine["estimate"].mean())
        assert listed["support"]["red"] == sum(group["support"].eq("red").any() for _, group in rows.filter(
            pl.col("plan") == listed["plan"]).group_by("subject"))  # fmt: skip


def test_an_artifact_of_a_cohort_holds_the_rows_of_its_table(trained: Path, plan: Path, call: Call) -> None:
    words = ("--subjects", "target/test", "--reference", "watch", "--truth")
    run = ask(call, trained, plan, *words, *WORDS, "--out", "a.h5", "--json")
    assert run.document["outputs"]["out"]["kind"] == "answers"
    rows, made = pl.read_parquet("answers.parquet"), read_artifact("a.h5", kind="answers")
    assert made.meta["columns"] == rows.columns
    for place, name in enumerate(rows.columns):
        values, texts = made.arrays[f"column/{place}"].tolist(), made.meta["categories"].get(name)
        values = values if texts is None else [texts[code] if code >= 0 else None for code in values]
        stored = [None if value != value else value for value in values]  # noqa: PLR0124 - NaN
        assert stored == [None if value != value else value for value in rows[name].to_list()], name  # noqa: PLR0124
    assert call("verify", "a.h5").code == 0
    again = ask(call, trained, plan, *words, "--out", "a.h5")
    assert (again.code, "exists" in again.err) == (ExitCode.MISMATCH, True)


def test_a_subject_of_a_cohort_has_the_answers_it_has_alone(trained: Path, plan: Path, call: Call) -> None:
    alone = ask(call, trained, plan, "-s", "1", "--json").document["result"]
    assert ask(call, trained, plan, "-s", "1", "-s", "2", "--csv", "two.csv").code == 0
    with Path("two.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["subject"] == "1"]
    expected = alone["estimates"]
    assert [(row["plan"], int(row["time"])) for row in rows] == [(row["plan"], row["time"]) for row in expected]
    assert [float(row["estimate"]) for row in rows] == pytest.approx([row["estimate"] for row in expected], rel=1e-4)


def test_a_subject_that_is_named_twice_is_asked_about_once(trained: Path, plan: Path, call: Call) -> None:
    twice = ask(call, trained, plan, "-s", "1", "-s", "1", "--json").document["result"]
    assert (twice["label"], "cohort" in twice) == ("1", False)


@pytest.fixture
def tumors(tmp_path: Path, repository: Path) -> list[object]:
    """Words that ask the stored mixed model about tumours under three plans."""
    copytree(repository / "tests/contract/world/tumor", tmp_path / "w")
    (tmp_path / "three.json").write_text(json.dumps(PLANS["chemo.json"]))
    return ["-w", tmp_path / "w", "--plan", tmp_path / "three.json", "--model", tmp_path / "w" / "model-mixed.h5"]


def test_a_table_of_a_cohort_has_the_differences_of_its_subjects(tumors: list[object], call: Call) -> None:
    words = ["whatif", *tumors, "--level", 0.9, "--level", 0.5]
    run = call(*words, "-s", 12, "-s", 13, "--reference", "chemo", "--csv", "two.csv")
    assert run.code == 0, run.err
    alone = call(*words, "-s", 12, "--reference", "chemo", "--json").document["result"]
    rows = pl.read_csv("two.csv").filter(pl.col("label") == 12)
    mine = rows.filter(pl.col("quantity") == "difference")
    assert set(mine["reference"]) == {"chemo"}
    for name in ("plan", "step", "estimate", "lower", "upper", "lower_0.5", "level", "interval_kind", "support"):
        expected = [row[name] for row in alone["differences"]]
        assert mine[name].to_list() == (pytest.approx(expected, rel=1e-6) if name in ("estimate", "lower", "upper",
            "lower_0.5") else expected)  # fmt: skip
    assert rows.filter(pl.col("quantity") == "outcome")["reference"].null_count() == 9


def test_a_page_of_several_subjects_has_a_figure_and_the_answers_of_each(tumors: list[object], call: Call) -> None:
    run = call("whatif", *tumors, "-s", 12, "-s", 13, "--report", "two.html")
    assert run.code == 0, run.err
    page = Path("two.html").read_text()
    assert page.count("<svg") == 2
    for subject in (12, 13):
        assert f"Subject {subject} from day 6: answer" in page
    assert page.count("What the bands mean</h2>") == 1
    check(
        call("whatif", *tumors, "--subjects", "all", "--origin", "all", "--report", "all.html"),
        ExitCode.USAGE,
        "at most 50",
    )


def test_averages_have_a_page(tumors: list[object], call: Call) -> None:
    run = call(
        "whatif",
        *tumors,
        "--subjects",
        "all",
        "--origin",
        3,
        "--skip-unknown",
        "--average",
        "--report",
        "a.html",
        "--json",
    )
    assert run.code == 0, run.err
    page = Path("a.html").read_text()
    assert all(warning.split("`")[0] in page for warning in run.document["warnings"]), "also who is left out"
    assert page.count("<svg") == 1
    assert "The mean difference from" in page


def test_a_page_has_the_bounds_of_sensitivity_that_are_asked_for(tumors: list[object], call: Call) -> None:
    run = call("whatif", *tumors, "-s", 12, "--sensitivity", "--report", "one.html")
    assert run.code == 0, run.err
    assert "Hidden confounding</h2>" in Path("one.html").read_text()


def test_a_model_may_be_named_as_the_workspace_calls_it(tumors: list[object], call: Call) -> None:
    for name in ("model-mixed", "mixed"):
        run = call("whatif", *tumors[:-1], name, "-s", 12, "--json")
        assert list(run.document["result"]["models"]) == ["model-mixed"], run.err


def test_each_subject_of_several_has_its_bounds_of_sensitivity(tumors: list[object], call: Call) -> None:
    two = call("whatif", *tumors, "-s", 12, "-s", 13, "--sensitivity", "--json").document["result"]["sensitivity"]
    alone = call("whatif", *tumors, "-s", 13, "--sensitivity", "--json").document["result"]["sensitivity"]
    assert [bounds["label"] for bounds in two] == ["12", "13"]
    same = {name: value for name, value in two[1].items() if name not in ("subject", "label")}
    assert json.dumps(same) == json.dumps(alone[0])


def test_bands_of_a_cohort_are_widened_as_those_of_its_subjects(tumors: list[object], call: Call) -> None:
    run = call("whatif", *tumors, "-s", 12, "-s", 13, "--widen", "--csv", "wide.csv", "--show", "notes")
    assert "the bands of model `model-mixed` are widened for plans" in run.err, run.err
    alone = call("whatif", *tumors, "-s", 13, "--widen", "--json").document["result"]["estimates"]
    rows = pl.read_csv("wide.csv").filter(pl.col("label") == 13)
    assert rows["upper"].to_list() == pytest.approx([row["upper"] for row in alone], rel=1e-6)


def test_a_cohort_with_ends_shows_all_doses_of_a_sweep_and_the_first_of_many_plans(
    tmp_path: Path, repository: Path, call: Call
) -> None:
    own, place = repository / "examples" / "own-data", ["-w", tmp_path, "--threads", 1]
    subprocess.run([sys.executable, own / "make_trial.py", "trial.csv"], check=True)
    assert call("ingest", "table", "trial.csv", "--schema", own / "trial.toml", "-w", tmp_path).code == 0
    assert call("finetune", "--method", "ridge", *place).code == 0
    words = ["whatif", "-w", tmp_path, "--model", tmp_path / "model-ridge.h5", "--subjects", "source/test"]
    swept = call(*words, "--sweep", "dose 0:24:1", "--unsupported")
    assert swept.code == 0, swept.err
    assert all(swept.out.count(f"dose={dose} ") == 2 for dose in range(25)), swept.out
    assert " more " not in swept.out
    Path("many.json").write_text(json.dumps({"plans": {f"plan {i}": [{"dose": i}] for i in range(23)}}))
    many = call(*words, "--plan", "many.json", "--unsupported").out
    assert [many.count(f"plan {i} ") for i in (0, 19, 20)] == [2, 2, 0]
    assert "and 3 more plans" in many


def test_several_models_and_all_origins_stand_below_each_other(trained: Path, plan: Path, call: Call) -> None:
    models = ["-m", trained / "model.h5", "-m", trained / "model-target.h5"]
    run = ask(call, trained, plan, "-s", "1", "--origin", "all", "--answers", "a.jsonl", *models)
    rows = [json.loads(line) for line in Path("a.jsonl").read_text().splitlines()]
    assert "1 subject (1 of source/train), " in run.out
    assert {row["model"] for row in rows} == {"model", "model-target"}
    origins = {row["origin"] for row in rows}
    assert origins == set(range(max(origins) + 1))
    assert len(rows) == 2 * len(origins) * 4


def test_an_origin_counts_back_from_the_last_step_of_one_subject(trained: Path, plan: Path, call: Call) -> None:
    last, before = (
        ask(call, trained, plan, "-s", "1", "--origin", origin, "--json").document["result"]["origin"]
        for origin in ("last", "-3")
    )
    assert last - before == 3


def test_unknown_subjects_are_named_and_can_be_left_out(trained: Path, plan: Path, call: Call) -> None:
    Path("ids.txt").write_text("1\n998\n999\n")
    run = ask(call, trained, plan, "--subjects", "ids.txt", *WORDS)
    check(run, ExitCode.USAGE, "2 subjects are not in the data set")
    assert "'998'" in run.err
    assert "--skip-unknown" in run.err
    assert not Path("answers.parquet").exists()
    run = ask(call, trained, plan, "--subjects", "ids.txt", *WORDS, "--skip-unknown")
    assert run.code == 0
    assert "left out: 2 subjects are not in the data set ('998', '999')" in run.err
    assert pl.read_parquet("answers.parquet")["subject"].unique().to_list() == [1]


@pytest.mark.parametrize(
    ("words", "code", "hint"),
    [
        (["--subjects", "all", "-s", "1"], ExitCode.USAGE, "both --subject and --subjects"),
        (["--subjects", "all", "--csv", "a.xls"], ExitCode.USAGE, "end the name in .csv, .parquet, .jsonl"),
        (["--subjects", "all", "--plot", "a.png"], ExitCode.USAGE, "--plot of a cohort is for averages"),
        (["--subjects", "all", "--out", "a.h5", "--average"], ExitCode.USAGE, "--out is about subjects, not averages"),
        (["--subjects", "all", "--origin", "last", "--average", "--by", "ag"], ExitCode.USAGE, "there is no static"),
        (["--subjects", "all", "--csv", "no/a.csv"], ExitCode.STORAGE, "there is no folder"),
        (
            ["--subjects", "all", "--csv", "plan.json", "--overwrite"],
            ExitCode.MISMATCH,
            "`plan.json` is the plan that is read",
        ),
        (["--subjects", "nobody.txt"], ExitCode.USAGE, "neither `all`"),
        (["--subjects", "target/tset"], ExitCode.USAGE, "did you mean `target/test`?"),
        (["--subjects", "plan.json"], ExitCode.USAGE, "`plan.json` is JSON, no list of subjects"),
        (["--subjects", "all", "--origin", "2024-01-31"], ExitCode.USAGE, "keeps no dates"),
        (["--subjects", "all", "--origin", "99"], ExitCode.USAGE, "is outside the series of 57 subjects"),
        (
            ["--subjects", "all", "--origin", "last", "--level", "2"],
            ExitCode.USAGE,
            "level 2 is not above 0 and below 1",
        ),
    ],
)
def test_a_cohort_that_cannot_be_answered_is_refused(
    words: list[str], code: ExitCode, hint: str, trained: Path, plan: Path, call: Call
) -> None:
    check(ask(call, trained, plan, *words), code, hint)


@pytest.mark.parametrize(
    ("who", "where"),
    [(["--subjects", "all"], "`origin` in late.json"), (["-s", 1], "`origin` of the plans")],
)
def test_an_origin_of_the_plans_that_no_subject_has_is_said_to_be_theirs(
    who: list[str], where: str, trained: Path, call: Call
) -> None:
    Path("late.json").write_text('{"origin": 99, "plans": {"watch": [{}, {}]}}')
    run = call("whatif", "-w", trained, "--plan", "late.json", *who)
    assert run.code == ExitCode.USAGE
    assert where in run.err
    assert "`--origin last`" in run.err


def test_a_file_of_answers_is_replaced_when_asked(trained: Path, plan: Path, call: Call) -> None:
    words = ["--subjects", "all", "--origin", "last", *WORDS]
    Path("answers.parquet").write_text("mine")
    check(ask(call, trained, plan, *words), ExitCode.MISMATCH, "--overwrite")
    assert Path("answers.parquet").read_text() == "mine"
    assert ask(call, trained, plan, *words, "--overwrite").code == 0
    assert pl.read_parquet("answers.parquet").height == 57 * 4


def test_a_table_gives_each_subject_its_own_plans(trained: Path, call: Call) -> None:
    Path("plans.csv").write_text("subject,plan,step,chemotherapy\n1,a,1,1\n2,b,1,0\n2,b,2,1\n")
    run = call("whatif", "-w", trained, "--plan", "plans.csv", "-s", 1, "-s", 2, "--csv", "a.csv", "--json")
    assert run.code == 0, run.err
    rows = pl.read_csv("a.csv").select("subject", "plan", "step").rows()
    assert rows == [(1, "a", 1), (2, "b", 1), (2, "b", 2)]
    assert run.document["result"]["plans"] == 2


def test_the_mean_at_the_end_is_over_all_answers_whatever_the_length_of_their_plans(trained: Path, call: Call) -> None:
    Path("plans.csv").write_text("subject,plan,step,chemotherapy\n1,x,1,1\n1,x,2,1\n2,x,1,1\n")
    words = "whatif", "-w", trained, "--plan", "plans.csv", "--csv", "a.csv", "--overwrite"
    [row] = call(*words, "--json").document["result"]["models"]["model"]["plans"]
    (_, one, first), (_, two, last), (_, _, alone) = pl.read_csv("a.csv").select("subject", "step", "estimate").rows()
    assert (one, two) == (1, 2)
    assert (row["answers"], row["answers_per_step"]) == (2, [2, 1])
    assert row["mean"] == pytest.approx([(first + alone) / 2, last])
    assert row["mean_at_end"] == pytest.approx((last + alone) / 2)
    shown = next(line for line in call(*words).out.splitlines() if line.startswith("x "))
    assert re.search(rf"1 to 2 +{row['mean_at_end']:.4g}", shown), shown


def test_a_table_of_plans_says_who_is_asked_about(trained: Path, call: Call) -> None:
    Path("plans.csv").write_text("subject,plan,step,chemotherapy\n1,a,1,1\n999,a,1,1\n2,b,1,0\n")
    check(ask(call, trained, Path("plans.csv")), ExitCode.USAGE, "no subject 999 in the data set")
    check(ask(call, trained, Path("plans.csv"), "-s", 1, "-s", 2), ExitCode.USAGE, "1 subject that is not in the data")
    run = ask(call, trained, Path("plans.csv"), "--csv", "a.csv", "--skip-unknown")
    assert run.code == 0, run.err
    assert run.err.count("left out") == 1
    assert pl.read_csv("a.csv").select("subject", "plan").rows() == [(1, "a"), (2, "b")]
    Path("plain.csv").write_text("plan,step,chemotherapy\na,1,1\n")
    check(ask(call, trained, Path("plain.csv")), ExitCode.USAGE, "missing option '--subject'")


def test_average_effects_have_a_table_a_figure_a_file_and_a_document(trained: Path, plan: Path, call: Call) -> None:
    words = ["--subjects", "source/train", "--origin", "last", "--average", "--by", "tumour_volume:2", "--truth"]
    run = ask(call, trained, plan, *words, "--csv", "a.csv", "--plot", "a.svg", "--reference", "both", "--json")
    assert run.code == 0, run.err
    rows = run.document["result"]["averages"]
    assert {row["quantity"]: row["reference"] for row in rows} == {"outcome": None, "difference": "both"}
    assert len({row["group"] for row in rows}) == 3
    assert pl.read_csv("a.csv")["estimate"].to_list() == pytest.approx([row["estimate"] for row in rows])
    assert "no intervals, members of an ensemble learn" in " ".join(Path("a.svg").read_text().split())
    assert ask(call, trained, plan, *words, "--csv", "b.csv").code == 0
    answers = ask(call, trained, plan, "--subjects", "source/train", "--origin", "last", "--csv", "c.csv")
    assert answers.code == 0
    every, average = pl.read_csv("c.csv"), next(row for row in rows if row["plan"] == "watch" and row["step"] == 2)
    mean = every.filter((pl.col("plan") == "watch") & (pl.col("step") == 2))["estimate"].mean()
    assert average["estimate"] == pytest.approx(mean)
    assert (average["lower"], average["upper"]) == (None, None)  # an ensemble


def test_an_average_of_too_few_subjects_tells_of_no_interval(
    trained: Path, data: Path, plan: Path, call: Call, tmp_path: Path
) -> None:
    one, mixed = tmp_path / "one.txt", tmp_path / "mixed.h5"
    one.write_text("1\n")
    assert call("finetune", "--method", "mixed", "--data", data, "--out", mixed).code == 0
    words = ["--subjects", one, "--origin", "last", "--average", "-m", mixed, "--show", "notes"]
    said = ask(call, trained, plan, *words).err
    assert "fewer than 20 units have no interval" in said
    assert "include" not in said


def test_averages_of_an_ensemble_have_no_interval_and_say_why(
    trained: Path, plan: Path, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_module("costar_cli.inference.draws"), "LEAST_MEMBERS", 2)  # quick ones have 2
    models = ["-m", trained / "model.h5", "-m", trained / "model-target.h5"]
    words = ["--subjects", "source/train", "--origin", "last", *models]
    averaged = ask(call, trained, plan, *words, "--average", "--json").document
    kinds = {row["interval_kind"] for row in averaged["result"]["averages"]}
    assert {facts["interval_kind"] for facts in averaged["result"]["models"].values()} == kinds
    [kind] = kinds
    assert kind.startswith("none (members of an ensemble learn from the same subjects and shrink effects alike")
    assert {row[name] for row in averaged["result"]["averages"] for name in ("lower", "upper", "level")} == {None}
    files = ["--plot", tmp_path / "a.png", "--csv", tmp_path / "a.csv"]
    shown = ask(call, trained, plan, *words, "--average", "--show", "notes", *files)
    assert shown.err.count("have no interval: members of an ensemble learn") == 2
    assert " to " not in shown.out.partition("mean tumour_volume (cm3), by model")[2].partition("wrote")[0]


def test_parts_of_a_cohort_merge_into_the_answers_of_one_run(
    trained: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers_module, "MOST_MOMENTS", 4)
    rule = {"rule": "chemotherapy if tumour_volume > 5", "times": 2}
    plans = {"watch": [{}, {}], "chemo": [{"chemotherapy": 1}], "large": rule}
    Path("rules.json").write_text(json.dumps({"plans": plans}))
    words = ["--subjects", "source/train", "--csv", "all.parquet", "--json"]
    asked = ["whatif", "-w", trained, "--plan", "rules.json", *words]
    whole = ask(call, trained, Path("rules.json"), *words).document["result"]
    expected = pl.read_parquet("all.parquet")
    Path("all.parquet").unlink()
    parts = [call(*asked, "--shard", f"{i}/3").document for i in (1, 2)]
    assert call("merge", "all.parquet", "--json").document["error"]["problem"] == "1 of 3 parts is missing"
    parts.append(call(*asked, "--shard", "3/3").document)
    assert [part["result"]["answers"] > 0 for part in parts] == [True, True, True]
    assert sum(part["result"]["answers"] for part in parts) == whole["answers"]
    assert {command for part in parts for command in part["next"]} == {"costar merge all.parquet"}
    merged = call("merge", "all.parquet", "--json").document["result"]
    assert merged["merged"] == [f"all.shard-{i}-of-3.parquet" for i in (1, 2, 3)]
    assert pl.read_parquet("all.parquet").equals(expected)
    assert call("merge", "all.parquet", "--json").document["status"] == "up_to_date"
    assert call(*asked, "--shard", "3/3", "--level", "0.5", "--overwrite").code == 0
    check(call("merge", "all.parquet"), ExitCode.MISMATCH, "the parts do not answer one question")


def test_a_part_without_a_chunk_has_no_rows(trained: Path, plan: Path, call: Call) -> None:
    for part, told in (("1/2", "part 1/2 has no answers"), ("2/2", "mean over part 2/2 of the cohort")):
        run = ask(call, trained, plan, "--subjects", "target/test", *WORDS, "--shard", part)
        assert (run.code, told in run.out, "mean over the cohort" in run.out) == (0, True, False)
        assert ("parts are whole chunks of up to 1,024 origins" in run.out) is ("no answers" in told)
    assert pl.read_parquet("answers.shard-1-of-2.parquet").height == 0
    assert call("merge", "answers.parquet").code == 0
    assert pl.read_parquet("answers.parquet").height == 20


@pytest.mark.parametrize(
    "words", [["-s", "1", "-s", "2", "--csv", "a.csv"], ["-s", "1", "-s", "2"], ["-s", "1"], ["-s", "1", "--average"]]
)
def test_what_cannot_be_merged_has_no_parts(words: list[str], trained: Path, plan: Path, call: Call) -> None:
    check(ask(call, trained, plan, *words, "--shard", "1/2"), ExitCode.USAGE, "where: --shard")


def test_bounds_of_a_model_without_calibration_are_refused_before_anything_is_written(
    trained: Path, plan: Path, call: Call
) -> None:
    run = ask(call, trained, plan, "--subjects", "target/test", "--sensitivity", "--csv", "a.csv", "--out", "a.h5")
    assert (run.code, "no calibrated distribution of errors" in run.err) == (ExitCode.USAGE, True)
    assert not list(Path().glob("a.*"))
