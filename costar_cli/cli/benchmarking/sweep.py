"""Sweeps: a benchmark at each of several confounding strengths, and how errors change with it (`--gamma 0,2,4`)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from costar_cli.cli.benchmarking.export import (
    SHOWN_DIGITS,
    Blocks,
    Record,
    blocks_of,
    csv_text,
    escaped,
    latex,
    latex_table,
    markdown_table,
    result_rows,
    text_blocks,
)
from costar_cli.cli.benchmarking.jobs import BenchmarkWorkspace, with_values
from costar_cli.cli.benchmarking.report import BenchmarkReport
from costar_cli.cli.benchmarking.tables import DIGITS, ResultRow, ResultTable
from costar_cli.config.models import BenchmarkConfig
from costar_cli.data.registry import sources
from costar_cli.errors import UsageError, complaints
from costar_cli.evaluation.metrics import PerStep
from costar_cli.evaluation.rows import BUDGET_SIGN
from costar_cli.files import write_bytes
from costar_cli.files.frames import FrameName, frame_of_rows
from costar_cli.methods.registry import LAST_VALUE
from costar_cli.reporting.output import Output
from costar_cli.reporting.text import legend, show_styled

if TYPE_CHECKING:
    from costar_cli.files.frames import Frame

SETTING: Final = "gamma"
ABOUT_TWIN: Final = (
    "minus 0: error due to confounding, that of training on the confounded cohort minus that of training on its "
    "randomised twin (gamma 0: the same patients and noise)"
)
AXIS: Final = "Confounding strength gamma of the source"


@dataclass(frozen=True)
class Sweep:
    """Benchmarks of one data set, by the confounding strength of its source."""

    reports: Mapping[float, BenchmarkReport]

    @property
    def values(self) -> tuple[float, ...]:
        """Return the strengths."""
        return tuple(self.reports)

    @property
    def report(self) -> BenchmarkReport:
        """Return what all benchmarks share, with tables of average errors whose columns are the strengths."""
        shown = [report for report in self.reports.values() if report.tables]
        return replace((shown or [*self.reports.values()])[0], tables=self.tables)

    @property
    def tables(self) -> tuple[ResultTable, ...]:
        """Return a table per kind, set-up and truth: the steps of its rows are the strengths."""
        found: dict[tuple[str, ...], dict[float, ResultTable]] = {}
        for value, report in self.reports.items():
            for table in report.tables:
                found.setdefault((table.kind, table.setup, table.truth), {})[value] = table
        tables = []
        for by_value in found.values():
            rows: dict[str, dict[float, ResultRow]] = {}
            limits = {value: table.limit for value, table in by_value.items() if table.limit}
            for value, table in by_value.items():
                for row in table.rows:
                    rows.setdefault(row.name, {})[value] = row
            across = tuple(map(self._across, rows.values()))
            first, limit = next(iter(by_value.values())), self._across(limits) if limits else None
            if first.setup == "zero-shot":  # the test questions are the same at all strengths
                across, limit = tuple(map(self._against_twin, across)), limit and self._against_twin(limit)
            tables.append(
                replace(first, steps=len(self.values), rows=across, published=(), comparisons=(), limit=limit)
            )
        return tuple(tables)

    def _across(self, rows: Mapping[float, ResultRow]) -> ResultRow:
        """Return one row of the averages at every strength, unknown where it was not made."""
        at = [rows.get(value) for value in self.values]
        sd = tuple(row.sd.average if row and row.sd else None for row in at)
        stopped = [row.stopped_by_budget for row in rows.values() if row.stopped_by_budget is not None]
        return replace(
            next(iter(rows.values())),
            mean=PerStep(tuple(row.mean.average if row else None for row in at), None),
            sd=None if all(value is None for value in sd) else PerStep(sd, None),
            stopped_by_budget=any(stopped) if stopped else None,
            gain_percent=None,
            ratio_to_limit=None,
            coverage_90=None,
            ensemble=None,
        )

    @property
    def confounded(self) -> tuple[float, ...]:
        """Return the strengths whose cohorts have a randomised twin in the sweep: all others, where 0 is among them."""
        return tuple(value for value in self.values if value) if 0 in self.values else ()

    def _against_twin(self, row: ResultRow) -> ResultRow:
        """Return a row with how much larger its errors are than those of the randomised twin, of gamma 0.

        The source of a seed has the same patients, noise and streams at every strength; the policy alone differs.
        """
        by_value = dict(zip(self.values, row.mean.steps, strict=True))
        pairs = [(by_value[value], by_value[0]) for value in self.confounded]
        moved = tuple(None if own is None or twin is None else own - twin for own, twin in pairs)
        return replace(row, due_to_confounding=PerStep(moved, None) if moved else None)

    def to_rows(self) -> list[Record]:
        """Return every row of every benchmark, as `results.csv` has them, behind its strength.

        Where the sweep has twins, `due_to_confounding` is the average error minus that of the twin.
        """
        moved: dict[tuple[object, ...], float | None] = {
            (table.kind, table.setup, row.name, value): of
            for table in self.tables
            for row in (*table.rows, *([table.limit] if table.limit else []))
            if row.due_to_confounding
            for value, of in zip(self.confounded, row.due_to_confounding.steps, strict=True)
        }
        rows: list[Record] = []
        for value, report in self.reports.items():
            for row in result_rows(report):
                due = {"due_to_confounding": moved.get((row["table"], row["setup"], row["name"], value))}
                rows.append({SETTING: value, **row, **(due if self.confounded else {})})
        return rows

    def to_frame(self, frame: FrameName = "pandas") -> "Frame":
        """Return `to_rows` as a frame of pandas or polars."""
        return frame_of_rows(self.to_rows(), frame)

    def to_json(self) -> dict[str, Any]:
        """Return the averages by strength, then each benchmark as a document."""
        rows = [
            {"kind": t.kind, "setup": t.setup, "truth": t.truth, "name": row.name, "label": row.label,
             "basis": row.basis, "mean": list(row.mean.steps), "sd": list(row.sd.steps) if row.sd else None,
             "due_to_confounding": list(row.due_to_confounding.steps) if row.due_to_confounding else None}
            for t in self.tables for block in blocks_of(t).values() for row in block
        ]  # fmt: skip
        shared = self.report
        return {
            "dataset": shared.dataset,
            "setting": SETTING,
            "values": list(self.values),
            "seeds": list(shared.seeds),
            "unit": shared.unit,
            "averaged_steps": shared.steps,
            "rows": rows,
            "benchmarks": [report.to_json() for report in self.reports.values()],
        }


def with_twin(benchmark: BenchmarkWorkspace, text: str | None) -> str:
    """Return strengths of a sweep, or the settings' own, with that of the randomised twin among them."""
    simulated = benchmark.data.simulated
    if text is None and simulated is not None and SETTING in simulated.settings.model_fields:
        text = exact(getattr(benchmark.settings.configs[simulated.section], SETTING))
    words = [word.strip() for word in (text or "0").split(",")]
    return ",".join(words if any(re.fullmatch(r"0+(\.0+)?", word) for word in words) else ["0", *words])


