"""Scores of probabilities: of ends of series and of binary outcomes (spec SURV-7, SURV-8)."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from costar_cli.config.models import EvaluateConfig, FinetuneConfig
from costar_cli.data import Dataset, Part, Variable
from costar_cli.data.queries import rolling_origin
from costar_cli.data.tumor.settings import TumorConfig
from costar_cli.data.tumor.simulate import simulate_tumor
from costar_cli.evaluation import EvaluationReport, run_evaluation
from costar_cli.evaluation.probabilities import ProbabilityScore, event_columns, event_score, survival_windows
from costar_cli.evaluation.score import mean_predictions
from costar_cli.evaluation.setups import Candidate
from costar_cli.reporting import NullReporter
from tests.fits import fit_method, model_of

TEST = Part("source", "test")


@pytest.fixture(scope="module")
def tumours() -> Dataset:
    sizes = {"train": 120, "val": 40, "test": 60, "target_train": 5, "target_val": 5, "target_test": 5}
    return simulate_tumor(TumorConfig(gamma=0, steps=40, ends=True, **sizes), NullReporter())


def evaluated(dataset: Dataset, method: str) -> EvaluationReport:
    model = model_of(fit_method(dataset, method, None, FinetuneConfig()))
    part = {TEST: dataset.queries[TEST]}
    return run_evaluation(replace(dataset, queries=part), [Candidate(model)], EvaluateConfig(bootstrap=0))


def scored(p_QH: NDArray[np.float64], came_QH: NDArray[np.bool_]) -> ProbabilityScore:
    answers = event_columns(np.ones_like(came_QH), predicted_QH=p_QH, came_QH=came_QH)
    return event_score(("end", "death"), answers, setup="supervised", label="m", test="source/test")


def test_scores_of_known_probabilities_are_their_formulas() -> None:
    rng = np.random.default_rng(0)
    p_QH = rng.random((40_000, 1))
    came_QH = rng.random(p_QH.shape) < p_QH
    found = scored(p_QH, came_QH)
    (step,) = found.steps
    assert step.log_loss == pytest.approx(0.5, abs=0.01)  # the mean entropy of a uniform probability
    assert step.brier == pytest.approx(1 / 6, abs=0.005)
    assert step.constant_log_loss == pytest.approx(np.log(2), abs=0.01)
    assert step.auroc == pytest.approx(5 / 6, abs=0.01)
    assert all(abs(predicted - observed) < 0.03 for predicted, observed, _ in found.calibration)
    (none,) = scored(p_QH, np.zeros_like(came_QH)).steps
    assert none.auroc is None


def test_each_step_at_risk_is_asked_about_once(tumours: Dataset) -> None:
    panel = tumours.panel("source", "test")
    queries = survival_windows(panel, 6)
    assert queries is not None
    step_QH = queries.origin.astype(np.int64)[:, None] + np.arange(6)
    at_risk = step_QH <= panel.length[queries.subject][:, None] - 2
    asked = np.stack([np.broadcast_to(queries.subject[:, None], step_QH.shape)[at_risk], step_QH[at_risk]])
    assert asked.shape[1] == np.unique(asked, axis=1).shape[1] == (panel.length - 1).sum()


def test_evaluation_scores_ends_and_keeps_them_in_its_document(tumours: Dataset) -> None:
    report = evaluated(tumours, "mean")
    by_end = {score.of: score for score in report.probabilities}
    assert list(by_end) == ["death", "recovery"]
    recovery = by_end["recovery"].steps
    came = sum(step.observed * step.answers for step in recovery)
    assert came == pytest.approx((tumours.panel("source", "test").end == 2).sum())
    first = recovery[0]
    assert first.log_loss < first.constant_log_loss
    assert first.auroc is not None
    assert first.auroc > 0.6
    assert EvaluationReport.from_json(report.to_json()).probabilities == report.probabilities


def test_binary_outcomes_are_predicted_as_probabilities_and_scored(tumours: Dataset) -> None:
    large = Variable(name="large", kind="binary", standardize=False)
    schema = tumours.schema.model_copy(update={"outcomes": (large,), "ends": ()})
    panels = {
        part: replace(panel, outcomes=(panel.outcomes > 0.1).astype(np.float32), end=None)
        for part, panel in tumours.panels.items()
    }
    asked = {part: {"rolling_origin": rolling_origin(panel, 6)} for part, panel in panels.items() if part == TEST}
    binary = replace(tumours, schema=schema, panels=panels, queries=asked, truth={})
    model = model_of(fit_method(binary, "ridge", None, FinetuneConfig()))
    predicted = model.rollout(panels[TEST], asked[TEST]["rolling_origin"])
    assert predicted.min() >= 0
    assert predicted.max() <= 1
    (score,) = run_evaluation(binary, [Candidate(model)], EvaluateConfig(bootstrap=0)).probabilities
    assert (score.kind, score.of) == ("outcome", "large")
    assert all(step.log_loss < 0.5 * step.constant_log_loss for step in score.steps)
    assert all(step.auroc is not None and step.auroc > 0.9 for step in score.steps)


def test_hazards_of_many_subjects_are_scored_some_at_a_time(tumours: Dataset) -> None:
    model = model_of(fit_method(tumours, "ridge", None, FinetuneConfig()))
    panel = tumours.panel("source", "test")
    queries = survival_windows(panel, 6)
    assert queries is not None
    whole, pieces = (mean_predictions(model, panel, queries, chunk_bytes) for chunk_bytes in (2**27, 1))
    np.testing.assert_allclose(pieces, whole, rtol=1e-5, atol=1e-6)
    volume = np.maximum(model.rollout(panel, queries), 0)  # no tumour is smaller than none
    np.testing.assert_array_equal(whole, volume.mean(axis=0, dtype=np.float64))
