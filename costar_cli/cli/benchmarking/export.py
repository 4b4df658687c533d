"""The files of a benchmark: its tables as CSV, Markdown, LaTeX and JSON, and its figures."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from costar_cli.api.outputs import check_places
from costar_cli.cli.benchmarking.report import BenchmarkReport, JobCost
from costar_cli.cli.benchmarking.statistics import TEST, Comparison
from costar_cli.cli.benchmarking.tables import (
    ABOUT_ENSEMBLE,
    ABOUT_GAIN,
    DIGITS,
    Mark,
    ResultRow,
    ResultTable,
    ranked_cells,
)
from costar_cli.errors import MismatchError
from costar_cli.evaluation.metrics import PerStep
from costar_cli.evaluation.rows import BUDGET_SIGN, with_budget_sign
from costar_cli.files import write_bytes
from costar_cli.reporting import plain
from costar_cli.reporting.output import Output
from costar_cli.reporting.text import dump_json

ABOUT_OTHER_UPDATES = (
    "updates after the plus sign: stages that do not learn outcomes (pretraining, propensity networks)"
)

Record = Mapping[str, object]

_COST_HEADS = (
    "Cell",
    "Wall time (s)",
    "Peak memory (MB)",
    "GPU memory (MB)",
    "Members",
    "Parameters",
    "Epochs",
    "Updates",
)
_ABOUT_COSTS = (
    "Wall time of training and scoring, over all attempts (≥: one was killed). Peak memory of the whole process. "
    "Parameters of one member, epochs and updates (optimiser steps) of all stages: the mean over members."
)

MARKDOWN_MARKS: Final[Mapping[Mark, str]] = {"best": "**{}**", "second": "<u>{}</u>", "": "{}"}
LATEX_MARKS: Final[Mapping[Mark, str]] = {"best": r"\textbf{%s}", "second": r"\underline{%s}", "": "%s"}
_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
}  # fmt: skip


REPORT_FILES: Final = ("results.csv", "comparisons.csv", "cells.csv", "tables.md", "tables.tex", "benchmark.json",
                       "plots/horizons.png", "plots/differences.png")  # fmt: skip


def require_own(folder: Path, names: Sequence[str], data: Path | None, *, overwrite: bool) -> None:
    """See, before any work, that a benchmark replaces only what benchmarks in the folder have written.

    Args:
        folder: of the benchmark.
        names: of the files that it may write there, beside those of its cells.
        data: the data set's file, where it is one.
        overwrite: other files may be replaced, too.

    Raises:
        MismatchError: a file is somebody else's, or the data set.
        StorageError: a file is no regular one.
    """
    paths = [folder / name for name in names]
    check_places([("--folder", path) for path in paths], read=[("data set", data)])
    if overwrite or any(folder.glob("ledger.json")) or any(folder.glob("*/ledger.json")):
        return
    if there := [path for path in paths if path.exists()]:
        fix = "choose another folder with --folder, or add --overwrite to replace it"
        raise MismatchError(f"`{there[0]}` exists and is no file of a benchmark", where="--folder", fix=fix)


def write_report(out: Output, report: BenchmarkReport, folder: Path, *, plots: bool) -> None:
    """Write the report into a folder, in every form."""
    for role, name, text in _texts(report):
        write_bytes(folder / name, text.encode())
        out.wrote(role, folder / name, kind=Path(name).suffix[1:])
    if not plots or not report.tables:
        return
    from costar_cli.cli.benchmarking.figures import plot_differences, plot_horizons  # matplotlib

    out.wrote("horizons", plot_horizons(report, folder / "plots" / "horizons.png"), kind="plot")
    drawn = plot_differences(report, folder / "plots" / "differences.png")
    if drawn is not None:
        out.wrote("differences", drawn, kind="plot")


def _texts(report: BenchmarkReport) -> Iterator[tuple[str, str, str]]:
    """Yield the name of every text, its file, and the text."""
    yield "results", "results.csv", results_csv(report)
    yield "comparisons", "comparisons.csv", comparisons_csv(report)
    yield "cells", "cells.csv", cells_csv(report)
    yield "markdown", "tables.md", to_markdown(report)
    yield "latex", "tables.tex", to_latex(report)
    yield "benchmark", "benchmark.json", dump_json(report.to_json()) + "\n"


def results_csv(report: BenchmarkReport) -> str:
    """Return every row of every table, in the columns of the paper's tables, with all steps."""
    return csv_text(result_rows(report))


def result_rows(report: BenchmarkReport) -> list[Record]:
    """Return every row of every table as a record."""
    return [_flat_row(report, table, row) for table in report.tables for block in blocks_of(table) for row in block]


