from collections.abc import Callable
from functools import cache

import pytest

from costar_cli.data import Dataset
from costar_cli.data.tumor.settings import TumorConfig
from costar_cli.data.tumor.simulate import simulate_tumor
from costar_cli.reporting import NullReporter
from costar_cli.training import Trained

Train = Callable[..., Trained]


@pytest.fixture(scope="session")
def tumor_dataset(tumor_config: TumorConfig) -> Dataset:
    """The cohort of all tests, followed for 11 days: as many subjects, batches and steps of training."""
    return simulate_tumor(tumor_config.model_copy(update={"steps": 11}), NullReporter())


@pytest.fixture(scope="session")
def whole(tumor_dataset: Dataset) -> Callable[..., Trained]:
    """Runs that nothing interrupts, each made once: `whole(run_pretrain, members=3)`; do not change their arrays."""

    @cache
    def made(run: Train, **changes: object) -> Trained:
        return run(tumor_dataset, **changes)

    return made
