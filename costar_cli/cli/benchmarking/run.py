"""The body of `costar benchmark`: which jobs, making them whatever happens to one, and what came of it."""

import time
import traceback
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path

from costar_cli.cli.benchmarking.cost_log import Clock, CostLog, Meter, give_memory_back
from costar_cli.cli.benchmarking.export import REPORT_FILES, require_own, show_report, write_report
from costar_cli.cli.benchmarking.jobs import (
    BenchmarkWorkspace,
    Job,
    JobReporter,
    JobTask,
    State,
    plan_jobs,
    with_values,
)
from costar_cli.cli.benchmarking.methods import (
    ABLATIONS,
    REFERENCE,
    BenchmarkData,
    BenchmarkMethod,
    choose_methods,
    choose_setups,
)
from costar_cli.cli.benchmarking.pool import JobEnd, PoolMaker, run_jobs
from costar_cli.cli.benchmarking.report import BenchmarkReport, Evaluations, Outcome, build_report, read_evaluations
from costar_cli.cli.benchmarking.shards import jobs_of, note_shard
from costar_cli.cli.hints import ASKED, after_loss, next_command
from costar_cli.cli.session import BuildStep
from costar_cli.cli.workspace import Workspace
from costar_cli.config.choices import SetupName
from costar_cli.config.models import BenchmarkConfig, FinetuneConfig, PretrainConfig, RuntimeConfig
from costar_cli.data.registry import sources
from costar_cli.errors import CostarError, LockedError, MismatchError, StorageError, UsageError, as_costar_error
from costar_cli.evaluation import SETUPS, EvaluationReport
from costar_cli.files import read_header
from costar_cli.files.shards import Shard
from costar_cli.methods import METHODS
from costar_cli.reporting import WORSE_THAN_LAST_VALUE, both_errors, is_worse
from costar_cli.reporting.output import Output
from costar_cli.reporting.text import in_words
from costar_cli.settings.resolve import Settings
from costar_cli.training.runtime import Runtime

__all__ = [
    "Made",
    "Planned",
    "complete_benchmark",
    "failure_of_jobs",
    "listed_jobs",
    "make_benchmark",
    "next_commands",
    "open_benchmark",
    "plan_benchmark",
    "require_fresh",
    "run_benchmark",
    "show_list",
]


def open_benchmark(out: Output, settings: Settings, data: BenchmarkData, folder: Path) -> BenchmarkWorkspace:
    """Return the benchmark of a data set in a folder.

    Raises:
        UsageError: several data sets are asked for, and there is one file.
    """
    config = settings[BenchmarkConfig]
    first = settings[PretrainConfig].seed
    if data.simulated is not None:
        document = settings.configs[data.simulated.section].model_dump()
        first = int(document["seed"])
    seeds = config.seeds(first)
    if data.simulated is None and len(seeds) > 1:
        raise UsageError(
            f"{len(seeds)} data sets requested, but a file holds only one",
            where="--data-seeds",
            fix=f"omit it, or choose a simulated data set: {', '.join(sources())}",
        )
    return BenchmarkWorkspace(data, JobReporter(out).watch(), settings, folder, seeds)


@dataclass(frozen=True)
class Planned:
    """What a benchmark consists of, and what of it is there."""

    benchmark: BenchmarkWorkspace
    setups: Sequence[SetupName]
    jobs: Sequence[Job]
    states: Mapping[str, State]


@dataclass(frozen=True)
class Made:
    """A benchmark whose jobs were made, as far as that was possible, and whose files are written."""

    outcome: Outcome
    evaluations: Evaluations
    report: BenchmarkReport


def plan_benchmark(benchmark: BenchmarkWorkspace, shard: Shard | None = None) -> Planned:
    """Return the jobs of a benchmark, or of a part of it, with their states.

    Raises:
        UsageError: a method or set-up that is not known, or not possible.
    """
    setups = choose_setups(benchmark.settings[BenchmarkConfig].setups, benchmark.data.setups)
    jobs = plan_jobs(benchmark.seeds, _methods(benchmark, setups), few_shot="few-shot" in setups)
    jobs = jobs if shard is None else jobs_of(shard, jobs)
    return Planned(benchmark, setups, jobs, {job.key: benchmark.state(job) for job in jobs})


