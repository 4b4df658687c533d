"""The bound in a benchmark's tables, files and figure: shown and compared with, but neither ranked nor tested."""

import csv
import io
from dataclasses import replace

import numpy as np
import pytest

from costar_cli.cli.benchmarking.export import comparisons_csv, results_csv, show_report, to_latex, to_markdown
from costar_cli.cli.benchmarking.figures import plot_horizons
from costar_cli.evaluation.metrics import PerStep
from costar_cli.reporting.output import Output
from tests.evaluate.benchmark_worlds import BOUND, constant_errors, limit, report, score, tables

ERRORS = {"costar": 1.0, "crn": 2.0}


def errors(rmse):
    return constant_errors([[rmse] * 6, [rmse + 0.2] * 6])


@pytest.fixture
def made():
    scores = [score(name, errors(rmse), seed=seed) for name, rmse in ERRORS.items() for seed in (10, 11)]
    bounds = [limit(constant_errors([rmse] * 6), seed=seed) for seed, rmse in ((10, 0.4), (11, 0.6), (12, 9.0))]
    return report(tables(scores, limits=bounds))


def test_the_bound_is_averaged_over_the_data_sets_that_the_table_is_about(made):
    (table,) = made.tables
    assert (table.limit.label, table.limit.basis, table.limit.data_sets) == (BOUND, "limit", 2)
    assert table.limit.mean.average == pytest.approx(0.5)
    assert table.limit.ratio_to_limit.average == 1


def test_its_standard_error_is_that_of_a_mean_over_data_sets(made):
    scores = [score("costar", errors(1.0), seed=seed) for seed in (10, 11)]
    (ten, first), (eleven, second) = (
        limit(constant_errors([rmse] * 6), seed=seed) for seed, rmse in ((10, 0.3), (11, 0.4))
    )
    first, second = (
        replace(row, se=PerStep((row.mean.average / 10,) * 6, row.mean.average / 10)) for row in (first, second)
    )
    (table,) = tables(scores, limits=[(ten, first), (eleven, second)])
    assert table.limit.se.average == pytest.approx(np.hypot(0.03, 0.04) / 2)
    known = report([table])
    assert f"(standard error over test subjects: 0.025 ({table.setup}, {table.truth}))" in to_markdown(known)
    assert known.to_json()["tables"][0]["limit"]["se"]["average"] == table.limit.se.average
    (bound,) = (row for row in csv.DictReader(io.StringIO(results_csv(known))) if row["basis"] == "limit")
    assert float(bound["avg_se"]) == pytest.approx(0.025)
    (older,) = tables(scores, limits=[(ten, first), (eleven, replace(second, se=None))])
    assert older.limit.se is None
    assert "standard error" not in to_markdown(report([older]))


def test_ratios_are_those_of_means_over_shared_data_sets(made):
    crn, costar = made.tables[0].rows
    assert costar.ratio_to_limit.steps == pytest.approx([1.1 / 0.5] * 6)
    assert crn.ratio_to_limit.average == pytest.approx(2.1 / 0.5)
    scores = [score("costar", errors(1.0), seed=seed) for seed in (10, 11)]
    (table,) = tables(scores, limits=[limit(constant_errors([0.4] * 6), seed=10)])
    assert table.rows[0].ratio_to_limit.average == pytest.approx(1.1 / 0.4)


def test_it_is_neither_best_nor_tested_nor_one_of_the_rows(made):
    (table,) = made.tables
    assert [row.label for row in table.rows] == ["CRN", "COSTAR"]
    assert [comparison.label for comparison in table.comparisons] == ["CRN"]
    assert BOUND not in comparisons_csv(made)
    lines = to_markdown(made).splitlines()
    (bound,) = (line for line in lines if line.startswith(f"| {BOUND}"))
    (costar,) = (line for line in lines if line.startswith("| COSTAR |") and "**1.1000" in line)
    assert "**" not in bound
    assert "| 2.20 |" in costar
    assert "| 1.00 |" in bound


def test_every_form_has_the_bound_and_says_what_it_is(made, capsys, tmp_path):
    rows = list(csv.DictReader(io.StringIO(results_csv(made))))
    (bound,) = (row for row in rows if row["basis"] == "limit")
    assert (bound["method"], float(bound["avg"]), float(bound["ratio_to_limit"])) == (BOUND, 0.5, 1.0)
    assert "which is a lower bound on average over subjects, not a method" in to_markdown(made)
    assert r"\emph{bound}" in to_latex(made)
    assert "& Avg & Ensemble & Ratio &" in to_latex(made)
    show_report(Output("benchmark"), made)
    shown = capsys.readouterr().out
    assert f"{BOUND} (bound)" in shown
    assert "Ratio: Avg divided by that of the row" in shown
    assert made.to_json()["tables"][0]["limit"]["mean"]["average"] == 0.5
    assert plot_horizons(made, tmp_path / "horizons.png").stat().st_size > 1000


def test_without_a_bound_nothing_speaks_of_ratios(made, capsys):
    plain = report(tables([score("costar", errors(1.0)), score("crn", errors(2.0))]))
    assert plain.tables[0].limit is None
    assert plain.about_ratio is None
    assert plain.tables[0].rows[0].ratio_to_limit is None
    show_report(Output("benchmark"), plain)
    for text in (to_markdown(plain), to_latex(plain), capsys.readouterr().out):
        assert "Ratio" not in text
    older = replace(made.tables[0], limit=None)
    assert "Ratio" not in to_markdown(report([older]))
