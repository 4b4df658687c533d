"""`costar effect`: mean outcomes under treatment plans in a population, and their contrasts, with intervals."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from costar_cli.api.outputs import Files, check_outputs
from costar_cli.cli import options
from costar_cli.cli.options import FILES, expanded
from costar_cli.cli.session import RunFlags
from costar_cli.config.requests import EffectRequest
from costar_cli.errors import UsageError

if TYPE_CHECKING:
    from costar_cli.effects import EffectReport
    from costar_cli.reporting.output import Output

TEXTS: Final = frozenset({"quantity", "estimator", "group", "plan", "reference", "outcome", "unit"})


@dataclass(frozen=True, kw_only=True)
class Population:
    """Who is asked about, and the plans."""

    plan: Annotated[
        Path | None,
        typer.Option("--plan", "-p", help="Plans (required): a JSON file, a .csv, or `-` for JSON on standard input"),
    ] = None
    subjects: options.SubjectsOpt = None
    skip_unknown: options.SkipUnknownFlag = False


@dataclass(frozen=True, kw_only=True)
class OutputFiles:
    """Which files shall hold the answer."""

    csv: Annotated[
        Path | None,
        typer.Option("--csv", help="Table to write: .csv, .parquet or .jsonl", rich_help_panel=FILES),
    ] = None
    csv_safe: options.CsvSafeFlag = False
    overwrite: options.OverwriteFlag = False

    def check(self, read: Files) -> None:
        """See, before any work, that the answer can be written, and to nothing that is `read`.

        Raises:
            UsageError: a file of an unknown kind, or two files of the same name.
            MismatchError: a file is read, or exists and may not be replaced.
            StorageError: a folder does not exist, or a file is no regular one.
        """
        from costar_cli.files.tables import check_table_name

        check_outputs([("--csv", self.csv)], read=read, overwrite=self.overwrite)
        if self.csv is not None:
            check_table_name(self.csv, flag="--csv")


@expanded
def effect(
    ctx: typer.Context,
    about: Population,
    request: EffectRequest,
    files: OutputFiles,
    run: RunFlags,
    data: options.DataOpt = None,
) -> None:
    """Estimate mean outcomes under treatment plans in a population, and their differences, from data in which treatment
    reacts to the course: no model is needed.
    """
    from costar_cli.files.tables import columns_of_rows, safe_cells, table_file

    session = run.open(ctx)
    if about.plan is None:
        fix = "`costar effect --help` shows what it takes"
        raise UsageError("missing option '--plan' / '-p'", fix=fix)
    data = data or session.workspace.data
    read = [*session.read_by(), ("data set", data), ("plan", about.plan)]
    read += [("file of subjects", Path(about.subjects))] if about.subjects else []
    files.check(read)
    session.read("dataset", data)
    from costar_cli.api.effects import effects_of
    from costar_cli.questions import choose_subjects

    dataset = session.load_dataset(data, queries=False, truth=False)
    places = choose_subjects(dataset, about.subjects or "all", skip=about.skip_unknown, reporter=session.reporter)
    report = effects_of(dataset, places, about.plan, request, session.reporter)
    if files.csv is not None:
        with safe_cells(files.csv_safe), table_file(files.csv) as table:
            table.write(columns_of_rows(report.rows, texts=TEXTS))
        session.out.wrote("effects", files.csv)
    show_effects(session.out, report)
    session.out.done(report.to_json())


def show_effects(out: "Output", report: "EffectReport") -> None:
    """Print who entered, and what each plan comes to after its last step; every step is in the table of rows."""
    from costar_cli.data.schema import steps_of
    from costar_cli.questions.tables import decimals_of, estimate_text

    effects, flow = report.effects, report.flow
    schema, reference = effects.trials.schema, effects.plans[effects.reference].name
    unit = "cluster" if effects.trials.panel.cluster is not None else "subject"
    out.text(f"{flow.trials:,} trials of {flow.units:,} {unit}s; differences are from plan `{reference}`")
    last = {
        (plan.name, row["outcome"]): row for row in report.rows for plan in effects.plans if row["plan"] == plan.name
    }
    lines: dict[tuple[str, int], dict[tuple[str, str, str], dict[str, Any]]] = {}
    for row in report.rows:
        if row["step"] == last[row["plan"], row["outcome"]]["step"]:
            of = lines.setdefault((row["outcome"], row["step"]), {})
            of.setdefault((row["group"], row["plan"], row["estimator"]), {})[row["quantity"]] = row
    several = len(effects.groups) > 1
    for (outcome, step), of in lines.items():
        quantities = list(dict.fromkeys(name for cells in of.values() for name in cells))
        decimals = {name: decimals_of(cells[name]["estimate"] for cells in of.values() if name in cells)
                    for name in quantities}  # fmt: skip
        table = [
            [*([group] if several else []), plan, estimator,
             *(estimate_text(_first_level(cells[name]), decimals[name]) if name in cells else None
               for name in quantities),
             _followers(next(iter(cells.values())))]
            for (group, plan, estimator), cells in of.items()
        ]  # fmt: skip
        headers = [*(["group"] if several else []), "plan", "estimator", *quantities, "followers"]
        out.table(headers, table, title=f"{outcome} after {steps_of(step, schema.step)}", keys=2 + several)
    kinds = ", ".join(f"{100 * level:g} %" for level in report.request.levels[:1])
    out.note(f"{kinds} intervals from influence curves; followers in brackets: of equal weight; `--csv` has every step")


def _first_level(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with the limits of its first level alone."""
    return {name: row[name] for name in ("estimate", "lower", "upper")}


def _followers(row: Mapping[str, Any]) -> str:
    mark = "" if row["supported"] else " ?"
    return f"{row['followers']:,} ({row['effective']:.0f}){mark}"
