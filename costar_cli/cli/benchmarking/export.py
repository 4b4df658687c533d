"""The forms of a benchmark's tables: CSV, Markdown, LaTeX, JSON and the terminal, from one set of rows and blocks.

Tables of text are joined here: `DataFrame.to_markdown` needs tabulate, which nothing else here does, and `to_latex` has
no headings between blocks of rows. CSV comes from `csv`: polars spells truth values and exponents in another way than
the files of older versions, and importing pandas takes 0.8 s.
"""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from costar_cli.api.outputs import check_places
from costar_cli.cli.benchmarking.report import BenchmarkReport, JobCost
from costar_cli.cli.benchmarking.tables import (
    ABOUT_ENSEMBLE,
    ABOUT_GAIN,
    DIGITS,
    EFFECT_COLUMNS,
    TEST,
    Comparison,
    ResultRow,
    ResultTable,
    marks,
)
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import MismatchError
from costar_cli.evaluation.effects import ABOUT_EFFECTS
from costar_cli.evaluation.metrics import PerStep
from costar_cli.evaluation.rows import BUDGET_SIGN, with_budget_sign
from costar_cli.files import write_bytes
from costar_cli.reporting import plain
from costar_cli.reporting.output import Output
from costar_cli.reporting.text import Cell, Mark, dump_json, legend, show_styled

Record = Mapping[str, object]
Rows = Sequence[Sequence[Cell | str | None]]  # the label, then the cells
Blocks = Mapping[str, Rows]  # each is ranked by itself; our own block has no name

SHOWN_DIGITS: Final = 3  # in the terminal
ABOUT_OTHER_UPDATES: Final = (
    "updates after the plus sign: stages that do not learn outcomes (pretraining, propensity networks)"
)
_ABOUT_COSTS: Final = (
    "Wall time of training and scoring, over all attempts (≥: one was killed). Peak memory of the whole process. "
    "Parameters of one member, epochs and updates (optimiser steps) of all stages: the mean over members."
)
_COST_HEADS: Final = (
    "Cell", "Wall time (s)", "Peak memory (MB)", "GPU memory (MB)", "Members", "Parameters", "Epochs", "Updates",
)  # fmt: skip
_MARKDOWN: Final[Mapping[Mark, str]] = {"best": "**{}**", "second": "<u>{}</u>", "": "{}"}
_LATEX: Final[Mapping[Mark, str]] = {"best": r"\textbf{{{}}}", "second": r"\underline{{{}}}", "": "{}"}
_LATEX_LETTERS: Final = str.maketrans({
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
})  # fmt: skip
EFFECT_HEADS: Final = ("Method", "PEHE", "Sign", "Ranking", "Regret", "Of random", "CRPS", "W1")
REPORT_FILES: Final = (
    "results.csv", "comparisons.csv", "cells.csv", "tables.md", "tables.tex", "benchmark.json",
    "plots/horizons.png", "plots/differences.png",
)  # fmt: skip


def require_own(folder: Path, names: Sequence[str], data: Path | None, *, overwrite: bool) -> None:
    """Check, before any work, that a benchmark replaces only what benchmarks in the folder have written.

    Args:
        folder: of the benchmark.
        names: of the files that it may write there, beside those of its jobs.
        data: the data set's file, where it is one.
        overwrite: other files may be replaced, too.

    Raises:
        MismatchError: a file was written by something else, or is the data set.
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
    texts = {
        "results": ("results.csv", results_csv(report)),
        "comparisons": ("comparisons.csv", comparisons_csv(report)),
        "cells": ("cells.csv", cells_csv(report)),
        "markdown": ("tables.md", to_markdown(report)),
        "latex": ("tables.tex", to_latex(report)),
        "benchmark": ("benchmark.json", dump_json(report.to_json()) + "\n"),
    }
    for role, (name, text) in texts.items():
        write_bytes(folder / name, text.encode())
        out.wrote(role, folder / name, kind=Path(name).suffix[1:])
    if plots and report.tables:
        from costar_cli.cli.benchmarking.figures import plot_differences, plot_horizons  # matplotlib

        out.wrote("horizons", plot_horizons(report, folder / "plots" / "horizons.png"), kind="plot")
        drawn = plot_differences(report, folder / "plots" / "differences.png")
        if drawn is not None:
            out.wrote("differences", drawn, kind="plot")


def csv_text(records: Sequence[Record]) -> str:
    """Return records with the same keys as CSV text; unknown values are empty."""
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(records[0]) if records else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return out.getvalue()


def results_csv(report: BenchmarkReport) -> str:
    """Return every row of every table, in the columns of the paper's tables, with all steps."""
    return csv_text(result_rows(report))


