"""What the terminal says of an evaluation beside its numbers: what kind of answers they rest on, and how many."""

from dataclasses import replace

import evaluate_worlds as worlds

from costar_cli.cli.scores import show_scores
from costar_cli.config.models import EvaluateConfig
from costar_cli.evaluation import EvaluationReport, run_evaluation
from costar_cli.evaluation.calibrated import LightScores
from costar_cli.reporting import NullReporter, than_last_value
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
        f"supervised: factual outcomes (observed under the treatments given){whose}, {queries}"
    ]
    [headline] = [line for line in lines if line.startswith("my-cohort, ")]
    assert headline.endswith("RMSE from observed outcomes in cm3, mean of 6 days")


def test_counterfactual_outcomes_are_called_so_and_steps_may_differ_in_queries(capsys):
    _, lines = shown(worlds.dataset(), capsys)
    tests = [f"{setup}: counterfactual outcomes, 12 subjects of {part}"
             for setup, part in (("zero-shot", "target/test"), ("supervised", "source/test"))]  # fmt: skip
    queries = ", 96 to 144 scored queries per step"
    assert [line for line in lines if line.startswith(("zero-shot: ", "supervised: "))] == [
        f"{test}{queries}" for test in tests
    ]


def screen(report, capsys, *show):
    """What the terminal says: its lines on stdout, and the messages."""
    show_scores(Output("evaluate", show=show), report)
    said = capsys.readouterr()
    return said.out.splitlines(), said.err


def test_by_default_one_table_is_the_whole_screen_and_topics_stand_before_it(capsys):
    data = worlds.dataset(subjects=12)
    report = run_evaluation(data, [worlds.candidate(worlds.oracle(data))], EvaluateConfig(bootstrap=0))
    lines, said = screen(report, capsys)
    assert lines[0] == "tumor, 12 test subjects: RMSE from the truth in cm3, mean of 6 days"
    assert lines[1].split() == ["set-up", "COSTAR", "95%", "CI", "last", "value"]
    errors = {row.setup: f"{row.mean.average:.3f}" for row in report.rows if row.label == NAIVE}
    assert {line.split()[0]: line.split()[-1] for line in lines[2:4]} == errors
    assert not any("tau=" in line for line in lines)
    assert "--show days" in said
    whole, _ = screen(report, capsys, "days")
    assert whole[-len(lines) :] == lines
    assert any("tau=6" in line for line in whole)


def off(by):
    """A scored world whose model is off by so much, for its report."""
    data = worlds.dataset()
    model = worlds.oracle(data, error=lambda *_: by)
    return run_evaluation(data, [worlds.candidate(model)], EvaluateConfig(bootstrap=0))


def test_a_method_that_hardly_beats_the_last_value_says_so_in_words(capsys):
    rival = min(row.mean.average for row in off(0.0).rows if row.label == NAIVE)
    lines, _ = screen(off(0.97 * rival), capsys)
    [alarm] = [line for line in lines if line.startswith("! hardly better than the last value")]
    assert "COSTAR" in alarm
    assert " (3 % less error)" in alarm
    assert not any(line.startswith("! hardly better") for line in screen(off(0.5 * rival), capsys)[0])
    assert "! worse than the last value carried forward: COSTAR" in screen(off(50.0), capsys)[0]


def test_the_headline_of_a_fit_says_when_it_is_hardly_better_than_the_last_value():
    assert than_last_value(0.97, 1.0) == "3 % less error on observed outcomes than the last value: hardly better"
    assert than_last_value(0.5, 1.0) == "50 % less error on observed outcomes than the last value"
    assert than_last_value(1.2, 1.0) == "20 % more error on observed outcomes than the last value"


def rated(report, errors):
    """The report as if answers by rating had these errors."""
    light = LightScores(90, dict.fromkeys(errors, 1 / 3), errors, dict.fromkeys(errors, 0.9), 1.0, 1.0)
    rows = [replace(row, lights={row.truth: {"support": light}}) if row.basis == "ours" else row for row in report.rows]
    return replace(report, rows=tuple(rows))


def test_ratings_that_do_not_order_errors_say_so(capsys):
    report = off(0.1)
    misled = "! support ratings do not order errors here, red has the smallest: COSTAR"
    assert misled in screen(rated(report, {"green": 2.0, "amber": 1.5, "red": 1.0}), capsys)[0]
    assert misled not in screen(rated(report, {"green": 1.0, "amber": 1.5, "red": 2.0}), capsys)[0]


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