def blocks_of(table: ResultTable) -> list[Sequence[ResultRow]]:
    """Return the blocks of rows, each of which is ranked by itself."""
    limit = [table.limit] if table.limit else []
    return [block for block in (table.rows, limit, table.published) if block]


def comparisons_csv(report: BenchmarkReport) -> str:
    """Return every comparison with the reference."""
    return csv_text([_compared(report, table, c) for table in report.tables for c in table.comparisons])


def cells_csv(report: BenchmarkReport) -> str:
    """Return what every cell cost."""
    return csv_text([{"dataset": report.dataset, **_cost(cost)} for cost in report.costs])


def _flat_row(report: BenchmarkReport, table: ResultTable, row: ResultRow) -> Record:
    """Return a row of a table in the columns of the paper's, with all steps."""
    flat: dict[str, object] = {
        "dataset": report.dataset,
        "table": table.kind,
        "setup": table.setup,
        "truth": table.truth,
        "basis": row.basis,
        "method": row.label,
        "name": row.name,
        "component": row.component,
        "choice": row.choice,
    }
    flat |= {f"tau{h + 1}_mean": _at(row.mean, h) for h in range(report.horizon)}
    flat |= {f"tau{h + 1}_std": _at(row.sd, h) for h in range(report.horizon)}
    flat |= {"avg": row.mean.average, "avg_std": row.sd.average if row.sd else None, "gain": row.gain_percent}
    flat |= {"averaged_steps": report.steps, "runs": row.runs, "data_sets": row.data_sets, "unit": report.unit}
    ratio = row.ratio_to_limit
    flat |= {"stopped_by_budget": row.stopped_by_budget, "ratio_to_limit": ratio.average if ratio else None}
    flat |= {"coverage_90": row.coverage_90, "avg_ensemble": row.ensemble.average if row.ensemble else None}
    return flat | {"avg_se": row.se.average if row.se else None}


def _compared(report: BenchmarkReport, table: ResultTable, comparison: Comparison) -> Record:
    ends = {"difference": comparison.difference, "lower": comparison.lower, "upper": comparison.upper}
    flat: dict[str, object] = {
        "dataset": report.dataset,
        "table": table.kind,
        "setup": table.setup,
        "truth": table.truth,
        "method": comparison.label,
        "name": comparison.name,
    }
    flat |= {f"avg_{name}": values.average if values else None for name, values in ends.items()}
    for h in range(report.horizon):
        flat |= {f"tau{h + 1}_{name}": _at(values, h) for name, values in ends.items()}
    flat |= {"p_value": comparison.p_value, "p_holm": comparison.p_holm, "wins": comparison.wins}
    flat |= {"data_sets": comparison.data_sets, "level": report.level, "unit": report.unit}
    return flat | {"untested": comparison.untested, "caution": comparison.caution}


def _cost(cost: JobCost) -> Record:
    flat = {name: getattr(cost, name) for name in JobCost.__dataclass_fields__}
    flat |= {"warnings": "; ".join(cost.warnings)}
    by_stage = {"stages": cost.stages, "stage_updates": cost.stage_updates}
    return flat | {
        name: "; ".join(f"{stage}: {number:g}" for stage, number in numbers.items())
        for name, numbers in by_stage.items()
    }


def csv_text(records: Sequence[Record]) -> str:
    """Return records with the same keys as CSV text; unknown values are empty."""
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(records[0]) if records else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return out.getvalue()


def _at(values: PerStep | None, h: int) -> float | None:
    return values.steps[h] if values and h < len(values.steps) else None


def to_markdown(report: BenchmarkReport) -> str:
    """Return the tables in Markdown: best bold, second underlined; then comparisons, costs, and what failed."""
    lines = [f"# Benchmark on {report.dataset}", "", _about(report), ""]
    for table in report.tables:
        lines += [f"## {table.title}", "", *_markdown_rows(table), ""]
        if table.comparisons:
            lines += [*_markdown_comparisons(report, table), ""]
    lines += ["## Costs", "", _about_costs(report), "", *_markdown_costs(report.costs), ""]
    if any(cost.warnings for cost in report.costs):
        lines += ["## Warnings of training", ""]
        lines += [f"- {escaped(cost.cell)}: {escaped(warning)}" for cost in report.costs for warning in cost.warnings]
        lines += [""]
    if report.failures:
        lines += ["## Failures", "", *(f"- {f.what}: {escaped(str(f.error['problem']))}" for f in report.failures), ""]
    return "\n".join(lines)


