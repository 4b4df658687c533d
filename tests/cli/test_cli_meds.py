"""`costar ingest meds`: from a folder of events to answers with a known effect, new patients, and what it refuses."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from cli_world import Run

import costar_cli as costar
from costar_cli.errors import ExitCode
from tests.datasets.meds_world import EFFECT, make_rows, write_meds

Call = Callable[..., Run]
PLAN = {"plans": {"none": [{"drug": 0}, {"drug": 0}], "one": [{"drug": 1}, {"drug": 0}]}}


@pytest.fixture(scope="module")
def meds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_meds(tmp_path_factory.mktemp("meds") / "log", make_rows(150))
    (folder.parent / "plan.json").write_text(json.dumps(PLAN))
    return folder


def ingest(call: Call, folder: Path, workspace: Path, *more: object) -> Run:
    return call("ingest", "meds", folder, "--signals", folder / "signals.toml", "-w", workspace, *more)


def test_a_log_becomes_answers_with_the_known_effect(meds: Path, tmp_path: Path, call: Call) -> None:
    first = ingest(call, meds, tmp_path, "--json").document
    parts = {part["part"]: part["subjects"] for part in first["result"]["parts"]}
    assert parts == {"source/train": 90, "source/val": 30, "source/test": 30}, "train, tuning and held_out"
    counted = [one for one in first["diagnostics"] if one["code"] == "signal-counted"]
    assert {one["subject"] for one in counted} == {"pressure", "lactate", "fluids", "sex", "age", "death", "drug"}
    assert ingest(call, meds, tmp_path, "--json").document["status"] == "up_to_date"
    assert call("finetune", "--method", "ridge", "-w", tmp_path).code == 0
    # An hour at rate 1 lowers the next pressure by 3, of which half is left an hour later
    asked = ("whatif", "--subject", 5, "--plan", meds.parent / "plan.json", "-w", tmp_path, "--json")
    rows = call(*asked).document["result"]["estimates"]
    by_step = {(row["plan"], row["step"]): row["estimate"] for row in rows}
    assert by_step["one", 1] - by_step["none", 1] == pytest.approx(EFFECT, rel=0.05)
    assert by_step["one", 2] - by_step["none", 2] == pytest.approx(EFFECT / 2, rel=0.15)


def test_new_patients_are_read_as_the_log_of_the_model_was(meds: Path, tmp_path: Path, call: Call) -> None:
    assert ingest(call, meds, tmp_path).code == 0
    assert call("finetune", "--method", "ridge", "-w", tmp_path).code == 0
    rows = [row for row in make_rows(150) if row["subject_id"] in (5, 10)]
    new = write_meds(tmp_path / "new", [row for row in rows if row["code"] != "MEDS_DEATH"], splits=False, shards=1)
    model = tmp_path / "model-ridge.h5"
    run = call("ingest", "meds", new, "--like", model, "-w", tmp_path)
    assert run.code == 0, run.err
    read = costar.read_dataset(tmp_path / "new.h5")
    known = costar.read_dataset(tmp_path / "data.h5")
    one, all_ = read.panel("source", "test"), known.panel("source", "test")
    at, of = list(all_.subject_id).index(5), list(one.subject_id).index(5)
    length = int(one.length[of])
    assert (one.outcomes[of, :length] == all_.outcomes[at, :length]).all(), "to the last bit"
    assert (one.covariates[of, :length] == all_.covariates[at, :length]).all()
    assert (one.treatments[of, :length] == all_.treatments[at, :length]).all()
    plan = meds.parent / "plan.json"
    answer = call(
        "whatif", "--subjects", "all", "--plan", plan, "-w", tmp_path, "--data", tmp_path / "new.h5", "--json"
    )
    assert answer.code == 0, answer.err


def test_python_reads_the_same_log(meds: Path, tmp_path: Path, call: Call) -> None:
    ingest(call, meds, tmp_path)
    read = costar.read_events(meds, signals=meds / "signals.toml")
    assert read.digest == costar.read_dataset(tmp_path / "data.h5").digest
    with pytest.raises(costar.CostarError, match="was not made of a log"):
        costar.read_events(meds, like=costar.simulate("linear", preset="quick", train=20, seed=1))


def test_proposed_signals_are_refused_until_settled_and_then_read(meds: Path, tmp_path: Path, call: Call) -> None:
    out = tmp_path / "signals.toml"
    run = call("ingest", "meds", meds, "--init", "--out", out)
    assert run.code == 0, run.err
    text = out.read_text()
    assert 'stop = { code = "INFUSION_END//1" }, pair = "order_id"' in text
    assert 'prefix = "GENDER//"' in text
    assert 'prefix = "ICU_ADMISSION"' in text
    assert "unconfirmed guess" in call("ingest", "meds", meds, "--signals", out, "-w", tmp_path).err
    taken = call("ingest", "meds", meds, "--signals", out, "-w", tmp_path, "--accept-guesses")
    assert taken.code == 0, taken.err


def test_a_log_without_splits_is_split_by_shares(meds: Path, tmp_path: Path, call: Call) -> None:
    folder = shutil.copytree(meds, tmp_path / "log")
    (folder / "metadata" / "subject_splits.parquet").unlink()
    parts = ingest(call, folder, tmp_path / "w", "--seed", 3, "--json").document["result"]["parts"]
    assert sum(part["subjects"] for part in parts) == 150
    assert [part["subjects"] for part in parts] == [106, 22, 22]


def drop(log: Path, column: str) -> None:
    path = log / "data/any/0.parquet"
    pl.read_parquet(path).drop(column).write_parquet(path)


def cast(log: Path, column: str, kind: type[pl.DataType]) -> None:
    path = log / "data/any/0.parquet"
    pl.read_parquet(path).with_columns(pl.col(column).cast(kind)).write_parquet(path)


def twice(log: Path) -> None:
    path = log / "metadata/subject_splits.parquet"
    splits = pl.read_parquet(path)
    pl.concat([splits, splits.head(1).with_columns(split=pl.lit("held_out"))]).write_parquet(path)


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "no data": (lambda log: shutil.rmtree(log / "data"), "it has no folder `data`"),
    "no parquet": (
        lambda log: [path.unlink() for path in (log / "data").rglob("*.parquet")],
        "there is no Parquet file",
    ),
    "damaged": (lambda log: (log / "data/any/0.parquet").write_bytes(b"PAR1" + b"x" * 99), "data/any/0.parquet"),
    "no Parquet at all": (lambda log: (log / "data/any/0.parquet").write_text("a,b\n"), "not a Parquet file"),
    "no code": (lambda log: drop(log, "code"), "no column `code`"),
    "subjects as texts": (lambda log: cast(log, "subject_id", pl.String), "not whole numbers"),
    "a link out": (
        lambda log: (log / "data/x.parquet").symlink_to(log.parent / "out.parquet"),
        "leads out of the folder",
    ),
    "a link to a folder": (lambda log: (log / "data/more").symlink_to(log.parent), "a link to a folder"),
    "two splits": (twice, "several splits"),
    "two damaged": (lambda log: [(log / f"data/any/{i}.parquet").write_bytes(b"PAR1x") for i in (0, 1)], "2 problems"),
    "damaged codes": (lambda log: (log / "metadata/codes.parquet").write_bytes(b"PAR1x"), "metadata/codes.parquet"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_folder_that_cannot_be_used_is_one_error(what: str, tmp_path: Path, call: Call) -> None:
    if "link" in what and not hasattr(os, "symlink"):
        pytest.skip("no links here")
    log = write_meds(tmp_path / "log", make_rows(6))
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "out.parquet")
    spoil, expected = BAD[what]
    spoil(log)
    run = ingest(call, log, tmp_path / "w")
    assert run.code == ExitCode.DATA, run.err
    assert expected in run.err


def test_subjects_in_two_files_are_put_together_with_a_warning(meds: Path, tmp_path: Path, call: Call) -> None:
    log = write_meds(tmp_path / "log", make_rows(150), shards=1)
    path = log / "data/any/0.parquet"
    rows = pl.read_parquet(path).with_row_index("row")
    for half in (0, 1):
        own = rows.filter(pl.col("row") % 2 == half).drop("row")
        own.write_parquet(log / f"data/any/{half}.parquet")
    run = ingest(call, log, tmp_path / "w", "--json")
    told = {one["code"] for one in run.document["diagnostics"]}
    assert "subjects-in-files" in told
    read = costar.read_events(meds, signals=meds / "signals.toml")
    halves = costar.read_dataset(tmp_path / "w" / "data.h5")
    for part, panel in read.panels.items():
        assert (panel.outcomes == halves.panels[part].outcomes).all()


def test_one_way_to_say_what_signals_there_are(meds: Path, tmp_path: Path, call: Call) -> None:
    run = call("ingest", "meds", meds, "-w", tmp_path)
    assert run.code == ExitCode.USAGE
    assert "--init" in run.err
    both = call("ingest", "meds", meds, "--init", "--signals", meds / "signals.toml", "-w", tmp_path)
    assert "choose one of them" in both.err