def run_benchmark(
    out: Output,
    benchmark: BenchmarkWorkspace,
    *,
    overwrite: bool,
    pool: PoolMaker | None,
    plots: bool,
    list_only: bool,
    given: Mapping[str, str],
    shard: Shard | None = None,
) -> None:
    """Make what is not there, write and show the tables, and end the verb; or list the jobs.

    `pool` makes jobs side by side, one by one without it; `given` are the flags that a command to run next repeats;
    `shard` is the part of the benchmark that is made.

    Raises:
        CostarError: jobs failed; what the others found is written, shown, and part of the `--json` document.
    """
    plan = plan_benchmark(benchmark, shard)
    if list_only:
        show_list(out, listed_jobs(plan), benchmark.folder)
        return
    if shard is not None:
        note_shard(benchmark.folder, shard)
    made = complete_benchmark(out, plan, overwrite=overwrite, pool=pool, plots=plots)
    show_report(out, made.report)
    result = {**made.report.to_json(), "folder": str(benchmark.folder), "made": made.outcome.made}
    if made.outcome.failed:
        out.keep(result)
        raise failure_of_jobs(made.outcome, len(plan.jobs))
    out.next(*next_commands(benchmark, made.evaluations, given))
    out.done(result, status="done" if made.outcome.made else "up_to_date")


def complete_benchmark(out: Output, plan: Planned, *, overwrite: bool, pool: PoolMaker | None, plots: bool) -> Made:
    """Make what is not there of a benchmark, as `make_benchmark`, once it is known that its folder may be written to.

    Raises:
        MismatchError: jobs or tables were made from something else, and `overwrite` is false.
    """
    require_fresh([plan], overwrite=overwrite)
    require_own(plan.benchmark.folder, REPORT_FILES, plan.benchmark.data.file, overwrite=overwrite)
    return make_benchmark(out, plan, overwrite=overwrite, pool=pool, plots=plots, debug=out.debug)


def make_benchmark(
    out: Output, plan: Planned, *, overwrite: bool, pool: PoolMaker | None, plots: bool, debug: bool
) -> Made:
    """Make the jobs that are not there, and write the tables; `out` is told which files are written.

    Raises:
        StorageError: the disk is full or read-only.
        LockedError: another process works in the benchmark's folder.
    """
    benchmark, jobs, states = plan.benchmark, plan.jobs, plan.states
    Runtime.resolve(benchmark.settings[RuntimeConfig])  # no job could be made on a device that is not there
    place, cost_log = Workspace(benchmark.folder), CostLog(benchmark.folder / "ledger.json")
    is_made = set(states.values()) <= {"done"}
    with ExitStack() as held:
        if not is_made:
            held.enter_context(place.lock())
        outcome = _make_jobs(benchmark, jobs, states, cost_log, overwrite=overwrite, pool=pool, debug=debug)
        evaluations = read_evaluations(benchmark, jobs, outcome)
        report = build_report(benchmark, jobs, outcome, evaluations, cost_log, plan.setups)
        try:
            if is_made:
                held.enter_context(place.lock())
            write_report(out, report, benchmark.folder, plots=plots)
        except (LockedError, StorageError) as error:
            if not is_made:
                raise
            out.note(f"the tables are shown, not written: {error.problem}")  # perhaps somebody else's benchmark
    _warn_of_losses(benchmark, evaluations)
    return Made(outcome, evaluations, report)


def _methods(benchmark: BenchmarkWorkspace, setups: Sequence[SetupName]) -> list[BenchmarkMethod]:
    """Return the rows of the tables: methods, and the ablations that change anything.

    Raises:
        UsageError: a method that is not known, or ablations in few-shot alone.
    """
    config = benchmark.settings[BenchmarkConfig]
    methods, ablations = choose_methods(config.methods, list(METHODS))
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
        benchmark.reporter.note("added COSTAR as reference for the ablations")
    return [*methods, *(ablation for ablation in ablations if _has_row(benchmark, ablation))]


def _has_row(benchmark: BenchmarkWorkspace, ablation: BenchmarkMethod) -> bool:
    """Return whether an ablation changes anything; say so if it does not."""
    try:
        same = bool(ablation.changes) and with_values(benchmark.settings, ablation.changes) == benchmark.settings
    except ValueError:  # of COSTAR's own encoder or of one decoder alone, where COSTAR has another one
        architecture = benchmark.settings[PretrainConfig].encoder.architecture
        decoder = benchmark.settings[FinetuneConfig].decoder
        other = f"decoder = {decoder}" if ablation.component == "Output" else f"architecture = {architecture}"
        benchmark.reporter.note(f"{ablation.label} has no effect with `{other}`: skipped")
        return False
    if same:
        benchmark.reporter.note(f"{ablation.label} equals COSTAR with these settings: skipped")
    return not same


