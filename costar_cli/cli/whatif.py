"""`costar whatif`: one subject, several treatment plans, estimated outcomes."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from costar_cli.cli import options
from costar_cli.cli.options import FILES
from costar_cli.cli.questions import Question, run_whatif
from costar_cli.cli.session import open_session
from costar_cli.cli.workspace import DEFAULT_WORKSPACE
from costar_cli.errors import UsageError

if TYPE_CHECKING:
    from costar_cli.cli.session import Flags


def whatif(
    ctx: typer.Context,
    plan: Annotated[
        Path | None,
        typer.Option("--plan", "-p", help="Plans (required): a JSON file, a .csv, or `-` for JSON on standard input"),
    ] = None,
    subject: Annotated[
        list[str] | None,
        typer.Option(
            "--subject", "-s", help="Subject: its label, or its number if it has no label; several make a cohort"
        ),
    ] = None,
    subjects: options.SubjectsOpt = None,
    skip_unknown: options.SkipUnknownFlag = False,
    average: Annotated[
        bool,
        typer.Option("--average", help="Mean outcomes and effects over the cohort, intervals where known"),
    ] = False,
    by: Annotated[
        str | None,
        typer.Option("--by", help="Groups of averages: a static, or an outcome at the origin (`NAME:3`: in thirds)"),
    ] = None,
    sweep: Annotated[
        str | None,
        typer.Option(
            "--sweep",
            metavar="'DOSE FIRST:LAST:STEP'",
            help="Doses to compare in place of plans, for a dose-response curve",
        ),
    ] = None,
    origin: Annotated[
        str | None,
        typer.Option(
            "--origin",
            metavar="last|N|all|-K|DATE",
            help="Last observed step, from 0, K steps before the last, or at a date (default: that of plans, or last)",
        ),
    ] = None,
    reference: Annotated[
        str | None, typer.Option("--reference", help="Plan to compare with (default: the first)")
    ] = None,
    level: Annotated[
        list[float] | None,
        typer.Option("--level", help="Share of new subjects that a band covers; may be given again (default: 0.9)"),
    ] = None,
    truth: Annotated[bool, typer.Option("--truth", help="Add the simulated truth and the errors")] = False,
    unsupported: Annotated[
        bool, typer.Option("--unsupported", help="Also answer plans with treatments that no training subject received")
    ] = False,
    sensitivity: Annotated[
        bool, typer.Option("--sensitivity", help="How strong a hidden confounder would change which plan is better")
    ] = False,
    abstain: Annotated[
        bool, typer.Option("--abstain", help="Leave out the numbers of answers that the data do not support")
    ] = False,
    widen: Annotated[
        bool, typer.Option("--widen", help="Wider bands, for plans under another policy than the one that was followed")
    ] = False,
    csv: Annotated[
        Path | None,
        typer.Option("--csv", "--answers", help="Table to write: .csv, .parquet or .jsonl", rich_help_panel=FILES),
    ] = None,
    csv_safe: options.CsvSafeFlag = False,
    plot: options.PlotOpt = None,
    report: options.ReportOpt = None,
    out: options.OutOpt = None,
    overwrite: options.OverwriteFlag = False,
    data: options.DataOpt = None,
    model: options.AskedModelsOpt = None,
    workspace: options.WorkspaceOpt = DEFAULT_WORKSPACE,
    config: options.ConfigFileOpt = None,
    device: options.DeviceOpt = None,
    threads: options.ThreadsOpt = None,
    shard: options.ShardOpt = None,
    json: options.JsonFlag = False,
    quiet: options.QuietFlag = False,
) -> None:
    """Estimate the outcomes of a subject, or of many, under treatment plans, and the differences between plans."""
    from costar_cli.config.models import RuntimeConfig
    from costar_cli.files.shards import Shard
    from costar_cli.files.tables import safe_cells

    flags: Flags = {RuntimeConfig: {"device": device, "threads": threads}}
    session = open_session(ctx, flags, workspace=workspace, json=json, quiet=quiet, config=config)
    plan, who = _required(plan, subject, subjects, sweep)
    question = Question(
        who=who, plan=plan, origin=origin, reference=reference, levels=tuple(level or [0.9]), truth=truth,
        unsupported=unsupported, sensitivity=sensitivity, abstain=abstain, widen=widen, csv=csv, plot=plot,
        report=report, out=out, overwrite=overwrite, sweep=sweep, skip_unknown=skip_unknown, average=average, by=by,
        shard=None if shard is None else Shard.parse(shard),
    )  # fmt: skip
    with safe_cells(csv_safe):
        run_whatif(session, question, data or session.workspace.data, session.workspace.named(model or []))


def _required(
    plan: Path | None, subject: list[str] | None, subjects: str | None, sweep: str | None
) -> tuple[Path | None, str | tuple[str, ...]]:
    """Return the file of plans, and the cohort or the subjects that are named; none where the plans name them.

    Raises:
        UsageError: what is missing, all at once, a cohort beside subjects, or a sweep beside plans.
    """
    if sweep is not None and plan is not None:
        raise UsageError("both --sweep and --plan are given", where="--sweep", fix="give one of them")
    if subject and subjects is not None:
        fix = "give --subject for one, or --subjects for a cohort"
        raise UsageError("both --subject and --subjects are given", fix=fix)
    who = tuple(subject or ()) if subjects is None else subjects
    if subjects is None and not who and plan is not None and plan.suffix.lower() == ".csv":
        from costar_cli.plans import read_plan_file
        from costar_cli.questions import subjects_of_plans

        if subjects_of_plans(read_plan_file(plan)):
            return plan, ()
    missing = ["'--subject' / '-s' (or '--subjects')"] * (not who) + ["'--plan' / '-p'"] * (
        plan is None and sweep is None
    )
    if missing:
        fix = "`costar whatif --help` shows what it takes"
        raise UsageError(f"missing option{'s' * (len(missing) > 1)} {', '.join(missing)}", fix=fix)
    return plan, who
