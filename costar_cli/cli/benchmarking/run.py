"""The body of `costar benchmark`: which cells, making them whatever happens to one, and what came of it."""

import time
import traceback
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path

from costar_cli.cli.benchmarking.cells import Bench, BenchReporter, Cell, Piece, State, plan_cells, with_values
from costar_cli.cli.benchmarking.contenders import (
    ABLATIONS,
    REFERENCE,
    BenchData,
    Contender,
    choose_methods,
    choose_setups,
)
from costar_cli.cli.benchmarking.export import REPORT_FILES, require_own, write_report
from costar_cli.cli.benchmarking.ledger import Clock, Ledger, Meter, give_memory_back
from costar_cli.cli.benchmarking.report import BenchmarkReport, Evaluations, Outcome, build_report, read_evaluations
from costar_cli.cli.benchmarking.shards import cells_of, note_shard
from costar_cli.cli.benchmarking.show import show_report
from costar_cli.cli.benchmarking.workers import CellEnd, CrewMaker, side_by_side
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
    "cells_listed",
    "complete_benchmark",
    "failure_of_cells",
    "make_benchmark",
    "next_commands",
    "open_bench",
    "plan_benchmark",
    "require_fresh",
    "run_benchmark",
    "show_list",
]


def open_bench(out: Output, settings: Settings, data: BenchData, folder: Path) -> Bench:
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
    return Bench(data, BenchReporter(out).watch(), settings, folder, seeds)


@dataclass(frozen=True)
class Planned:
    """What a benchmark consists of, and what of it is there."""

    bench: Bench
    setups: Sequence[SetupName]
    cells: Sequence[Cell]
    states: Mapping[str, State]


@dataclass(frozen=True)
class Made:
    """A benchmark whose cells were made, as far as that was possible, and whose files are written."""

    outcome: Outcome
    evaluations: Evaluations
    report: BenchmarkReport


def plan_benchmark(bench: Bench, shard: Shard | None = None) -> Planned:
    """Return the cells of a benchmark, or of a part of it, with their states.

    Raises:
        UsageError: a method or set-up that is not known, or not possible.
    """
    setups = choose_setups(bench.settings[BenchmarkConfig].setups, bench.data.setups)
    cells = plan_cells(bench.seeds, _contenders(bench, setups), few_shot="few-shot" in setups)
    cells = cells if shard is None else cells_of(shard, cells)
    return Planned(bench, setups, cells, {cell.key: bench.state(cell) for cell in cells})


def run_benchmark(
    out: Output,
    bench: Bench,
    *,
    overwrite: bool,
    crew: CrewMaker | None,
    plots: bool,
    list_only: bool,
    given: Mapping[str, str],
    shard: Shard | None = None,
) -> None:
    """Make what is not there, write and show the tables, and end the verb; or list the cells.

    `crew` makes cells side by side, one by one without it; `given` are the flags that a command to run next repeats;
    `shard` is the part of the benchmark that is made.

    Raises:
        CostarError: cells failed; what the others found is written, shown, and part of the `--json` document.
    """
    plan = plan_benchmark(bench, shard)
    if list_only:
        show_list(out, cells_listed(plan), bench.folder)
        return
    if shard is not None:
        note_shard(bench.folder, shard)
    made = complete_benchmark(out, plan, overwrite=overwrite, crew=crew, plots=plots)
    show_report(out, made.report)
    result = {**made.report.to_json(), "folder": str(bench.folder), "made": made.outcome.made}
    if made.outcome.failed:
        out.keep(result)
        raise failure_of_cells(made.outcome, len(plan.cells))
    out.next(*next_commands(bench, made.evaluations, given))
    out.done(result, status="done" if made.outcome.made else "up_to_date")


