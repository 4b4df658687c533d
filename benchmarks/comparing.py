"""What benchmarks that compare methods share: fits as `costar.fit` does them, and tables of results."""

import csv
from collections.abc import Sequence
from pathlib import Path

import costar_cli as costar
from costar_cli.methods.base import FittedModel
from costar_cli.methods.registry import METHODS
from costar_cli.panel import Dataset
from costar_cli.reporting import NullReporter

__all__ = ["Row", "fitted", "read", "write"]

Row = dict[str, str]


def fitted(dataset: Dataset, method: str, *, preset: str, members: int, **settings: object) -> FittedModel:
    """Return a method fitted to the source on the CPU, in silence; from random weights where others are pretrained."""
    init = "scratch" if METHODS[method].pretrained else None
    made = costar.fit(
        dataset, method, init=init, preset=preset, members=members, device="cpu", progress=NullReporter(), **settings
    )
    return made.fitted


def read(path: Path) -> list[Row]:
    """Return the rows of a table."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write(path: Path, rows: Sequence[Row], fields: Sequence[str]) -> None:
    """Write rows as a table."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fields, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