def result_rows(report: BenchmarkReport) -> list[Record]:
    """Return every row of every table as a record."""
    steps = range(report.horizon)
    return [
        {"dataset": report.dataset, "table": table.kind, "setup": table.setup, "truth": table.truth}
        | {"basis": row.basis, "method": row.label, "name": row.name}
        | {"component": row.component, "choice": row.choice}
        | {f"tau{h + 1}_mean": _at(row.mean, h) for h in steps}
        | {f"tau{h + 1}_std": _at(row.sd, h) for h in steps}
        | {"avg": row.mean.average, "avg_std": _at(row.sd, None), "gain": row.gain_percent}
        | {"averaged_steps": report.steps, "runs": row.runs, "data_sets": row.data_sets, "unit": report.unit}
        | {"stopped_by_budget": row.stopped_by_budget, "ratio_to_limit": _at(row.ratio_to_limit, None)}
        | {"coverage_90": row.coverage_90, "avg_ensemble": _at(row.ensemble, None), "avg_se": _at(row.se, None)}
        | {f"avg_{name}": row.effects.get(name) for name in EFFECT_COLUMNS}
        for table in report.tables
        for rows in blocks_of(table).values()
        for row in rows
    ]


def comparisons_csv(report: BenchmarkReport) -> str:
    """Return every comparison with the reference."""
    records: list[Record] = []
    for table in report.tables:
        for c in table.comparisons:
            ends = {"difference": c.difference, "lower": c.lower, "upper": c.upper}
            records.append(
                {"dataset": report.dataset, "table": table.kind, "setup": table.setup, "truth": table.truth}
                | {"method": c.label, "name": c.name}
                | {f"avg_{name}": _at(values, None) for name, values in ends.items()}
                | {f"tau{h + 1}_{name}": _at(of, h) for h in range(report.horizon) for name, of in ends.items()}
                | {"p_value": c.p_value, "p_holm": c.p_holm, "wins": c.wins, "data_sets": c.data_sets}
                | {"level": report.level, "unit": report.unit, "untested": c.untested, "caution": c.caution}
            )
    return csv_text(records)


def cells_csv(report: BenchmarkReport) -> str:
    """Return what every job cost."""

    def listed(numbers: Mapping[str, float]) -> str:
        return "; ".join(f"{stage}: {number:g}" for stage, number in numbers.items())

    return csv_text([
        {"dataset": report.dataset, **{name: getattr(cost, name) for name in JobCost.__dataclass_fields__}}
        | {"warnings": "; ".join(cost.warnings)}
        | {"stages": listed(cost.stages), "stage_updates": listed(cost.stage_updates)}
        for cost in report.costs
    ])  # fmt: skip


def _at(values: PerStep | None, h: int | None) -> float | None:
    """Return the value at a step, or on average (None)."""
    if values is None or h is None:
        return None if values is None else values.average
    return values.steps[h] if h < len(values.steps) else None


def blocks_of(table: ResultTable) -> dict[str, Sequence[ResultRow]]:
    """Return the blocks of rows by name, each of which is ranked by itself; that of our rows has no name."""
    blocks = {"": table.rows, "bound": [table.limit] if table.limit else []}
    blocks |= {row.basis: table.published for row in table.published[:1]}
    return {name: rows for name, rows in blocks.items() if rows}


def text_blocks(
    table: ResultTable, digits: int, *, averaged: bool = True, percent: str = "%", runs: bool = True
) -> Blocks:
    """Return the rows of a table as text: errors by step, the average, and the columns that `heads_of` names.

    Args:
        table: the table.
        digits: decimals of errors.
        averaged: also the average and what stands behind it.
        percent: what follows a gain.
        runs: also how many members a row has.
    """
    places = [*range(table.steps), *[None] * averaged]
    blocks: dict[str, list[list[Cell | str | None]]] = {}
    for name, rows in blocks_of(table).items():
        ranks = zip(*(marks(rows, place) for place in places), strict=True)
        blocks[name] = []
        for row, ranked in zip(rows, ranks, strict=True):
            cells = [
                Cell(fixed(_at(row.mean, place), digits), fixed(_at(row.sd, place), digits), mark)
                for place, mark in zip(places, ranked, strict=True)
            ]
            others = [
                *[fixed(_at(row.ensemble, None), digits)] * table.has_ensembles,
                *[fixed(_at(row.ratio_to_limit, None), 2)] * bool(table.limit),
                *[fixed(row.gain_percent, 1, percent)] * table.has_gains,
                *[str(row.runs or "")] * runs,
            ]
            moved = row.due_to_confounding.steps if row.due_to_confounding else ()
            others = others if averaged else [fixed(value, digits) for value in moved]
            blocks[name].append([row.marked_label, *cells, *(text or None for text in others)])
    return blocks


