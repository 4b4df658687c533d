"""Methods recover the known effect of doses, whatever the basis, and others refuse doses by name."""

from typing import Any

import numpy as np
import pytest

from costar_cli.errors import UsageError
from costar_cli.methods import METHODS
from costar_cli.panel import Dataset, Part
from costar_cli.panel.dose import Basis
from tests.dose_worlds import NOISE, Act, linear_doses
from tests.methods.linear_worlds import fit, model_of

TEST = Part("source", "test")


def rmse(data: Dataset, method: str) -> float:
    """Return the error of a fitted method under doses that were not given, in outcome units."""
    queries = data.queries[TEST]["doses"]
    found = model_of(fit(data, method)).rollout(data.panels[TEST], queries)
    return float(np.sqrt(((found.mean(axis=0) - queries.outcomes) ** 2).mean()))


@pytest.mark.parametrize(("method", "most"), [("mixed", 0.5), ("ridge", 0.6), ("msm", 0.8)])
def test_linear_effects_of_doses_are_recovered(method: str, most: float) -> None:
    assert rmse(linear_doses(200), method) < most * NOISE


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
