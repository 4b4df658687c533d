"""The body of `costar benchmark`: which jobs, making them whatever happens to one, and what came of it."""

import time
import traceback
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final

from costar_cli.cli.benchmarking.cost_log import Clock, CostLog, give_memory_back, measured, note_shard
from costar_cli.cli.benchmarking.export import (
    REPORT_FILES,
    csv_text,
    require_own,
    result_rows,
    show_report,
    write_report,
)
from costar_cli.cli.benchmarking.jobs import (
    BenchmarkWorkspace,
    Job,
    JobEnd,
    JobReporter,
    Outcome,
    State,
    jobs_of,
    plan_jobs,
    with_values,
)
from costar_cli.cli.benchmarking.methods import (
    ABLATIONS,
    BenchmarkData,
    BenchmarkMethod,
    choose_methods,
    choose_setups,
)
from costar_cli.cli.benchmarking.pool import PoolMaker, run_jobs
from costar_cli.cli.benchmarking.report import BenchmarkReport, Evaluations, build_report, read_evaluations
from costar_cli.cli.benchmarking.sweep import SETTING, SWEEP_FILES, Sweep, exact, open_sweep, show_sweep, write_sweep
from costar_cli.cli.hints import ASKED, after_loss, next_command
from costar_cli.cli.workspace import Workspace
from costar_cli.config.choices import SetupName
from costar_cli.config.models import BenchmarkConfig, FinetuneConfig, PretrainConfig, RuntimeConfig
from costar_cli.data.record import ModelRecord
from costar_cli.data.registry import sources
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import CostarError, LockedError, MismatchError, StorageError, UsageError, as_costar_error
from costar_cli.evaluation import SETUPS
from costar_cli.files import read_header, write_bytes
from costar_cli.files.shards import Shard
from costar_cli.methods import METHODS
from costar_cli.methods.registry import REFERENCE
from costar_cli.reporting import both_errors, is_worse
from costar_cli.reporting.output import Output
from costar_cli.reporting.text import in_words
from costar_cli.settings.resolve import Settings
from costar_cli.training.runtime import Runtime


def open_benchmark(out: Output, settings: Settings, data: BenchmarkData, folder: Path) -> BenchmarkWorkspace:
    """Return the benchmark of a data set in a folder.

    Raises:
        UsageError: several data sets are asked for, and there is one file.
    """
    simulated = data.simulated
    first = (
        settings[PretrainConfig].seed if simulated is None else settings.configs[simulated.section].model_dump()["seed"]
    )
    seeds = settings[BenchmarkConfig].seeds(first)
    if simulated is None and len(seeds) > 1:
        raise UsageError(
            f"{len(seeds)} data sets requested, but a file holds only one",
            where="--data-seeds",
            fix=f"omit it, or choose a simulated data set: {', '.join(sources())}",
        )
    return BenchmarkWorkspace(data, JobReporter(out).watch(), settings, folder, seeds)


@dataclass(frozen=True)
class Plan:
    """The jobs of a benchmark, and what of it is there."""

    benchmark: BenchmarkWorkspace
    setups: Sequence[SetupName]
    jobs: Sequence[Job]
    states: Mapping[str, State]

    @property
    def left(self) -> list[Job]:
        """Return the jobs that are not done, and those that were made from what such a job makes again."""
        left: dict[str, Job] = {}
        for job in self.jobs:
            if self.states[job.key] != "done" or left.keys() & set(job.needs):
                left[job.key] = job
        return list(left.values())


@dataclass(frozen=True)
class Result:
    """Benchmarks whose jobs were made, as far as that was possible, and whose files are written.

    `evaluations` are the first benchmark's; `total` counts the jobs of all.
    """

    report: BenchmarkReport | Sweep
    outcome: Outcome
    evaluations: Evaluations
    total: int

    def require_all(self) -> None:
        """Raise one error for all jobs that failed: of their class, if they agree, else with exit code 1.

        Raises:
            CostarError: jobs failed.
        """
        if not self.outcome.failed:
            return
        errors = list(self.outcome.failed.values())
        details = [f"{key}: {error.problem}" + (f" ({error.where})" if error.where else "")
                   for key, error in self.outcome.failed.items()]  # fmt: skip
        if self.outcome.blocked:
            details.append(f"{len(self.outcome.blocked)} more cells depend on these")
        raise (type(errors[0]) if len({type(error) for error in errors}) == 1 else CostarError)(
            f"{len(errors)} of {self.total} cells failed",
            fix=next((error.fix for error in errors if error.fix), None) or "run the same command to try them again",
            details=details,
        )