def heads_of(table: ResultTable, *, runs: bool = True) -> list[str]:
    """Return the heads of the columns behind those of the steps."""
    others = ["Ensemble"] * table.has_ensembles + ["Ratio"] * bool(table.limit) + ["Gain"] * table.has_gains
    return ["Avg", *others, *["Runs"] * runs]


def comparison_rows(comparisons: Sequence[Comparison], digits: int, *, why: bool) -> Rows:
    """Return each comparison's difference, interval, p-values and wins; an untested one says so, or why."""
    rows = []
    for c in comparisons:
        ends = [bound.average for bound in (c.lower, c.upper) if bound and bound.average is not None]
        untested = (c.untested if why else "not tested") if c.untested else ""
        bounds = " to ".join(f"{end:.{digits}f}" for end in ends) if len(ends) == 2 else untested
        wins = "" if c.wins is None else f"{c.wins:.0%}"
        texts = [fixed(c.difference.average, digits), bounds, fixed(c.p_value, 3), fixed(c.p_holm, 3), wins]
        rows.append([c.label, *(text or None for text in texts)])
    return rows


def effect_rows(table: ResultTable, digits: int) -> Rows:
    """Return the scores of effects and distributions of each row that has any (spec SCORE-23 to 26)."""
    rows = []
    for row in table.effect_rows:
        of = row.effects
        shown = [fixed(of.get(name), digits) for name in ("pehe", "regret", "crps", "w1")]
        pehe, regret, crps, w1 = (text or None for text in shown)
        sign, ranking, relative = (
            None if (share := of.get(name)) is None else f"{share:.1%}"
            for name in ("sign", "ranking", "relative_regret")
        )
        rows.append([row.marked_label, pehe, sign, ranking, regret, relative, crps, w1])
    return rows


def cost_cells(costs: Sequence[JobCost]) -> list[str | None]:
    """Return what jobs of one method cost as text: the mean over data sets, and the largest memory."""

    def known(name: str) -> list[float]:
        return [value for cost in costs if (value := getattr(cost, name)) is not None]

    wall_s, epochs, outcome, other = (
        sum(values) / len(values) if values else None
        for values in map(known, ("wall_s", "epochs", "outcome_updates", "other_updates"))
    )
    memory, device = (max(known(name), default=None) for name in ("memory_mb", "device_memory_mb"))
    updates = "" if outcome is None else f"{outcome:,.0f}" + (f" + {other:,.0f}" if other else "")
    texts = [
        "" if wall_s is None else f"{'≥ ' * any(cost.partial for cost in costs)}{wall_s:.1f}",
        *("" if size is None else f"{size:,.0f}" for size in (memory, device, costs[0].members, costs[0].parameters)),
        "" if epochs is None else f"{epochs:g}",
        with_budget_sign(updates, any(cost.stopped_by_budget for cost in costs)) if updates else "",
    ]
    return [text or None for text in texts]


