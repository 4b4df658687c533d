"""What a benchmark's files tell once its cells are made: scores, costs, failures, and the report of all three."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from costar_cli.benchmark.make_cells import Bench
from costar_cli.benchmark.run import Outcome
from costar_cli.config.choices import SetupName
from costar_cli.errors import CostarError

if TYPE_CHECKING:
    from costar_cli.benchmark import BenchmarkReport, Cell, CellCost, Failure, Ledger, ResultTable, Score
    from costar_cli.evaluate import EvaluationReport

__all__ = ["build_report"]


@dataclass(frozen=True)
class _Scores:
    """All scores, and one of the reports that they come from: what they share is the same in each."""

    scores: list["Score"]
    report: "EvaluationReport | None"


def build_report(
    bench: Bench, cells: Sequence["Cell"], outcome: Outcome, ledger: "Ledger", setups: Sequence[SetupName]
) -> "BenchmarkReport":
    """Return the benchmark's report from the files of the cells that are there."""
    from costar_cli.artifact import read_header
    from costar_cli.benchmark import BenchmarkReport
    from costar_cli.config.models import EvaluateConfig
    from costar_cli.evaluate.published import is_published_data

    found = _collect_scores(bench, cells, outcome)
    headers = {seed: read_header(bench.data_file(seed)) for seed in bench.seeds if bench.data_file(seed).exists()}
    published = all(is_published_data(h.meta["name"], h.meta["config"]) for h in headers.values())
    shared = found.report
    return BenchmarkReport(
        dataset=shared.dataset if shared else bench.data.name,
        seeds=bench.seeds,
        digests={str(seed): header.digest for seed, header in headers.items()},
        preset=bench.settings.preset,
        unit=shared.unit.label if shared else "",
        level=bench.settings[EvaluateConfig].level,
        horizon=shared.horizon if shared else 0,
        step=shared.step if shared else "step",
        tables=_tables(bench, found, setups, published=published),
        costs=tuple(_collect_costs(bench, cells, outcome, ledger)),
        failures=tuple(_failures(cells, outcome)),
    )


def _tables(bench: Bench, found: _Scores, setups: Sequence[SetupName], *, published: bool) -> "tuple[ResultTable, ...]":
    from costar_cli.benchmark import DataSetFacts, build_tables
    from costar_cli.config.models import EvaluateConfig

    if found.report is None:
        return ()
    config, report = bench.settings[EvaluateConfig], found.report
    facts = DataSetFacts(report.dataset, report.horizon, report.unit.factor, published=published)
    return build_tables(found.scores, facts, config, setups=setups, reporter=bench.reporter)


def _collect_scores(bench: Bench, cells: Sequence["Cell"], outcome: Outcome) -> _Scores:
    """Return the scores of every model that is there."""
    from costar_cli.benchmark import Score
    from costar_cli.evaluate import read_evaluation

    found = _Scores([], None)
    for cell in cells:
        if not cell.is_scored or not outcome.is_sound(cell) or cell.contender is None:
            continue
        report = read_evaluation(bench.pieces(cell)[-1].path)
        found = replace(found, report=report)
        for row, errors in zip(report.rows, report.errors, strict=True):
            if row.basis == "ours" and errors is not None:
                found.scores.append(Score(cell.seed, cell.contender, row, errors))
    return found


def _collect_costs(bench: Bench, cells: Sequence["Cell"], outcome: Outcome, ledger: "Ledger") -> list["CellCost"]:
    """Return what every cell took that is there, and pass on what its training warned of."""
    from costar_cli.artifact import describe, read_header
    from costar_cli.benchmark import CellCost, measure_model

    costs = []
    for cell in cells:
        pieces = bench.pieces(cell) if outcome.is_sound(cell) else []
        if not pieces:
            continue
        prints = {piece.name: read_header(piece.path).meta["fingerprint"] for piece in pieces}
        records = [ledger.get(f"{cell.key}/{name}", fingerprint) for name, fingerprint in prints.items()]
        known = [record for record in records if record is not None]
        described: dict[str, Any] = {} if cell.role == "data" else describe(pieces[0].path)
        size = measure_model(described) if described else None
        costs.append(CellCost.of(cell, known, size, described.get("meta", {})))
        bench.reporter.cell = cell
        for warning in costs[-1].warnings:  # also of a model that an earlier run trained
            bench.reporter.warn(warning)
    bench.reporter.cell = None
    return costs


def _failures(cells: Sequence["Cell"], outcome: Outcome) -> list["Failure"]:
    """Return the cells that are not there, and why."""
    from costar_cli.benchmark import Failure

    found = []
    for cell in cells:
        if cell.key in outcome.failed:
            found.append(Failure(cell.key, str(cell), outcome.failed[cell.key].to_json()))
        elif cell.key in outcome.blocked:
            why = CostarError(f"needs {outcome.blocked[cell.key]}")
            found.append(Failure(cell.key, str(cell), why.to_json(), blocked=True))
    return found
