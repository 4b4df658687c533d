"""Each verb on good input, some as real processes, and what it says to people and to scripts."""

import csv
import io
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_world import TINY_COHORT, Run, run_process
from typer.testing import CliRunner

from costar_cli.cli.app import app
from costar_cli.files import read_artifact, read_header, verify_artifact, write_artifact

Call = Callable[..., Run]


def test_the_whole_pipeline_runs_without_a_path(tmp_path: Path, call: Call) -> None:
    """From a process of its own on; those of the other verbs are in the scripts and pages of the documentation."""
    few = ["--epochs", "1", "--members", "2", "--threads", "1"]
    lines = {
        "simulate": ["simulate", "tumor", *TINY_COHORT],
        "pretrain": ["pretrain", *few],
        "finetune": ["finetune", *few],
        "evaluate": ["evaluate", "--no-plots", "--bootstrap", "50"],
    }
    for verb, words in lines.items():
        run = run_process(*words, cwd=tmp_path) if verb == "simulate" else call(*words)
        assert run.code == 0, run.err
        assert run.out.startswith("wrote  costar-workspace/"), verb
        assert "\nnext  costar " in run.err or run.err.startswith("next  costar "), verb
        assert "\x1b" not in run.out + run.err
    digests = {path.name: verify_artifact(path) for path in (tmp_path / "costar-workspace").glob("*.h5")}
    assert digests["encoder.h5"].parents == {"dataset": digests["data.h5"].digest}
    assert digests["model.h5"].parents == {
        "dataset": digests["data.h5"].digest,
        "encoder": digests["encoder.h5"].digest,
    }
    assert digests["evaluation.h5"].parents["model/model"] == digests["model.h5"].digest


def test_simulate_is_one_document_under_json_and_the_same_bytes_again(tmp_path: Path, call: Call) -> None:
    words = ["simulate", "tumor", *TINY_COHORT, "--gamma", "2", "--plans", "random", "--paired", "--json"]
    first, second = call(*words, "-w", "one"), call(*words, "-w", "two")
    assert (tmp_path / "one" / "data.h5").read_bytes() == (tmp_path / "two" / "data.h5").read_bytes()
    document = first.document
    assert (first.code, document["verb"], document["status"]) == (0, "simulate tumor", "done")
    assert document["config"]["simulate.tumor.gamma"] == {"value": 2.0, "origin": "--gamma"}
    assert document["config"]["simulate.tumor.target_gamma"] == {"value": 0.0, "origin": "default"}
    assert [part["subjects"] for part in document["result"]["parts"]] == [24, 8, 6, 8, 6, 5]
    assert document["outputs"] == {
        "dataset": {"path": "one/data.h5", "kind": "dataset", "digest": read_header(tmp_path / "one/data.h5").digest}
    }
    assert second.document["outputs"]["dataset"]["digest"] == document["outputs"]["dataset"]["digest"]


@pytest.fixture
def workspace(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "workspace"))


def test_evaluate_writes_a_report_a_table_and_plots_and_shows_the_table_again(workspace: Path, call: Call) -> None:
    run = call("evaluate", "-w", workspace, "--bootstrap", 50)
    assert run.code == 0, run.err
    for setup in ("zero-shot", "few-shot", "supervised"):
        assert f"\n{setup}" in run.out
    assert "published" not in run.out  # a tiny cohort is not the paper's
    assert "last value" in run.out
    plots = {path.name for path in (workspace / "plots").iterdir()}
    assert {"rmse.png", "learning.png", "trajectories.png"} <= plots
    rows = list(csv.DictReader((workspace / "evaluation.csv").read_text("utf-8").splitlines()))
    assert {row["setup"] for row in rows} == {"zero-shot", "few-shot", "supervised"}
    again = call("evaluate", "-w", workspace, "--bootstrap", 50)
    assert again.out.splitlines()[0].startswith("up to date")
    assert again.out.splitlines()[-5:] == run.out.splitlines()[-5:]
    (workspace / "evaluation.csv").unlink()
    shutil.rmtree(workspace / "plots")
    predictions = ["--predictions", workspace / "rows.jsonl"]
    restored = call("evaluate", "-w", workspace, "--bootstrap", 50, "--json", *predictions).document
    assert restored["status"] == "up_to_date"
    assert {"csv", "rmse", "learning", "trajectories", "predictions"} <= set(restored["outputs"])
    with (workspace / "rows.jsonl").open() as lines:
        assert {json.loads(line)["setup"] for line in lines} == {"zero-shot", "few-shot", "supervised"}
    assert plots == {path.name for path in (workspace / "plots").iterdir()}


