"""What somebody meets who is new to costar: slips of the keyboard, data that do not fit, files that are not whole."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import h5py
import pytest
from cli_world import REPOSITORY, Run

from costar_cli.config.nearest import nearest
from costar_cli.data.store import read_dataset, write_dataset
from costar_cli.errors import ExitCode
from costar_cli.methods import METHODS

Call = Callable[..., Run]
EXAMPLE = REPOSITORY / "examples" / "own-data"
FEW = ["--epochs", "1", "--members", "1", "--threads", "1"]


@pytest.fixture
def workspace(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "workspace"))


def settings_of(call: Call, path: Path) -> dict[str, object]:
    shown = call("inspect", path, "--show", "all", "--arrays")
    assert shown.code == 0, shown.err
    document = call("inspect", path, "--json").document["result"]["config"]
    for section in document:
        assert section in shown.out
    return document


def test_a_models_settings_are_those_that_its_method_reads(workspace: Path, call: Call) -> None:
    for method in ("msm", "last-value", "crn"):
        assert call("finetune", "--method", method, "-w", workspace, *FEW).code == 0
    assert set(settings_of(call, workspace / "model-msm.h5")) == {"msm", "seed"}
    assert settings_of(call, workspace / "model-last-value.h5") == {}
    crn = settings_of(call, workspace / "model-crn.h5")
    assert set(crn) == {"calibrate_on", "crn", "members", "seed", "select_on", "updates", "validation_batch_size"}
    assert crn["crn"]["encoder"]["epochs"] == 1
    assert "hidden" in settings_of(call, workspace / "model.h5")


def test_settings_that_a_method_does_not_read_leave_its_model_up_to_date(workspace: Path, call: Call) -> None:
    idle = {
        "msm": [
            "--epochs",
            4,
            "--members",
            3,
            "--batch-size",
            7,
            "--step-weights",
            "uniform",
            "--precision",
            "float64",
        ],
        "last-value": ["--epochs", 4, "--seed", 5],
        "crn": ["--step-weights", "uniform"],
    }
    for method, more in idle.items():
        make = ["finetune", "--method", method, "-w", workspace, "--json", "--threads", "1"]
        few = FEW[:-2] if method == "crn" else []  # `make` has the threads
        assert call(*make, *few).document["status"] == "done"
        assert call(*make, *few, *more).document["status"] == "up_to_date", method
    changed = call("finetune", "--method", "crn", "-w", workspace, "--epochs", 2, "--members", 1)
    assert changed.code == ExitCode.MISMATCH
    assert "settings.encoder.epochs: was 1, now 2" in changed.err


def table_of(steps: int, subjects: int = 30) -> str:
    rows = [
        f"{subject},{day},{(subject * 7 + day * 3) % 11},{'drug' if (subject + day) % 3 else 'none'}"
        for subject in range(subjects)
        for day in range(steps)
    ]
    return "\n".join(["patient,day,pressure,drug", *rows]) + "\n"


SCHEMA = """
name = "ward"
horizon = {horizon}

