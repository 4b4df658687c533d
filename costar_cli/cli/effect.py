"""`costar effect`: mean outcomes under treatment plans in a population, and their contrasts, with intervals."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from costar_cli.api.outputs import Files, check_outputs, check_page
from costar_cli.cli import options
from costar_cli.cli.options import FILES, expanded
from costar_cli.cli.parts import check_part, check_whole, end_part
from costar_cli.cli.session import RunFlags
from costar_cli.cli.whatif import check_plot
from costar_cli.config.requests import EffectRequest
from costar_cli.errors import UsageError

if TYPE_CHECKING:
    from costar_cli.data.dataset import Dataset, Location
    from costar_cli.effects import EffectReport
    from costar_cli.files.shards import Shard
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
    plot: options.PlotOpt = None
    report: options.ReportOpt = None
    overwrite: options.OverwriteFlag = False
    shard: options.ShardOpt = None
    merge: options.MergeFlag = False

    def check(self, read: Files, shard: "Shard | None") -> None:
        """See, before any work, that the answer can be written, and to nothing that is `read`.

        Raises:
            UsageError: a file of an unknown kind, or two files of the same name.
            MismatchError: a file is read, or exists and may not be replaced.
            StorageError: a folder does not exist, or a file is no regular one.
        """
        from costar_cli.files.tables import check_table_name

        check_plot(self.plot)
        check_whole(shard, self.csv, [("--plot", self.plot), ("--report", self.report)], merge=self.merge)
        if shard is not None and self.csv is not None:
            check_part(shard, self.csv, read)
        csv = self.csv if shard is None else None
        written = [("--csv", csv), ("--plot", self.plot), ("--report", self.report)]
        check_outputs(written, read=read, overwrite=self.overwrite)
        check_page(self.report, flag="--report")
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
    from costar_cli.effects.effects import Source, made_here
    from costar_cli.effects.parts import CurvesOfPart, CurvesOfParts
    from costar_cli.files.parts import is_made, read_parts, write_part
    from costar_cli.files.shards import Shard
    from costar_cli.files.tables import columns_of_rows, safe_cells, table_file

    session = run.open(ctx)
    session.out.hold()
    if about.plan is None:
        fix = "`costar effect --help` shows what it takes"
        raise UsageError("missing option '--plan' / '-p'", fix=fix)
    data = data or session.workspace.data
    read = [*session.read_by(), ("data set", data), ("plan", about.plan)]
    read += [("file of subjects", Path(about.subjects))] if about.subjects else []
    shard = None if files.shard is None else Shard.parse(files.shard)
    files.check(read, shard)
    session.read("dataset", data, outcomes=False)
    from costar_cli.api.effects import effects_of
    from costar_cli.questions import choose_subjects

    dataset = session.load_dataset(data, queries=False, truth=False)
    places = choose_subjects(dataset, about.subjects or "all", skip=about.skip_unknown, reporter=session.reporter)
    source: Source = made_here
    question = ""
    if files.csv is not None and (shard is not None or files.merge):
        question = fingerprint_of(dataset, places, about.plan, request)
        if shard is not None and is_made(files.csv, shard, question, overwrite=files.overwrite):
            end_part(session, shard, files.csv, made=False)
            return
        source = CurvesOfParts(read_parts(files.csv, question)) if shard is None else CurvesOfPart(shard)
    report = effects_of(dataset, places, about.plan, request, session.reporter, source=source)
    if isinstance(source, CurvesOfPart):
        assert shard is not None and files.csv is not None  # noqa: S101, PT018 - of a part
        write_part(files.csv, shard, question, source.arrays, {}, report.parents)
        end_part(session, shard, files.csv, made=True)
        return
    if files.csv is not None:
        with safe_cells(files.csv_safe), table_file(files.csv) as table:
            table.write(columns_of_rows(report.rows, texts=TEXTS))
        session.out.wrote("effects", files.csv)
    if files.plot is not None:
        from costar_cli.report.figures.population import plot_effects

        session.out.wrote("plot", plot_effects(report, files.plot))
    if files.report is not None:
        from costar_cli.files import write_bytes
        from costar_cli.report.pages.effects import effects_page

        write_bytes(files.report, effects_page(report, report.parents).encode())
        session.out.wrote("report", files.report, kind="html")
    show_effects(session.out, report)
    session.out.done(report.to_json())


def fingerprint_of(dataset: "Dataset", places: "Sequence[Location]", plan: Path, request: EffectRequest) -> str:
    """Return what all parts of a question about effects share: what their curves depend on.

    Raises:
        UsageError: the plans are on standard input, which each part would have to be given.
    """
    from costar_cli.files import fingerprint
    from costar_cli.files.digest import sha256
    from costar_cli.plans import read_plan_file

    if str(plan) == "-":
        raise UsageError("parts share a file of plans", where="--plan -", fix="name the file")
    shown = ("levels", "measure", "reference")  # of the same curves
    config = {name: value for name, value in asdict(request).items() if name not in shown}
    config["plan"] = sha256(read_plan_file(plan))
    config["subjects"] = sha256("\n".join(f"{place.part} {place.row}" for place in places).encode())
    return fingerprint("effects", parents={"dataset": dataset.digest}, config=config)


def show_effects(out: "Output", report: "EffectReport") -> None:
    """Print who entered, then what each plan comes to after its last step; of `--show days`, every step first."""
    from costar_cli.data.findings import counted
    from costar_cli.effects import FEW
    from costar_cli.questions.effect_tables import end_tables, followers_table, steps_table

    effects, flow = report.effects, report.flow
    unit = "subject" if effects.trials.panel.cluster is None else "cluster"
    reference = effects.plans[effects.reference].name
    out.text(f"{counted(flow.trials, 'trial')} of {counted(flow.units, unit)}; contrasts are with plan `{reference}`")
    shared, every = followers_table(report), [steps_table(report)] if out.shows("days") else []
    for table in [*every, *([shared] if shared else []), *end_tables(report, main=not out.shows("days"))]:
        out.table(table.headers, table.rows, title=table.title, keys=table.keys)
    out.release()
    out.note(f"followers in brackets: how many of equal weight; ? below {FEW:g}")
    out.more("days")
