"""What a benchmark found, read from the files of its jobs: tables, costs, and jobs that could not be made."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from costar_cli.cli.benchmarking.cost_log import CostLog
from costar_cli.cli.benchmarking.jobs import BenchmarkWorkspace, Job, Outcome
from costar_cli.cli.benchmarking.tables import TEST, DataSetFacts, ResultTable, Score, build_tables
from costar_cli.config.choices import SetupName
from costar_cli.config.models import EvaluateConfig
from costar_cli.data.record import ModelRecord, StageRecord
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import CostarError
from costar_cli.evaluation import EvaluationReport, read_evaluation
from costar_cli.evaluation.metrics import AVERAGED_STEPS
from costar_cli.evaluation.published import is_published_data
from costar_cli.evaluation.rows import ABOUT_BUDGET, ABOUT_LIMIT, errors_in_words, json_values
from costar_cli.files import describe, read_header
from costar_cli.files.frames import FrameName, frame_of_rows

if TYPE_CHECKING:
    from costar_cli.files.frames import Frame

# What models keep of their training data beside parameters: G-Net's residuals, the scales of the ridge's columns.
KEPT_DATA = ("params/residuals.", "params/columns.")
# Presets under which training may end before patience would end it, and what their rows are compared after.
BOUND_BY_BUDGET = {
    "quick": "its rows compare methods after equal outcome updates, not at convergence",
    "default": "its rows compare methods after equal outcome updates at most, not at convergence",
}


@dataclass(frozen=True, slots=True)
class JobCost:
    """What one job took, and the size of its model; None where it is not known.

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


def measure_model(described: Mapping[str, Any]) -> dict[str, Any]:
    """Return how large a model or encoder is, and how long it was trained: these fields of `JobCost`.

    Parameters are those of one member; epochs and updates of a stage are the mean over members. A model in closed form
    has no stages, and older files have no updates.
    """
    arrays, record = described["arrays"], ModelRecord.read(described["meta"], lenient=True)
    learned = [a for a in arrays if a["name"].startswith("params/") and not a["name"].startswith(KEPT_DATA)]
    stages = record.stages
    if stages is None:
        stages = (StageRecord(name="pretrain", history=record.history or {}),)
    epochs = {s.name: float(np.mean([len(losses) for losses in s.history["train_loss"]])) for s in stages}
    updates = {s.name: float(np.mean(s.steps)) for s in stages if s.steps is not None}
    auxiliary = {"pretrain", "propensity"}  # COSTAR's pretraining, RMSN's propensity networks: they learn no outcomes
    other = {name: steps for name, steps in updates.items() if auxiliary & set(name.split())}
    return {
        "parameters": sum(int(np.prod(array["shape"][1:])) for array in learned),
        "epochs": sum(epochs.values()) if epochs else None,
        "stages": epochs,
        "updates": sum(updates.values()) if updates else None,
        "stage_updates": updates,
        "outcome_updates": sum(n for name, n in updates.items() if name not in other) if updates else None,
        "other_updates": sum(other.values()) if updates else None,
        "stopped_by_budget": any(s.ended_by_budget for s in stages) if updates else None,
    }


@dataclass(frozen=True, slots=True)
class Failure:
    """A job that could not be made, or (`blocked`) one that needs such a job."""

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
    costs: tuple[JobCost, ...]
    failures: tuple[Failure, ...] = ()

    @property
    def steps(self) -> int:
        """Return how many steps the tables show and average."""
        return min(self.horizon, AVERAGED_STEPS)

    @property
    def cautions(self) -> list[str]:
        """Return in words which tables have no tests, and why, and which have tests that are not to be trusted far."""
        texts = (text for table in self.tables for text in (table.untested, table.caution) if text)
        return list(dict.fromkeys(texts))

    @property
    def about_budget(self) -> str:
        """Return what the sign of budgets means, and that some presets are bound by theirs."""
        if self.preset not in BOUND_BY_BUDGET:
            return ABOUT_BUDGET
        return (
            f"{ABOUT_BUDGET}; preset {self.preset} trains on a fixed budget by design: {BOUND_BY_BUDGET[self.preset]}"
        )

    @property
    def has_stopped_rows(self) -> bool:
        """Return whether a row that is shown was stopped by its budget."""
        return any(row.stopped_by_budget for table in self.tables for row in table.rows)

    @property
    def has_ensembles(self) -> bool:
        """Return whether models with several members were scored."""
        return any(table.has_ensembles for table in self.tables)

    @property
    def has_gains(self) -> bool:
        """Return whether COSTAR is there to compare a row with."""
        return any(table.has_gains for table in self.tables)

    @property
    def about_ratio(self) -> str | None:
        """Return what the ratios are to, None where no data set has a bound."""
        label = next((table.limit.label for table in self.tables if table.limit), None)
        errors = {f"{table.setup}, {table.truth}": table.limit.se for table in self.tables if table.limit}
        about = f"Ratio: Avg divided by that of the row `{label}`, {ABOUT_LIMIT}"
        return None if label is None else about + errors_in_words(errors)

    @property
    def spread(self) -> str:
        """Return what a standard deviation in the tables is over."""
        sets = len(self.seeds)
        if sets == 1:
            return "sd over the members, all trained on one data set (excludes variation between data sets)"
        return f"sd over the members of {sets} data sets"

    @property
    def averaged(self) -> str:
        """Return which steps the averages are over."""
        beyond = f" of {self.horizon}" if self.horizon > self.steps else ""
        return f"τ = 1..{self.steps}{beyond}" if self.steps > 1 else f"τ = 1{beyond}"

    def to_frame(self, frame: FrameName = "pandas") -> "Frame":
        """Return every row of every table, as `results.csv` has them, as a frame of pandas or polars."""
        from costar_cli.cli.benchmarking.export import result_rows

        return frame_of_rows(result_rows(self), frame)

    def to_json(self) -> dict[str, Any]:
        """Return the report as a JSON document; numbers that are not finite are null."""
        document: dict[str, Any] = json_values(asdict(self))
        return document | {"averaged_steps": self.steps, "test": TEST, "warnings": self.cautions}


