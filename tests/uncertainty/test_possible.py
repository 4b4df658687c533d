"""Estimates that cannot occur, such as counts below zero: moved to the nearest that can, before there is a band."""

from dataclasses import replace

import numpy as np
import pytest

from costar_cli.config.models import FinetuneConfig
from costar_cli.data import Dataset, Panel, PanelSchema, Part, Variable
from costar_cli.data.transforms import _log_normal
from costar_cli.evaluation.score import mean_predictions
from costar_cli.inference import calibration_of, estimate, facts_of, possible
from costar_cli.methods import METHODS
from costar_cli.methods.base import FittedModel
from costar_cli.questions import Cohort, answer_cohort
from costar_cli.questions.answers import ask_plans
from tests.feedback_worlds import LINEAR
from tests.fits import fit_method, model_of
from tests.habit_worlds import TRAIN, asked, fitted, mean_at
from tests.habit_worlds import data as goods
from tests.whatif.whatif_worlds import request_of

ORIGIN, STEPS = 2, 3
SCHEMA: PanelSchema = LINEAR.schema.model_copy(
    update={"covariates": (), "outcomes": (Variable(name="attacks", kind="count"),)}
)


def attacks(panel: Panel) -> Panel:
    """Few counts, which treatment makes fewer."""
    rng, (n, steps, _) = np.random.default_rng(int(panel.subject_id[0])), panel.outcomes.shape
    usual_N, y_NT = rng.gamma(0.3, 8.0, size=n), np.zeros((n, steps))
    for t in range(steps):
        given_N = panel.treatments[:, t - 1, 0] if t else np.zeros(n)
        y_NT[:, t] = rng.poisson(usual_N * (1 - 0.9 * given_N))
    return replace(panel, outcomes=y_NT[..., None].astype(np.float32), covariates=np.zeros((n, steps, 0), np.float32))


@pytest.fixture(scope="module")
def data() -> Dataset:
    of_world = LINEAR.dataset(n=300, rows=7, horizon=STEPS)
    return replace(of_world, schema=SCHEMA, panels={part: attacks(panel) for part, panel in of_world.panels.items()})


@pytest.fixture(scope="module")
def ridge(data: Dataset) -> FittedModel:
    return model_of(fit_method(data, "ridge", METHODS["ridge"].default_settings(), FinetuneConfig()))


def test_models_without_held_out_windows_know_what_cannot_occur(data: Dataset) -> None:
    val = Part("source", "val")  # of one step each: nothing calibrates, and nothing says what practice is
    short = replace(data, panels={**data.panels, val: data.panels[val].until(1)})
    model = model_of(fit_method(short, "ridge", METHODS["ridge"].default_settings(), FinetuneConfig()))
    assert model.record.calibration is model.record.practice is None
    facts = facts_of(model)
    assert facts is not None
    assert facts.lower == (0.0,)
    panel, request = data.panels[Part("source", "test")], request_of({"on": [{"a": 1}] * STEPS}, ORIGIN, SCHEMA, STEPS)
    cohort = Cohort.of(panel, panel.subject_id.tolist(), origin=ORIGIN)
    [answers] = answer_cohort("ridge", model, cohort, request)
    assert model.rollout(panel, answers.queries).min() < -0.05
    assert answers.estimates.mean_QHY.min() == 0


def test_counts_are_never_below_zero_wherever_they_are_estimated(data: Dataset, ridge: FittedModel) -> None:
    panel = data.panels[Part("source", "test")]
    request = request_of({"always": [{"a": 1}] * STEPS}, ORIGIN, SCHEMA, STEPS)
    cohort = Cohort.of(panel, panel.subject_id.tolist(), origin=ORIGIN)
    [answers] = answer_cohort("ridge", ridge, cohort, request)
    queries = ask_plans(ridge, cohort.moments(answers.moment_Q), answers.plans_Q)
    raw = ridge.rollout(panel, queries)
    assert raw.min() < -0.05  # else there is nothing to move
    found = estimate(ridge, panel, queries)
    expected = raw.mean(axis=0).clip(min=0)
    np.testing.assert_allclose(found.mean_QHY, expected, rtol=1e-6)
    np.testing.assert_allclose(answers.estimates.mean_QHY, expected, rtol=1e-6)
    np.testing.assert_allclose(mean_predictions(ridge, panel, queries), expected, rtol=1e-6)
    calibration = calibration_of(ridge)
    assert calibration is not None
    bands = calibration.bands(found, (0.9,))
    assert (bands.lower_LQHY >= 0).all()  # the limit followed the estimate below zero


def test_what_diverged_is_not_hidden_by_bounds(ridge: FittedModel) -> None:
    wild = np.array([np.inf, np.nan, -3.0, 2.0]).reshape(1, 4, 1, 1)
    np.testing.assert_array_equal(possible(facts_of(ridge), wild).ravel(), [np.inf, np.nan, 0.0, 2.0])
    assert possible(None, wild) is wild


def test_a_first_origin_is_answered_within_what_was_ever_counted_and_near_the_truth() -> None:
    """Goods whose elasticities hardly have a mean: without bounds, the dearest sold 33 on average, of at most 23."""
    test, wild = Part("source", "test"), fitted(2.0)
    largest = goods(2.0).panels[TRAIN].outcomes.max()
    for price in (0.7, 1.0, 2.0, 4.0):
        found = estimate(wild, goods(2.0).panels[test], asked(0, price)).mean_QHY
        assert found.min() >= 0
        assert found.max() <= largest
    for price in (1.0, 2.0):
        found = estimate(fitted(), goods().panels[test], asked(0, price)).mean_QHY
        assert found == pytest.approx(mean_at(price), rel=0.25)


def test_means_of_logarithms_that_stay_within_bounds_are_those_of_draws() -> None:
    """Without bounds, a subject of whom little is known had a mean of 582 in a world whose counts end at 24."""
    rng, low, high = np.random.default_rng(0), -2.0, 2.5
    for mean, sd in ((0.1, 0.3), (0.1, 3.0), (3.0, 1.0), (-4.0, 0.5), (0.4, 0.0)):
        drawn = np.exp(1.3 + np.clip(mean + sd * rng.normal(size=400_000), low, high))
        found = _log_normal(*(np.array(x) for x in (mean, sd)), 1.3, np.array(low), np.array(high))
        assert found == pytest.approx((drawn.mean(), drawn.std()), rel=0.01, abs=1e-4)
    free = _log_normal(np.array(0.1), np.array(0.3), 1.3, None, None)
    bound = _log_normal(np.array(0.1), np.array(0.3), 1.3, np.array(-9.0), np.array(9.0))
    np.testing.assert_allclose(free, bound, rtol=1e-9)
