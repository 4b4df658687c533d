"""The comparison of rules that choose a method: what it picks, and how it sums that up."""

from pathlib import Path

import pytest

from benchmarks import choice_of_method as choice
from benchmarks.comparing import Row, read, write
from costar_cli.data.linear.settings import LinearGaussianConfig
from costar_cli.data.linear.simulate import simulate_linear
from costar_cli.data.store import write_dataset
from costar_cli.reporting import NullReporter


def row(data: str, name: str, *values: float) -> Row:
    fields = ("raw", "relative", "plans", "zero_shot", "supervised")
    return {"data": data, "name": name} | dict(zip(fields, map(str, values), strict=True))


def stacks(data: str, zero_shot: float, supervised: float) -> list[Row]:
    both = {"zero_shot": str(zero_shot), "supervised": str(supervised), "raw": "", "relative": "", "plans": ""}
    return [{"data": data, "name": f"stack {errors}", **both} for errors in ("observed", "plans")]


def test_a_summary_counts_right_picks_and_says_how_much_worse_the_others_are() -> None:
    rows = [row("a1", "x", 1, 1, 2, 4.0, 1.0), row("a1", "y", 2, 2, 1, 2.0, 2.0), *stacks("a1", 1.0, 1.5)]
    rows += [row("a2", "x", 1, 2, 2, 1.0, 1.0), row("a2", "y", 2, 1, 1, 2.0, 1.5), *stacks("a2", 1.0, 1.0)]
    _, _, zero_shot, supervised, *_ = choice.summary(rows).splitlines()
    cells = [cell.strip() for cell in zero_shot.split("|")[1:-1]]
    assert cells == [
        "a", "zero-shot", "y 1, x 1", "1 of 2; +50 % (+100 %)", "0 of 2; +100 % (+100 %)", "1 of 2; +50 % (+100 %)",
        "-25 % (+0 %)", "-25 % (+0 %)",
    ]  # fmt: skip
    assert [cell.strip() for cell in supervised.split("|")[3:5]] == ["x", "2 of 2; +0 % (+0 %)"]


def test_a_run_scores_every_part_and_both_stacks_and_keeps_rows_of_other_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = {"train": 40, "val": 20, "test": 5, "target_train": 2, "target_val": 2, "target_test": 5, "steps": 12}
    dataset = simulate_linear(LinearGaussianConfig(**sizes, horizon=3, seed=3), NullReporter())
    write_dataset(tmp_path / "linear3.h5", dataset)
    table = tmp_path / "table.csv"
    write(table, [row("other1", "x", 1, 1, 1, 1, 1), *stacks("other1", 1, 1)], choice.FIELDS)
    assert choice.main([str(tmp_path / "linear3.h5"), "--parts", "last-value,ridge", "--out", str(table)]) == 0
    rows = read(table)
    stacks_of = ["stack observed", "stack plans"]
    assert [r["name"] for r in rows] == ["x", *stacks_of, "last-value", "ridge", *stacks_of, "stack unguarded", "limit"]
    found = {r["name"]: r for r in rows[3:]}
    assert float(found["ridge"]["raw"]) == pytest.approx(float(found["ridge"]["relative"]))  # an outcome of any sign
    assert float(found["ridge"]["plans"]) != pytest.approx(float(found["ridge"]["relative"]), rel=1e-3)
    worst = max(float(found[name]["zero_shot"]) for name in ("last-value", "ridge"))
    assert 0 < float(found["stack plans"]["zero_shot"]) <= worst
    assert float(found["limit"]["zero_shot"]) == 0  # answers are expectations, which the simulator knows
    assert choice.main([str(tmp_path / "linear3.h5"), "--limits", "--out", str(table)]) == 0
    assert read(table) == rows
    assert "| linear | zero-shot |" in capsys.readouterr().out
    again = choice.summary(rows)
    assert choice.main([str(table), "--summary"]) == 0
    assert capsys.readouterr().out == again + "\n"
