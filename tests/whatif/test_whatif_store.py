"""What is written comes back as it was, or is not written at all."""

import csv
import json

import numpy as np
import polars as pl
import pytest
from whatif_worlds import TUMOR, LinearModel, make_dataset

from costar_cli.errors import StorageError
from costar_cli.files import read_artifact
from costar_cli.plans import parse_plans
from costar_cli.questions import COLUMNS, estimate_outcomes, write_csv, write_estimates

HEADER = ("dataset", "subject", "label", "domain", "split", "origin", *COLUMNS)


@pytest.fixture
def report():
    plans = {"watch": [{}] * 3, "chemo, then nothing": [{"chemotherapy": 1}, {}]}
    request = parse_plans(json.dumps({"plans": plans}), TUMOR.treatments, horizon=6)
    models = {"a": LinearModel(TUMOR), "b": LinearModel(TUMOR, coefficients=(-1.5,))}
    return estimate_outcomes(make_dataset(), models, request, subject=5, origin=8)


def test_csv_round_trip(tmp_path, report):
    path = tmp_path / "estimates.csv"
    write_csv(path, report)
    with path.open(newline="") as file:
        read = list(csv.DictReader(file))
    written = report.to_rows() + report.difference_rows()
    assert tuple(read[0]) == HEADER
    who = {"dataset": report.dataset, "subject": "5", "label": "5", "domain": "source", "split": "test", "origin": "8"}
    assert [who | {key: "" if value is None else str(value) for key, value in row.items()} for row in written] == read
    assert [float(row["estimate"]) for row in read] == [row["estimate"] for row in written]


def test_a_second_write_replaces_the_first_and_leaves_no_scraps(tmp_path, report):
    path = tmp_path / "estimates.csv"
    path.write_text("old")
    write_csv(path, report)
    assert path.read_text().startswith("dataset,subject,label,domain,split,origin,quantity,model,plan")
    assert [file.name for file in tmp_path.iterdir()] == ["estimates.csv"]


def test_a_missing_folder_is_a_storage_error(tmp_path, report):
    with pytest.raises(StorageError, match="cannot be written: No such file") as caught:
        write_csv(tmp_path / "none" / "estimates.csv", report)
    assert caught.value.where == str(tmp_path / "none" / "estimates.csv")


def test_the_artifact_holds_every_members_prediction(tmp_path, report):
    path = tmp_path / "estimates.h5"
    write_estimates(path, report, parents={"dataset": "ab" * 32}, fingerprint="f")
    artifact = read_artifact(path, kind="estimates")
    assert artifact.meta["fingerprint"] == "f"
    assert artifact.meta["subject"] == 5
    assert artifact.meta["plans"] == ["watch", "chemo, then nothing"]
    assert [model["label"] for model in artifact.meta["models"]] == ["a", "b"]
    assert artifact.parents == {"dataset": "ab" * 32}
    predictions = artifact.arrays["model/0/predictions"]
    assert predictions.shape == (3, 2, 3, 1)
    np.testing.assert_array_equal(predictions[:, 1, :2], report.models[0].estimates.members_RQHY[:, 1, :2])
    assert np.isnan(predictions[:, 1, 2]).all()
    assert artifact.arrays["plans/values"][1].tolist() == [[1, 0], [0, 0], [-1, -1]]
    assert artifact.arrays["plans/steps"].tolist() == [3, 2]
    assert artifact.arrays["history/outcomes"].shape == (9, 1)


def test_parquet_and_json_lines_hold_the_rows_of_the_csv_file(tmp_path, report):
    rows = report.to_rows() + report.difference_rows()
    for name, read in (("a.parquet", pl.read_parquet), ("a.jsonl", pl.read_ndjson)):
        write_csv(tmp_path / name, report)
        found = read(tmp_path / name)
        assert tuple(found.columns) == HEADER
        assert found.select(COLUMNS).rows(named=True) == rows