def test_evaluate_of_one_setup_and_one_model(trained: Path, tmp_path: Path, call: Call) -> None:
    words = ["-w", trained, "--setup", "few-shot", "--model", trained / "model-target.h5", "--no-plots"]
    run = call("evaluate", *words, "--bootstrap", 0, "--out", tmp_path / "e.h5", "--json")
    assert run.code == 0, run.err
    assert {row["setup"] for row in run.document["result"]["rows"]} == {"few-shot"}
    assert set(run.document["outputs"]) == {"evaluation", "csv"}
    assert (tmp_path / "e.csv").exists()


def test_evaluate_refuses_a_setup_without_a_model(trained: Path, tmp_path: Path, call: Call) -> None:
    words = ["-w", trained, "--setup", "few-shot", "--model", trained / "model.h5", "--out", tmp_path / "e.h5"]
    run = call("evaluate", *words)
    assert run.code == 5
    assert "costar finetune --domain target" in run.err


def test_whatif_answers_in_a_table_with_the_truth_beside_it(trained: Path, plan: Path, call: Call) -> None:
    run = call("whatif", "-w", trained, "--subject", 1, "--plan", plan, "--truth")
    assert run.code == 0, run.err
    lines = run.out.splitlines()
    assert lines[0] == "Subject 1 on day 6: tumour_volume in cm3, from day 4 by model"
    assert [line.split()[0] for line in lines[1:4]] == ["plan", "watch", "both"]
    assert lines[1].split() == ["plan", "estimate", "truth", "difference", "from", "watch", "truth", "support"]
    assert lines[4:] == ["No band: too few ensemble members (`--members 3` or more)."]
    assert "details  --show days|support|notes|all (" in run.err
    notes = call("whatif", "-w", trained, "--subject", 1, "--plan", plan, "--truth", "--show", "notes").err
    assert "was trained on this subject" in notes
    assert "shows no band: too few ensemble members" in notes


def test_details_of_a_whatif_are_a_table_by_step_before_the_answer(trained: Path, plan: Path, call: Call) -> None:
    words = ["whatif", "-w", trained, "--subject", 1, "--plan", plan, "--truth"]
    run, brief = call(*words, "--show", "all"), call(*words)
    lines = run.out.splitlines()
    assert lines[0].startswith("subject 1 (source/train), day 4 of ")
    assert lines[1:3] == ["plan watch: day 4-5 none", "plan both: day 4 chemotherapy+radiotherapy, then none"]
    assert lines[4].split() == ["day", "watch", "truth", "both", "truth"]
    assert [line.split()[0] for line in lines[5:7]] == ["5", "6"]
    assert lines[7] == "difference from `watch`"
    assert lines[-5:] == brief.out.splitlines()
    assert "--show" not in run.err


def test_whatif_is_one_document_under_json_and_writes_what_it_is_asked_to(
    trained: Path, plan: Path, tmp_path: Path, call: Call
) -> None:
    files = ["--csv", tmp_path / "a.csv", "--plot", tmp_path / "a.png", "--out", tmp_path / "a.h5"]
    words = ["whatif", "-w", trained, "--subject", 44, "--origin", 3, "--plan", plan, *files, "--json"]
    run = call(*words)
    assert run.code == 0, run.err
    result = run.document["result"]
    assert (result["subject"], result["domain"], result["split"], result["origin"]) == (44, "target", "train", 3)
    assert run.document["inputs"]["model-target"]["path"].endswith("model-target.h5")
    assert {row["interval_kind"] for row in result["estimates"]} == {"none (2 members)"}
    assert [len(result[name]) for name in ("estimates", "differences")] == [4, 2]
    assert set(result["plans_in_words"]) == {"watch", "both"}
    assert read_header(tmp_path / "a.h5").meta["plans_in_words"] == result["plans_in_words"]
    assert set(run.document["outputs"]) == {"csv", "plot", "estimates"}
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert (
        read_header(tmp_path / "a.h5").parents["model/model-target"] == read_header(trained / "model-target.h5").digest
    )
    again = call(*words)
    assert again.code == 5
    assert call(*words, "--overwrite").document["result"] == result