def _about(report: BenchmarkReport) -> str:
    seeds = ", ".join(map(str, report.seeds))
    return (
        f"RMSE in {escaped(report.unit or 'outcome units')}, lower is better: mean ± {report.spread}; data set "
        f"{'seed' if len(report.seeds) == 1 else 'seeds'} {seeds}, preset {escaped(report.preset)}. Avg: over "
        f"{report.averaged}, for every row. {f'{ABOUT_GAIN}. ' if report.has_gains else ''}"
        f"{escaped(f'{report.about_ratio}. ' if report.about_ratio else '')}"
        f"{f'{ABOUT_ENSEMBLE}. ' if report.has_ensembles else ''}"
        f"**Best** and <u>second</u> of each block; {BUDGET_SIGN} {report.about_budget}. "
        "Published rows come from another protocol or other data: compare "
        "rows of one block only."
    )


def _markdown_rows(table: ResultTable) -> list[str]:
    heads = ["Method", *(f"τ={h + 1}" for h in range(table.steps)), "Avg", *other_heads(table), "Runs"]
    lines = [f"| {' | '.join(heads)} |", "|---|" + "---:|" * (len(heads) - 1)]
    for block in blocks_of(table):
        for row, cells in zip(block, table_cells(block, table.steps), strict=True):
            label = escaped(row.marked_label) + ("" if row.basis == "ours" else f" ({block_name(row)})")
            shown = [MARKDOWN_MARKS[mark].format(text) for text, mark in cells]
            shown += other_texts(row, table, percent=" %")
            lines.append(f"| {' | '.join([label, *shown, str(row.runs or '')])} |")
    return lines


