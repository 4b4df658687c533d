"""Tables of one's own, as files and as frames of pandas and polars: one data set."""

import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

import costar_cli as costar
from costar_cli.cli.app import main
from costar_cli.data.store import with_digest
from costar_cli.errors import DataError, UsageError
from costar_cli.files import read_header
from costar_cli.reporting import NullReporter
from tests.cli.cli_world import REPOSITORY

OWN = REPOSITORY / "examples" / "own-data"
TABLE, SCHEMA = OWN / "small.csv", OWN / "schema.toml"


def read(tables: object, **options: object) -> costar.Dataset:
    return costar.read_table(tables, **({"schema": SCHEMA, "progress": NullReporter()} | options))


@pytest.fixture(scope="module")
def own() -> costar.Dataset:
    return read(TABLE)


def content(dataset: costar.Dataset) -> str:
    """The digest of a data set apart from where it comes from."""
    return with_digest(replace(dataset, fingerprint="", parents={}, digest="")).digest


def test_a_file_is_read_as_the_command_line_reads_it(own, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["ingest", "table", str(TABLE), "--schema", str(SCHEMA), "--out", "data.h5", "--quiet"]) == 0
    assert read_header(Path("data.h5")).digest == own.digest


def test_frames_of_both_libraries_are_read_as_the_file(own):
    assert content(read(pd.read_csv(TABLE))) == content(own)
    assert content(read(pd.read_csv(TABLE, parse_dates=["date"]).astype({"insulin": "category"}))) == content(own)
    assert content(read(pl.read_csv(TABLE))) == content(own)
    assert content(read(pl.read_csv(TABLE, try_parse_dates=True))) == content(own)
    halves = np.array_split(np.arange(len(pd.read_csv(TABLE))), 2)
    assert content(read([pd.read_csv(TABLE).iloc[rows] for rows in halves])) == content(own)


def test_a_frame_is_a_parent_that_is_known_again():
    frame = pl.read_csv(TABLE)
    assert read(frame).digest == read(frame.clone()).digest
    assert set(read(frame).parents) == {"table"}


def test_the_schema_can_be_a_dictionary(own):
    assert read(TABLE, schema=tomllib.loads(SCHEMA.read_text("utf-8"))).digest == own.digest


def test_statics_come_from_a_frame_of_their_own(own):
    table = pd.read_csv(TABLE)
    fixed = ["hospital", "age", "sex", "diabetes"]
    statics = table.groupby("patient", as_index=False)[fixed].first()
    assert content(read(table.drop(columns=fixed), statics=statics)) == content(own)


def test_the_whole_way_from_a_frame_to_an_answer(own):
    model = costar.fit(own, "ridge", progress=NullReporter())
    patients = pd.read_csv(TABLE)
    asked = model.predict(patients, [{"insulin": "basal"}], subject="patient", time="date", progress=NullReporter())
    known = model.predict(own, [{"insulin": "basal"}], progress=NullReporter())
    both = asked.merge(known, on="subject")
    assert len(both) == len(known) > 20
    np.testing.assert_allclose(both["estimate_x"], both["estimate_y"], rtol=1e-4)


@pytest.mark.parametrize(
    ("call", "error", "problem"),
    [
        (lambda: read(Path("nowhere.csv")), DataError, r"does not exist[\s\S]*nowhere.csv"),
        (lambda: read([[1, 2]]), UsageError, "cannot read a table from list"),
        (lambda: read(TABLE, seed=-1), UsageError, "-1 is not a valid seed"),
        (lambda: read(TABLE, schema={"name": "x"}), UsageError, "columns is missing"),
        (lambda: read(pd.read_csv(TABLE).drop(columns="carbs")), DataError, r"no column 'carbs'[\s\S]*the frame"),
        (lambda: read(pd.read_csv(TABLE).assign(carbs="much")), DataError, r"'much'[\s\S]*row 1 of the frame"),
    ],
)
def test_what_cannot_be_read_is_said_with_its_place(call, error, problem):
    with pytest.raises(error, match=problem):
        call()


def test_frames_of_new_subjects_are_answered_as_the_training_table_would_be(own):
    model = costar.fit(own, "ridge", progress=NullReporter())
    plans, known = {"basal": [{"insulin": "basal"}, {}]}, ["subject", "origin", "step", "estimate"]
    want = model.predict(own, plans, part="target/test", frame="pandas")[known]
    subjects = set(want["subject"])
    plain = pd.read_csv(TABLE).sample(frac=1, random_state=2)
    new = plain[plain["patient"].isin(subjects)]
    dated = new.assign(date=pd.to_datetime(new["date"]), sex=new["sex"].astype("category"))
    for frame in (
        new,
        dated,
        pl.read_csv(TABLE).filter(pl.col("patient").is_in(list(subjects))),
        new.rename(columns={"patient": "who", "date": "when"}),
    ):
        called = {"subject": "who", "time": "when"} if "who" in frame.columns else {}
        found = model.predict(frame, plans, frame="pandas", progress=NullReporter(), **called)[known]
        pd.testing.assert_frame_equal(found.reset_index(drop=True), want.reset_index(drop=True))
        made = costar.read_new_subjects(frame, like=model, progress=NullReporter(), **called)
        assert made.known_as == own.digest
    record = replace(model.fitted.record, preprocessing=None)
    old = replace(model, fitted=replace(model.fitted, record=record))  # knows the names of its variables alone
    one = new.sort_values("date").drop(columns="date")
    found = old.predict(one, plans, subject="patient", frame="pandas", progress=NullReporter())[known]
    pd.testing.assert_frame_equal(found.reset_index(drop=True), want.reset_index(drop=True))