def test_a_model_of_an_older_costar_is_said_to_be_one_and_overwrite_evaluates_again(
    trained: Path, plan: Path, tmp_path: Path, call: Call
) -> None:
    artifact = read_artifact(trained / "model.h5")
    meta = {name: value for name, value in artifact.meta.items() if name not in ("support", "validation", "made_with")}
    old = tmp_path / "old.h5"
    write_artifact(old, kind="model", arrays=artifact.arrays, meta=meta, parents=artifact.parents)
    words = ["-w", trained, "--model", old, "--json"]
    evaluate = ["evaluate", *words, "--bootstrap", 0, "--no-plots", "--out", tmp_path / "e.h5"]
    runs = [call(*evaluate), call(*evaluate, "--overwrite"), call("whatif", *words, "--subject", 1, "--plan", plan)]
    for run in runs:
        assert run.code == 0, run.err
        [warning] = [line for line in run.document["warnings"] if "older version of costar" in line]
        assert warning.startswith(
            "model `old` was made by an older version of costar: what its training subjects received and "
        )
        assert warning.endswith("are not recorded; retrain it")
    assert [run.document["status"] for run in runs[:2]] == ["done", "done"]
    assert call(*evaluate).document["status"] == "up_to_date"


def test_weights_of_other_shapes_in_a_sealed_file_are_an_error_of_the_file(
    trained: Path, plan: Path, tmp_path: Path, call: Call
) -> None:
    place = ["-w", trained, "--out", tmp_path / "new.h5"]
    for name, words in (
        ("model", ["whatif", "-s", 1, "-p", plan, "--model"]),
        ("encoder", ["finetune", "--epochs", 1, "--start"]),
    ):
        made, path = read_artifact(trained / f"{name}.h5"), tmp_path / f"{name}.h5"
        first = next(key for key in made.arrays if key.startswith("params/encoder."))
        arrays = {**made.arrays, first: made.arrays[first][..., :-1]}
        write_artifact(path, kind=name, arrays=arrays, meta=made.meta, parents=made.parents)
        error = call(*words, path, *place, "--json").document["error"]
        assert (error["exit_code"], error["problem"]) == (4, f"the {name} artifact is incomplete or damaged")
        assert first.removeprefix("params/") in error["where"]


def test_estimates_made_with_unsupported_plans_are_not_those_made_without(
    trained: Path, plan: Path, tmp_path: Path, call: Call
) -> None:
    words = ["whatif", "-w", trained, "--subject", 44, "--plan", plan, "--out"]
    marks = []
    for name, flags in (("a", []), ("b", []), ("c", ["--unsupported"])):
        assert call(*words, tmp_path / f"{name}.h5", *flags).code == 0
        marks.append(read_header(tmp_path / f"{name}.h5").meta["fingerprint"])
    assert marks[0] == marks[1] != marks[2]


def test_whatif_reads_plans_from_standard_input(
    trained: Path, plan: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["whatif", "-w", trained, "--subject", 1, "--json", "--out"]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(plan.read_bytes())))
    typed = call(*words, tmp_path / "a.h5", "--plan", "-")
    from_file = call(*words, tmp_path / "b.h5", "--plan", plan)
    assert (typed.code, from_file.code) == (0, 0), typed.err
    assert typed.document["result"] == from_file.document["result"]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"{")))
    broken = call(*words[:-1], "--plan", "-")
    assert (broken.code, broken.document["error"]["where"]) == (2, "standard input, line 1, column 2")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\n")))
    empty = call(*words[:-1], "--plan", "-").document["error"]
    assert (empty["problem"], empty["where"]) == ("standard input is empty", "--plan")


