"""ICU data sets small enough for tests, and tables made by hand."""

from dataclasses import replace
from typing import Any

import numpy as np

from costar_cli.data import Dataset, Part
from costar_cli.data.icu.semi_synthetic import simulate_mimic
from costar_cli.data.icu.settings import MimicConfig, MimicFactualConfig
from costar_cli.data.icu.table import IcuTable, embedded_cohort
from costar_cli.reporting import NullReporter

SOURCE_TRAIN, SOURCE_TEST, TARGET_TEST = Part("source", "train"), Part("source", "test"), Part("target", "test")
SMALL: dict[str, Any] = {"stays": 500, "hours": 26, "horizon": 5, "plans_per_origin": 4, "seed": 3}


def small_config(**settings: Any) -> MimicConfig:
    return MimicConfig(**{**SMALL, **settings})


def factual_config(**settings: Any) -> MimicFactualConfig:
    shape = {"hours": 26, "min_hours": 20, "horizon": 5, "seed": 3}
    return MimicFactualConfig(**{**shape, **settings})


def small_table(**settings: Any) -> IcuTable:
    return IcuTable.of_cohort(embedded_cohort(small_config(**settings), NullReporter()))


def simulate(table: IcuTable | None = None, **settings: Any) -> Dataset:
    return simulate_mimic(small_config(**settings), NullReporter(), table)


def made_table(length: list[int], age: list[float], **columns: Any) -> IcuTable:
    """A table of patients 100, 101, ... whose values are all recorded and finite, unless given."""
    n, m = len(length), sum(length)
    rng = np.random.default_rng(0)
    table = IcuTable(
        subject_id=np.arange(100, 100 + n),
        gender=np.full(n, "F"),
        ethnicity=np.full(n, "WHITE"),
        age=np.array(age, dtype=np.float64),
        length=np.array(length, dtype=np.int64),
        values=rng.normal(size=(m, 25)).astype(np.float32),
        diastolic=rng.normal(60, 10, size=m).astype(np.float32),
        vent=rng.random(m) < 0.5,
        vaso=rng.random(m) < 0.2,
    )
    return replace(table, **columns)
