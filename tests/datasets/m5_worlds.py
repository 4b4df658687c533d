"""A retail world of the smallest catalogue, as a data set and as files, for the tests of M5."""

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import polars as pl

from costar_cli.data import Dataset, Part
from costar_cli.data.retail.m5 import ingest_m5, retail_dataset
from costar_cli.data.retail.settings import M5Config, RetailConfig
from costar_cli.data.retail.weekly import WeeklySales
from costar_cli.reporting import NullReporter
from simulators.retail import RetailWorld, simulate_retail, write_csv

SCALE = 0.001  # eight items per department
SOURCE_TRAIN, SOURCE_TEST, TARGET_TEST = Part("source", "train"), Part("source", "test"), Part("target", "test")
LIMITS = {"train_items": 4, "val_items": 2, "target_test_items": 3}
SALES = "sales_train_evaluation.csv"


@cache
def world() -> RetailWorld:
    """The world of seed 10; do not change it."""
    return simulate_retail(10, scale=SCALE)


@cache
def weekly() -> WeeklySales:
    return WeeklySales.of_world(world())


@cache
def dataset(**settings: object) -> Dataset:
    """The embedded data set; do not change its arrays."""
    return retail_dataset(world(), RetailConfig(**{"scale": SCALE, **LIMITS, **settings}), NullReporter())


def ingested(folder: Path, reporter: NullReporter | None = None, **settings: object) -> Dataset:
    return ingest_m5(M5Config(**{**LIMITS, **settings}), folder, reporter or NullReporter())


def export(folder: Path) -> Path:
    """Write the world's files."""
    write_csv(world(), folder)
    return folder


def copied(files: Path, folder: Path) -> Path:
    """Copy the files, so that a test may spoil them."""
    return Path(shutil.copytree(files, folder / "m5"))


def change(folder: Path, name: str, edit: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
    """Read a file as text, change it, write it back."""
    path = folder / name
    edit(pl.read_csv(path, infer_schema=False)).write_csv(path)
