"""What a benchmark shows in the terminal: tables, how rows compare, and what they cost."""

from collections.abc import Sequence

from costar_cli.benchmark.export import ABOUT_OTHER_UPDATES, interval_text, ratio_text, updates_text
from costar_cli.benchmark.report import BenchmarkReport, CellCost
from costar_cli.benchmark.statistics import Comparison
from costar_cli.benchmark.tables import ABOUT_GAIN, ResultRow, ResultTable, ranked_cells
from costar_cli.evaluate.rows import BUDGET_SIGN, with_budget_sign
from costar_cli.ui.output import Output
from costar_cli.ui.tables import Cell, legend, show_styled

DIGITS = 3


def show_report(out: Output, report: BenchmarkReport) -> None:
    """Print the tables, how they compare, and what they cost."""

    if report.tables:
        unit = report.unit or "outcome units"
        out.text(
            f"RMSE in {unit} on {report.dataset}, lower is better; Avg over {report.averaged}; {legend()}",
            f"± {report.spread}",
            ABOUT_GAIN,
            *([report.about_ratio] if report.about_ratio else []),
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
    ratio = ["Ratio"] * bool(table.limit)
    headers = ["Method", *(f"τ={h + 1}" for h in range(table.steps)), "Avg", *ratio, "Gain", "Runs"]
    blocks = {"": _rows(table.rows, table)}
    if table.limit:
        blocks["bound"] = _rows([table.limit], table)
    if table.published:
        blocks[table.published[0].basis] = _rows(table.published, table)
    show_styled(out, table.title, headers, blocks)


def _rows(rows: Sequence[ResultRow], table: ResultTable) -> list[list[Cell | str | None]]:
    shown: list[list[Cell | str | None]] = []
    for row, ranked in zip(rows, ranked_cells(rows, table.steps), strict=True):
        cells = [Cell(_number(mean), _number(sd), mark) for mean, sd, mark in ranked]
        gain = None if row.gain_percent is None else f"{row.gain_percent:.1f}%"
        ratio: list[Cell | str | None] = [ratio_text(row)] if table.limit else []
        shown.append([row.marked_label, *cells, *ratio, gain, None if row.runs is None else str(row.runs)])
    return shown


def _show_comparisons(out: Output, comparisons: Sequence[Comparison], level: float) -> None:

    rows = []
    for c in comparisons:
        bounds = interval_text(c, DIGITS) or ("not tested" if c.untested else None)
        wins = None if c.wins is None else f"{c.wins:.0%}"
        rows.append([c.label, _number(c.difference.average), bounds, _p(c.p_value), _p(c.p_holm), wins])
    headers = ["error minus COSTAR's", "average", f"{level:.0%} interval", "p", "p (Holm)", "wins"]
    out.table(headers, rows, keys=1)


def _show_costs(out: Output, costs: Sequence[CellCost]) -> None:
    """Print one line per contender and domain: the mean over data sets, and the largest memory."""
    groups: dict[tuple[str, str], list[CellCost]] = {}
    for cost in costs:
        groups.setdefault((cost.label, cost.role), []).append(cost)
    on_gpu = any(cost.device_memory_mb is not None for cost in costs)
    rows = [[label, role, *_cost_cells(group, on_gpu=on_gpu)] for (label, role), group in groups.items()]
    headers = ["cost per data set", "cell", "wall s", "peak MB", "members", "params", "epochs", "updates"]
    if on_gpu:
        headers.insert(4, "GPU MB")
    if rows:
        out.table(headers, rows, keys=2)


def _cost_cells(costs: Sequence[CellCost], *, on_gpu: bool) -> list[object]:

    walls = [cost.wall_s for cost in costs if cost.wall_s is not None]
    wall = f"{'≥ ' * any(cost.partial for cost in costs)}{sum(walls) / len(walls):.1f}" if walls else None
    memory = max((cost.memory_mb for cost in costs if cost.memory_mb is not None), default=None)
    device = max((cost.device_memory_mb for cost in costs if cost.device_memory_mb is not None), default=None)
    epochs = [cost.epochs for cost in costs if cost.epochs is not None]
    outcome, other = (_mean([getattr(cost, name) for cost in costs]) for name in ("outcome_updates", "other_updates"))
    by_budget = any(cost.stopped_by_budget for cost in costs)
    first = costs[0]
    return [
        wall,
        None if memory is None else f"{memory:,.0f}",
        *([None if device is None else f"{device:,.0f}"] if on_gpu else []),
        first.members,
        None if first.parameters is None else f"{first.parameters:,}",
        f"{sum(epochs) / len(epochs):g}" if epochs else None,
        None if outcome is None else with_budget_sign(updates_text(outcome, other), by_budget),
    ]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.{DIGITS}f}"


def _p(value: float | None) -> str | None:
    return None if value is None else f"{value:.3f}"
