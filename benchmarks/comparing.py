"""What benchmarks that compare methods share: fits as `costar.fit` does them, and tables of results."""

import csv
from collections.abc import Sequence
from pathlib import Path

import costar_cli as costar
from costar_cli.methods.base import FittedModel
from costar_cli.methods.registry import METHODS
from costar_cli.panel import Dataset
from costar_cli.reporting import NullReporter

__all__ = ["Row", "fitted", "made", "read", "write"]

Row = dict[str, str]


def fitted(dataset: Dataset, method: str, *, preset: str, members: int, **settings: object) -> FittedModel:
    """Return a method fitted to the source as `made` fits it."""
    return made(dataset, method, preset=preset, members=members, **settings).fitted


def made(
    dataset: Dataset, method: str, *, preset: str, members: int, start: costar.Model | None = None, **settings: object
) -> costar.Model:
    """Return a method fitted to the source on the CPU, in silence, or a source model adapted to the target.

    Where others are pretrained, it starts from random weights.
    """
    init = "scratch" if METHODS[method].pretrained and start is None else None
    return costar.fit(
        dataset, method, domain="target" if start else "source", init=init, start=start, preset=preset,
        members=members, device="cpu", progress=NullReporter(), **settings,
    )  # fmt: skip


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
