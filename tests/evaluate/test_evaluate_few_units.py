"""Too few subjects, or clusters of them, have no intervals, and every form of the output says why."""

import csv
import io
import re
from dataclasses import replace

import evaluate_worlds as worlds
import numpy as np
import pytest

from costar_cli.cli.scores import show_scores
from costar_cli.config.models import EvaluateConfig
from costar_cli.evaluation import run_evaluation
from costar_cli.evaluation.report import read_evaluation, write_evaluation
from costar_cli.report.figures import evaluation
from costar_cli.reporting import NullReporter
from costar_cli.reporting.output import Output


@pytest.mark.parametrize(("subjects", "bootstrap", "told"), [(12, 100, 2), (12, 0, 0), (100, 100, 0)])
def test_few_subjects_have_no_intervals_and_a_warning_once_per_test_part(subjects, bootstrap, told):
    data = worlds.dataset(subjects=subjects)
    model = worlds.oracle(data, error=worlds.independent_noise(1.0))
    reporter = NullReporter()
    models = [worlds.candidate(model, name="a"), worlds.candidate(model, name="b")]
    report = run_evaluation(data, models, EvaluateConfig(bootstrap=bootstrap), reporter=reporter)
    assert report.warnings == tuple(reporter.warnings)
    assert len(report.warnings) == told
    parts = ("target/test", "source/test")[:told]
    for part, warning in zip(parts, report.warnings, strict=True):
        assert warning == f"no interval on {part}: 12 subjects, 20 are needed for an interval with the nominal coverage"
    scored = [row for row in report.rows if row.truth]
    assert {row.lower is None for row in scored} == {subjects < 20 or not bootstrap}
    assert {row.no_interval for row in scored} == {"12 subjects, 20 are needed" if told else None}


def test_few_clusters_of_many_subjects_are_counted_as_clusters():
    data = worlds.dataset(subjects=24)
    panels = {part: replace(panel, cluster=np.arange(24) // 8) for part, panel in data.panels.items()}
    data = replace(data, panels=panels)
    report = run_evaluation(data, [worlds.candidate(worlds.oracle(data))], EvaluateConfig(bootstrap=40))
    assert report.warnings[0].startswith("no interval on target/test: 3 clusters, 20 are needed")


def test_every_form_of_an_evaluation_says_why_there_is_no_interval(tmp_path, capsys):
    data = worlds.dataset(subjects=12)
    report = run_evaluation(data, [worlds.candidate(worlds.oracle(data))], EvaluateConfig())
    why = "12 subjects, 20 are needed"
    records = [row for row in csv.DictReader(io.StringIO(report.to_csv())) if row["truth"]]
    assert {(row["no_interval"], row["avg_lower"], row["avg_upper"]) for row in records} == {(why, "", "")}
    document = report.to_json()
    assert all(why in warning for warning in document["warnings"])
    assert {row["no_interval"] for row in document["rows"] if row["truth"]} == {why}
    path = tmp_path / "evaluation.h5"
    write_evaluation(path, report, parents={"dataset": "d" * 64}, fingerprint="f" * 64, config={})
    stored = read_evaluation(path)
    assert (stored.warnings, stored.rows) == (report.warnings, report.rows)
    show_scores(Output("evaluate"), report)
    errors = capsys.readouterr().out.partition("Natural course")[0]
    shown = [line for line in errors.splitlines() if line.startswith(("zero-shot  ", "supervised  "))]
    assert all("too few" in line for line in shown if "published" not in line)


@pytest.mark.parametrize(("subjects", "percent"), [(20, 12), (49, 12), (50, 10), (99, 10)])
def test_every_form_of_an_evaluation_says_how_far_to_trust_intervals_of_few_subjects(
    subjects, percent, tmp_path, capsys
):
    data = worlds.dataset(subjects=subjects)
    reporter = NullReporter()
    models = [worlds.candidate(worlds.oracle(data, error=worlds.independent_noise(1.0)))]
    report = run_evaluation(data, models, EvaluateConfig(bootstrap=40), reporter=reporter)
    why = f"such tests find false differences in up to {percent} % of cases instead of 5 %"
    why = f"only {subjects} subjects: {why}"
    said = [f"intervals on {part}/test: {why}" for part in ("target", "source")]
    assert [warning for warning in report.warnings if "only" in warning] == said
    assert reporter.warnings == list(report.to_json()["warnings"]) == list(report.warnings)
    records = [row for row in csv.DictReader(io.StringIO(report.to_csv())) if row["truth"]]
    assert {(row["caution"], row["no_interval"]) for row in records} == {(why, "")}
    path = tmp_path / "evaluation.h5"
    write_evaluation(path, report, parents={"dataset": "d" * 64}, fingerprint="f" * 64, config={})
    assert read_evaluation(path).rows == report.rows
    assert {row["caution"] for row in report.to_json()["rows"] if row["truth"]} == {why}
    show_scores(Output("evaluate"), report)
    parts = {test for line in said for test in re.findall(r"\w+/test", line)}
    [alarm] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("! few subjects, so that CIs")]
    assert set(alarm.rpartition(": ")[2].split(", ")) == parts


def stopped(report, flags):
    """The report with what stopped each of our models, by label."""
    rows = []
    for row in report.rows:
        if row.provenance is not None:
            provenance = replace(row.provenance, method=flags[row.label][0], stopped_by_budget=flags[row.label][1])
            row = replace(row, provenance=provenance)  # noqa: PLW2901
        rows.append(row)
    return replace(report, rows=tuple(rows))


def test_a_model_stopped_by_budget_is_marked_in_terminal_and_csv_and_a_closed_form_is_neither_yes_nor_no(capsys):
    data = worlds.dataset(subjects=12)
    models = [worlds.candidate(worlds.oracle(data), name=name) for name in ("a", "b", "c")]
    report = run_evaluation(data, models, EvaluateConfig(bootstrap=0))
    report = stopped(report, {"a": ("costar", True), "b": ("costar", False), "c": ("ridge", False)})
    records = {row["label"]: row["stopped_by_budget"] for row in csv.DictReader(io.StringIO(report.to_csv()))}
    assert {name: records[name] for name in "abc"} == {"a": "True", "b": "False", "c": ""}
    show_scores(Output("evaluate"), report)
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.split()[1:3] == ["a", "†"] for line in lines) == 2  # by step
    assert sum("†" in line for line in lines) == 2
    assert "! training of a stopped at its limit: more epochs may lower the error" in lines


def footnotes(report, path, monkeypatch):
    """What stands below the figure, and the labels of its legend."""
    written, labels = [], []

    def note(drawn, *sentences):
        written.extend(sentences)
        labels.extend(text.get_text() for legend in drawn.legends for text in legend.get_texts())

    monkeypatch.setattr(evaluation, "caption", note)
    evaluation.plot_rmse(report, path)
    return written, labels


def test_the_figure_says_below_why_there_is_no_interval_and_what_the_sign_means(tmp_path, monkeypatch):
    data = worlds.dataset(subjects=12)
    report = run_evaluation(data, [worlds.candidate(worlds.oracle(data), name="a")], EvaluateConfig())
    report = stopped(report, {"a": ("costar", True)})
    written, labels = footnotes(report, tmp_path / "rmse.png", monkeypatch)
    why = "12 subjects, 20 are needed for an interval with the nominal coverage"
    assert written[:2] == [f"no interval on {part}/test: {why}" for part in ("target", "source")]
    assert written[2].startswith("† training limit reached")
    assert "a †" in labels
    monkeypatch.undo()
    assert evaluation.plot_rmse(report, tmp_path / "rmse.png").read_bytes().startswith(b"\x89PNG")