def test_an_unknown_reference_is_answered_with_the_plans(trained: Path, plan: Path, call: Call) -> None:
    run = call("whatif", "-w", trained, "--subject", 1, "--plan", plan, "--reference", "zzz")
    assert run.code == 2
    assert "the plans are 'watch', 'both'" in run.err


def test_whatif_never_replaces_its_own_question(trained: Path, plan: Path, call: Call) -> None:
    before = plan.read_text()
    run = call("whatif", "-w", trained, "--subject", 1, "--plan", plan, "--csv", plan, "--overwrite")
    assert run.code == 5
    assert plan.read_text() == before


def test_whatif_compares_models(trained: Path, plan: Path, call: Call) -> None:
    models = ["--model", trained / "model.h5", "--model", trained / "model-target.h5"]
    run = call("whatif", "-w", trained, "--subject", 30, "--plan", plan, *models, "--quiet", "--show", "all")
    assert run.code == 0, run.err
    assert re.search(r"^plan +day +model +model-target$", run.out, re.MULTILINE)
    assert re.search(r"difference from `.*`, by model$", run.out, re.MULTILINE)


def test_whatif_warns_when_the_model_knows_other_data(trained: Path, plan: Path, tmp_path: Path, call: Call) -> None:
    other = tmp_path / "other.h5"
    assert call("simulate", "tumor", *TINY_COHORT, "--gamma", 4, "--out", other).code == 0
    ask = ["whatif", "-w", trained, "--data", other, "--subject", 1, "--plan", plan]
    run = call(*ask, "--json")
    assert run.code == 0, run.err
    [warning] = [warning for warning in run.document["warnings"] if "another data set" in warning]
    assert warning in run.document["result"]["warnings"]
    assert warning not in run.document["result"]["notes"]
    assert run.document["result"]["models"]["model"]["same_data"] is False
    assert " by model (trained on other data)\n" in call(*ask, "--quiet").out
    both = ["--model", trained / "model.h5", "--model", trained / "model-target.h5"]
    assert "model-target (trained on other data)" in call(*ask, *both, "--quiet").out


def test_inspect_shows_identity_lineage_variables_settings_and_arrays(trained: Path, call: Call) -> None:
    path = trained / "model.h5"
    header = read_header(path)
    run = call("inspect", path, "--show", "all", "--arrays")
    assert run.code == 0, run.err
    for text in (header.digest, header.parents["encoder"], "tumour_volume", "chemotherapy", "learning_rate", "params/"):
        assert text in run.out
    brief = call("inspect", path)
    assert "tumour_volume" in brief.out
    assert "learning_rate" not in brief.out
    assert "details  --show settings|support|all; --arrays (40 arrays)" in brief.err
    assert "params/" not in call("inspect", path, "--show", "all").out
    content = call("inspect", path, "--json").document["result"]
    assert content["digest"] == header.digest
    assert content["parents"] == header.parents
    assert {array["name"].split("/")[0] for array in content["arrays"]} == {"params", "practice", "scaler"}


def test_verify_says_that_a_file_is_sound(trained: Path, call: Call) -> None:
    path = trained / "encoder.h5"
    run = run_process("verify", path, cwd=trained)
    assert run.out == f"OK: all checksums match in {path} (encoder)\ndigest {read_header(path).digest}\n"
    assert call("verify", path, "--json").document["result"]["kind"] == "encoder"


def test_doctor_looks_at_machine_packages_and_workspace(trained: Path, call: Call) -> None:
    run = call("doctor", "-w", trained, "--json")
    assert run.code == 0, run.err
    found = {check["name"]: check for check in run.document["result"]["checks"]}
    assert {"python", "torch", "typer", "devices", "memory", "disk", "workspace", "data.h5", "model.h5"} <= set(found)
    assert {check["status"] for check in found.values()} <= {"ok", "readable", "note"}


