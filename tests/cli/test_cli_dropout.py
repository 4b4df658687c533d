"""Weights against loss of follow-up on the command line: how documents tell them, and the rows that they weigh."""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from cli_world import DOCUMENTS, Run, write_ward

EVALUATE = ["evaluate", "--no-plots", "--bootstrap", 0, "--json", "--quiet"]


@pytest.fixture
def weighed(tmp_path: Path, call: Callable[..., Run]) -> dict[str, Any]:
    """The evaluation, with weights, of a ward that those with high pressure leave early; its rows are in `rows.csv`."""
    rng, lines = np.random.default_rng(1), ["patient,day,lost,pressure,drug"]
    for patient in range(90):
        level = rng.normal(80, 10)
        last = 7 if rng.random() > (level > 82) * 0.8 else int(rng.integers(2, 6))
        for day in range(last + 1):
            drug, pressure = ("none", "drug")[rng.integers(2)], level + rng.normal()
            lines.append(f"{patient},{day},{int(day == last < 7)},{pressure:.1f},{drug}")
    ingest = write_ward(tmp_path, lines, horizon=2, more='lost = { role = "censored" }')
    for words in (ingest, ["finetune", "--method", "ridge"]):
        assert call(*words).code == 0
    return call(*EVALUATE, "--ipcw", "--predictions", "rows.csv").document


def test_documents_describe_weights_and_errors_without_them(weighed: dict[str, Any]) -> None:
    result = weighed["result"]
    assert result["dropout"][0]["lost"] > 0
    assert result["rows"][0]["unweighted"]["average"] != result["rows"][0]["mean"]["average"]
    for name in result["dropout"][0]:
        wrong = deepcopy(weighed)
        wrong["result"]["dropout"][0]["renamed"] = wrong["result"]["dropout"][0].pop(name)
        assert not DOCUMENTS.is_valid(wrong), name
    for place, value in ((result["rows"][0]["unweighted"], "average"), (result["dropout"][0], "effective")):
        kept, place[value] = place[value], "many"
        assert not DOCUMENTS.is_valid(weighed), value
        place[value] = kept


def test_predictions_have_the_weights_of_their_errors(
    weighed: dict[str, Any], tmp_path: Path, call: Callable[..., Run]
) -> None:
    rows = pl.read_csv(tmp_path / "rows.csv")
    rows = rows.filter(pl.col("setup") == weighed["result"]["rows"][0]["setup"])
    error = (pl.col("estimate") - pl.col("truth")) ** 2
    by_step = rows.group_by("step").agg(rmse=((error * pl.col("weight")).sum() / pl.col("weight").sum()).sqrt())
    steps = weighed["result"]["rows"][0]["mean"]["steps"]
    assert by_step.sort("step")["rmse"].to_list() == pytest.approx(steps, rel=1e-4)
    assert call(*EVALUATE, "--predictions", "plain.csv", "--overwrite").code == 0
    assert "weight" not in pl.read_csv(tmp_path / "plain.csv").columns