SUPPORT: Final = "support"  # the number of training subjects, where a protocol has several
Plans = Mapping[float | None, Plan]
"""The benchmark by the confounding strength of its source, or the only one by None."""


def plan_benchmarks(base: BenchmarkWorkspace, gamma: str | None, shard: Shard | None = None) -> Plans:
    """Return the jobs of a benchmark, or of a part of it, with their states; with strengths, those of each.

    Raises:
        UsageError: a method, set-up or strength that is not known, or not possible.
    """
    plans: dict[float | None, Plan] = {}
    by_strength = {} if gamma is None else open_sweep(base, gamma)
    for value, benchmark in by_strength.items() or [(None, base)]:
        setups = choose_setups(benchmark.settings[BenchmarkConfig].setups, benchmark.data.setups)
        jobs = plan_jobs(benchmark.seeds, _methods(benchmark, setups), few_shot="few-shot" in setups)
        jobs = jobs if shard is None else jobs_of(shard, jobs)
        plans[value] = Plan(benchmark, setups, jobs, {job.key: benchmark.state(job) for job in jobs})
    return plans


Grid = Mapping[int | None, tuple[BenchmarkWorkspace, Plans]]
"""Benchmarks by the number of training subjects, or the only one by None."""


def by_support(base: BenchmarkWorkspace, support: Sequence[int]) -> dict[int | None, BenchmarkWorkspace]:
    """Return a benchmark for each number of training subjects, in a folder each; the only one without any.

    A number that a flag, variable or file chose is the only one, too.
    """
    simulated = base.data.simulated
    name = f"{simulated.section}.train" if simulated else ""
    if not support or base.settings.is_chosen(name):
        return {None: base}
    return {
        size: replace(
            base, settings=with_values(base.settings, {name: size}), folder=base.folder / f"{SUPPORT}-{size}",
            at=f"{SUPPORT} {size}: ",
        )
        for size in support
    }  # fmt: skip


def _methods(benchmark: BenchmarkWorkspace, setups: Sequence[SetupName]) -> list[BenchmarkMethod]:
    """Return the rows of the tables: methods, and the ablations that change anything.

    Raises:
        UsageError: a method that is not known, or ablations in few-shot alone.
    """
    config, note = benchmark.settings[BenchmarkConfig], benchmark.reporter.note
    methods, ablations = choose_methods(config.methods, list(METHODS))
    named = {name.strip() for name in config.methods.split(",")}
    for method in [method for method in methods if method.name not in named]:
        if lacks := METHODS[method.base].lacks(benchmark.settings.configs.get(METHODS[method.base].section)):
            note(f"{method.label} needs `{lacks[0]}`: skipped")
            methods.remove(method)
    ablations = list(ABLATIONS) if config.ablations else ablations
    if not ablations:
        return methods
    if set(setups) <= {"few-shot"}:
        raise UsageError(
            "ablations are scored in zero-shot and supervised, as in the paper",
            where="--ablations" if config.ablations else "--methods",
            fix="omit them, or add one of these to --setups",
        )
    if REFERENCE not in {method.name for method in methods}:
        methods.append(BenchmarkMethod(REFERENCE, REFERENCE))
        note("added COSTAR as reference for the ablations")
    for ablation in ablations:
        try:
            same = bool(ablation.changes) and with_values(benchmark.settings, ablation.changes) == benchmark.settings
        except ValueError:  # of COSTAR's own encoder or of one decoder alone, where COSTAR has another one
            architecture = benchmark.settings[PretrainConfig].encoder.architecture
            decoder = benchmark.settings[FinetuneConfig].decoder
            other = f"decoder = {decoder}" if ablation.component == "Output" else f"architecture = {architecture}"
            note(f"{ablation.label} has no effect with `{other}`: skipped")
            continue
        if same:
            note(f"{ablation.label} equals COSTAR with these settings: skipped")
        else:
            methods.append(ablation)
    return methods


