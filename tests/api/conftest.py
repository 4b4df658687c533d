import warnings

import pytest

import costar_cli as costar
from tests.api.worlds import COHORT, QUICK


@pytest.fixture(scope="session")
def dataset() -> costar.Dataset:
    return costar.simulate("tumor", gamma=10.0, seed=3, **COHORT)


@pytest.fixture(scope="session")
def model(dataset: costar.Dataset) -> costar.Model:
    return costar.fit(dataset, pretrain={"epochs": 1}, **QUICK)


@pytest.fixture(scope="session")
def ridge(dataset: costar.Dataset) -> costar.Model:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "worse than the last value", costar.CostarWarning)
        return costar.fit(dataset, "ridge", preset="quick")
