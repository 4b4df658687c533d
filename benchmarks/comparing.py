"""What benchmarks that compare methods share: fits as `costar.fit` does them, and tables of results."""

import csv
from collections.abc import Sequence
from pathlib import Path

import costar_cli as costar
from benchmarks.machine import commit, machine, machine_slug, versions
from costar_cli.data import Dataset
from costar_cli.methods.base import FittedModel
from costar_cli.methods.registry import METHODS
from costar_cli.reporting import NullReporter

__all__ = ["Row", "fitted", "made", "provenance", "read", "replaced", "write"]

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


def replaced(stored: Sequence[Row], new: Sequence[Row], *keys: str) -> list[Row]:
    """Return the stored rows but for those of which `new` has the same values of some columns, and the new ones."""
    again = {tuple(row[key] for key in keys) for row in new}
    return [*(row for row in stored if tuple(row[key] for key in keys) not in again), *new]


def provenance() -> Row:
    """Return the columns that say on what machine, by which commit and with which versions a row was made."""
    made_with = " ".join(f"{name} {version}" for name, version in versions().items())
    return {"machine": machine_slug(machine()), "commit": commit(), "versions": made_with}
