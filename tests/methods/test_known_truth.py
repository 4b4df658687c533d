"""Effects that are known: a linear system under time-varying confounding, where each method is held against the truth.

`simulators/linear_gaussian.py` gives the expected outcome under every plan in closed form. Covariates after the origin
sway later treatments and carry the effects of earlier ones: adjusting for the history at the origin is not enough.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest

from costar_cli.config.models import Config, EncoderConfig, FinetuneConfig
from costar_cli.data import Dataset, Part
from costar_cli.methods import METHODS
from costar_cli.methods.base import FittedModel
from costar_cli.methods.regression.settings import MsmConfig
from simulators.linear_gaussian import LinearGaussian
from tests.methods.linear_worlds import answer, fit, linear_data, model_of

HORIZON = 4
TRUE_EFFECT = LinearGaussian().total_effect(HORIZON)  # of always treating against never treating
FULL_MSM = MsmConfig(clip=0, plan="steps")

# Largest RMSE of short training on 200 subjects, as a share of what carrying the last value forward scores.
NAIVE = {"last-value": 1.0, "mean": 1.1, "seasonal-naive": 1.0}
SHARES: Mapping[str, float] = {**NAIVE, "msm": 0.25, "ridge": 0.45, "gnet": 0.5, "gcomp": 0.3, "in-context": 0.3}
OF_NETWORKS = 0.75


def shortened(method: str, **changes: object) -> Config | None:
    """A method's own settings, with these values wherever its networks have such a setting."""
    settings = METHODS[method].settings_class
    if settings is None:
        return None

    def changed(values: dict[str, Any]) -> dict[str, Any]:
        return {
            name: changed(value) if isinstance(value, dict) else changes.get(name, value)
            for name, value in values.items()
        }

    return settings.model_validate(changed(settings().model_dump()))


def trained(data: Dataset, method: str, *, epochs: int = 8, **changes: object) -> FittedModel:
    shared = FinetuneConfig(
        epochs=epochs,
        patience=epochs,
        batch_size=32,
        learning_rate=5e-3,
        members=1,
        hidden=32,
        encoder=EncoderConfig(width=8, heads=1),
        select_on="own-loss",
    )
    settings = shortened(method, batch_size=32, learning_rate=0.01, dropout=0.0, **changes)
    return model_of(fit(data, method, settings, config=shared))


def rmse(model: FittedModel, data: Dataset, part: Part) -> float:
    """Over all steps of all plans, from the expected outcomes."""
    queries = data.queries[part]["sequence"]
    error = model.rollout(data.panels[part], queries).mean(axis=0) - queries.outcomes
    return float(np.sqrt((error**2).mean()))


def effect(model: FittedModel, data: Dataset) -> np.ndarray:
    """By how much always treating moves the predictions against never treating, on held-out subjects."""
    panel = data.panel("source", "val")
    always, never = (answer(model, panel, origin=5, plan=[treated] * HORIZON) for treated in (1, 0))
    return always - never


@cache
def small_data() -> Dataset:
    return linear_data(gamma=1.0, train=200, steps=10, horizon=HORIZON)


@pytest.mark.parametrize("method", [name for name, method in METHODS.items() if not method.needs])
def test_every_method_but_the_naive_ones_is_nearer_to_the_truth_than_the_last_value(method):
    data, anchor = small_data(), model_of(fit(small_data(), "last-value"))
    model = anchor if method == "last-value" else trained(data, method)
    for part in (Part("source", "test"), Part("target", "test")):
        assert rmse(model, data, part) <= SHARES.get(method, OF_NETWORKS) * rmse(anchor, data, part), part


def test_msm_finds_the_total_effect_within_sampling_error_and_naive_regression_does_not():
    """Mean over independent data sets, against the standard error of that mean; the criterion is the same for both."""
    effects: dict[str, list[np.ndarray]] = {"msm": [], "ridge": []}
    for seed in range(6):
        data = linear_data(gamma=0.5, train=1000, steps=10, horizon=HORIZON, seed=seed)
        effects["msm"].append(effect(model_of(fit(data, "msm", FULL_MSM)), data))
        effects["ridge"].append(effect(model_of(fit(data, "ridge")), data))
    away = {}
    for method, found in effects.items():
        error = np.std(found, axis=0, ddof=1) / len(found) ** 0.5
        away[method] = (np.mean(found, axis=0) - TRUE_EFFECT) / error
    assert np.abs(away["msm"]).max() < 4
    assert abs(away["ridge"][0]) < 4  # the first step has nothing after the origin to be confounded by
    assert away["ridge"][1:].min() > 5
    assert away["ridge"][2:].min() > 10


def test_gnet_comes_much_nearer_to_the_total_effect_than_naive_regression():
    data = linear_data(gamma=1.0, train=600, steps=10, horizon=HORIZON)
    naive = effect(model_of(fit(data, "ridge")), data)
    found = effect(trained(data, "gnet", epochs=15, representation=12), data)
    assert (np.abs(found - TRUE_EFFECT) < 0.5 * np.abs(naive - TRUE_EFFECT))[1:].all()
    assert found[-1] == pytest.approx(TRUE_EFFECT[-1], rel=0.25)


@pytest.mark.slow
def test_gnet_finds_the_total_effect_within_sampling_error():
    found, naive = [], []
    for seed in range(5):
        data = linear_data(gamma=1.0, train=2000, steps=12, horizon=HORIZON, seed=seed)
        found.append(effect(trained(data, "gnet", epochs=40, representation=12), data))
        naive.append(effect(model_of(fit(data, "ridge")), data))
    error = np.std(found, axis=0, ddof=1) / len(found) ** 0.5
    assert np.abs((np.mean(found, axis=0) - TRUE_EFFECT) / error).max() < 4
    assert np.mean(found, axis=0) == pytest.approx(TRUE_EFFECT, rel=0.15)
    assert (np.mean(naive, axis=0) - TRUE_EFFECT)[1:].min() > 0.2


@pytest.mark.slow
def test_msm_converges_to_the_total_effect_and_naive_regression_to_another():
    data = linear_data(gamma=0.5, train=60_000, steps=12, horizon=HORIZON)
    assert effect(model_of(fit(data, "msm", FULL_MSM)), data) == pytest.approx(TRUE_EFFECT, rel=0.02)
    assert (effect(model_of(fit(data, "ridge")), data) - TRUE_EFFECT)[2:].min() > 0.4


def test_doses_alone_get_the_total_effect_right_and_the_timing_wrong():
    """The paper's MSM counts treatments; when they are given matters here (docs/methods/msm.md)."""
    data = linear_data(gamma=0.5, train=3000, steps=12, horizon=HORIZON)
    dose, steps = (model_of(fit(data, "msm", MsmConfig(clip=0, plan=plan))) for plan in ("dose", "steps"))
    assert effect(dose, data) == pytest.approx(effect(steps, data), abs=0.05)
    part = Part("source", "test")
    assert rmse(steps, data, part) < 0.6 * rmse(dose, data, part)


def test_clipping_weights_trades_bias_for_spread():
    bias, spread = {}, {}
    worlds = [linear_data(gamma=1.0, train=500, steps=10, horizon=HORIZON, seed=seed) for seed in range(8)]
    for clip in (0.0, 0.05):
        found = [effect(model_of(fit(data, "msm", MsmConfig(clip=clip))), data) for data in worlds]
        bias[clip] = abs(np.mean(found, axis=0) - TRUE_EFFECT)[-1]
        spread[clip] = np.std(found, axis=0)[-1]
    assert bias[0.05] > bias[0.0]
    assert spread[0.05] < spread[0.0]