def complete_benchmark(out: Output, plan: Planned, *, overwrite: bool, crew: CrewMaker | None, plots: bool) -> Made:
    """Make what is not there of a benchmark, as `make_benchmark`, once it is known that its folder may be written to.

    Raises:
        MismatchError: cells or tables were made from something else, and `overwrite` is false.
    """
    require_fresh([plan], overwrite=overwrite)
    require_own(plan.bench.folder, REPORT_FILES, plan.bench.data.file, overwrite=overwrite)
    return make_benchmark(out, plan, overwrite=overwrite, crew=crew, plots=plots, debug=out.debug)


def make_benchmark(
    out: Output, plan: Planned, *, overwrite: bool, crew: CrewMaker | None, plots: bool, debug: bool
) -> Made:
    """Make the cells that are not there, and write the tables; `out` is told which files are written.

    Raises:
        StorageError: the disk is full or read-only.
        LockedError: another process works in the benchmark's folder.
    """
    bench, cells, states = plan.bench, plan.cells, plan.states
    Runtime.resolve(bench.settings[RuntimeConfig])  # no cell could be made on a device that is not there
    place, ledger = Workspace(bench.folder), Ledger(bench.folder / "ledger.json")
    is_made = set(states.values()) <= {"done"}
    with ExitStack() as held:
        if not is_made:
            held.enter_context(place.lock())
        outcome = _make_cells(bench, cells, states, ledger, overwrite=overwrite, crew=crew, debug=debug)
        evaluations = read_evaluations(bench, cells, outcome)
        report = build_report(bench, cells, outcome, evaluations, ledger, plan.setups)
        try:
            if is_made:
                held.enter_context(place.lock())
            write_report(out, report, bench.folder, plots=plots)
        except (LockedError, StorageError) as error:
            if not is_made:
                raise
            out.note(f"the tables are shown, not written: {error.problem}")  # perhaps somebody else's benchmark
    _warn_of_losses(bench, evaluations)
    return Made(outcome, evaluations, report)


def _contenders(bench: Bench, setups: Sequence[SetupName]) -> list[Contender]:
    """Return the rows of the tables: methods, and the ablations that change anything.

    Raises:
        UsageError: a method that is not known, or ablations in few-shot alone.
    """
    config = bench.settings[BenchmarkConfig]
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
    if REFERENCE not in {contender.name for contender in methods}:
        methods.append(Contender(REFERENCE, REFERENCE))
        bench.reporter.note("added COSTAR as reference for the ablations")
    return [*methods, *(ablation for ablation in ablations if _has_row(bench, ablation))]


def _has_row(bench: Bench, ablation: Contender) -> bool:
    """Return whether an ablation changes anything; say so if it does not."""
    try:
        same = bool(ablation.changes) and with_values(bench.settings, ablation.changes) == bench.settings
    except ValueError:  # of COSTAR's own encoder or of one decoder alone, where COSTAR has another one
        architecture = bench.settings[PretrainConfig].encoder.architecture
        decoder = bench.settings[FinetuneConfig].decoder
        other = f"decoder = {decoder}" if ablation.component == "Output" else f"architecture = {architecture}"
        bench.reporter.note(f"{ablation.label} has no effect with `{other}`: skipped")
        return False
    if same:
        bench.reporter.note(f"{ablation.label} equals COSTAR with these settings: skipped")
    return not same


def cells_listed(plan: Planned) -> list[dict[str, str | float | None]]:
    """Return the cells with their states, times and files."""
    bench, ledger = plan.bench, Ledger(plan.bench.folder / "ledger.json")
    rows: list[dict[str, str | float | None]] = []
    for cell in plan.cells:
        pieces, state = bench.pieces(cell), plan.states[cell.key]
        records = [ledger.get(f"{cell.key}/{piece.name}") for piece in pieces]
        error = next((r.error for r in records if r and r.error), None) if state != "done" else None
        file = str(pieces[0].path) if pieces else str(bench.data_file(cell.seed))
        took_s = ledger.wall_s(cell.key)
        wall = None if took_s is None or state != "done" else round(took_s, 1)
        row = {"cell": cell.key, "state": state, "wall_s": wall, "file": file}
        rows.append({**row, "error": (error or {}).get("problem")})
    return rows