Evaluations = Mapping[Job, EvaluationReport]


def read_evaluations(benchmark: BenchmarkWorkspace, jobs: Sequence[Job], outcome: Outcome) -> Evaluations:
    """Return the scores of every model that is there, by its job."""
    scored = [job for job in jobs if job.is_scored and outcome.is_there(job)]
    return {job: read_evaluation(benchmark.tasks(job)[-1].path) for job in scored}


def build_report(
    benchmark: BenchmarkWorkspace,
    jobs: Sequence[Job],
    outcome: Outcome,
    evaluations: Evaluations,
    cost_log: CostLog,
    setups: Sequence[SetupName],
) -> BenchmarkReport:
    """Return the benchmark's report from the files of the jobs that are there."""
    paths = {seed: path for seed in benchmark.seeds if (path := benchmark.data_file(seed)).exists()}
    headers = {seed: read_header(path) for seed, path in paths.items()}
    shared = next(iter(evaluations.values()), None)  # but for their rows, all are the same
    tables: tuple[ResultTable, ...] = ()
    if shared is not None:
        published = all(is_published_data(h.meta["name"], h.meta["config"]) for h in headers.values())
        facts = DataSetFacts(shared.dataset, shared.horizon, shared.unit.factor, published=published)
        scores = [
            Score(job.seed, job.method, row, errors)
            for job, scored in evaluations.items()
            for row, errors in zip(scored.rows, scored.errors, strict=True)
            if job.method is not None and row.basis == "ours" and errors is not None
        ]
        # The bound on each data set once; every model's scores have it, but for those of older versions.
        limits = {
            (job.seed, row.setup, row.truth): row
            for job, scored in evaluations.items()
            for row in scored.rows
            if row.basis == "limit"
        }
        config, reporter = benchmark.settings[EvaluateConfig], benchmark.reporter
        tables = build_tables(scores, facts, config, setups=setups, limits=limits, reporter=reporter)
    blocked = {key: CostarError(f"needs {need}") for key, need in outcome.blocked.items()}
    errors_by_key = {**blocked, **outcome.failed}
    return BenchmarkReport(
        dataset=shared.dataset if shared else benchmark.data.name,
        seeds=benchmark.seeds,
        digests={str(seed): header.digest for seed, header in headers.items()},
        preset=benchmark.settings.preset,
        unit=shared.unit.label if shared else "",
        level=benchmark.settings[EvaluateConfig].level,
        horizon=shared.horizon if shared else 0,
        step=shared.step if shared else "step",
        tables=tables,
        costs=tuple(_costs(benchmark, jobs, outcome, cost_log)),
        failures=tuple(
            Failure(job.key, str(job), errors_by_key[job.key].to_json(), blocked=job.key not in outcome.failed)
            for job in jobs
            if job.key in errors_by_key
        ),
    )


def _costs(
    benchmark: BenchmarkWorkspace, jobs: Sequence[Job], outcome: Outcome, cost_log: CostLog
) -> Iterator[JobCost]:
    """Yield what every job took that is there, and pass on the warnings of its training."""
    for job in jobs:
        tasks = benchmark.tasks(job) if outcome.is_there(job) else []
        if not tasks:
            continue
        prints = {task.name: read_header(task.path).meta["fingerprint"] for task in tasks}
        found = [cost_log.get(f"{job.key}/{name}", fingerprint) for name, fingerprint in prints.items()]
        records = [record for record in found if record is not None]
        described = {} if job.role == "data" else describe(tasks[0].path)
        record = ModelRecord.read(described.get("meta", {}), lenient=True)
        memories, device_memories = (
            [value for record in records if (value := getattr(record, name)) is not None]
            for name in ("memory_mb", "device_memory_mb")
        )
        benchmark.reporter.job = job
        for warning in record.warnings:  # also of a model that an earlier run trained
            benchmark.reporter.say(Diagnostic.of("recorded", warning=warning))
        yield JobCost(
            cell=job.key,
            contender=job.method.name if job.method else "",
            label=job.method.label if job.method else "data set",
            seed=job.seed,
            role=job.role,
            wall_s=sum(record.wall_s for record in records) if records else None,
            partial=any(record.partial for record in records),
            memory_mb=max(memories, default=None),
            device_memory_mb=max(device_memories, default=None),
            device=record.device,
            members=record.members,
            warnings=record.warnings,
            **(measure_model(described) if described else {"parameters": None, "epochs": None}),
        )
    benchmark.reporter.job = None
