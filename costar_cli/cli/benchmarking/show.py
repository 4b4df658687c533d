"""What a benchmark shows in the terminal: tables, how rows compare, and what they cost."""

from collections.abc import Sequence

from costar_cli.cli.benchmarking.export import (
    ABOUT_OTHER_UPDATES,
    comparison_cells,
    cost_cells,
    fixed,
    other_heads,
    other_texts,
)
from costar_cli.cli.benchmarking.report import BenchmarkReport, JobCost
from costar_cli.cli.benchmarking.statistics import Comparison
from costar_cli.cli.benchmarking.tables import ABOUT_ENSEMBLE, ABOUT_GAIN, ResultRow, ResultTable, ranked_cells
from costar_cli.evaluation.rows import BUDGET_SIGN
from costar_cli.reporting.output import Output
from costar_cli.reporting.tables import Cell, legend, show_styled

DIGITS = 3


def show_report(out: Output, report: BenchmarkReport) -> None:
    """Print the tables, how they compare, and what they cost."""
    if report.tables:
        unit = report.unit or "outcome units"
        out.text(
            f"RMSE in {unit} on {report.dataset}, lower is better; Avg over {report.averaged}; {legend()}",
            f"± {report.spread}",
            *[ABOUT_GAIN] * report.has_gains,
            *([report.about_ratio] if report.about_ratio else []),
            *[ABOUT_ENSEMBLE] * report.has_ensembles,
            *[f"{BUDGET_SIGN} {report.about_budget}"] * report.has_stopped_rows,
            "",
        )
    for table in report.tables:
        _show_table(out, table)
        if table.comparisons:
            _show_comparisons(out, table.comparisons, report.level)
            out.text(*([f"not tested: {table.untested}"] if table.untested else []))
            out.text(*([f"caution: {table.caution}"] if table.caution else []))
        out.text("")
    _show_costs(out, report.costs)
    if any(cost.other_updates for cost in report.costs):
        out.text(ABOUT_OTHER_UPDATES)
    if any(cost.stopped_by_budget for cost in report.costs) and not report.has_stopped_rows:
        out.text(f"{BUDGET_SIGN} {report.about_budget}")
    for caution in report.cautions:
        out.warn(caution)
    if any(c.lower for table in report.tables for c in table.comparisons):
        out.note("intervals and p: bootstrap over test subjects; excludes training variability; wins: COSTAR's share")


def _show_table(out: Output, table: ResultTable) -> None:
    headers = ["Method", *(f"τ={h + 1}" for h in range(table.steps)), "Avg", *other_heads(table), "Runs"]
    blocks = {"": _rows(table.rows, table)}
    if table.limit:
        blocks["bound"] = _rows([table.limit], table)
    if table.published:
        blocks[table.published[0].basis] = _rows(table.published, table)
    show_styled(out, table.title, headers, blocks)


def _rows(rows: Sequence[ResultRow], table: ResultTable) -> list[list[Cell | str | None]]:
    shown: list[list[Cell | str | None]] = []
    for row, ranked in zip(rows, ranked_cells(rows, table.steps), strict=True):
        cells = [Cell(fixed(mean, DIGITS), fixed(sd, DIGITS), mark) for mean, sd, mark in ranked]
        others = [text or None for text in other_texts(row, table, digits=DIGITS)]
        runs = None if row.runs is None else str(row.runs)
        shown.append([row.marked_label, *cells, *others, runs])
    return shown


def _show_comparisons(out: Output, comparisons: Sequence[Comparison], level: float) -> None:
    texts = [comparison_cells(c, DIGITS, "not tested" if c.untested else "") for c in comparisons]
    rows = [[c.label, *(text or None for text in cells)] for c, cells in zip(comparisons, texts, strict=True)]
    out.table(["error minus COSTAR's", "average", f"{level:.0%} interval", "p", "p (Holm)", "wins"], rows, keys=1)


def _show_costs(out: Output, costs: Sequence[JobCost]) -> None:
    """Print one line per method and domain."""
    groups: dict[tuple[str, str], list[JobCost]] = {}
    for cost in costs:
        groups.setdefault((cost.label, cost.role), []).append(cost)
    rows: list[list[str | None]] = [
        ["cost per data set", "cell", "wall s", "peak MB", "GPU MB", "members", "params", "epochs", "updates"],
        *([*who, *(text or None for text in cost_cells(group))] for who, group in groups.items()),
    ]
    if all(cost.device_memory_mb is None for cost in costs):
        rows = [row[:4] + row[5:] for row in rows]
    if costs:
        out.table([str(head) for head in rows[0]], rows[1:], keys=2)