def open_sweep(benchmark: BenchmarkWorkspace, text: str) -> dict[float, BenchmarkWorkspace]:
    """Return the benchmark of each strength in a text such as `0,2,4`, with the last value among the methods.

    That of the strength that the settings have anyway is the benchmark without a sweep; the others have folders in its.

    Raises:
        UsageError: the text names no numbers, or the data set has no such setting or not these values.
    """
    simulated = benchmark.data.simulated
    if simulated is None or SETTING not in simulated.settings.model_fields:
        having = [name for name, source in sources().items() if SETTING in source.settings.model_fields]
        what = "a file holds one data set" if simulated is None else f"{simulated.name} has no confounding strength"
        fix = f"omit it, or choose one of {', '.join(having)}"
        raise UsageError(f"{what}, so that nothing can be swept", where="--gamma", fix=fix)
    own = getattr(benchmark.settings.configs[simulated.section], SETTING)
    methods = {"benchmark.methods": f"{benchmark.settings[BenchmarkConfig].methods},{LAST_VALUE}"}
    words = [word.strip() for word in text.split(",")]
    wrong = [f"{word!r} is no number" for word in words if not re.fullmatch(r"\d+(\.\d+)?", word)]
    strengths = sorted(float(word) for word in words) if not wrong else []
    wrong += [f"{exact(value)} occurs twice" for value in dict.fromkeys(strengths) if strengths.count(value) > 1]
    if wrong:
        fix = "separate numbers with commas: `--gamma 0,2,4,6,8,10`"
        raise UsageError.of(wrong, f"{len(wrong)} values are not understood", where="--gamma", fix=fix)
    benchmarks = {}
    for value in strengths:
        values = {**methods, f"{simulated.section}.{SETTING}": value}
        try:
            settings = with_values(benchmark.settings, values)
        except ValidationError as error:
            wrong += [f"{exact(value)}: {complaint}" for complaint in complaints(error.errors())]
            continue
        folder = benchmark.folder if value == own else benchmark.folder / f"{SETTING}-{exact(value)}"
        benchmarks[value] = replace(
            benchmark, settings=settings, folder=folder, at=f"{benchmark.at}{SETTING} {exact(value)}: "
        )
    if wrong:
        raise UsageError.of(wrong, f"{len(wrong)} values are not possible", where="--gamma")
    return benchmarks