def to_markdown(report: BenchmarkReport) -> str:
    """Return the tables in Markdown: best bold, second underlined; then comparisons, costs, and what failed."""
    seeds = ", ".join(map(str, report.seeds))
    about = (
        f"RMSE in {escaped(report.unit or 'outcome units')}, lower is better: mean ± {report.spread}; data set "
        f"{'seed' if len(report.seeds) == 1 else 'seeds'} {seeds}, preset {escaped(report.preset)}. Avg: over "
        f"{report.averaged}, for every row. {f'{ABOUT_GAIN}. ' if report.has_gains else ''}"
        f"{escaped(f'{report.about_ratio}. ' if report.about_ratio else '')}"
        f"{f'{ABOUT_ENSEMBLE}. ' if report.has_ensembles else ''}"
        f"**Best** and <u>second</u> of each block; {BUDGET_SIGN} {report.about_budget}. "
        "Published rows come from another protocol or other data: compare rows of one block only."
    )
    lines = [f"# Benchmark on {report.dataset}", "", about, ""]
    for table in report.tables:
        heads = ["Method", *(f"τ={h + 1}" for h in range(table.steps)), *heads_of(table)]
        lines += [f"## {table.title}", "", *markdown_table(heads, text_blocks(table, DIGITS, percent=" %")), ""]
        if table.comparisons:
            lines.append(
                f"Error of each row minus COSTAR's, average over τ ({TEST}). "
                "Wins: share of pairs of members that COSTAR wins."
            )
            lines += [f"**Not tested**: {table.untested}."] if table.untested else []
            lines += [f"**Caution**: {table.caution}."] if table.caution else []
            heads = ["Method", "Difference", f"{report.level:.0%} interval", "p", "p (Holm)", "Wins"]
            rows = comparison_rows(table.comparisons, DIGITS, why=True)
            lines += ["", *markdown_table(heads, {"": rows}), ""]
        if effects := effect_rows(table, DIGITS):
            lines += [f"{ABOUT_EFFECTS}.", "", *markdown_table(EFFECT_HEADS, {"": effects}), ""]
    plus = f" {ABOUT_OTHER_UPDATES.capitalize()}." if any(cost.other_updates for cost in report.costs) else ""
    lines += ["## Costs", "", f"{_ABOUT_COSTS}{plus} {BUDGET_SIGN} {report.about_budget}.", ""]
    costs = [
        [
            f"{cost.label if cost.role == 'data' else f'{cost.label}, {cost.role}'}, seed {cost.seed}",
            *cost_cells([cost]),
        ]
        for cost in report.costs
    ]
    lines += [*markdown_table(_COST_HEADS, {"": costs}), ""]
    if any(cost.warnings for cost in report.costs):
        lines += ["## Warnings of training", ""]
        lines += [f"- {escaped(cost.cell)}: {escaped(warning)}" for cost in report.costs for warning in cost.warnings]
        lines += [""]
    if report.failures:
        lines += ["## Failures", "", *(f"- {f.what}: {escaped(str(f.error['problem']))}" for f in report.failures), ""]
    return "\n".join(lines)


def markdown_table(heads: Sequence[str], blocks: Blocks) -> list[str]:
    """Return a table's lines in Markdown; rows of a block with a name have it behind their label."""
    lines = [f"| {' | '.join(heads)} |", "|---|" + "---:|" * (len(heads) - 1)]
    for name, rows in blocks.items():
        for label, *cells in rows:
            texts = _texts(cells, _MARKDOWN, "±", lambda text: escaped(text or ""))
            lines.append(f"| {' | '.join([escaped(str(label)) + (f' ({name})' if name else ''), *texts])} |")
    return lines


def to_latex(report: BenchmarkReport) -> str:
    """Return the tables in LaTeX (package booktabs), laid out as the paper's."""
    if not report.tables:
        return ""
    lines = ["% \\usepackage{booktabs}"]
    for table in report.tables:
        caption = (
            f"{latex(table.title)}. Data: {latex(report.dataset)}. RMSE ({latex(report.unit or 'outcome units')}), "
            rf"mean $\pm$ {latex(report.spread)}. Avg: over $\tau=1..{table.steps}$. "
            + (latex(f"{ABOUT_GAIN}. ").replace("±", r"$\pm$") if table.has_gains else "")
            + r"\textbf{Bold}: best; \underline{underline}: second best, per block."
            + (f" {latex(report.about_ratio)}." if table.limit and report.about_ratio else "")
            + (f" {ABOUT_ENSEMBLE}." if table.has_ensembles else "")
            + (f" Differences between rows are not tested: {latex(table.untested)}." if table.untested else "")
            + (f" Caution: {latex(table.caution)}." if table.caution else "")
        )
        if any(row.stopped_by_budget for row in table.rows):
            caption += rf" $^{{\dagger}}$: {latex(report.about_budget)}."
        heads = ["Method", *(rf"$\tau={h + 1}$" for h in range(table.steps)), *heads_of(table, runs=False)]
        lines += latex_table(caption, heads, text_blocks(table, DIGITS, runs=False))
    return "\n".join(lines)