def show_list(out: Output, rows: Sequence[Mapping[str, str | float | None]], folder: Path) -> None:
    """Print cells with their states and files, and end the verb."""
    out.table(["cell", "state", "wall s", "file", "error"], [list(row.values()) for row in rows])
    states = [row["state"] for row in rows]
    out.note(", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states)))
    out.done({"cells": rows, "folder": str(folder)})


def require_fresh(plans: Sequence[Planned], *, overwrite: bool) -> None:
    """Stop where files were made from something else, and may not be replaced.

    Raises:
        MismatchError: naming the cells.
    """
    stale = [f"{plan.bench.at}{key}" for plan in plans for key, state in plan.states.items() if state == "stale"]
    if stale and not overwrite:
        raise MismatchError(
            f"{len(stale)} cells of this benchmark were made from other data or settings",
            where=", ".join(stale[:6]) + (", ..." if len(stale) > 6 else ""),
            fix="add --overwrite to replace them, or keep them and choose another folder with --folder",
        )


def _make_cells(
    bench: Bench,
    cells: Sequence[Cell],
    states: Mapping[str, State],
    ledger: Ledger,
    *,
    overwrite: bool,
    crew: CrewMaker | None,
    debug: bool,
) -> Outcome:
    """Make the cells that are not there; one that fails stops only those that need it.

    Raises:
        StorageError: the disk is full or read-only: no other cell would fare better.
        LockedError: another process works in the benchmark's folder.
        KeyboardInterrupt: the run was interrupted; training has saved where it was.
    """
    left = [cell for cell in cells if states[cell.key] != "done"]
    clock = Clock(cells, left, ledger)
    if left:
        bench.reporter.note(f"{len(left)} of {len(cells)} cells to run in {bench.folder}")
    make = partial(make_cell, overwrite=overwrite)
    outcome = Outcome()
    with ExitStack() as held:
        task = held.enter_context(
            bench.reporter.task("Benchmark", total=len(cells), done=len(cells) - len(left), unit="cell")
        )
        if crew is not None and left:
            for seed in {cell.seed: None for cell in left}:
                held.enter_context(bench.workspace(seed).lock())
            ends = side_by_side(crew(bench, ledger, make), left, outcome)
        else:
            ends = _one_by_one(bench, cells, outcome, lambda cell: make(bench, cell, ledger), debug=debug)
        for end in held.enter_context(closing(ends)):
            _account(bench, end, outcome, clock)
            if states[end.cell.key] != "done":
                task.advance()
    return outcome


def _one_by_one(
    bench: Bench, cells: Sequence[Cell], outcome: Outcome, make: Callable[[Cell], float | None], *, debug: bool
) -> Generator[CellEnd]:
    """Make cells in this process; yield how each ended."""
    for cell in cells:
        if blocked := outcome.blocked_by(cell):
            yield CellEnd(cell, blocked=blocked)
            continue
        bench.reporter.cell = cell
        try:
            end = CellEnd(cell, make(cell))
        except Exception as error:  # whatever it is, the other cells can still be made
            if debug:
                traceback.print_exc()
            end = CellEnd(cell, error=as_costar_error(error))
        finally:
            bench.reporter.cell = None
        yield end


def _account(bench: Bench, end: CellEnd, outcome: Outcome, clock: Clock) -> None:
    """Remember how a cell ended, and say so.

    Raises:
        StorageError: the disk is full or read-only.
        LockedError: another process works in the benchmark's folder.
    """
    clock.finish(end.cell, end.took_s)
    if isinstance(end.error, (StorageError, LockedError)):
        raise end.error
    if end.blocked:
        outcome.blocked[end.cell.key] = end.blocked
    elif end.error:
        outcome.failed[end.cell.key] = end.error
        where = f" ({end.error.where})" if end.error.where else ""
        said = f"{end.cell} failed: {end.error.problem}{where}"
        bench.reporter.warn("; ".join(filter(None, [said, clock.outlook()])))
    elif end.took_s is not None:
        outcome.made += 1
        bench.reporter.note("; ".join(filter(None, [f"{end.cell}: {in_words(end.took_s)}", clock.outlook()])))


def make_cell(bench: Bench, cell: Cell, ledger: Ledger, *, overwrite: bool) -> float | None:
    """Make what is not there of a cell; return the seconds that it took, None where all was there."""
    begun, made = time.monotonic(), False
    for piece in bench.pieces(cell):
        step = piece.plan()
        if step.find(overwrite=overwrite) is None:
            if not made:
                give_memory_back()
            _make_piece(f"{cell.key}/{piece.name}", piece, step, ledger, overwrite=overwrite)
            made = True
    return time.monotonic() - begun if made else None


def _make_piece(key: str, piece: Piece, step: BuildStep, ledger: Ledger, *, overwrite: bool) -> None:
    """Make one artifact, and record what it took, however it ends."""
    ledger.begin(key, step.fingerprint)
    meter = Meter()
    try:
        with meter:
            piece.make(step, overwrite)
    except Exception as error:
        ledger.end(key, "failed", meter, as_costar_error(error))
        raise
    except BaseException:
        ledger.end(key, "interrupted", meter)
        raise
    ledger.end(key, "done", meter)


def failure_of_cells(outcome: Outcome, total: int) -> CostarError:
    """Return one error for all cells that failed: of their class, if they agree, else with exit code 1."""
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


def _warn_of_losses(bench: Bench, evaluations: Evaluations) -> None:
    """Warn once of each cell whose model loses to the last value carried forward, in any set-up or on validation."""
    for cell, report in evaluations.items():
        lost = [f"{row.setup} {errors}" for row, errors in report.losers()]
        validation = read_header(bench.pieces(cell)[0].path).meta.get("validation")
        if validation and is_worse(validation["score"], validation["last_value"]):
            lost.append(f"validation {both_errors(validation['score'], validation['last_value'])}")
        if lost:
            bench.reporter.warn_of_loss(f"{cell}: {WORSE_THAN_LAST_VALUE} in {', '.join(lost)}")


def next_commands(bench: Bench, evaluations: Evaluations, given: Mapping[str, str]) -> list[str]:
    """Return what to run next: a question to the best model that loses nowhere, or what may give a better one.

    Models are those of the first data set, compared in the first set-up that they have.

    Args:
        bench: the benchmark.
        evaluations: the scores of its models.
        given: the flags to repeat.
    """
    given = {"workspace": "", **given} | {"workspace": str(bench.workspace(bench.seeds[0]))}
    reports = {cell: report for cell, report in evaluations.items() if cell.seed == bench.seeds[0]}
    for is_better, setup in product((True, False), SETUPS):
        averages = {cell: _average(r, setup) for cell, r in reports.items() if is_better != any(r.losers())}
        known = {cell: average for cell, average in averages.items() if average is not None}
        if not known:
            continue
        model, *_ = bench.pieces(min(known, key=lambda cell: known[cell]))
        if is_better:
            return [next_command(given, "whatif", *ASKED, data=bench.data.file, model=model.path)]
        files = {"data": bench.data.file, "out": model.path.with_name(f"longer-{model.path.name}")}
        made = {(cell.contender.method, of) for cell in evaluations if cell.contender for of in ("source", "target")}
        return after_loss(replace(model.session, given=given), read_header(model.path).meta, files, made)
    return []


def _average(report: EvaluationReport, setup: str) -> float | None:
    """Return a model's average error in a set-up, None where it has none or carries the last value itself."""
    rows = (row for row in report.rows if row.basis == "ours" and not row.is_last_value)
    return next((row.mean.average for row in rows if row.setup == setup), None)