def _markdown_comparisons(report: BenchmarkReport, table: ResultTable) -> list[str]:
    lines = [
        f"Error of each row minus COSTAR's, average over τ ({TEST}). Wins: share of pairs of members that COSTAR wins.",
        *([f"**Not tested**: {table.untested}."] if table.untested else []),
        *([f"**Caution**: {table.caution}."] if table.caution else []),
        "",
        f"| Method | Difference | {report.level:.0%} interval | p | p (Holm) | Wins |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    cells = [[escaped(c.label), *comparison_cells(c, DIGITS, c.untested or "")] for c in table.comparisons]
    return lines + [f"| {' | '.join(row)} |" for row in cells]


def comparison_cells(comparison: Comparison, digits: int, untested: str) -> list[str]:
    """Return a comparison's difference, interval (or that it was not tested), p-values and wins as text."""
    c = comparison
    ends = [bound.average for bound in (c.lower, c.upper) if bound and bound.average is not None]
    bounds = " to ".join(f"{end:.{digits}f}" for end in ends) if len(ends) == 2 else untested
    wins = "" if c.wins is None else f"{c.wins:.0%}"
    return [fixed(c.difference.average, digits), bounds, fixed(c.p_value, 3), fixed(c.p_holm, 3), wins]


def other_heads(table: ResultTable) -> list[str]:
    """Return the heads of the columns behind the average that a table has."""
    return ["Ensemble"] * table.has_ensembles + ["Ratio"] * bool(table.limit) + ["Gain"] * table.has_gains


def other_texts(row: ResultRow, table: ResultTable, *, digits: int = DIGITS, percent: str = "%") -> list[str]:
    """Return what a row has there: its ensemble's average error, how many times the bound's its own is, COSTAR's gain.

    Empty where that is not known.
    """
    ensemble, ratio = (values.average if values else None for values in (row.ensemble, row.ratio_to_limit))
    gain = [fixed(row.gain_percent, 1, percent)] * table.has_gains
    return [fixed(ensemble, digits)] * table.has_ensembles + [fixed(ratio, 2)] * bool(table.limit) + gain


def block_name(row: ResultRow) -> str:
    """Return what a block of rows that are not ours is called."""
    return "bound" if row.basis == "limit" else row.basis


def _about_costs(report: BenchmarkReport) -> str:
    plus = f" {ABOUT_OTHER_UPDATES.capitalize()}." if any(cost.other_updates for cost in report.costs) else ""
    return f"{_ABOUT_COSTS}{plus} {BUDGET_SIGN} {report.about_budget}."


def _markdown_costs(costs: Sequence[JobCost]) -> list[str]:
    lines = [f"| {' | '.join(_COST_HEADS)} |", "|---|" + "---:|" * (len(_COST_HEADS) - 1)]
    for cost in costs:
        what = cost.label if cost.role == "data" else f"{cost.label}, {cost.role}"
        lines.append(f"| {' | '.join(map(escaped, [f'{what}, seed {cost.seed}', *cost_cells([cost])]))} |")
    return lines


def cost_cells(costs: Sequence[JobCost]) -> list[str]:
    """Return what cells of one method cost as text: the mean over data sets, and the largest memory."""
    wall_s, epochs, outcome, other = (
        _mean([getattr(cost, name) for cost in costs])
        for name in ("wall_s", "epochs", "outcome_updates", "other_updates")
    )
    memory, device = (
        max((value for cost in costs if (value := getattr(cost, name)) is not None), default=None)
        for name in ("memory_mb", "device_memory_mb")
    )
    parameters, stopped = costs[0].parameters, any(cost.stopped_by_budget for cost in costs)
    updates = "" if outcome is None else f"{outcome:,.0f}" + (f" + {other:,.0f}" if other else "")
    return [
        "" if wall_s is None else f"{'≥ ' * any(cost.partial for cost in costs)}{wall_s:.1f}",
        *("" if size is None else f"{size:,.0f}" for size in (memory, device, costs[0].members)),
        "" if parameters is None else f"{parameters:,}",
        "" if epochs is None else f"{epochs:g}",
        with_budget_sign(updates, stopped) if updates else "",
    ]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def to_latex(report: BenchmarkReport) -> str:
    """Return the tables in LaTeX (package booktabs), laid out as the paper's."""
    if not report.tables:
        return ""
    lines = ["% \\usepackage{booktabs}", *(line for table in report.tables for line in _latex_table(report, table))]
    return "\n".join(lines)


def _latex_table(report: BenchmarkReport, table: ResultTable) -> list[str]:
    heads = ["Method", *(rf"$\tau={h + 1}$" for h in range(table.steps)), "Avg", *map(latex, other_heads(table))]
    unit = latex(report.unit or "outcome units")
    gain = latex(f"{ABOUT_GAIN}. ").replace("±", r"$\pm$") if table.has_gains else ""
    caption = (
        f"{latex(table.title)}. Data: {latex(report.dataset)}. RMSE ({unit}), mean $\\pm$ {latex(report.spread)}. "
        rf"Avg: over $\tau=1..{table.steps}$. {gain}"
        r"\textbf{Bold}: best; \underline{underline}: second best, per block."
    )
    if table.limit and report.about_ratio:
        caption += f" {latex(report.about_ratio)}."
    if table.has_ensembles:
        caption += f" {ABOUT_ENSEMBLE}."
    if table.untested:
        caption += f" Differences between rows are not tested: {latex(table.untested)}."
    if table.caution:
        caption += f" Caution: {latex(table.caution)}."
    if any(row.stopped_by_budget for row in table.rows):
        caption += rf" $^{{\dagger}}$: {latex(report.about_budget)}."
    lines = [r"\begin{table*}[htbp]", r"\centering", rf"\caption{{{caption}}}"]
    lines += [rf"\begin{{tabular}}{{l{'c' * (len(heads) - 1)}}}", r"\toprule", " & ".join(heads) + r" \\", r"\midrule"]
    for i, block in enumerate(blocks_of(table)):
        if i:
            lines += [r"\midrule", rf"\multicolumn{{{len(heads)}}}{{l}}{{\emph{{{latex(block_name(block[0]))}}}}} \\"]
        for row, cells in zip(block, table_cells(block, table.steps, pm=r"$\pm$"), strict=True):
            shown = [LATEX_MARKS[mark] % text for text, mark in cells]
            shown += [text or "(-)" for text in other_texts(row, table, percent=r"\%")]
            lines.append(
                " & ".join([latex(row.label) + r"$^{\dagger}$" * bool(row.stopped_by_budget), *shown]) + r" \\"
            )
    return [*lines, r"\bottomrule", r"\end{tabular}", r"\end{table*}", ""]


def table_cells(rows: Sequence[ResultRow], steps: int, *, pm: str = "±") -> list[list[tuple[str, Mark]]]:
    """Return each row's cells, one per step and the average, with their marks."""
    return [[(_spread(mean, sd, pm), mark) for mean, sd, mark in cells] for cells in ranked_cells(rows, steps)]


def _spread(mean: float | None, sd: float | None, pm: str) -> str:
    return fixed(mean, DIGITS) + ("" if mean is None or sd is None else f"{pm}{sd:.{DIGITS}f}")


def fixed(value: float | None, digits: int, unit: str = "") -> str:
    """Return a number with so many decimals and its unit, nothing where it is not known."""
    return "" if value is None else f"{value:.{digits}f}{unit}"


def escaped(text: str) -> str:
    """Return text that Markdown's tables show as it is."""
    return plain(text).replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")


def latex(text: str) -> str:
    """Return text that LaTeX shows as it is."""
    return "".join(_LATEX.get(letter, letter) for letter in plain(text))