def latex_table(caption: str, heads: Sequence[str], blocks: Blocks, *, named: bool = True) -> list[str]:
    """Return a table's lines in LaTeX, a rule before each block, and its name where blocks are `named`."""
    lines = [r"\begin{table*}[htbp]", r"\centering", rf"\caption{{{caption}}}"]
    lines += [rf"\begin{{tabular}}{{l{'c' * (len(heads) - 1)}}}", r"\toprule", " & ".join(heads) + r" \\"]
    for name, rows in blocks.items():
        lines.append(r"\midrule")
        if name and named:
            lines.append(rf"\multicolumn{{{len(heads)}}}{{l}}{{\emph{{{latex(name)}}}}} \\")
        for label, *cells in rows:
            texts = _texts(cells, _LATEX, r"$\pm$", lambda text: latex(text or "(-)"))
            shown = latex(str(label)).replace(f" {BUDGET_SIGN}", r"$^{\dagger}$")
            lines.append(" & ".join([shown, *texts]) + r" \\")
    return [*lines, r"\bottomrule", r"\end{tabular}", r"\end{table*}", ""]


def show_report(out: Output, report: BenchmarkReport) -> None:
    """Print the tables, how they compare, and what they cost."""
    if report.tables:
        out.text(
            f"RMSE in {report.unit or 'outcome units'} on {report.dataset}, lower is better; "
            f"Avg over {report.averaged}; {legend()}",
            f"± {report.spread}",
            *[ABOUT_GAIN] * report.has_gains,
            *([report.about_ratio] if report.about_ratio else []),
            *[ABOUT_ENSEMBLE] * report.has_ensembles,
            *[f"{BUDGET_SIGN} {report.about_budget}"] * report.has_stopped_rows,
            "",
        )
    for table in report.tables:
        heads = ["Method", *(f"τ={h + 1}" for h in range(table.steps)), *heads_of(table)]
        show_styled(out, table.title, heads, text_blocks(table, SHOWN_DIGITS))
        if table.comparisons:
            heads = ["error minus COSTAR's", "average", f"{report.level:.0%} interval", "p", "p (Holm)", "wins"]
            out.table(heads, comparison_rows(table.comparisons, SHOWN_DIGITS, why=False), keys=1)
            out.text(*([f"not tested: {table.untested}"] if table.untested else []))
            out.text(*([f"caution: {table.caution}"] if table.caution else []))
        if out.shows("effects") and (effects := effect_rows(table, SHOWN_DIGITS)):
            out.text(ABOUT_EFFECTS)
            out.table(EFFECT_HEADS, effects, keys=1)
        out.text("")
    if report.costs:
        groups: dict[tuple[str, str], list[JobCost]] = {}
        for cost in report.costs:
            groups.setdefault((cost.label, cost.role), []).append(cost)
        heads = ["cost per data set", "cell", "wall s", "peak MB", "GPU MB", "members", "params", "epochs", "updates"]
        rows = [[*who, *cost_cells(group)] for who, group in groups.items()]
        if all(cost.device_memory_mb is None for cost in report.costs):
            heads, rows = heads[:4] + heads[5:], [row[:4] + row[5:] for row in rows]
        out.table(heads, rows, keys=2)
    if any(cost.other_updates for cost in report.costs):
        out.text(ABOUT_OTHER_UPDATES)
    if any(cost.stopped_by_budget for cost in report.costs) and not report.has_stopped_rows:
        out.text(f"{BUDGET_SIGN} {report.about_budget}")
    for caution in report.cautions:
        out.say(Diagnostic.of("few-units", why=caution))
    if any(c.lower for table in report.tables for c in table.comparisons):
        out.note("intervals and p: bootstrap over test subjects; excludes training variability; wins: COSTAR's share")


def _texts(
    cells: Sequence[Cell | str | None], patterns: Mapping[Mark, str], pm: str, other: Callable[[str | None], str]
) -> list[str]:
    return [
        patterns[cell.mark].format(cell.text + (f"{pm}{cell.spread}" if cell.spread else ""))
        if isinstance(cell, Cell)
        else other(cell)
        for cell in cells
    ]


def fixed(value: float | None, digits: int, unit: str = "") -> str:
    """Return a number with so many decimals and its unit, nothing where it is not known."""
    return "" if value is None else f"{value:.{digits}f}{unit}"


def escaped(text: str) -> str:
    """Return text that Markdown's tables show as it is."""
    return plain(text).replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")


def latex(text: str) -> str:
    """Return text that LaTeX shows as it is."""
    return plain(text).translate(_LATEX_LETTERS)
