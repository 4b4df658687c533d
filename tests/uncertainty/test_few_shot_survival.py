"""Survival of few-shot models is that of the target: more die there, and the hazards follow (spec SURV-11)."""

from dataclasses import replace

import numpy as np
import pytest

from costar_cli.config.models import FinetuneConfig
from costar_cli.data import Dataset, Part, Queries
from costar_cli.errors import ArtifactError
from costar_cli.inference import Survival, survival_of
from costar_cli.inference.at_risk import AtRisk
from costar_cli.inference.propensity import nothing_ahead
from costar_cli.inference.rates import loss_of_rates
from costar_cli.inference.survival import log_loss
from costar_cli.methods.base import FittedModel
from tests.fits import fit_method, model_of
from tests.mortal_world import mortal_dataset, true_ends
from tests.uncertainty.test_rates import fitted as fitted_rates
from tests.uncertainty.test_rates import visited

HARSHER, CONFIG = 2.2, FinetuneConfig()
SIZES = (2_000, 500, 10, 150, 80, 2_000)


def few_shot(dataset: Dataset) -> tuple[FittedModel, FittedModel]:
    source = model_of(fit_method(dataset, "ridge", None, CONFIG))
    return source, model_of(fit_method(dataset, "ridge", None, CONFIG, domain="target", start=source))


@pytest.fixture(scope="module")
def harsh() -> tuple[Dataset, FittedModel, FittedModel]:
    dataset = mortal_dataset(SIZES, harsher=HARSHER)
    return dataset, *few_shot(dataset)


def held(model: FittedModel) -> Survival:
    found = survival_of(model)
    assert found is not None
    return found


def loss_on(model: FittedModel, dataset: Dataset) -> float:
    """The log loss of a step of the target's test subjects."""
    panel = dataset.panels[Part("target", "test")]
    risk = AtRisk.of(panel, dataset.schema, terminal=True)
    expected_ME = held(model).hazards.along(panel, risk.queries, nothing_ahead(panel, risk.queries))[:, 0]
    return float(log_loss(expected_ME, risk.ended_ME).mean())


def test_survival_follows_the_higher_hazard_of_the_target(harsh: tuple[Dataset, FittedModel, FittedModel]) -> None:
    dataset, source, target = harsh
    panel, plan = dataset.panels[Part("target", "test")], (1, 0, 1, 0, 0)
    rows = np.arange(panel.n_subjects, dtype=np.int32)
    asked = Queries(rows, np.zeros(len(rows), np.int16), np.tile(np.array(plan, np.uint8)[:, None], (len(rows), 1, 1)))
    true_H, _ = true_ends(panel.covariates[:, 0, 0], panel.outcomes[:, 0, 0], plan, harsher=HARSHER)

    def error_of(model: FittedModel) -> float:
        predicted = model.rollout(panel, asked).mean(axis=0, dtype=np.float64)
        return float(np.abs(held(model).along(panel, asked, predicted)[0].mean(axis=0) - true_H).max())

    deaths = int((dataset.panels[Part("target", "train")].ends == 1).sum())
    assert error_of(source) > 0.2
    assert error_of(target) < 3 / np.sqrt(deaths) / 4  # a probability moves by at most 1/4 of its logit
    assert held(target).domain == "target"
    assert loss_on(target, dataset) < loss_on(source, dataset)


def test_few_subjects_like_the_source_lose_nothing_by_it() -> None:
    dataset = mortal_dataset((2_000, 500, 10, 25, 25, 2_000), seed=1)
    source, target = few_shot(dataset)
    assert loss_on(target, dataset) < 1.03 * loss_on(source, dataset)
    assert not target.record.warnings


@pytest.mark.parametrize("part", ["train", "val"])
def test_targets_without_an_event_are_warned_of(part: str) -> None:
    dataset = mortal_dataset(SIZES, harsher=HARSHER)
    own = Part("target", part)
    panel = dataset.panels[own].take(dataset.panels[own].ends == 0)
    dataset = replace(dataset, panels={**dataset.panels, own: panel})
    source, target = few_shot(dataset)
    (warning,) = (one for one in target.record.warnings if "survival" in one)
    if part == "train":
        assert "none of the" in warning
        assert (held(target).basis, held(target).domain) == ("source", "source")
        assert held(target).events == held(source).events
    else:
        assert "could be checked" in warning
        assert held(target).basis == "anchored"


def test_anchored_hazards_expect_as_many_ends_as_came(harsh: tuple[Dataset, FittedModel, FittedModel]) -> None:
    dataset, source, _ = harsh
    panel = dataset.panels[Part("target", "test")]
    risk = AtRisk.of(panel, dataset.schema, terminal=True)
    moved = held(source).hazards.anchored(panel)
    expected_E = moved.along(panel, risk.queries, nothing_ahead(panel, risk.queries))[:, 0].sum(axis=0)
    np.testing.assert_allclose(expected_E, risk.ended_ME.sum(axis=0), rtol=0.005)  # a prior of sd 2 is all but none
    np.testing.assert_array_equal(moved.coef_EP, held(source).hazards.coef_EP)
    assert moved.intercept_E[0] - held(source).hazards.intercept_E[0] == pytest.approx(HARSHER, abs=0.2)


def test_anchored_rates_have_the_likelihood_of_the_panel() -> None:
    hazards, panel = fitted_rates(visited(600)), visited(400, seed=5)
    risk = AtRisk.of(panel, hazards.schema, terminal=True)
    time_M1 = hazards.time(risk.queries.plan)
    assert time_M1 is not None

    def loss(intercept_E: np.ndarray) -> float:
        rate_M1E = -np.log1p(-replace(hazards, intercept_E=intercept_E).along(
            panel, risk.queries, nothing_ahead(panel, risk.queries)
        ).sum(axis=-1)) / time_M1  # fmt: skip
        return float(loss_of_rates(rate_M1E, time_M1, risk.ended_ME.any(axis=1, keepdims=True)).sum())

    moved = hazards.anchored(panel).intercept_E
    away = [loss(moved + step * np.array([1.0, 1.0, 0.0])) for step in (-0.2, 0.0, 0.2)]
    assert away[1] < min(away[0], away[2])
    assert moved[2] == hazards.intercept_E[2]  # of losses: as they were


def test_an_unknown_basis_is_refused(harsh: tuple[Dataset, FittedModel, FittedModel]) -> None:
    dataset, _, _ = harsh
    trained = fit_method(dataset, "mean", None, CONFIG)
    survival = {**trained.meta["survival"], "basis": "hearsay"}
    with pytest.raises(ArtifactError, match="survival is damaged"):
        survival_of(model_of(replace(trained, meta={**trained.meta, "survival": survival})))