def listed_jobs(plan: Planned) -> list[dict[str, str | float | None]]:
    """Return the jobs with their states, times and files."""
    benchmark, cost_log = plan.benchmark, CostLog(plan.benchmark.folder / "ledger.json")
    rows: list[dict[str, str | float | None]] = []
    for job in plan.jobs:
        tasks, state = benchmark.tasks(job), plan.states[job.key]
        records = [cost_log.get(f"{job.key}/{task.name}") for task in tasks]
        error = next((r.error for r in records if r and r.error), None) if state != "done" else None
        file = str(tasks[0].path) if tasks else str(benchmark.data_file(job.seed))
        took_s = cost_log.wall_s(job.key)
        wall = None if took_s is None or state != "done" else round(took_s, 1)
        row = {"cell": job.key, "state": state, "wall_s": wall, "file": file}
        rows.append({**row, "error": (error or {}).get("problem")})
    return rows


def show_list(out: Output, rows: Sequence[Mapping[str, str | float | None]], folder: Path) -> None:
    """Print jobs with their states and files, and end the verb."""
    out.table(["cell", "state", "wall s", "file", "error"], [list(row.values()) for row in rows])
    states = [row["state"] for row in rows]
    out.note(", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states)))
    out.done({"cells": rows, "folder": str(folder)})


def require_fresh(plans: Sequence[Planned], *, overwrite: bool) -> None:
    """Stop where files were made from something else, and may not be replaced.

    Raises:
        MismatchError: naming the jobs.
    """
    stale = [f"{plan.benchmark.at}{key}" for plan in plans for key, state in plan.states.items() if state == "stale"]
    if stale and not overwrite:
        raise MismatchError(
            f"{len(stale)} cells of this benchmark were made from other data or settings",
            where=", ".join(stale[:6]) + (", ..." if len(stale) > 6 else ""),
            fix="add --overwrite to replace them, or keep them and choose another folder with --folder",
        )


def _make_jobs(
    benchmark: BenchmarkWorkspace,
    jobs: Sequence[Job],
    states: Mapping[str, State],
    cost_log: CostLog,
    *,
    overwrite: bool,
    pool: PoolMaker | None,
    debug: bool,
) -> Outcome:
    """Make the jobs that are not there; one that fails stops only those that need it.

    Raises:
        StorageError: the disk is full or read-only: no other job would fare better.
        LockedError: another process works in the benchmark's folder.
        KeyboardInterrupt: the run was interrupted; training has saved where it was.
    """
    left = [job for job in jobs if states[job.key] != "done"]
    clock = Clock(jobs, left, cost_log)
    if left:
        benchmark.reporter.note(f"{len(left)} of {len(jobs)} cells to run in {benchmark.folder}")
    make = partial(make_job, overwrite=overwrite)
    outcome = Outcome()
    with ExitStack() as held:
        task = held.enter_context(
            benchmark.reporter.task("Benchmark", total=len(jobs), done=len(jobs) - len(left), unit="cell")
        )
        if pool is not None and left:
            for seed in {job.seed: None for job in left}:
                held.enter_context(benchmark.workspace(seed).lock())
            ends = run_jobs(pool(benchmark, cost_log, make), left, outcome)
        else:
            ends = _one_by_one(benchmark, jobs, outcome, lambda job: make(benchmark, job, cost_log), debug=debug)
        for end in held.enter_context(closing(ends)):
            _account(benchmark, end, outcome, clock)
            if states[end.job.key] != "done":
                task.advance()
    return outcome


def _one_by_one(
    benchmark: BenchmarkWorkspace,
    jobs: Sequence[Job],
    outcome: Outcome,
    make: Callable[[Job], float | None],
    *,
    debug: bool,
) -> Generator[JobEnd]:
    """Make jobs in this process; yield how each ended."""
    for job in jobs:
        if blocked := outcome.blocked_by(job):
            yield JobEnd(job, blocked=blocked)
            continue
        benchmark.reporter.job = job
        try:
            end = JobEnd(job, make(job))
        except Exception as error:  # whatever it is, the other jobs can still be made
            if debug:
                traceback.print_exc()
            end = JobEnd(job, error=as_costar_error(error))
        finally:
            benchmark.reporter.job = None
        yield end


def _account(benchmark: BenchmarkWorkspace, end: JobEnd, outcome: Outcome, clock: Clock) -> None:
    """Remember how a job ended, and say so.

    Raises:
        StorageError: the disk is full or read-only.
        LockedError: another process works in the benchmark's folder.
    """
    clock.finish(end.job, end.took_s)
    if isinstance(end.error, (StorageError, LockedError)):
        raise end.error
    if end.blocked:
        outcome.blocked[end.job.key] = end.blocked
    elif end.error:
        outcome.failed[end.job.key] = end.error
        where = f" ({end.error.where})" if end.error.where else ""
        said = f"{end.job} failed: {end.error.problem}{where}"
        benchmark.reporter.warn("; ".join(filter(None, [said, clock.outlook()])))
    elif end.took_s is not None:
        outcome.made += 1
        benchmark.reporter.note("; ".join(filter(None, [f"{end.job}: {in_words(end.took_s)}", clock.outlook()])))


def make_job(benchmark: BenchmarkWorkspace, job: Job, cost_log: CostLog, *, overwrite: bool) -> float | None:
    """Make what is not there of a job; return the seconds that it took, None where all was there."""
    begun, made = time.monotonic(), False
    for task in benchmark.tasks(job):
        step = task.plan()
        if step.find(overwrite=overwrite) is None:
            if not made:
                give_memory_back()
            _make_task(f"{job.key}/{task.name}", task, step, cost_log, overwrite=overwrite)
            made = True
    return time.monotonic() - begun if made else None


def _make_task(key: str, task: JobTask, step: BuildStep, cost_log: CostLog, *, overwrite: bool) -> None:
    """Make one artifact, and record what it took, however it ends."""
    cost_log.begin(key, step.fingerprint)
    meter = Meter()
    try:
        with meter:
            task.make(step, overwrite)
    except Exception as error:
        cost_log.end(key, "failed", meter, as_costar_error(error))
        raise
    except BaseException:
        cost_log.end(key, "interrupted", meter)
        raise
    cost_log.end(key, "done", meter)


def failure_of_jobs(outcome: Outcome, total: int) -> CostarError:
    """Return one error for all jobs that failed: of their class, if they agree, else with exit code 1."""
    errors = list(outcome.failed.values())
    classes = {type(error) for error in errors}
    cls = classes.pop() if len(classes) == 1 else CostarError
    details = [f"{key}: {error.problem}" + (f" ({error.where})" if error.where else "")
               for key, error in outcome.failed.items()]  # fmt: skip
    if outcome.blocked:
        details.append(f"{len(outcome.blocked)} more cells depend on these")
    return cls(
        f"{len(errors)} of {total} cells failed",
        fix=next((error.fix for error in errors if error.fix), None) or "run the same command to try them again",
        details=details,
    )


def _warn_of_losses(benchmark: BenchmarkWorkspace, evaluations: Evaluations) -> None:
    """Warn once of each job whose model loses to the last value carried forward, in any set-up or on validation."""
    for job, report in evaluations.items():
        lost = [f"{row.setup} {errors}" for row, errors in report.losers()]
        validation = read_header(benchmark.tasks(job)[0].path).meta.get("validation")
        if validation and is_worse(validation["score"], validation["last_value"]):
            lost.append(f"validation {both_errors(validation['score'], validation['last_value'])}")
        if lost:
            benchmark.reporter.warn_of_loss(f"{job}: {WORSE_THAN_LAST_VALUE} in {', '.join(lost)}")


def next_commands(benchmark: BenchmarkWorkspace, evaluations: Evaluations, given: Mapping[str, str]) -> list[str]:
    """Return what to run next: a question to the best model that loses nowhere, or what may give a better one.

    Models are those of the first data set, compared in the first set-up that they have.

    Args:
        benchmark: the benchmark.
        evaluations: the scores of its models.
        given: the flags to repeat.
    """
    given = {"workspace": "", **given} | {"workspace": str(benchmark.workspace(benchmark.seeds[0]))}
    reports = {job: report for job, report in evaluations.items() if job.seed == benchmark.seeds[0]}
    for is_better, setup in product((True, False), SETUPS):
        averages = {job: _average(r, setup) for job, r in reports.items() if is_better != any(r.losers())}
        known = {job: average for job, average in averages.items() if average is not None}
        if not known:
            continue
        model, *_ = benchmark.tasks(min(known, key=lambda job: known[job]))
        if is_better:
            return [next_command(given, "whatif", *ASKED, data=benchmark.data.file, model=model.path)]
        files = {"data": benchmark.data.file, "out": model.path.with_name(f"longer-{model.path.name}")}
        made = {(job.method.base, of) for job in evaluations if job.method for of in ("source", "target")}
        return after_loss(replace(model.session, given=given), read_header(model.path).meta, files, made)
    return []


def _average(report: EvaluationReport, setup: str) -> float | None:
    """Return a model's average error in a set-up, None where it has none or carries the last value itself."""
    rows = (row for row in report.rows if row.basis == "ours" and not row.is_last_value)
    return next((row.mean.average for row in rows if row.setup == setup), None)
