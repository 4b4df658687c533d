"""The benchmark of bounds under hidden confounding keeps what it measured."""

from pathlib import Path

from benchmarks import sensitivity
from benchmarks.comparing import read


def test_rows_are_stored_and_those_of_other_methods_kept(tmp_path: Path, monkeypatch, capsys) -> None:
    sizes = {"train": 60, "val": 30, "test": 10, "target_test": 2, "target_val": 2, "steps": 14}
    monkeypatch.setattr(sensitivity, "WORLDS", {"linear": ("linear", {"drop_confounder": True, **sizes})})
    out = tmp_path / "rows.csv"
    for method in ("msm", "ridge"):
        assert sensitivity.main([method, "--out", str(out)]) == 0
    stored = read(out)
    assert [(row["method"], row["step"]) for row in stored] == [
        (m, str(s)) for m in ("ridge", "msm") for s in (1, 2, 4, 6)
    ]
    assert all(float(row["lower_3"]) < float(row["lower_1.1"]) < float(row["upper_1.1"]) for row in stored)
    assert capsys.readouterr().out.count("| linear | msm |") == 4
