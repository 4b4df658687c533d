"""The benchmark of calibration: what it measures, and what its tables say of its goals."""

from pathlib import Path

import pytest

from benchmarks import calibration
from benchmarks.comparing import Row, read
from costar_cli.data.linear.settings import LinearGaussianConfig
from costar_cli.data.linear.simulate import simulate_linear
from costar_cli.data.store import write_dataset
from costar_cli.reporting import NullReporter


def row(data: str, method: str, queries: str, *coverage: float) -> Row:
    shares = {f"coverage_{level}": str(share) for level, share in zip(calibration.NOMINAL, coverage, strict=True)}
    return {"data": data, "method": method, "setup": "supervised", "queries": queries, **shares}


@pytest.mark.parametrize(
    ("data", "method", "queries", "allowed"),
    [
        ("tumor", "mixed", "factual", 0.02),
        ("tumor-default", "stack", "counterfactual", 0.03),
        ("linear", "mixed", "factual", 0.03),
        ("m5", "stack", "counterfactual", 0.05),
        ("mimic", "growth", "factual", 0.05),
        ("tumor", "growth", "counterfactual", None),
    ],
)
def test_goals_are_those_that_were_set(data: str, method: str, queries: str, allowed: float | None) -> None:
    assert calibration.goal(row(data, method, queries, 0.8, 0.9, 0.95)) == allowed


def test_a_miss_is_bold_and_told_with_its_figure() -> None:
    rows = [row("tumor", "mixed", "factual", 0.81, 0.86, 0.94), row("tumor", "mixed", "counterfactual", 0.8, 0.9, 0.93)]
    assert [calibration.shortfall(r) for r in rows] == [pytest.approx(0.02), 0.0]
    *_, line = calibration.table(rows)
    assert line == "| tumour | Mixed effects | **81.0 / 86.0 / 94.0** | 80.0 / 90.0 / 93.0 |  |  |  |  |"
    assert list(calibration.misses(rows)) == [
        "- Mixed effects, tumour, source, factual: 86.0 instead of 90, 2.0 points beyond the goal of ±2"
    ]


def test_a_run_scores_a_stack_and_its_parts_and_keeps_rows_of_other_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = {"train": 60, "val": 60, "test": 30, "target_train": 20, "target_val": 20, "target_test": 30, "steps": 12}
    dataset = simulate_linear(LinearGaussianConfig(**sizes, horizon=3, seed=3), NullReporter())
    write_dataset(tmp_path / "linear3.h5", dataset)
    out = tmp_path / "calibration.csv"
    words = [str(tmp_path / "linear3.h5"), "--methods", "stack", "--parts", "mixed,ridge", "--members", "1"]
    words += ["--out", str(out)]
    assert calibration.main(words) == 0
    rows = read(out)
    assert {(r["method"], r["setup"], r["queries"]) for r in rows} == {
        (method, setup, kind)
        for method in ("stack", "mixed", "ridge")
        for setup in ("zero-shot", "few-shot", "supervised")
        for kind in ("factual", "counterfactual", "differences")
        if (method, kind) != ("ridge", "differences")
    }
    assert all(0.6 < float(r["coverage_0.9"]) <= 1 for r in rows)
    clustered = [r for r in rows if r["queries"] != "differences"]
    assert all(float(r["lower_0.9"]) < float(r["coverage_0.9"]) < float(r["upper_0.9"]) for r in clustered)
    printed = capsys.readouterr().out
    assert calibration.main(["--table", str(out)]) == 0
    assert capsys.readouterr().out == printed
    assert '"commit"' in out.with_suffix(".json").read_text("utf-8")


def test_a_level_without_a_band_is_a_dash_and_no_miss() -> None:
    few = {**row("tumor", "mixed", "factual", 0.81, 0.86, 0.0), "coverage_0.95": ""}
    assert calibration.shortfall(few) == pytest.approx(0.02)
    *_, line = calibration.table([few])
    assert "**81.0 / 86.0 / -**" in line
    assert calibration.shortfall({**few, "coverage_0.8": "", "coverage_0.9": ""}) == 0.0