def run_benchmarks(
    out: Output,
    folder: Path,
    grid: Grid,
    *,
    overwrite: bool,
    pool: PoolMaker | None,
    plots: bool,
    list_only: bool,
    given: Mapping[str, str],
    shard: Shard | None = None,
) -> None:
    """Make what is not there, write and show the tables, and end the verb; or list the jobs.

    `given` are the flags that a command to run next repeats; `shard` is the part of the benchmark that is made, in
    `folder`.

    Raises:
        CostarError: jobs failed; what the others found is written, shown, and part of the `--json` document.
    """
    if list_only:
        rows: list[dict[str, str | float | None]] = []
        every = [(size, value, plan) for size, (_, plans) in grid.items() for value, plan in plans.items()]
        for size, value, plan in every:
            within = [f"{SUPPORT}-{size}"] if size is not None else []
            within += [f"{SETTING}-{exact(value)}"] if value is not None else []
            cost_log = CostLog(plan.benchmark.folder / "ledger.json")
            for job in plan.jobs:
                tasks, state = plan.benchmark.tasks(job), plan.states[job.key]
                records = [cost_log.get(f"{job.key}/{task.name}") for task in tasks]
                error = next((r.error for r in records if r and r.error), None) if state != "done" else None
                took_s = cost_log.wall_s(job.key) if state == "done" else None
                rows.append({
                    "cell": "/".join([*within, job.key]),
                    "state": state,
                    "wall_s": None if took_s is None else round(took_s, 1),
                    "file": str(tasks[0].path if tasks else plan.benchmark.data_file(job.seed)),
                    "error": (error or {}).get("problem"),
                })  # fmt: skip
        out.table(["cell", "state", "wall s", "file", "error"], [list(row.values()) for row in rows])
        states = [row["state"] for row in rows]
        out.note(", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states)))
        out.done({"cells": rows, "folder": str(folder)})
        return
    results: dict[int | None, Result] = {}
    documents: dict[int | None, dict[str, Any]] = {}
    for size, (base, plans) in grid.items():
        if shard is not None:
            note_shard(base.folder, shard)
        results[size] = result = complete_benchmarks(out, base, plans, overwrite=overwrite, pool=pool, plots=plots)
        out.text(*([f"{size} training subjects"] if size is not None else []))
        if isinstance(result.report, Sweep):
            show_sweep(out, result.report)
        else:
            show_report(out, result.report)
        documents[size] = {**result.report.to_json(), "folder": str(base.folder), "made": result.outcome.made}
        out.keep(documents[size])
    document = documents[None] if None in documents else _write_grid(out, folder, results, documents)
    out.keep(document)
    for result in results.values():
        result.require_all()
    _, plans = next(iter(grid.values()))
    first = next(iter(results.values()))
    out.next(*_next_commands(next(iter(plans.values())).benchmark, first.evaluations, given))
    out.done(document, status="done" if any(result.outcome.made for result in results.values()) else "up_to_date")


def _write_grid(
    out: Output, folder: Path, results: Mapping[int | None, Result], documents: Mapping[int | None, dict[str, Any]]
) -> dict[str, Any]:
    """Write the rows of all numbers of training subjects as one table, and return their document."""
    rows: list[dict[str, object]] = []
    for size, result in results.items():
        own = result.report.to_rows() if isinstance(result.report, Sweep) else result_rows(result.report)
        rows += [{SUPPORT: size, **row} for row in own]
    write_bytes(folder / "grid.csv", csv_text(rows).encode())
    out.wrote("grid", folder / "grid.csv", kind="csv")
    every = list(documents.values())
    summary = [{SUPPORT: size, **row} for size, document in documents.items() for row in document.get("rows", ())]
    shared = {name: every[0][name] for name in ("dataset", "seeds", "unit", "averaged_steps")}
    made = sum(document["made"] for document in every)
    return shared | {"setting": SUPPORT, "values": list(results), "rows": summary, "benchmarks": every} | {
        "folder": str(folder), "made": made,
    }  # fmt: skip


def complete_benchmarks(
    out: Output, base: BenchmarkWorkspace, plans: Plans, *, overwrite: bool, pool: PoolMaker | None, plots: bool
) -> Result:
    """Make what is not there of every benchmark, and write the tables; `out` lists the files.

    Raises:
        MismatchError: jobs or tables were made from something else, and `overwrite` is false.
        StorageError: the disk is full or read-only.
        LockedError: another process works in the folder.
    """
    stale = [
        f"{plan.benchmark.at}{key}" for plan in plans.values() for key, state in plan.states.items() if state == "stale"
    ]
    if stale and not overwrite:
        raise MismatchError(
            f"{len(stale)} cells of this benchmark were made from other data or settings",
            where=", ".join(stale[:6]) + (", ..." if len(stale) > 6 else ""),
            fix="add --overwrite to replace them, or keep them and choose another folder with --folder",
        )
    if None not in plans:
        require_own(base.folder, SWEEP_FILES, base.data.file, overwrite=overwrite)
    for plan in plans.values():
        require_own(plan.benchmark.folder, REPORT_FILES, base.data.file, overwrite=overwrite)
    reports: dict[float | None, BenchmarkReport] = {}
    whole, scores = Outcome(), list[Evaluations]()
    for value, plan in plans.items():
        benchmark = plan.benchmark
        base.reporter.at = benchmark.at
        to = out if value is None else benchmark.silent
        how: Any = {"overwrite": overwrite, "pool": pool, "plots": plots, "debug": out.debug}
        reports[value], outcome, evaluations = _complete(to, plan, **how)
        scores.append(evaluations)
        whole.made += outcome.made
        whole.failed |= {f"{benchmark.at}{key}": error for key, error in outcome.failed.items()}
        whole.blocked |= {f"{benchmark.at}{key}": need for key, need in outcome.blocked.items()}
    base.reporter.at = ""
    total = sum(len(plan.jobs) for plan in plans.values())
    swept = {value: report for value, report in reports.items() if value is not None}
    if not swept:
        return Result(reports[None], whole, scores[0], total)
    sweep = Sweep(swept)
    with Workspace(base.folder).lock():
        write_sweep(out, sweep, base.folder, plots=plots)
    return Result(sweep, whole, scores[0], total)


def _complete(
    out: Output, plan: Plan, *, overwrite: bool, pool: PoolMaker | None, plots: bool, debug: bool
) -> tuple[BenchmarkReport, Outcome, Evaluations]:
    """Make the jobs of one benchmark that are not done, and write its tables."""
    benchmark, jobs = plan.benchmark, plan.jobs
    Runtime.of_arrays(benchmark.settings[RuntimeConfig])  # no job could be made on a device that is not there
    place, cost_log = Workspace(benchmark.folder), CostLog(benchmark.folder / "ledger.json")
    is_made = set(plan.states.values()) <= {"done"}
    with ExitStack() as held:
        if not is_made:
            held.enter_context(place.lock())
        outcome = _make_jobs(plan, cost_log, overwrite=overwrite, pool=pool, debug=debug)
        evaluations = read_evaluations(benchmark, jobs, outcome)
        report = build_report(benchmark, jobs, outcome, evaluations, cost_log, plan.setups)
        try:
            if is_made:
                held.enter_context(place.lock())
            write_report(out, report, benchmark.folder, plots=plots)
        except (LockedError, StorageError) as error:
            if not is_made:
                raise
            out.note(f"the tables are shown, not written: {error.problem}")  # the folder may be of another person
    for job, scored in evaluations.items():  # once of each, for all of its set-ups and its validation
        lost = [f"{row.setup} {errors}" for row, errors in scored.losers()]
        validation = ModelRecord.of(read_header(benchmark.tasks(job)[0].path)).validation
        if validation and is_worse(validation.score, validation.last_value):
            lost.append(f"validation {both_errors(validation.score, validation.last_value)}")
        if lost:
            lost_in = Diagnostic.of("cell-worse-than-last-value", job, setups=", ".join(lost))
            benchmark.reporter.say(lost_in)
    return report, outcome, evaluations


def _make_jobs(plan: Plan, cost_log: CostLog, *, overwrite: bool, pool: PoolMaker | None, debug: bool) -> Outcome:
    """Make the jobs that are not done; one that fails stops only those that need it.

    Raises:
        StorageError: the disk is full or read-only: no other job would fare better.
        LockedError: another process works in the benchmark's folder.
        KeyboardInterrupt: the run was interrupted; training has saved where it was.
    """
    benchmark, jobs, outcome = plan.benchmark, plan.jobs, Outcome()
    reporter, make = benchmark.reporter, partial(make_job, overwrite=overwrite)
    left = plan.left
    clock = Clock(jobs, left, cost_log)
    if left:
        reporter.note(f"{len(left)} of {len(jobs)} cells to run in {benchmark.folder}")
    with ExitStack() as held:
        shown = reporter.task("Benchmark", total=len(jobs), done=len(jobs) - len(left), unit="cell")
        progress = held.enter_context(shown)
        if pool is not None and left:
            for seed in {job.seed: None for job in left}:
                held.enter_context(benchmark.workspace(seed).lock())
            ends = run_jobs(pool(benchmark, cost_log, make), left, outcome)
        else:
            ends = _one_by_one(benchmark, left, outcome, cost_log, overwrite=overwrite, debug=debug)
        for end in held.enter_context(closing(ends)):
            clock.finish(end.job, end.took_s)
            if isinstance(end.error, (StorageError, LockedError)):
                raise end.error
            if end.blocked:
                outcome.blocked[end.job.key] = end.blocked
            elif end.error:
                outcome.failed[end.job.key] = end.error
                where = f" ({end.error.where})" if end.error.where else ""
                problem = "; ".join(filter(None, [f"{end.error.problem}{where}", clock.outlook()]))
                reporter.say(Diagnostic.of("job-failed", end.job, problem=problem))
            elif end.took_s is not None:
                outcome.made += 1
                reporter.note("; ".join(filter(None, [f"{end.job}: {in_words(end.took_s)}", clock.outlook()])))
            progress.advance()
    return outcome


def _one_by_one(
    benchmark: BenchmarkWorkspace,
    jobs: Sequence[Job],
    outcome: Outcome,
    cost_log: CostLog,
    *,
    overwrite: bool,
    debug: bool,
) -> Generator[JobEnd]:
    """Make jobs in this process; yield how each ended."""
    for job in jobs:
        if blocked := outcome.blocked_by(job):
            yield JobEnd(job, blocked=blocked)
            continue
        benchmark.reporter.job = job
        try:
            end = JobEnd(job, make_job(benchmark, job, cost_log, overwrite=overwrite))
        except Exception as error:  # whatever it is, the other jobs can still be made
            if debug:
                traceback.print_exc()
            end = JobEnd(job, error=as_costar_error(error))
        finally:
            benchmark.reporter.job = None
        yield end


def make_job(benchmark: BenchmarkWorkspace, job: Job, cost_log: CostLog, *, overwrite: bool) -> float | None:
    """Make what is not there of a job, and record what each artifact took, however it ends.

    Returns:
        The seconds that it took, None where all was there.
    """
    begun, made = time.monotonic(), False
    for task in benchmark.tasks(job):
        step = task.plan()
        if step.find(overwrite=overwrite) is not None:
            continue
        if not made:
            give_memory_back()
        made, key = True, f"{job.key}/{task.name}"
        cost_log.begin(key, step.fingerprint)
        try:
            with measured() as cost:
                task.make(step, overwrite)
        except Exception as error:
            cost_log.end(key, "failed", cost, as_costar_error(error))
            raise
        except BaseException:
            cost_log.end(key, "interrupted", cost)
            raise
        cost_log.end(key, "done", cost)
    return time.monotonic() - begun if made else None


def _next_commands(benchmark: BenchmarkWorkspace, evaluations: Evaluations, given: Mapping[str, str]) -> list[str]:
    """Return what to run next: a question to the best model that loses nowhere, or what may give a better one.

    Models are those of the first data set, compared in the first set-up that they have.
    """
    given = {"workspace": "", **given} | {"workspace": str(benchmark.workspace(benchmark.seeds[0]))}
    reports = {job: report for job, report in evaluations.items() if job.seed == benchmark.seeds[0]}
    for is_better, setup in product((True, False), SETUPS):
        known: dict[Job, float] = {}
        for job, report in reports.items():
            rows = [row for row in report.rows if row.basis == "ours" and not row.is_last_value and row.setup == setup]
            if rows and rows[0].mean.average is not None and is_better != any(report.losers()):
                known[job] = rows[0].mean.average
        if not known:
            continue
        model, *_ = benchmark.tasks(min(known, key=lambda job: known[job]))
        if is_better:
            return [next_command(given, "whatif", *ASKED, data=benchmark.data.file, model=model.path)]
        files = {"data": benchmark.data.file, "out": model.path.with_name(f"longer-{model.path.name}")}
        made = {(job.method.base, of) for job in evaluations if job.method for of in ("source", "target")}
        return after_loss(replace(model.session, given=given), ModelRecord.of(read_header(model.path)), files, made)
    return []
