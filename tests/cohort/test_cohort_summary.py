"""What a question about many subjects comes to, for library and command line alike."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from costar_cli.api import cohorts
from costar_cli.config.requests import WhatIfRequest
from costar_cli.errors import UsageError
from costar_cli.questions import Question, choose_subjects, join_columns, join_places
from tests.whatif.whatif_worlds import TUMOR, LinearModel, make_dataset, request_of

PLANS = {"watch": [{}] * 3, "chemo": [{"chemotherapy": 1}] * 3}


def asked(**options: object) -> Question:
    dataset = make_dataset()
    places = choose_subjects(dataset, "all")
    return Question.read(
        WhatIfRequest(**options), {"linear": LinearModel(TUMOR)}, join_places(dataset, places), places,
        lambda *_: request_of(PLANS), dataset=dataset,
    )  # fmt: skip


def test_kept_rows_a_table_and_means_are_of_the_same_answers(tmp_path: Path):
    found = cohorts.answer_many(asked(), csv=tmp_path / "a.parquet", keep=True)
    rows, table = join_columns(found.tables), pl.read_parquet(tmp_path / "a.parquet")
    np.testing.assert_array_equal(rows["estimate"], table["estimate"])
    summary = found.summary()
    assert (summary["cohort"]["subjects"], summary["answers"], summary["plans"]) == (12, 24, 2)
    assert "shard" not in summary
    for row in summary["models"]["linear"]["plans"]:
        last = (rows["plan"] == row["plan"]) & (rows["step"] == 3) & (rows["outcome"] == row["outcome"])
        assert row["mean_at_end"] == pytest.approx(rows["estimate"][last].mean())


def test_averages_are_beside_the_means_and_write_no_rows(tmp_path: Path):
    found = cohorts.answer_many(asked(average=True), csv=tmp_path / "a.parquet")
    assert not (tmp_path / "a.parquet").exists()
    [effects] = found.averages
    ends = {row["plan"]: row["mean_at_end"] for row in found.summary()["models"]["linear"]["plans"]}
    mean_P = effects.outcomes.mean_GPHY[0, :, -1, 0]
    assert dict(zip(ends, mean_P.tolist(), strict=True)) == pytest.approx(ends)


def test_very_many_rows_are_not_kept(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cohorts, "MOST_KEPT", 71)  # of 12 subjects, 2 plans and 3 steps
    with pytest.raises(UsageError, match="72 rows; at most 71"):
        cohorts.answer_many(asked(), keep=True)
