"""Known effects: what the recurrent methods make of confounding that is observed, on a law in closed form."""

from dataclasses import replace

import numpy as np
import pytest

from costar_cli.config.models import Config, FinetuneConfig
from costar_cli.data import Dataset, Part
from costar_cli.methods.recurrent.settings import CrnErmConfig, GNetConfig, RmsnConfig
from simulators.linear_gaussian import LinearGaussian
from tests.methods.linear_worlds import fit, linear_data, model_of

SHAPE = {"width": 24, "representation": 12, "hidden": 24, "batch_size": 64, "learning_rate": 0.01}


@pytest.fixture(scope="module")
def data() -> Dataset:
    return linear_data(train=500, val=100, target_test=100, steps=16)


def effect_of_treating_throughout(data: Dataset, method: str, settings: Config | None = None) -> float:
    """Return the estimate, as a share of the truth: mean difference in the last outcome between always and never."""
    config = FinetuneConfig(epochs=30, members=1, select_on="own-loss")
    model = model_of(fit(data, method, settings, config=config))
    part = Part("target", "test")
    queries, panel = data.queries[part]["sequence"], data.panels[part]
    never = replace(queries, plan=np.zeros_like(queries.plan), outcomes=None, scored=None)
    always = replace(never, plan=np.ones_like(queries.plan))
    found = (model.rollout(panel, always) - model.rollout(panel, never))[:, :, -1].mean()
    law, horizon = LinearGaussian(), queries.horizon
    x, y = panel.covariates[queries.subject, queries.origin], panel.outcomes[queries.subject, queries.origin, 0]
    true = law.expected_outcomes(x, y, np.ones(horizon)) - law.expected_outcomes(x, y, np.zeros(horizon))
    return float(found / true[:, -1].mean())


def test_simulated_futures_find_the_effect_of_a_plan_that_regression_misses(data):
    settings = GNetConfig.model_validate({"network": SHAPE})
    assert effect_of_treating_throughout(data, "gnet", settings) == pytest.approx(1, abs=0.25)
    assert effect_of_treating_throughout(data, "ridge") < 0.5


def test_iterated_regressions_find_it_too(data):
    assert effect_of_treating_throughout(data, "igcnet") == pytest.approx(1, abs=0.15)


@pytest.mark.slow
def test_weighting_by_the_inverse_probability_of_treatment_brings_the_effect_nearer(data):
    decoder = {"representation": 12, "hidden": 24, "learning_rate": 0.01}
    plain = CrnErmConfig.model_validate({"encoder": SHAPE, "decoder": decoder})
    weighted = RmsnConfig.model_validate({"decoder": {"learning_rate": 0.003}})
    found = effect_of_treating_throughout(data, "rmsn", weighted)
    assert 0.6 < found < 1.2
    assert effect_of_treating_throughout(data, "crn-erm", plain) < found - 0.1
