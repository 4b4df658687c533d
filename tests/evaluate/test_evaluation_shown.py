"""What the terminal says of an evaluation beside its numbers: what kind of answers they rest on, and how many."""

import re
from dataclasses import replace

import evaluate_worlds as worlds

from costar_cli.cli.scores import show_scores
from costar_cli.config.models import EvaluateConfig
from costar_cli.evaluation import EvaluationReport, run_evaluation
from costar_cli.reporting import NullReporter
from costar_cli.reporting.output import Output

NAIVE = "Last value carried forward"


def shown(data, capsys):
    report = run_evaluation(data, [worlds.candidate(worlds.oracle(data))], EvaluateConfig(bootstrap=0))
    show_scores(Output("evaluate"), report)
    return report, capsys.readouterr().out.splitlines()


def test_factual_outcomes_are_called_so_with_their_subjects_and_queries(capsys):
    data = worlds.dataset(name="my-cohort")
    sets = {part: {"rolling_origin": worlds.factual_queries(data.panels[part], 6)} for part in data.queries}
    report, lines = shown(replace(data, queries=sets), capsys)
    row = report.row("supervised", "COSTAR")
    queries = f"{row.scored[0]} scored queries per step"
    whose = f", {row.subjects} subjects of source/test"
    assert [line for line in lines if line.startswith("supervised: ")] == [
        f"supervised: factual outcomes (observed under the treatments given){whose}, {queries}",
        f"supervised: factual outcomes (as observed){whose}",
    ]


def test_counterfactual_outcomes_are_called_so_and_steps_may_differ_in_queries(capsys):
    _, lines = shown(worlds.dataset(), capsys)
    tests = [f"{setup}: counterfactual outcomes, 12 subjects of {part}"
             for setup, part in (("zero-shot", "target/test"), ("supervised", "source/test"))]  # fmt: skip
    queries = ", 96 to 144 scored queries per step"
    assert [line for line in lines if line.startswith(("zero-shot: ", "supervised: "))] == [
        *(f"{test}{queries}" for test in tests), *tests
    ]  # fmt: skip


def test_without_details_a_table_per_setup_is_the_whole_screen(capsys):
    data = worlds.dataset(subjects=12)
    report = run_evaluation(data, [worlds.candidate(worlds.oracle(data))], EvaluateConfig(bootstrap=0))
    out = Output("evaluate", details=False)
    show_scores(out, report)
    screen = capsys.readouterr()
    lines = screen.out.splitlines()
    assert lines[0] == "RMSE in cm3 on tumor, mean of 6 steps"
    assert [line.split()[0] for line in lines if "average" in line] == ["model"] * 2
    errors = {row.setup: f"{row.mean.average:.3f}" for row in report.rows if row.label == NAIVE}
    assert [re.sub(r".*\)", "", line).split()[0] for line in lines if line.startswith(NAIVE)] == list(errors.values())
    assert not any("tau=" in line for line in lines)
    assert "add --details for every step" in screen.err
    show_scores(Output("evaluate"), report)
    whole = capsys.readouterr().out.splitlines()
    assert whole[-len(lines) :] == lines
    assert any("tau=6" in line for line in whole)


def test_each_row_says_whether_it_loses_to_the_last_value_in_documents_and_files():
    data = worlds.dataset()
    good = worlds.candidate(worlds.oracle(data), name="good")
    bad = worlds.candidate(worlds.oracle(data, error=lambda *_: 50.0), name="bad")
    report = run_evaluation(data, [good, bad], EvaluateConfig(bootstrap=0))
    document = report.to_json()
    said = {(row["setup"], row["label"]): row["worse_than_last_value"] for row in document["rows"]}
    for setup in {setup for setup, _ in said}:
        assert (said[setup, "good"], said[setup, "bad"], said[setup, NAIVE]) == (False, True, None)
    assert EvaluationReport.from_json(document).to_json() == document


def test_a_model_that_loses_to_the_last_value_is_named_with_both_errors():
    data = worlds.dataset()
    good = worlds.candidate(worlds.oracle(data))
    assert not run_evaluation(data, [good], EvaluateConfig(bootstrap=0)).losers()
    bad = worlds.candidate(worlds.oracle(data, error=lambda *_: 50.0))
    reporter = NullReporter()
    report = run_evaluation(data, [bad], EvaluateConfig(bootstrap=0), reporter=reporter)
    for setup in ("zero-shot", "supervised"):
        ours, naive = (report.row(setup, label).mean.average for label in ("COSTAR", "Last value carried forward"))
        said = f"COSTAR in {setup}: worse than the last value carried forward ({ours:.3f} against {naive:.3f})"
        assert said in report.warnings
        assert said in reporter.warnings
        assert said in report.to_json()["warnings"]
