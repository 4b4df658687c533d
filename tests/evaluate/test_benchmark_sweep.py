"""Sweeps: the errors of several benchmarks side by side, however much of each is there."""

import csv
import io

import pytest

from costar_cli.cli.benchmarking.sweep import Sweep, show_sweep, sweep_csv, sweep_latex, sweep_markdown, write_sweep
from costar_cli.reporting.output import Output
from tests.evaluate.benchmark_worlds import constant_errors, limit, report, score, tables


def benchmark(errors, *, bound=0.5):
    made = [score(name, constant_errors([[error], [error + 0.2]])) for name, error in errors.items()]
    limits = [limit(constant_errors([[bound]]))]
    return report(tables(made, horizon=1, name="linear-gaussian", limits=limits), horizon=1)


@pytest.fixture(scope="module")
def sweep():
    return Sweep({0.0: benchmark({"last-value": 3, "costar": 1}), 4.0: benchmark({"last-value": 3, "msm": 2})})


def test_a_row_has_its_average_at_every_strength_and_none_where_it_was_not_made(sweep):
    [table] = sweep.tables
    found = {row.name: (row.mean.steps, row.sd and row.sd.steps) for row in table.rows}
    assert set(found) == {"last-value", "costar", "msm"}
    assert found["last-value"][0] == pytest.approx((3.1, 3.1))
    assert found["costar"][0] == (pytest.approx(1.1), None)
    assert found["msm"][0] == (None, pytest.approx(2.1))
    assert found["costar"][1] == (pytest.approx(0.02**0.5), None)
    assert table.limit.mean.steps == (0.5, 0.5)


def test_every_form_has_the_strengths_as_columns(sweep, capsys):
    markdown, latex = sweep_markdown(sweep), sweep_latex(sweep)
    assert "| Method | gamma = 0 | gamma = 4 | 4 minus 0 |" in markdown
    assert "| **1.1000±0.1414** |  |" in markdown
    assert r"Method & $\gamma=0$ & $\gamma=4$ & 4 minus 0 \\" in latex
    assert latex.count(r"\midrule") == 2
    assert r"\textbf{2.1000$\pm$0.1414}" in latex
    show_sweep(Output(), sweep)
    assert "gamma=0" in capsys.readouterr().out


def test_the_csv_has_every_row_of_every_benchmark_behind_its_strength(sweep):
    rows = list(csv.DictReader(io.StringIO(sweep_csv(sweep))))
    assert [(row["gamma"], row["name"]) for row in rows] == [
        ("0.0", "last-value"), ("0.0", "costar"), ("0.0", "limit"), ("4.0", "last-value"), ("4.0", "msm"),
        ("4.0", "limit"),
    ]  # fmt: skip
    assert float(rows[0]["tau1_mean"]) == pytest.approx(3.1)


def test_the_document_has_the_rows_of_the_table_and_each_benchmark(sweep):
    document = sweep.to_json()
    assert document["values"] == [0.0, 4.0]
    assert [row["name"] for row in document["rows"]] == ["last-value", "costar", "msm", "limit"]
    assert [len(one["tables"]) for one in document["benchmarks"]] == [1, 1]


def test_the_curve_is_drawn_even_of_a_single_strength_and_of_nothing_made(sweep, tmp_path):
    write_sweep(Output(quiet=True), sweep, tmp_path, plots=True)
    assert (tmp_path / "plots" / "sweep.png").read_bytes().startswith(b"\x89PNG")
    write_sweep(Output(quiet=True), Sweep({4.0: sweep.reports[4.0]}), tmp_path, plots=True)
    empty = Sweep({1.0: report([])})
    write_sweep(Output(quiet=True), empty, tmp_path, plots=True)
    assert sweep_csv(empty).strip() == ""
    show_sweep(Output(), empty)
