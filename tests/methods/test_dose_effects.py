"""Methods recover the known effect of doses, whatever the basis, and others refuse doses by name."""

from typing import Any

import numpy as np
import pytest

from costar_cli.data import Dataset, Part, Queries, as_plans
from costar_cli.data.dose import Basis
from costar_cli.data.linear.settings import LinearGaussianConfig
from costar_cli.data.linear.simulate import simulate_linear
from costar_cli.errors import UsageError
from costar_cli.methods import METHODS
from costar_cli.reporting import NullReporter
from simulators.linear_gaussian import LinearGaussian
from tests.dose_worlds import NOISE, Act, linear_doses
from tests.methods.linear_worlds import fit, model_of

TEST = Part("source", "test")


def rmse(data: Dataset, method: str) -> float:
    """Return the error of a fitted method under doses that were not given, in outcome units."""
    queries = data.queries[TEST]["doses"]
    found = model_of(fit(data, method)).rollout(data.panels[TEST], queries)
    return float(np.sqrt(((found.mean(axis=0) - queries.outcomes) ** 2).mean()))


@pytest.mark.parametrize(
    ("method", "most"), [("mixed", 0.5), ("gcomp", 0.6), ("in-context", 0.6), ("ridge", 0.6), ("msm", 0.8)]
)
def test_linear_effects_of_doses_are_recovered(method: str, most: float) -> None:
    assert rmse(linear_doses(200 if method == "mixed" else 300), method) < most * NOISE


@pytest.mark.slow
@pytest.mark.parametrize(("basis", "act"), [("log1p", np.log1p), ("splines", lambda dose: np.minimum(dose, 2.0))])
def test_a_basis_that_fits_beats_a_straight_line(basis: Basis, act: Act) -> None:
    bent, straight = (rmse(linear_doses(300, basis=of, act=act), "mixed") for of in (basis, "identity"))
    assert bent < 0.8 * straight


@pytest.mark.parametrize("method", [name for name, method in METHODS.items() if not method.takes_doses])
def test_methods_without_doses_refuse_them_by_name(method: str) -> None:
    task: Any = type("Task", (), {"schema": linear_doses(20).schema})
    with pytest.raises(UsageError, match=f"{METHODS[method].label.split('(')[0]}.* dose"):
        METHODS[method].fit(task)


@pytest.mark.parametrize(("method", "gamma"), [("ridge", 0.0), pytest.param("mixed", 1.0, marks=pytest.mark.slow)])
def test_the_dose_response_of_the_linear_system_is_recovered(method: str, gamma: float) -> None:
    sizes = {"train": 600, "val": 100, "test": 50, "target_train": 2, "target_val": 2, "target_test": 2}
    config = LinearGaussianConfig(doses=True, gamma=gamma, **sizes)
    data = simulate_linear(config, NullReporter())
    panel, encoding = data.panels[TEST], data.schema.treatments
    rows, doses = np.arange(50), np.array([0.0, 0.5, 1, 2, 3])
    plan = np.broadcast_to(doses[:, None, None, None], (5, 50, config.horizon, 1)).reshape(-1, config.horizon, 1)
    asked = Queries(np.tile(rows, 5).astype(np.int32), np.full(250, 9, np.int16), as_plans(encoding.encode(plan)))
    found = model_of(fit(data, method)).rollout(panel, asked).mean(axis=0)[..., 0].reshape(5, 50, -1)
    slope = np.polyfit(doses, found.mean(axis=1), 1)[0]
    true = LinearGaussian(doses=True).total_effect(config.horizon)
    assert np.allclose(slope, true, rtol=0.1)


@pytest.mark.parametrize(("basis", "act"), [("log1p", np.log1p), ("splines", lambda dose: np.minimum(dose, 2.0))])
def test_a_curved_effect_is_nearer_to_the_truth_in_its_own_basis(basis: Basis, act: Act) -> None:
    """Of ridge, as a quick check: the carry-over of past doses makes its error larger than that of mixed effects."""
    bent, straight = (rmse(linear_doses(300, basis=of, act=act), "ridge") for of in (basis, "identity"))
    assert bent < 0.9 * straight
