"""What all tests share: reproducible hypothesis runs, a clean environment, a small tumour data set."""

import gc
import os
import sys

import pytest
from hypothesis import HealthCheck, settings

from costar_cli.data import Dataset
from costar_cli.data.tumor.settings import TumorConfig
from costar_cli.reporting import NullReporter

# `HYPOTHESIS_PROFILE=explore` draws new and more examples; the default repeats the same ones on every run.
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile(
    "repeat", deadline=None, derandomize=True, max_examples=30, database=None, suppress_health_check=SLOW
)
settings.register_profile("explore", deadline=None, max_examples=500, database=None, suppress_health_check=SLOW)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeat"))

# Settings of a developer's shell, and the width that test workers pretend to have, are none of the tests' business.
for variable in [name for name in os.environ if name.startswith("COSTAR_") or name == "COLUMNS"]:
    del os.environ[variable]


# Processes that tests start read bytecode, whatever the shell says: to compile the package took each a second.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Two test workers on two cores: one thread each, or their threads wait for each other. Subprocesses inherit it.
os.environ["OMP_NUM_THREADS"] = "1"


# No test cuts the power, so none waits for the disk; processes that tests start, and kill, do.
os.fsync = lambda _: None

# Looking for garbage took a sixth of the suite's time, most of it among what imports and collection had made.
gc.set_threshold(10_000, 10, 10)


def pytest_collection_finish() -> None:
    """Leave all that there is before the first test out of every later search for garbage."""
    gc.freeze()


@pytest.fixture
def reporter() -> NullReporter:
    """A reporter whose `warnings` a test can look at."""
    return NullReporter()


@pytest.fixture(scope="session")
def tumor_config() -> TumorConfig:
    """A cohort that simulates in milliseconds: six parts, 20 days, 6 predicted."""
    return TumorConfig(train=40, val=12, test=8, target_train=6, target_val=7, target_test=9, steps=20, seed=3)


@pytest.fixture(scope="session")
def tumor_dataset(tumor_config: TumorConfig) -> Dataset:
    """The data set of `tumor_config`, in memory; do not change its arrays."""
    from costar_cli.data.tumor.simulate import simulate_tumor

    return simulate_tumor(tumor_config, NullReporter())
