from collections.abc import Callable
from functools import cache

import pytest

from costar_cli.data import Dataset
from costar_cli.training import Trained

Train = Callable[..., Trained]


@pytest.fixture(scope="session")
def whole(tumor_dataset: Dataset) -> Callable[..., Trained]:
    """Runs that nothing interrupts, each made once: `whole(run_pretrain, members=3)`; do not change their arrays."""

    @cache
    def made(run: Train, **changes: object) -> Trained:
        return run(tumor_dataset, **changes)

    return made
