"""The verbs on ICU data, from stays to a what-if, and through a file of MIMIC-Extract."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_world import Run

from costar_cli.cli.app import main
from costar_cli.data import Part
from costar_cli.data.store import read_dataset

TINY = [
    *("--stays", "280", "--hours", "24", "--horizon", "4", "--plans-per-origin", "2", "--seed", "2"),
    *("--few-shot", "0.5"),
]
TRAINING = ["--threads", "1", "--members", "2", "--epochs", "1"]


@pytest.fixture(scope="module")
def icu(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with ICU data, the file of its stays, an encoder, and models of both domains."""
    root = tmp_path_factory.mktemp("mimic") / "icu"
    place = ["--workspace", str(root), "--quiet"]
    assert main(["simulate", "mimic", *TINY, *place, "--export-extract", str(root.parent / "stays.h5")]) == 0
    assert main(["pretrain", *TRAINING, *place]) == 0
    assert main(["finetune", *TRAINING, *place]) == 0
    assert main(["finetune", "--domain", "target", *TRAINING, *place]) == 0
    return root


@pytest.fixture
def stays(icu: Path) -> Path:
    return icu.parent / "stays.h5"


def test_simulate_prints_what_each_part_holds(call: Callable[..., Run]) -> None:
    run = call("simulate", "mimic", *TINY, "--json", "-w", "w")
    assert run.code == 0
    document = run.document
    assert document["verb"] == "simulate mimic"
    assert document["result"]["name"] == "mimic"
    parts = {row["part"]: row for row in document["result"]["parts"]}
    assert list(parts) == [str(part) for part in Part.all()]
    assert parts["target/test"]["one_step"] == 8 * (parts["target/test"]["steps"] - parts["target/test"]["subjects"])
    assert document["config"]["simulate.mimic.stays"] == {"value": 280, "origin": "--stays"}
    assert document["config"]["simulate.mimic.center"]["value"] is True


def test_simulate_tells_how_many_were_left_out(call: Callable[..., Run], tmp_path: Path) -> None:
    told = call("simulate", "mimic", *TINY, "-w", tmp_path / "w").err
    for count in ("280 stays, ", "shorter than 20 hours, ", "outside both age groups, ", "target in no part"):
        assert count in told
    kept = call("simulate", "mimic", *TINY, "-w", tmp_path / "w", "--json").document["result"]["kept"]
    assert kept["stays"] == 280
    assert kept["shorter than 20 hours"] > 0


def test_evaluate_scores_all_set_ups_and_says_whose_labels_were_used(icu: Path, call: Callable[..., Run]) -> None:
    run = call("evaluate", "-w", icu, "--no-plots", "--json")
    assert run.code == 0
    rows = run.document["result"]["rows"]
    assert {row["setup"] for row in rows} == {"zero-shot", "few-shot", "supervised"}
    assert {row["basis"] for row in rows} == {"ours", "naive", "limit"}
    dataset = read_dataset(icu / "data.h5", queries=False, truth=False)
    sizes = {str(part): panel.n_subjects for part, panel in dataset.panels.items()}
    touched = {row["setup"]: row["provenance"]["labelled_target_subjects"] for row in rows if row["basis"] == "ours"}
    assert touched == {
        "zero-shot": 0,
        "supervised": 0,
        "few-shot": sizes["target/train"] + sizes["target/val"],
    }
    ours = next(row for row in rows if row["basis"] == "ours")
    assert ours["truth"] == "counterfactual"
    assert ours["query_sets"] == ["one_step", *["sequence"] * 3]
    assert set(ours["outcomes"]) == {"y1", "y2"}


def test_what_if_answers_with_the_simulators_truth(icu: Path, call: Callable[..., Run], tmp_path: Path) -> None:
    dataset = read_dataset(icu / "data.h5", queries=False, truth=False)
    panel = dataset.panels[Part("target", "test")]
    subject = int(panel.subject_id[panel.length.argmax()])
    plan = tmp_path / "plan.json"
    plan.write_text(
        '{"origin": 12, "plans": {"none": [{}, {}, {}], "all": [{"t1": "on", "t2": 1, "t3": true}, {}, {}]}}'
    )
    run = call("whatif", "-w", icu, "--subject", subject, "--plan", plan, "--truth", "--json")
    assert run.code == 0
    rows = run.document["result"]["estimates"]
    assert {(row["plan"], row["outcome"], row["step"]) for row in rows} == {
        (name, outcome, step) for name in ("none", "all") for outcome in ("y1", "y2") for step in (1, 2, 3)
    }
    truth = {(row["plan"], row["outcome"], row["step"]): row["truth"] for row in rows}
    assert all(truth["all", *rest] < truth["none", *rest] for _, *rest in truth)
    late = call("whatif", "-w", icu, "--subject", subject, "--plan", plan, "--origin", "23", "--truth", "--json")
    assert late.code == 2
    assert late.document["error"]["fix"].startswith("choose an origin from 0 to ")


