"""Intervals that resample too few subjects, or clusters of them, come with a warning."""

from dataclasses import replace

import evaluate_worlds as worlds
import numpy as np
import pytest

from costar_cli.config.models import EvaluateConfig
from costar_cli.evaluate import run_evaluation
from costar_cli.reporting import NullReporter


@pytest.mark.parametrize(("subjects", "bootstrap", "told"), [(12, 100, 2), (12, 0, 0), (20, 100, 0)])
def test_intervals_of_few_subjects_are_a_warning_once_per_test_part(subjects, bootstrap, told):
    data = worlds.dataset(subjects=subjects)
    model = worlds.oracle(data, error=worlds.independent_noise(1.0))
    reporter = NullReporter()
    models = [worlds.candidate(model, name="a"), worlds.candidate(model, name="b")]
    report = run_evaluation(data, models, EvaluateConfig(bootstrap=bootstrap), reporter=reporter)
    assert report.warnings == tuple(reporter.warnings)
    assert len(report.warnings) == told
    parts = ("target/test", "source/test")[:told]
    for part, warning in zip(parts, report.warnings, strict=True):
        assert warning.startswith(f"the intervals on {part} resample 12 subjects")


def test_few_clusters_of_many_subjects_are_counted_as_clusters():
    data = worlds.dataset(subjects=24)
    panels = {part: replace(panel, cluster=np.arange(24) // 8) for part, panel in data.panels.items()}
    data = replace(data, panels=panels)
    report = run_evaluation(data, [worlds.candidate(worlds.oracle(data))], EvaluateConfig(bootstrap=40))
    assert report.warnings[0].startswith("the intervals on target/test resample 3 clusters")
