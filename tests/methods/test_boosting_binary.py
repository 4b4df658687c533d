"""Boosting of binary outcomes: trees of the logit of a probability, fitted by log loss (spec BOOST-6)."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit

from costar_cli.config.models import Config, FinetuneConfig
from costar_cli.data import Dataset, Panel, PanelSchema, Part, TreatmentEncoding, Variable
from costar_cli.data.queries import rolling_origin
from costar_cli.methods.boosting.model import BoostingModel
from costar_cli.methods.boosting.settings import BoostingConfig
from costar_cli.methods.shared.grow import Rows, grow
from tests.fits import fit_method, model_of

FEW = BoostingConfig(trees=40)
EFFECT, STEPS, TEST = -1.5, 12, Part("source", "test")
SCHEMA = PanelSchema(
    treatments=TreatmentEncoding(mode="multilabel", names=("drug",), levels=(("off", "on"),)),
    covariates=(Variable(name="severity"),),
    outcomes=(Variable(name="attack", kind="binary", standardize=False),),
)


def attacks(n: int, seed: int, first: int = 0) -> tuple[Panel, NDArray[np.float64]]:
    """Subjects with attacks, rarer under a drug, and the probability of an attack at each step."""
    rng = np.random.default_rng(seed)
    severity, came = np.zeros((n, STEPS)), np.zeros((n, STEPS))
    p_NT, drug = np.full((n, STEPS), 0.2), (rng.random((n, STEPS)) < 0.5).astype(float)
    own = rng.normal(scale=1.2, size=n)
    for t in range(STEPS):
        severity[:, t] = own + rng.normal(scale=0.3, size=n)
        if t:
            p_NT[:, t] = expit(-1.8 + severity[:, t - 1] + EFFECT * drug[:, t - 1])
        came[:, t] = rng.random(n) < p_NT[:, t]
    panel = Panel(
        severity[..., None].astype(np.float32), drug[..., None].astype(np.float32), came[..., None].astype(np.float32),
        np.zeros((n, 0), np.float32), np.full(n, STEPS), first + np.arange(n),
    )  # fmt: skip
    return panel, p_NT


def binary_world(seed: int = 0, n: int = 300) -> Dataset:
    panels, sizes = {}, {"train": n, "val": n // 2, "test": n}
    for i, (split, size) in enumerate(sizes.items()):
        panels[Part("source", split)], _ = attacks(size, 10 * seed + i, 1_000 * i)  # type: ignore[arg-type]
    queries = rolling_origin(panels[TEST], 1)
    assert queries is not None
    return Dataset(name="attacks", schema=SCHEMA, panels=panels, queries={TEST: {"rolling_origin": queries}}, horizon=1)


def losses(data: Dataset, method: str, seed: int = 0, settings: Config | None = None) -> tuple[float, float]:
    """The log loss of the first step on test subjects, and that of the true probabilities."""
    model = model_of(fit_method(data, method, settings, FinetuneConfig()))
    panel, queries = data.panels[TEST], data.queries[TEST]["rolling_origin"]
    p_Q = np.clip(
        model.rollout(panel, replace(queries, outcomes=None, scored=None)).mean(axis=0)[:, 0, 0], 1e-6, 1 - 1e-6
    )
    _, true_NT = attacks(panel.n_subjects, 10 * seed + 2)
    came_Q = panel.outcomes[queries.subject, queries.origin + 1, 0] > 0.5
    true_Q = true_NT[queries.subject, queries.origin + 1]
    return tuple(float(-np.log(np.where(came_Q, p, 1 - p)).mean()) for p in (p_Q, true_Q))  # type: ignore[return-value]


@pytest.fixture(scope="module")
def data() -> Dataset:
    return binary_world(n=120)


def test_log_loss_is_nearer_to_that_of_the_truth_than_of_changes_in_squares(data: Dataset) -> None:
    outcome = Variable(name="attack", standardize=False)
    numbers = replace(data, schema=SCHEMA.model_copy(update={"outcomes": (outcome,)}))
    (loss, least), (of_changes, _) = (losses(of, "boosting", settings=FEW) for of in (data, numbers))
    assert 0 <= loss - least < 0.4 * (of_changes - least)


def test_predictions_are_probabilities_that_a_file_keeps(data: Dataset) -> None:
    trained = fit_method(data, "boosting", FEW, FinetuneConfig())
    model, queries = model_of(trained), data.queries[TEST]["rolling_origin"].take(slice(0, 400))
    assert isinstance(model, BoostingModel)
    assert model.record.facts["logistic"] == [True]
    p_Q = model.rollout(data.panels[TEST], replace(queries, outcomes=None, scored=None))[0, :, 0, 0]
    assert 0 < p_Q.min() < 0.1 < 0.5 < p_Q.max() < 1  # noqa: PLR0133 - the ends of what probabilities reach
    with pytest.raises(ValueError, match="whether its trees predict a probability"):
        replace(model, record=replace(model.record, facts={**model.record.facts, "logistic": [1]}))._require_whole()


def test_an_outcome_that_never_comes_has_a_small_probability() -> None:
    rows = Rows(np.random.default_rng(0).normal(size=(99, 2)), np.zeros(99), np.ones(99))
    forest, _ = grow(rows, rows, BoostingConfig(), 0, logistic=True)
    assert expit(forest.base) == pytest.approx(0.5 / 100)
    assert forest.n_trees == 0
