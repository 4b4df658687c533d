"""The growth GRU: its recurrence and its derivatives, what it reads, what selects its weights, and few-shot."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from torch import nn

from costar_cli.config.models import FinetuneConfig
from costar_cli.data import Dataset, Part
from costar_cli.data.tumor.settings import TumorConfig
from costar_cli.data.tumor.simulate import simulate_tumor
from costar_cli.errors import UsageError
from costar_cli.methods.growth.gru import run_gru
from costar_cli.methods.growth.method import GrowthModel
from costar_cli.methods.growth.settings import GrowthConfig, GrowthNetworkConfig, GrowthOptimiserConfig
from costar_cli.reporting import NullReporter
from costar_cli.training import Trained
from tests.fits import fit_method, model_of
from tests.methods.linear_worlds import linear_data

TEST = Part("target", "test")
UNREGULARISED = {"carry_overs": 1, "dropout": 0.0, "input_dropout": 0.0}
FEW = FinetuneConfig(epochs=3, patience=3, members=1, seed=5)


@cache
def tumours() -> Dataset:
    sizes = {"train": 60, "val": 20, "test": 10, "target_train": 12, "target_val": 10, "target_test": 20, "steps": 20}
    return simulate_tumor(TumorConfig(**sizes, horizon=3, seed=3), NullReporter())


def fit(dataset: Dataset, config: FinetuneConfig = FEW, *, select_on: str = "own-loss", **network: object) -> Trained:
    settings = GrowthConfig(
        select_on=select_on, network=GrowthNetworkConfig(width=8, hidden=8, **UNREGULARISED | network)
    )
    return fit_method(dataset, "growth", settings, config)


@cache
def trained() -> Trained:
    return fit(tumours(), FEW.model_copy(update={"epochs": 40}))


def error(model: GrowthModel, dataset: Dataset) -> float:
    queries = dataset.queries[TEST]["sequence"]
    predicted = model.rollout(dataset.panel("target", "test"), replace(queries, outcomes=None, scored=None))
    return float(np.sqrt(np.square(predicted.mean(axis=0) - queries.outcomes)[queries.scored].mean()))


def test_the_recurrence_and_its_derivatives_are_those_of_the_framework():
    torch.manual_seed(0)
    gru, inputs = nn.GRU(6, 5).double(), torch.randn(1, 7, 4, 6, dtype=torch.double, requires_grad=True)
    own = run_gru({name: value[None] for name, value in gru.named_parameters()}, inputs)[0]
    expected, weight = gru(inputs[0])[0], torch.randn(7, 4, 5, dtype=torch.double)
    torch.testing.assert_close(own, expected)
    for found, true in zip(
        *(torch.autograd.grad((y * weight).sum(), [inputs, *gru.parameters()]) for y in (own, expected)), strict=True
    ):
        torch.testing.assert_close(found, true)


def test_it_learns_what_the_last_value_does_not_know():
    dataset = tumours()
    last_value = model_of(fit_method(dataset, "last-value", None, FEW))
    assert error(model_of(trained()), dataset) < 0.8 * error(last_value, dataset)


def test_the_forms_are_recorded_with_the_model():
    assert [form["kind"] for form in trained().meta["forms"]] == ["relative"]
    model = model_of(trained())
    assert isinstance(model, GrowthModel)
    assert model.forms[0].low == 0


def test_relative_outcomes_have_no_unit():
    """The same tumours in another unit of volume: the same weights, and answers in that unit."""
    dataset, unit = tumours(), np.float32(1024)
    panels = {part: replace(panel, outcomes=panel.outcomes * unit) for part, panel in dataset.panels.items()}
    one, other = (model_of(fit(data)) for data in (dataset, replace(dataset, panels=panels)))
    queries = replace(dataset.queries[TEST]["sequence"].take(slice(0, 40)), outcomes=None, scored=None)
    answers = [model.rollout(data[TEST], queries) for model, data in ((one, dataset.panels), (other, panels))]
    np.testing.assert_allclose(answers[1], unit * answers[0], rtol=1e-3, atol=1e-3 * np.abs(answers[1]).max())


@pytest.mark.parametrize("select_on", ["own-loss", "rolling-origin"])
def test_what_selects_is_its_own_setting(select_on: str):
    other = {"own-loss": "rolling-origin", "rolling-origin": "own-loss"}[select_on]
    history = fit(tumours(), FEW.model_copy(update={"select_on": other}), select_on=select_on).meta["history"]
    assert ("selection_score" in history) == (select_on == "rolling-origin")
    scores = history.get("selection_score", history["validation_loss"])
    assert history["best_epoch"] == [int(np.argmin(scores[0]))]


def test_few_shot_keeps_the_source_model_where_no_epoch_is_better_and_its_forms_always():
    dataset = tumours()
    source = model_of(trained())
    at_once = GrowthOptimiserConfig(warmup=0, averaging=0)
    sizes = {"width": 8, "hidden": 8, **UNREGULARISED}
    hopeless = GrowthConfig(
        network=GrowthNetworkConfig(learning_rate=1.0, few_shot_rate=1.0, optimiser=at_once, **sizes)
    )
    kept = fit_method(dataset, "growth", hopeless, FEW, start=source, domain="target")
    assert kept.meta["kept_source_members"] == [1]
    assert kept.meta["forms"] == trained().meta["forms"]


@pytest.mark.parametrize("other", [{"carry_overs": 2}, {"covariates": "none"}])
def test_settings_of_another_shape_are_refused_in_few_shot(other: dict[str, object]):
    sizes = {"width": 8, "hidden": 8, "carry_overs": 1, **other}
    with pytest.raises(UsageError, match="differ in shape"):
        fit_method(
            tumours(),
            "growth",
            GrowthConfig(network=GrowthNetworkConfig(**sizes)),
            FEW,
            start=model_of(trained()),
            domain="target",
        )


def test_covariates_that_carry_an_effect_are_forecast():
    """In the linear system treatment acts through covariates, and reacts to them inside the plan."""
    dataset, some = linear_data(train=128), FEW.model_copy(update={"epochs": 20, "patience": 20})
    found = {
        covariates: error(model_of(fit(dataset, some, covariates=covariates)), dataset)
        for covariates in ("forecast", "none")
    }
    assert found["forecast"] < 0.5 * found["none"]
