"""`costar search`: the treatment plan that makes an outcome best, for one subject or for each of many."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from costar_cli.cli import options
from costar_cli.cli.options import FILES, CostOpt, MaximiseOpt, MinimiseOpt
from costar_cli.cli.searching import Search, run_search
from costar_cli.cli.session import open_session
from costar_cli.cli.workspace import DEFAULT_WORKSPACE
from costar_cli.config.choices import RankingName

if TYPE_CHECKING:
    from costar_cli.cli.session import Flags

CONSTRAINTS = "Constraints"


def search(
    ctx: typer.Context,
    subject: Annotated[
        str | None, typer.Option("--subject", "-s", help="Subject: its label, or its number if it has no label")
    ] = None,
    subjects: options.SubjectsOpt = None,
    skip_unknown: options.SkipUnknownFlag = False,
    minimise: MinimiseOpt = None,
    maximise: MaximiseOpt = None,
    cost: CostOpt = None,
    at_most: Annotated[
        list[str] | None,
        typer.Option("--at-most", help='"TREATMENT 2": steps that may give it', rich_help_panel=CONSTRAINTS),
    ] = None,
    at_least: Annotated[
        list[str] | None,
        typer.Option("--at-least", help='"TREATMENT 1": steps that must give it', rich_help_panel=CONSTRAINTS),
    ] = None,
    not_consecutive: Annotated[
        list[str] | None,
        typer.Option(
            "--not-consecutive", help="Treatment never given at two steps in a row", rich_help_panel=CONSTRAINTS
        ),
    ] = None,
    not_with: Annotated[
        list[str] | None,
        typer.Option("--not-with", help='"TREATMENT OTHER": never given at the same step', rich_help_panel=CONSTRAINTS),
    ] = None,
    levels: Annotated[
        list[str] | None,
        typer.Option(
            "--levels",
            metavar="'DOSE 0,5,10'",
            help="Doses to choose from (default: some over the range of the data)",
            rich_help_panel=CONSTRAINTS,
        ),
    ] = None,
    only_from: Annotated[
        Path | None,
        typer.Option("--only-from", help="File of the plans to choose from", rich_help_panel=CONSTRAINTS),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option("--steps", help="Steps of the plans (default: the horizon)", rich_help_panel=CONSTRAINTS),
    ] = None,
    beam: Annotated[
        int | None,
        typer.Option(
            "--beam",
            help="Search with a beam this wide (default: exhaustively, up to a million plans)",
            rich_help_panel=CONSTRAINTS,
        ),
    ] = None,
    origin: Annotated[
        str,
        typer.Option(
            "--origin",
            metavar="last|N|-K|DATE",
            help="Last observed step, from 0, K steps before the last, or at a date",
        ),
    ] = "last",
    reference: Annotated[
        Path | None, typer.Option("--reference", help="File of the plan to compare with (default: no treatment)")
    ] = None,
    by: Annotated[
        RankingName,
        typer.Option("--by", help="What makes a plan best: its estimate, or a limit of its interval"),
    ] = "estimate",
    level: Annotated[float, typer.Option("--level", help="Share of new subjects that an interval covers")] = 0.9,
    unsupported: Annotated[
        bool, typer.Option("--unsupported", help="Also consider plans that the data do not support")
    ] = False,
    csv: Annotated[
        Path | None,
        typer.Option("--csv", help="Table of the best plans: .csv, .parquet or .jsonl", rich_help_panel=FILES),
    ] = None,
    csv_safe: options.CsvSafeFlag = False,
    plot: options.PlotOpt = None,
    report: options.ReportOpt = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="The best plan as a plan file: .json, of many subjects .csv", rich_help_panel=FILES
        ),
    ] = None,
    overwrite: options.OverwriteFlag = False,
    data: options.DataOpt = None,
    model: Annotated[
        Path | None,
        typer.Option("--model", "-m", help=f"Model to ask ({options.DEFAULT_MODEL})", rich_help_panel=FILES),
    ] = None,
    workspace: options.WorkspaceOpt = DEFAULT_WORKSPACE,
    config: options.ConfigFileOpt = None,
    device: options.DeviceOpt = None,
    threads: options.ThreadsOpt = None,
    json: options.JsonFlag = False,
    quiet: options.QuietFlag = False,
) -> None:
    """Find the treatment plan that makes an outcome best, and how sure that is."""
    from costar_cli.config.models import RuntimeConfig
    from costar_cli.files.tables import safe_cells

    flags: Flags = {RuntimeConfig: {"device": device, "threads": threads}}
    session = open_session(ctx, flags, workspace=workspace, json=json, quiet=quiet, config=config)
    asked = Search(
        subject=subject, subjects=subjects, skip_unknown=skip_unknown, origin=origin, minimise=tuple(minimise or ()),
        maximise=tuple(maximise or ()), cost=tuple(cost or ()), at_most=tuple(at_most or ()),
        at_least=tuple(at_least or ()), not_consecutive=tuple(not_consecutive or ()), not_with=tuple(not_with or ()),
        levels=tuple(levels or ()), only_from=only_from, steps=steps, beam=beam, reference=reference, by=by,
        level=level, unsupported=unsupported, csv=csv, plot=plot, report=report, out=out, overwrite=overwrite,
    )  # fmt: skip
    with safe_cells(csv_safe):
        run_search(
            session, asked, data or session.workspace.data, session.workspace.named([model])[0] if model else None
        )