def exact(value: float) -> str:
    """Return a strength as folders and tables are called: with six digits, or with as many as it takes."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


SWEEP_FILES: Final = ("sweep.csv", "sweep.md", "sweep.tex", "plots/sweep.png")


def write_sweep(out: Output, sweep: Sweep, folder: Path, *, plots: bool) -> None:
    """Write the curve as tables and a figure, and every row of every benchmark as CSV."""
    texts = {"sweep.csv": sweep_csv(sweep), "sweep.md": sweep_markdown(sweep), "sweep.tex": sweep_latex(sweep)}
    for name, text in texts.items():
        write_bytes(folder / name, text.encode())
        out.wrote(Path(name).suffix[1:], folder / name, kind=Path(name).suffix[1:])
    if plots and sweep.tables:
        from costar_cli.cli.benchmarking.figures import plot_horizons

        drawn = plot_horizons(sweep.report, folder / "plots" / "sweep.png", at=sweep.values, axis=AXIS)
        out.wrote("plot", drawn, kind="plot")


def sweep_csv(sweep: Sweep) -> str:
    """Return every row of every benchmark, as `results.csv` has them, behind its strength."""
    return csv_text(sweep.to_rows())


def sweep_markdown(sweep: Sweep) -> str:
    """Return the averages by strength in Markdown: best bold, second underlined."""
    lines = [f"# Sweep on {sweep.report.dataset}", "", ". ".join(escaped(line) for line in _about(sweep)) + ".", ""]
    heads = ["Method", *(f"{SETTING} = {exact(value)}" for value in sweep.values)]
    for table in sweep.tables:
        lines += [
            f"## {table.title}",
            "",
            *markdown_table(heads + _twin_heads(sweep, table), _blocks(table, DIGITS)),
            "",
        ]
    return "\n".join(lines)


def sweep_latex(sweep: Sweep) -> str:
    """Return the averages by strength in LaTeX (package booktabs)."""
    lines = ["% \\usepackage{booktabs}"]
    heads = ["Method", *(rf"$\gamma={exact(value)}$" for value in sweep.values)]
    about = latex(". ".join(_about(sweep))).replace("±", r"$\pm$").replace("τ", r"$\tau$")
    for table in sweep.tables:
        caption = rf"{latex(table.title)}. {about}. \textbf{{Bold}}: best; \underline{{underline}}: second."
        caption = caption.replace(BUDGET_SIGN, r"$^{\dagger}$")
        lines += latex_table(caption, heads + _twin_heads(sweep, table), _blocks(table, DIGITS), named=False)
    return "\n".join(lines)


def _blocks(table: ResultTable, digits: int) -> Blocks:
    return text_blocks(table, digits, averaged=False)


def _twin_heads(sweep: Sweep, table: ResultTable) -> list[str]:
    """Return the heads of the columns that tell which part of the error is due to confounding."""
    return [f"{exact(value)} minus 0" for value in sweep.confounded if table.setup == "zero-shot"]


def _about(sweep: Sweep) -> list[str]:
    report = sweep.report
    what = f"RMSE in {report.unit or 'outcome units'} on {report.dataset} by confounding strength of the source"
    return [
        f"{what}, average over {report.averaged}, lower is better",
        f"± {report.spread}",
        *([f"{BUDGET_SIGN} {report.about_budget}"] if report.has_stopped_rows else []),
        *([ABOUT_TWIN] if any(_twin_heads(sweep, table) for table in sweep.tables) else []),
    ]


def show_sweep(out: Output, sweep: Sweep) -> None:
    """Print the averages by strength."""
    if not sweep.tables:
        return
    first, *rest = _about(sweep)
    out.text(f"{first}; {legend()}", *rest, "")
    heads = ["Method", *(f"{SETTING}={exact(value)}" for value in sweep.values)]
    for table in sweep.tables:
        show_styled(out, table.title, heads + _twin_heads(sweep, table), _blocks(table, SHOWN_DIGITS))
        out.text("")
