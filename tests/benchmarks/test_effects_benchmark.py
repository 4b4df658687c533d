"""The benchmark of effects: what it makes of repetitions, how it goes on, and what its tables say of goals."""

import argparse
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from benchmarks import effects
from benchmarks.effects_samples import sample
from benchmarks.effects_table import table


def line(seed: int, *rows: tuple[Any, ...]) -> dict[str, Any]:
    return {
        "seed": seed,
        "commit": "a",
        "subjects": 100,
        "seconds": {"all": 1.0 + seed},
        "rows": [list(row) for row in rows],
    }


def two(world: str) -> list[dict[str, Any]]:
    """Two repetitions of SDR, of which one covers, and one of too few effective subjects."""
    truth = effects.CASES[world].truth["always", "y"] - effects.CASES[world].truth["never", "y"]
    row = ("sdr", "difference", "always", "y")
    best = ("known g-formula", "difference", "always", "y", truth + 0.1, None, None, None)
    return [line(0, (*row, truth + 0.1, truth - 1, truth + 1, 80.0), best),
            line(1, (*row, truth + 0.3, truth + 0.2, truth + 1, 20.0), best)]  # fmt: skip


def test_a_summary_has_bias_error_and_coverage_of_contrasts() -> None:
    sdr, best = effects.summary("overlap", two("overlap"))
    assert sdr["truth"] == pytest.approx(-2.6501)
    assert (sdr["bias"], sdr["rmse"]) == (pytest.approx(0.2), pytest.approx(0.05**0.5, abs=1e-4))
    assert (sdr["coverage"], sdr["coverage_supported"], sdr["supported"]) == (0.5, 1.0, 1)
    assert (sdr["flagged"], sdr["effective"]) == (0.5, 50.0)
    assert best["coverage"] is None


def test_tables_say_which_goals_are_missed() -> None:
    worlds = {
        name: {"seconds": {"all": 1.0}, "rows": effects.summary(name, two(name))} for name in ("overlap", "trial")
    }
    lines = table({"worlds": worlds, "timing": {"seconds": 12.0, "peak_gb": 3.0}}).splitlines()
    assert any(
        line.startswith("| SDR over the correct g-formula") and "2.24 | 1.30 | **missed**" in line for line in lines
    )
    assert any(line.startswith("| 10,000 subjects") and line.endswith("| met |") for line in lines)
    assert any(line.startswith("| the same: GB | 3.00") and "missed" in line for line in lines)
    assert any(line.startswith("| overlap | 100 % of 1 |") for line in lines)


def test_a_run_goes_on_after_the_last_whole_repetition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class Now:  # a pool that asks at once
        def __init__(self, workers: int) -> None: ...
        def __enter__(self) -> "Now":
            return self

        def __exit__(self, *_: object) -> None: ...
        def submit(self, one: Any, seed: int) -> Any:
            asked.append(seed)
            return argparse.Namespace(result=lambda: line(seed))

    monkeypatch.setattr(effects, "ProcessPoolExecutor", Now)
    monkeypatch.setattr(effects, "as_completed", list)
    options = argparse.Namespace(out=tmp_path, repetitions=4, subjects=100, workers=1, econml=None)
    path = tmp_path / "linear.jsonl"
    path.write_text(json.dumps(line(2)) + "\n" + json.dumps(line(0))[:-5], "utf-8")
    effects.run("linear", options)
    assert asked == [0, 1, 3]
    assert sorted(each["seed"] for each in effects.stored(path)) == [0, 1, 2, 3]
    effects.run("linear", options)
    assert asked == [0, 1, 3]


def test_an_event_of_the_sample_data_shows_at_the_row_after() -> None:
    columns = {"id": [1, 1, 1, 2, 2, 3], "t0": [0, 1, 2, 0, 1, 0], "L1": [0, 1, 0, 1, 1, 0], "L2": [0.5, 1, 2, 3, 4, 5],
               "L3": [5, 5, 5, 6, 6, 7], "A": [1, 0, 1, 1, 1, 0], "D": [0, 0, 0, 0, 0, 1],
               "Y": [0, 0, 0, 0, 1, None]}  # fmt: skip
    dataset = sample("basicdata", pl.DataFrame(columns))
    (panel,) = dataset.panels.values()
    assert dataset.horizon == 3
    assert panel.length.tolist() == [4, 3, 2]
    assert panel.ends.tolist() == [0, 1, 2]
    assert panel.treatments[0, :, 0].tolist() == [1, 0, 1, 0]
    assert panel.statics[:, 0].tolist() == [5, 6, 7]
    assert panel.observed_outcomes[..., 0].sum(axis=1).tolist() == [3, 2, 1]
