"""Too few subjects, or clusters of them, have no intervals, and every form of the output says why."""

import csv
import io
from dataclasses import replace
from types import SimpleNamespace

import evaluate_worlds as worlds
import numpy as np
import pytest

from costar_cli.commands.evaluation import _show
from costar_cli.config.models import EvaluateConfig
from costar_cli.evaluate import run_evaluation
from costar_cli.evaluate.store import read_evaluation, write_evaluation
from costar_cli.reporting import NullReporter
from costar_cli.ui.output import Output


@pytest.mark.parametrize(("subjects", "bootstrap", "told"), [(12, 100, 2), (12, 0, 0), (20, 100, 0)])
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
        assert warning == f"no interval on {part}: 12 subjects, 20 are needed, or its level would not hold"
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
    _show(SimpleNamespace(out=Output("evaluate")), report)
    shown = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("zero-shot  ", "supervised  "))]
    assert all("too few" in line for line in shown if "published" not in line)
