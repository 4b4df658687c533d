"""The natural course: means of what was observed and of what is predicted under the treatments that were given."""

import json

import numpy as np
import pytest

from costar_cli.config.models import EvaluateConfig
from costar_cli.data import Panel, Scaler
from costar_cli.data.record import ModelRecord
from costar_cli.evaluation import EvaluationReport
from costar_cli.evaluation.natural import NaturalCourse, course_columns, course_windows, natural_course
from costar_cli.evaluation.run import run_evaluation
from costar_cli.evaluation.setups import Candidate
from costar_cli.methods.regression.naive import LastValue
from costar_cli.report.figures.evaluation import plot_natural
from tests.whatif.whatif_worlds import TUMOR, LinearModel


def panel_of(slope: float, *, subjects: int = 40, steps: int = 9, hole: int | None = None) -> Panel:
    """Subjects that grow by as much at each step, from levels of their own, without treatment."""
    level_N1 = np.random.default_rng(0).normal(20, 2, (subjects, 1))
    outcomes = (level_N1 + slope * np.arange(steps))[..., None].astype(np.float32)
    observed = np.ones_like(outcomes, dtype=bool)
    if hole is not None:
        observed[:, hole], outcomes[:, hole] = False, 0.0
    return Panel(
        covariates=np.zeros((subjects, steps, 0), np.float32),
        treatments=np.tile(TUMOR.treatments.encode(np.zeros((1, 1, 2), int)), (subjects, steps, 1)),
        outcomes=outcomes,
        statics=np.zeros((subjects, 1), np.float32),
        length=np.full(subjects, steps),
        subject_id=np.arange(subjects),
        outcome_observed=observed,
    )


def course(panel: Panel, **options: object) -> NaturalCourse:
    windows = course_windows(panel, 3)
    assert windows is not None
    mean_QSY = LinearModel(TUMOR, horizon=3, **options).rollout(panel, windows).mean(axis=0, dtype=np.float64)
    names = {"setup": "supervised", "label": "m", "test": "source/test"}
    return natural_course(course_columns(panel, windows, mean_QSY), TUMOR.outcomes, level=0.9, **names)


def test_a_model_that_misses_growth_is_off_by_a_step_more_each_step():
    steps = course(panel_of(0.5)).steps
    since = [step for step in steps if step.axis == "origin"]
    assert [step.step for step in since] == [1, 2, 3]
    assert [step.difference for step in since] == pytest.approx([-0.5, -1.0, -1.5], abs=1e-4)
    assert all(step.upper - step.lower < 1e-4 for step in since)  # all are off alike
    assert all(step.observed_lower < step.observed < step.observed_upper for step in since)


def test_each_step_of_a_series_is_predicted_once():
    panel = panel_of(0.5)
    found = course(panel)
    series = [step for step in found.steps if step.axis == "series"]
    assert (found.windows, found.subjects) == (80, 40)
    assert {step.step: step.answers for step in series} == dict.fromkeys(range(1, 7), 40)
    assert [step.observed for step in series] == pytest.approx(
        panel.outcomes[:, 1:7, 0].mean(axis=0).tolist(), rel=1e-5
    )


def test_what_was_not_observed_does_not_count():
    series = [step.step for step in course(panel_of(0.0, hole=2)).steps if step.axis == "series"]
    assert series == [1, 3, 4, 5, 6]


def test_few_subjects_have_no_limits_and_short_series_no_course():
    steps = course(panel_of(0.5, subjects=12)).steps
    assert {step.lower for step in steps} == {step.observed_upper for step in steps} == {None}
    assert course_windows(panel_of(0.5, steps=1), 3) is None


def test_an_evaluation_keeps_it_and_draws_it(tumor_dataset, reporter, tmp_path):
    scaler = Scaler.fit(tumor_dataset.panel("source", "train"), tumor_dataset.schema)
    model = LastValue(horizon=6, schema=tumor_dataset.schema, scaler=scaler, record=ModelRecord(domain="source"))
    report = run_evaluation(tumor_dataset, [Candidate(model)], EvaluateConfig(bootstrap=0), reporter=reporter)
    assert {(found.setup, found.test) for found in report.natural} == {
        ("zero-shot", "target/test"),
        ("supervised", "source/test"),
    }
    document = json.loads(json.dumps(report.to_json()))
    assert EvaluationReport.from_json(document).natural == report.natural
    assert EvaluationReport.from_json({**document, "natural_course": []}).natural == ()
    assert plot_natural(report, tmp_path / "n.png").read_bytes()[:4] == b"\x89PNG"
