"""The body of `costar benchmark`: which data and cells, make them, say what came of it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from costar_cli.benchmark.data import SIMULATED, BenchData
from costar_cli.benchmark.losses import next_commands, warn_of_losses
from costar_cli.benchmark.make_cells import Bench, BenchReporter, State, with_values
from costar_cli.benchmark.results import build_report
from costar_cli.benchmark.run import failure_of_cells, make_cells, refuse_stale
from costar_cli.benchmark.show import show_report, write_report
from costar_cli.config.choices import SetupName
from costar_cli.errors import UsageError
from costar_cli.ui.output import Output
from costar_cli.workspace import Workspace

if TYPE_CHECKING:
    from costar_cli.benchmark import Cell, Contender
    from costar_cli.settings.resolve import Settings

__all__ = ["open_bench", "run_benchmark"]


def open_bench(out: Output, settings: "Settings", data: BenchData, folder: Path) -> Bench:
    """Return the benchmark of a data set in a folder.

    Raises:
        UsageError: several data sets are asked for, and there is one file.
    """
    from costar_cli.config.models import BenchmarkConfig, PretrainConfig

    config = settings[BenchmarkConfig]
    if data.simulated is None and config.data_seeds > 1:
        raise UsageError(
            f"{config.data_seeds} data sets are asked for, but a file holds one",
            where="--data-seeds",
            fix=f"leave it out, or name a data set that is simulated: {', '.join(SIMULATED)}",
        )
    first = settings[PretrainConfig].seed
    if data.simulated is not None:
        document = settings.configs[data.simulated.section].model_dump()
        first = int(document["seed"])
    seeds = tuple(range(first, first + config.data_seeds))
    return Bench(data, BenchReporter(out).watch(), settings, folder, seeds)


def run_benchmark(
    out: Output, bench: Bench, *, overwrite: bool, plots: bool, list_only: bool, given: Mapping[str, str]
) -> None:
    """Make what is not there, write and show the tables, and end the verb; or list the cells.

    `given` are the flags that a command to run next repeats.

    Raises:
        CostarError: cells failed; what the others found is written, shown, and part of the `--json` document.
    """
    from costar_cli.benchmark import Ledger, choose_setups, plan_cells
    from costar_cli.config.models import BenchmarkConfig, RuntimeConfig
    from costar_cli.train.runtime import Runtime

    setups = choose_setups(bench.settings[BenchmarkConfig].setups, bench.data.setups)
    cells = plan_cells(bench.seeds, _contenders(bench, setups), few_shot="few-shot" in setups)
    states = {cell.key: bench.state(cell) for cell in cells}
    if list_only:
        _list(out, bench, cells, states)
        return
    Runtime.resolve(bench.settings[RuntimeConfig])  # no cell could be made on a device that is not there
    refuse_stale(states, overwrite=overwrite)
    with Workspace(bench.folder).lock():
        ledger = Ledger(bench.folder / "ledger.json")
        outcome = make_cells(bench, cells, states, ledger, overwrite=overwrite, debug=out.debug)
        report = build_report(bench, cells, outcome, ledger, setups)
        write_report(out, report, bench.folder, plots=plots)
        warn_of_losses(bench, cells, outcome)
    show_report(out, report)
    result = {**report.to_json(), "folder": str(bench.folder), "made": outcome.made}
    if outcome.failed:
        out.keep(result)
        raise failure_of_cells(outcome, len(cells))
    out.next(*next_commands(bench, cells, outcome, given))
    out.done(result, status="done" if outcome.made else "up_to_date")


def _contenders(bench: Bench, setups: Sequence[SetupName]) -> "list[Contender]":
    """Return the rows of the tables: methods, and the ablations that change anything.

    Raises:
        UsageError: a method that is not known, or ablations in few-shot alone.
    """
    from costar_cli.benchmark import ABLATIONS, REFERENCE, Contender, choose_methods
    from costar_cli.config.models import BenchmarkConfig
    from costar_cli.methods import METHODS

    config = bench.settings[BenchmarkConfig]
    methods = choose_methods(config.methods, list(METHODS))
    if not config.ablations:
        return methods
    if set(setups) <= {"few-shot"}:
        raise UsageError(
            "ablations are scored in zero-shot and supervised, as in the paper",
            where="--ablations",
            fix="leave it out, or add one of these to --setups",
        )
    if REFERENCE not in {contender.name for contender in methods}:
        methods.append(Contender(REFERENCE, REFERENCE))
        bench.reporter.note("ablations are compared with COSTAR: it takes part, too")
    return [*methods, *(ablation for ablation in ABLATIONS if _has_row(bench, ablation))]


def _has_row(bench: Bench, ablation: "Contender") -> bool:
    """Return whether an ablation changes anything; say so if it does not."""
    from costar_cli.config.models import PretrainConfig

    try:
        same = bool(ablation.changes) and with_values(bench.settings, ablation.changes) == bench.settings
    except ValueError:  # a setting of COSTAR's own encoder, where COSTAR has another one
        architecture = bench.settings[PretrainConfig].encoder.architecture
        bench.reporter.note(f"{ablation.label} changes nothing with `architecture = {architecture}`: no row of its own")
        return False
    if same:
        bench.reporter.note(f"{ablation.label} is what COSTAR does with these settings: no row of its own")
    return not same


def _list(out: Output, bench: Bench, cells: "list[Cell]", states: dict[str, State]) -> None:
    """Print the cells with their states and files."""
    from costar_cli.benchmark import Ledger

    ledger = Ledger(bench.folder / "ledger.json")
    rows: list[dict[str, str | float | None]] = []
    for cell in cells:
        pieces = bench.pieces(cell)
        records = [ledger.get(f"{cell.key}/{piece.name}") for piece in pieces]
        error = next((r.error for r in records if r and r.error), None) if states[cell.key] != "done" else None
        file = str(pieces[0].path) if pieces else str(bench.data_file(cell.seed))
        took_s = ledger.wall_s(cell.key)
        wall = None if took_s is None or states[cell.key] != "done" else round(took_s, 1)
        row = {"cell": cell.key, "state": states[cell.key], "wall_s": wall, "file": file}
        rows.append({**row, "error": (error or {}).get("problem")})
    out.table(["cell", "state", "wall s", "file", "error"], [list(row.values()) for row in rows])
    count = {state: sum(known == state for known in states.values()) for state in dict.fromkeys(states.values())}
    out.note(", ".join(f"{number} {state}" for state, number in count.items()))
    out.done({"cells": rows, "folder": str(bench.folder)})