def test_the_exported_file_makes_the_same_data_set_again(
    icu: Path, stays: Path, tmp_path: Path, call: Callable[..., Run]
) -> None:
    shape = [word for word in TINY if word not in {"--stays", "280"}]
    command = ["simulate", "mimic", "--mimic-extract", stays, *shape, "-w", "w", "--json"]
    run = call(*command)
    assert run.code == 0
    assert not any("trust" in warning for warning in run.document["warnings"])  # nothing pickled is run
    assert len(run.document["inputs"]["mimic_extract"]["digest"]) == 64
    through = read_dataset(tmp_path / "w" / "data.h5")
    direct = read_dataset(icu / "data.h5")
    assert through.config["embedded"] is True
    for part, panel in direct.panels.items():
        assert (panel.outcomes == through.panels[part].outcomes).all()
        assert (panel.covariates == through.panels[part].covariates).all()
    again = call(*command, "--stays", "280")
    assert (again.code, again.document["error"]["problem"]) == (2, "--stays is about the embedded cohort")
    again = call(*command)
    assert again.document["status"] == "up_to_date"


def test_ingest_reads_what_was_given_and_every_verb_follows(
    stays: Path, call: Callable[..., Run], tmp_path: Path
) -> None:
    place = ["-w", tmp_path / "factual", "--json"]
    run = call("ingest", "mimic", stays, "--hours", "36", "--horizon", "4", *place)
    assert run.code == 0
    assert run.document["result"]["name"] == "mimic-factual"
    assert call("finetune", "--from", "scratch", *TRAINING, *place).code == 0
    rows = call("evaluate", "--no-plots", *place).document["result"]["rows"]
    assert {row["setup"] for row in rows} == {"zero-shot", "supervised"}
    assert {row["truth"] for row in rows} == {"factual"}
    assert {row["basis"] for row in rows} == {"ours", "naive"}
    alone = call("ingest", "mimic", stays, "--no-transfer", "--patients", "80", "-w", tmp_path / "one", "--json")
    assert [row["part"] for row in alone.document["result"]["parts"]] == ["source/train", "source/val", "source/test"]


def test_the_export_is_never_replaced_unasked(icu: Path, stays: Path, call: Callable[..., Run], tmp_path: Path) -> None:
    run = call("simulate", "mimic", *TINY, "--export-extract", stays, "-w", tmp_path / "w", "--json")
    assert (run.code, run.document["error"]["problem"]) == (5, "the file exists")


@pytest.mark.parametrize(
    ("words", "code", "problem"),
    [
        (["simulate", "mimic", "--stays", "1"], 3, "the source's age group is empty"),
        (["simulate", "mimic", "--stays", "60"], 3, "too few target patients"),
        (["simulate", "mimic", "--horizon", "30"], 2, "must be above horizon 30"),
        (["simulate", "mimic", "--source-to", "90"], 2, "the age groups of source and target overlap"),
        (["simulate", "mimic", "--mimic-extract", "none.h5"], 3, "file not found"),
        (["ingest", "mimic", "none.h5"], 3, "file not found"),
        (["ingest", "mimic", "/"], 3, "this is not a file but a folder"),
        (["simulate", "mimic", "--source-to", "5"], 2, "source_above must be below source_to"),
    ],
)
def test_what_cannot_be_done_is_one_clear_error(
    words: list[str], code: int, problem: str, call: Callable[..., Run], tmp_path: Path
) -> None:
    run = call(*words, "-w", tmp_path / "w", "--json")
    assert run.code == code
    assert problem in run.document["error"]["problem"]
    assert run.document["error"]["fix"]


def test_inspect_shows_how_many_were_left_out(icu: Path, call: Callable[..., Run]) -> None:
    run = call("inspect", icu / "data.h5", "--json")
    kept = run.document["result"]["config"]["kept"]
    assert kept["stays"] == 280
    assert {"shorter than 20 hours", "outside both age groups", "source", "target", "target in no part"} <= set(kept)
    text = call("inspect", icu / "data.h5", "--show", "all", "--arrays").out
    assert "kept.shorter than 20 hours" in text
    assert json.dumps(kept["shorter than 20 hours"]) in text