def test_doctor_notes_files_that_do_not_belong_together(workspace: Path, call: Call) -> None:
    assert call("simulate", "tumor", *TINY_COHORT, "--gamma", 4, "-w", workspace, "--overwrite").code == 0
    run = call("doctor", "-w", workspace)
    assert run.code == 0
    assert "encoder.h5" in run.out
    assert "made from a different dataset" in run.out


def test_doctor_makes_nothing(tmp_path: Path, call: Call) -> None:
    assert call("doctor").code == 0
    assert not list(tmp_path.iterdir())


def test_the_app_runs_under_typers_own_runner(trained: Path) -> None:
    result = CliRunner().invoke(app, ["verify", str(trained / "data.h5")])
    assert result.exit_code == 0
    assert "OK: all checksums match" in result.stdout
    assert result.stderr.startswith("read  ")
    assert CliRunner().invoke(app, ["verify", "--no-such-flag"]).exit_code == 2


def test_gates_judge_an_evaluation_that_is_new_or_up_to_date_and_have_an_exit_code(
    trained: Path, tmp_path: Path, call: Call
) -> None:
    words = ["evaluate", "-w", trained, "--no-plots", "--bootstrap", 0, "--out", tmp_path / "e.h5"]
    never, always = "zero-shot.costar.average < 0", "zero-shot.model.tau2 > 0"
    first = call(*words, "--fail-if", never, "--fail-if", always, "--json")
    assert (first.code, first.document["status"]) == (10, "failed")
    assert [gate["verdict"] for gate in first.document["result"]["gates"]] == ["passed", "failed"]
    assert first.document["error"]["details"][0].startswith(always)
    again = call(*words, "--fail-if", never)
    assert again.code == 0
    assert again.out.startswith("up to date")
    assert re.search(rf"^{never} .*  passed$", again.out, re.MULTILINE)


@pytest.mark.parametrize("gate", ["zero-shot.crn.average > 1", "zero-shot.costar.tau9 > 1", "average > 1"])
def test_a_gate_that_names_nothing_is_refused_before_anything_is_scored(
    gate: str, trained: Path, tmp_path: Path, call: Call
) -> None:
    run = call("evaluate", "-w", trained, "--out", tmp_path / "e.h5", "--fail-if", gate)
    assert run.code == 2
    assert not (tmp_path / "e.h5").exists()


def test_a_model_has_a_card_with_the_scores_of_evaluations_beside_it_and_is_never_replaced_by_it(
    workspace: Path, tmp_path: Path, call: Call
) -> None:
    assert call("evaluate", "-w", workspace, "--no-plots", "--bootstrap", 50, "--setup", "zero-shot").code == 0
    words = ["inspect", workspace / "model.h5", "--report"]
    run = call(*words, tmp_path / "card.html", "--json")
    assert run.code == 0, run.err
    evaluation = read_header(workspace / "evaluation.h5").digest
    data = read_header(workspace / "data.h5").digest
    assert run.document["result"]["report"] == {"dataset": data, "evaluations": [evaluation]}
    page = (tmp_path / "card.html").read_text("utf-8")
    assert evaluation in page
    assert "zero-shot" in page
    assert call(*words, tmp_path / "card.html").code == 5
    assert call(*words, workspace / "model.h5", "--overwrite").code == 5
    assert call(*words, "-").code == 2


def test_whatif_writes_a_page_of_its_answer(trained: Path, plan: Path, tmp_path: Path, call: Call) -> None:
    words = ["whatif", "-w", trained, "-s", 44, "--origin", 3, "--plan", plan, "--report", tmp_path / "page.html"]
    run = call(*words, "--json")
    assert run.code == 0, run.err
    assert run.document["outputs"]["report"] == {"path": str(tmp_path / "page.html"), "kind": "html", "digest": ""}
    page = (tmp_path / "page.html").read_text("utf-8")
    assert read_header(trained / "model-target.h5").digest in page
    assert call(*words).code == 5
