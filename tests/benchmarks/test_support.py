"""The benchmark of lights: what AUROC is, and a run that tells every light of every kind of question."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks import support
from benchmarks.comparing import read
from costar_cli.data.linear.settings import LinearGaussianConfig
from costar_cli.data.linear.simulate import simulate_linear
from costar_cli.data.store import write_dataset
from costar_cli.reporting import NullReporter


def test_auroc_is_how_often_a_bad_answer_has_the_larger_number() -> None:
    bad = np.array([False, False, True, True])
    assert support.auroc(np.array([1.0, 2.0, 3.0, 4.0]), bad) == 1
    assert support.auroc(np.array([4.0, 1.0, 3.0, 3.0]), bad) == 0.5
    assert support.auroc(np.ones(4), bad) == 0.5
    assert np.isnan(support.auroc(np.ones(2), np.ones(2, bool)))


def test_a_run_tells_every_light_and_the_summary_reads_it_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = {"train": 40, "val": 20, "test": 8, "target_train": 2, "target_val": 2, "target_test": 8, "steps": 12}
    write_dataset(tmp_path / "linear3.h5", simulate_linear(LinearGaussianConfig(**sizes, horizon=3), NullReporter()))
    table = tmp_path / "table.csv"
    assert support.main([str(tmp_path / "linear3.h5"), "--methods", "ridge", "--out", str(table)]) == 0
    rows = read(table)
    assert {row["questions"] for row in rows} == {"windows", "test sets", "first treatment", "random"}
    assert {row["light"] for row in rows} == {"precision", "rarest step", "course", "practice", "together"}
    for row in rows:
        if row["light"] == "precision":  # a single black box is not judged by its spread
            assert {row[f"share_{rating}"] for rating in support.SUPPORT_LEVELS} == {""}
            continue
        assert sum(float(row[f"share_{rating}"]) for rating in support.SUPPORT_LEVELS) == pytest.approx(1, abs=1e-3)
    first = capsys.readouterr().out
    assert support.main([str(table), "--summary"]) == 0
    assert capsys.readouterr().out == first
