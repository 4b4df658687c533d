"""The table of predictions holds what the scores of an evaluation were made of."""

import evaluate_worlds as worlds
import numpy as np
import polars as pl
import pytest

from costar_cli.config.models import EvaluateConfig
from costar_cli.evaluation import run_evaluation
from costar_cli.evaluation.predictions import predicted_rows
from costar_cli.evaluation.run import part_to_score
from costar_cli.evaluation.setups import plan_jobs
from costar_cli.files.tables import table_file
from costar_cli.questions import join_columns

NOISE = worlds.independent_noise(0.5)


def rows_of(data, candidate, setup):
    (job,) = plan_jobs(data, [candidate], [setup])
    return join_columns([rows for _, rows in predicted_rows(job, part_to_score(data, job.setup.test), level=0.9)])


@pytest.mark.parametrize("members", [1, 3])
def test_errors_of_the_rows_are_those_of_the_evaluation(members):
    data = worlds.dataset(outcomes=2)
    candidate = worlds.candidate(worlds.oracle(data, members=members, error=NOISE))
    row = run_evaluation(data, [candidate], EvaluateConfig(bootstrap=0), setups=["zero-shot"]).row(
        "zero-shot", "COSTAR"
    )
    table = rows_of(data, candidate, "zero-shot")
    per_step = row.ensemble.steps if members > 1 else row.mean.steps
    for step, error in enumerate(per_step, start=1):
        at = table["step"] == step
        squares = (table["estimate"][at] - table["truth"][at]).astype(float) ** 2
        assert np.sqrt(2 * squares.mean()) == pytest.approx(error, rel=1e-5)  # errors of two outcomes are summed
    assert np.isnan(table["members_sd"].astype(float)).all() == (members == 1)


def test_rows_say_what_was_asked_and_whose_truth_it_is():
    data = worlds.dataset()
    table = rows_of(data, worlds.candidate(worlds.oracle(data)), "supervised")
    assert set(table["setup"]) == {"supervised"}
    assert set(table["kind"]) <= {"counterfactual", "factual"}
    assert set(zip(table["domain"], table["split"], strict=True)) == {("source", "test")}
    assert (table["time"] == table["origin"] + table["step"]).all()
    sets = next(sets for part, sets in data.queries.items() if str(part) == "source/test")
    assert {len(plan.split(", ")) for plan in table["plan"]} == {queries.horizon for queries in sets.values()}


def test_models_of_one_and_of_several_members_share_a_parquet_file(tmp_path):
    data = worlds.dataset()
    tables = [rows_of(data, worlds.candidate(worlds.oracle(data, members=n)), "zero-shot") for n in (2, 1)]
    with table_file(tmp_path / "rows.parquet") as file:
        for table in tables:
            file.write(table)
    spread = pl.read_parquet(tmp_path / "rows.parquet")["members_sd"].to_list()
    assert [value is None for value in spread] == [False] * len(tables[0]["step"]) + [True] * len(tables[1]["step"])
