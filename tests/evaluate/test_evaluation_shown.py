"""What the terminal says of an evaluation beside its numbers: what kind of answers they rest on, and how many."""

from dataclasses import replace

import evaluate_worlds as worlds

from costar_cli.cli.scores import show_scores
from costar_cli.config.models import EvaluateConfig
from costar_cli.evaluation import EvaluationReport, run_evaluation
from costar_cli.reporting import NullReporter
from costar_cli.reporting.output import Output


def shown(data, capsys):
    report = run_evaluation(data, [worlds.candidate(worlds.oracle(data))], EvaluateConfig(bootstrap=0))
    show_scores(Output("evaluate"), report)
    return report, capsys.readouterr().out.splitlines()


def test_factual_outcomes_are_called_so_with_their_subjects_and_queries(capsys):
    data = worlds.dataset(name="my-cohort")
    sets = {part: {"rolling_origin": worlds.factual_queries(data.panels[part], 6)} for part in data.queries}
    report, lines = shown(replace(data, queries=sets), capsys)
    (line,) = (line for line in lines if line.startswith("supervised: "))
    row = report.row("supervised", "COSTAR")
    assert line == (
        "supervised: factual outcomes (observed under the treatments given), "
        f"{row.subjects} subjects of source/test, {row.scored[0]} scored queries per step"
    )


def test_counterfactual_outcomes_are_called_so_and_steps_may_differ_in_queries(capsys):
    _, lines = shown(worlds.dataset(), capsys)
    assert [line for line in lines if line.startswith(("zero-shot: ", "supervised: "))] == [
        f"{setup}: counterfactual outcomes, 12 subjects of {part}, 96 to 144 scored queries per step"
        for setup, part in (("zero-shot", "target/test"), ("supervised", "source/test"))
    ]


def test_each_row_says_whether_it_loses_to_the_last_value_in_documents_and_files():
    data = worlds.dataset()
    good = worlds.candidate(worlds.oracle(data), name="good")
    bad = worlds.candidate(worlds.oracle(data, error=lambda *_: 50.0), name="bad")
    report = run_evaluation(data, [good, bad], EvaluateConfig(bootstrap=0))
    document = report.to_json()
    said = {(row["setup"], row["label"]): row["worse_than_last_value"] for row in document["rows"]}
    naive = "Last value carried forward"
    for setup in {setup for setup, _ in said}:
        assert (said[setup, "good"], said[setup, "bad"], said[setup, naive]) == (False, True, None)
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
