"""What a benchmark found: tables, costs, and cells that could not be made."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from costar_cli.benchmark.cells import Cell
from costar_cli.benchmark.costs import ModelSize
from costar_cli.benchmark.ledger import Record
from costar_cli.benchmark.statistics import TEST
from costar_cli.benchmark.tables import ResultTable
from costar_cli.evaluate.metrics import AVERAGED_STEPS
from costar_cli.evaluate.report import ABOUT_BUDGET

__all__ = ["BenchmarkReport", "CellCost", "Failure"]

# Presets whose epochs are fewer than their patience, and what their rows are compared after.
BOUND_BY_BUDGET = {
    "quick": "its rows compare methods after equal outcome updates, not at convergence",
    "default": "its rows compare methods after equal epochs, not at convergence",
}


@dataclass(frozen=True, slots=True)
class CellCost:
    """What one cell took, and the size of its model; None where it is not known.

    `wall_s` is at least that where `partial` (an attempt was killed). `epochs` are those of all stages, the mean over
    members; `stages` has them one by one. So are `updates` (optimiser steps) and `stage_updates`; of `updates`,
    `outcome_updates` belong to stages that learn outcomes, `other_updates` to the rest. `stopped_by_budget` says
    whether a stage ended because epochs or updates ran out, not by patience; None for what has no stages.
    `warnings` are those of the model's training.
    """

    cell: str
    contender: str
    label: str
    seed: int
    role: str
    wall_s: float | None
    partial: bool
    memory_mb: float | None
    device_memory_mb: float | None
    device: str | None
    members: int | None
    parameters: int | None
    epochs: float | None
    stages: dict[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    updates: float | None = None
    stage_updates: dict[str, float] = field(default_factory=dict)
    stopped_by_budget: bool | None = None
    outcome_updates: float | None = None
    other_updates: float | None = None

    @classmethod
    def of(cls, cell: Cell, records: list[Record], size: ModelSize | None, meta: Mapping[str, Any]) -> "CellCost":
        """Return a cell's costs from the records of its artifacts, if all of them are known."""
        walls = [record.wall_s for record in records]
        memories = [record.memory_mb for record in records if record.memory_mb is not None]
        device_memories = [record.device_memory_mb for record in records if record.device_memory_mb is not None]
        return cls(
            cell=cell.key,
            contender=cell.contender.name if cell.contender else "",
            label=cell.contender.label if cell.contender else "data set",
            seed=cell.seed,
            role=cell.role,
            wall_s=sum(walls) if walls else None,
            partial=any(record.partial for record in records),
            memory_mb=max(memories, default=None),
            device_memory_mb=max(device_memories, default=None),
            device=meta.get("device"),
            members=meta.get("members"),
            parameters=size.parameters if size else None,
            epochs=size.total_epochs if size else None,
            stages=size.epochs if size else {},
            warnings=tuple(meta.get("warnings", ())),
            updates=size.total_updates if size else None,
            stage_updates=size.updates if size else {},
            stopped_by_budget=bool(size.by_budget) if size and size.updates else None,
            outcome_updates=size.outcome_updates if size else None,
            other_updates=size.other_updates if size else None,
        )


@dataclass(frozen=True, slots=True)
class Failure:
    """A cell that could not be made, or (`blocked`) one that needs such a cell."""

    cell: str
    what: str
    error: dict[str, Any]
    blocked: bool = False


@dataclass(frozen=True)
class BenchmarkReport:
    """A benchmark; `unit` labels every error in it, averages are over the first `steps` steps."""

    dataset: str
    seeds: tuple[int, ...]
    digests: dict[str, str]
    preset: str
    unit: str
    level: float
    horizon: int
    step: str
    tables: tuple[ResultTable, ...]
    costs: tuple[CellCost, ...]
    failures: tuple[Failure, ...] = ()

    @property
    def steps(self) -> int:
        """Return how many steps the tables show and average."""
        return min(self.horizon, AVERAGED_STEPS)

    @property
    def cautions(self) -> list[str]:
        """Return in words which tables have no tests, and why, and which have tests that are not to be trusted far."""
        said = [text for table in self.tables for text in (table.untested, table.caution) if text]
        return list(dict.fromkeys(said))

    @property
    def about_budget(self) -> str:
        """Return what the sign of budgets means, and that some presets are bound by theirs."""
        if self.preset not in BOUND_BY_BUDGET:
            return ABOUT_BUDGET
        return f"{ABOUT_BUDGET}; preset {self.preset} is bound by it by design: {BOUND_BY_BUDGET[self.preset]}"

    @property
    def has_stopped_rows(self) -> bool:
        """Return whether a row that is shown was stopped by its budget."""
        return any(row.stopped_by_budget for table in self.tables for row in table.rows)

    @property
    def spread(self) -> str:
        """Return what a standard deviation in the tables is over."""
        sets = len(self.seeds)
        if sets == 1:
            return "sd over the members, all trained on one data set (other data are not in it)"
        return f"sd over the members of {sets} data sets together"

    @property
    def averaged(self) -> str:
        """Return which steps the averages are over."""
        beyond = f" of {self.horizon}" if self.horizon > self.steps else ""
        return f"τ = 1..{self.steps}{beyond}" if self.steps > 1 else f"τ = 1{beyond}"

    def to_json(self) -> dict[str, Any]:
        """Return the report as a JSON document; numbers that are not finite are null."""
        document: dict[str, Any] = _plain(asdict(self))
        return document | {"averaged_steps": self.steps, "test": TEST, "warnings": self.cautions}


def _plain(value: Any) -> Any:  # noqa: ANN401 - JSON in, JSON out
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