[columns]
patient = {{ role = "subject" }}
day = {{ role = "time" }}
pressure = {{ role = "outcome" }}
drug = {{ role = "treatment", levels = ["none", "drug"] }}
"""


def ingest(call: Call, horizon: int, steps: int = 12, *words: object) -> Run:
    Path("t.csv").write_text(table_of(steps))
    Path("s.toml").write_text(SCHEMA.format(horizon=horizon))
    return call("ingest", "table", "t.csv", "--schema", "s.toml", *words)


def test_a_horizon_longer_than_all_series_is_refused_at_once_with_the_longest_possible(call: Call) -> None:
    run = ingest(call, 30)
    assert run.code == ExitCode.DATA
    assert "no source/train or test subject has the 31 steps that a horizon of 30 needs" in run.err
    assert "the longest possible `horizon` is 11" in run.err
    assert ingest(call, 11).code == 0


def impossible(call: Call, path: Path) -> None:
    """Make a data set that no verb of costar would: its horizon is longer than its series."""
    assert ingest(call, 3, 12, "-o", "good.h5").code == 0
    write_dataset(path, replace(read_dataset(Path("good.h5")), horizon=30, queries={}))


def test_training_refuses_a_horizon_that_no_subject_teaches(tmp_path: Path, call: Call) -> None:
    impossible(call, tmp_path / "bad.h5")
    for method in ("last-value", "ridge", "costar"):
        start = ["--from", "scratch"] if method == "costar" else []
        run = call("finetune", "--method", method, *start, *FEW, "--data", "bad.h5")
        assert (run.code, "31 observed steps" in run.err) == (ExitCode.DATA, True), run.err
        assert "a horizon of at most 11" in run.err


def test_evaluate_says_that_the_series_are_too_short_not_that_a_model_is_missing(tmp_path: Path, call: Call) -> None:
    impossible(call, tmp_path / "bad.h5")
    assert call("finetune", "--method", "last-value", "--data", "good.h5").code == 0
    run = call("evaluate", "--data", "bad.h5", "--no-plots")
    assert run.code == ExitCode.MISMATCH
    assert "no source/test subject has the 31 steps" in run.err
    assert "with a horizon of at most 11" in run.err
    assert "`costar finetune --domain source`" not in run.err


def test_doctor_claims_no_more_than_that_a_file_can_be_opened(workspace: Path, call: Call) -> None:
    with h5py.File(workspace / "data.h5", "r+") as file:
        names: list[str] = []
        file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
        numbers = next(file[name] for name in names if name.endswith("outcomes"))
        numbers[0] = numbers[0] + 1
    run = call("doctor", "-w", workspace)
    line = next(line for line in run.out.splitlines() if "data.h5" in line)
    assert (run.code, line.split()[0]) == (0, "readable"), run.err
    assert "`costar verify FILE` checks every byte" in run.err
    assert call("verify", workspace / "data.h5").code == ExitCode.ARTIFACT


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("crm", "crn"), ("cnr", "crn"), ("rigde", "ridge"), ("gent", "gnet"), ("CT", "ct"), ("last", "last-value")],
)
def test_the_nearest_method_takes_the_fewest_edits(typed: str, meant: str, call: Call) -> None:
    assert nearest(typed, METHODS) == meant
    for run in (
        call("finetune", "--method", typed),
        call("benchmark", "tumor", "--methods", typed, "--list"),
    ):
        assert run.code == ExitCode.USAGE
        assert f"did you mean `{meant}`?" in run.err


def test_nothing_is_suggested_for_what_is_far_from_all_names() -> None:
    assert nearest("zebra", ["crn", "ct"]) is None
    assert nearest("x", []) is None


@pytest.mark.parametrize(
    ("typed", "known", "meant"),
    [
        ("D", ["C", "A", "B"], None),
        ("on", ["N", "Y"], None),
        ("0", ["70", "60", "50"], None),
        ("AB", ["AC", "B"], None),
        ("100", ["10", "1000"], None),
        ("2.5", ["2", "2.0"], None),
        ("d", ["C", "D"], "D"),
        (" D", ["C", "D"], "D"),
        ("7", ["70", "07", "17"], "07"),
        ("N-17", ["N-171", "N-017"], "N-017"),
        ("0.5", ["0.05", "00.5"], "00.5"),
    ],
)
def test_of_a_short_name_or_a_number_only_another_spelling_is_offered(typed, known, meant) -> None:
    assert nearest(typed, known) == meant


def test_a_mistyped_file_is_answered_with_the_file_beside_it(workspace: Path, call: Call) -> None:
    run = call("evaluate", "-w", workspace, "--model", workspace / "modle.h5")
    assert run.code == ExitCode.ARTIFACT
    assert f"did you mean `{workspace / 'model.h5'}`?" in run.err
    run = call("finetune", "-w", workspace, "--data", workspace / "dta.h5")
    assert f"did you mean `{workspace / 'data.h5'}`?" in run.err
    run = call("evaluate", "-w", workspace, "--model", workspace / "data.h5")
    assert "the file holds a dataset, not a model" in run.err
    run = call("evaluate", "-w", workspace, "--data", workspace / "encoder.h5")
    assert "the file holds an encoder, not a dataset" in run.err


def test_a_mistyped_file_is_never_answered_with_a_file_of_another_kind(workspace: Path, call: Call) -> None:
    (workspace / "modem.h5").write_bytes(b"no artifact")
    run = call("evaluate", "-w", workspace, "--model", workspace / "modee.h5")
    assert f"did you mean `{workspace / 'model.h5'}`?" in run.err
    (workspace / "data.h5").rename(workspace / "cohort.h5")
    (workspace / "encoder.h5").rename(workspace / "dato.h5")
    run = call("evaluate", "-w", workspace, "--data", workspace / "data.h5")
    assert run.code == ExitCode.ARTIFACT
    assert "did you mean" not in run.err


@pytest.mark.parametrize(
    ("plan", "fix"),
    [
        ({"origin": "2024-01-05", "plans": {"a": [{}]}}, "tables whose times are dates keep them"),
        ({"origin": 4, "plans": {"a": [{}] * 9}}, "give 1 to 3 steps"),
        ({"origin": 4, "plans": {"a": [{"chemo": 1}]}}, "treatments of this data set: chemotherapy"),
    ],
)
def test_the_fix_of_a_plan_is_about_what_is_wrong_with_it(
    plan: object, fix: str, trained: Path, tmp_path: Path, call: Call
) -> None:
    (tmp_path / "p.json").write_text(json.dumps(plan))
    run = call("whatif", "-w", trained, "--subject", 1, "--plan", tmp_path / "p.json")
    assert run.code == ExitCode.USAGE
    assert f"fix:   {fix}" in run.err
    assert run.err.count("treatments of this data set") == fix.count("treatments of this data set")


def test_a_level_that_is_no_probability_is_the_flags_fault(trained: Path, plan: Path, call: Call) -> None:
    run = call("whatif", "-w", trained, "--subject", 1, "--plan", plan, "--level", 95)
    assert run.code == ExitCode.USAGE
    assert "level 95 is not above 0 and below 1" in run.err
    assert "where: --level" in run.err
    assert "such as 0.95" in run.err
    run = call("whatif", "-w", trained, "--subject", 1, "--plan", plan, "--reference", "nobody")
    assert "where: --reference" in run.err
    assert "subject" not in run.err.split("error:")[1]


def test_all_that_is_wrong_with_a_table_is_said_at_once(call: Call) -> None:
    text = table_of(12)
    for old, new in (("\n0,3,9,", "\n0,3,high,"), ("\n1,2,", "\n1,soon,"), ("\n2,5,", "\n2,4,"), ("6,0,9,", "6,0,9,x")):
        assert old in text
        text = text.replace(old, new, 1)
    Path("t.csv").write_text(text)
    Path("s.toml").write_text(SCHEMA.format(horizon=3))
    run = call("ingest", "table", "t.csv", "--schema", "s.toml")
    assert run.code == ExitCode.DATA
    assert "has 4 problems" in run.err
    for problem in ("not numeric", "first 'soon'", "contradicts row", "not a level: 'xnone'"):
        assert problem in run.err, problem


def test_unknown_levels_of_subjects_that_are_left_out_are_no_problem(call: Call) -> None:
    Path("t.csv").write_text(table_of(12) + "99,0,3,wrong\n")
    Path("s.toml").write_text("min_length = 3\n" + SCHEMA.format(horizon=3))
    run = call("ingest", "table", "t.csv", "--schema", "s.toml")
    assert run.code == 0, run.err
    assert "1 subject with fewer than 3 steps left out" in run.err


@pytest.mark.parametrize(
    ("words", "where", "fix"),
    [
        (["simulate", "tumour"], "`costar simulate`", "`costar simulate --help` lists its commands"),
        (["simulte"], "`costar`", "`costar --help` lists its commands"),
        (["simulate", "tumor", "--trian", "40"], "`costar simulate tumor`", "did you mean `--train`? `costar"),
        (["whatif", "--bogus"], "`costar whatif`", "fix:   `costar whatif --help` lists its options"),
        (["whatif", "--plan"], "`costar whatif`", "`costar whatif --help` lists its options"),
        (["whatif", "--subject", "--plan", "p.json"], "`costar whatif`", "`costar whatif --help` says what it takes"),
    ],
)
def test_a_mistyped_line_names_its_command_and_no_far_flag(words: list[str], where: str, fix: str, call: Call) -> None:
    run = call(*words)
    assert (run.code, run.out) == (ExitCode.USAGE, "")
    assert f"where: {where}\n" in run.err
    assert fix in run.err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["whatif", "--subject", "--plan", "p.json"], "`--subject` has no value: `--plan` follows it"),
        (["simulate", "tumor", "--gamma", "--overwrite"], "`--gamma` has no value: `--overwrite` follows it"),
        (["simulate", "tumor", "--horizon", "six"], "invalid value for '--horizon': expected a whole number"),
        (["simulate", "tumor", "--gamma", "high"], "invalid value for '--gamma': expected a number"),
    ],
)
def test_a_value_that_is_none_is_told_in_plain_words(words: list[str], problem: str, call: Call) -> None:
    run = call(*words)
    assert run.code == ExitCode.USAGE
    assert f"error: {problem}\n" in run.err
