"""`costar whatif`: one subject, several treatment plans, estimated outcomes."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from costar_cli.commands import options
from costar_cli.commands.options import FILES
from costar_cli.steps.estimates import Question, run_whatif
from costar_cli.steps.session import open_session
from costar_cli.workspace import DEFAULT_WORKSPACE

if TYPE_CHECKING:
    from costar_cli.steps.session import Flags


def whatif(
    ctx: typer.Context,
    subject: Annotated[
        str, typer.Option("--subject", "-s", help="Subject: its label, or its number if it has no label")
    ],
    plan: Annotated[
        Path, typer.Option("--plan", "-p", help="Plans: a JSON file, a .csv, or `-` for JSON on standard input")
    ],
    origin: Annotated[
        int | None,
        typer.Option("--origin", help="Last observed step (default: the plan file's, else the subject's last)"),
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
    csv: Annotated[Path | None, typer.Option("--csv", help="CSV file to write", rich_help_panel=FILES)] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Figure to write: .png, .svg or .pdf", rich_help_panel=FILES)
    ] = None,
    out: options.OutOpt = None,
    overwrite: options.OverwriteFlag = False,
    data: options.DataOpt = None,
    model: options.ModelsOpt = None,
    workspace: options.WorkspaceOpt = DEFAULT_WORKSPACE,
    config: options.ConfigFileOpt = None,
    device: options.DeviceOpt = None,
    threads: options.ThreadsOpt = None,
    json: options.JsonFlag = False,
    quiet: options.QuietFlag = False,
) -> None:
    """Estimate a subject's outcomes under treatment plans, and the differences between them."""
    from costar_cli.config.models import RuntimeConfig

    flags: Flags = {RuntimeConfig: {"device": device, "threads": threads}}
    session = open_session(ctx, flags, workspace=workspace, json=json, quiet=quiet, config=config)
    question = Question(
        plan=plan, subject=subject, origin=origin, reference=reference, levels=tuple(level or [0.9]), truth=truth,
        unsupported=unsupported, sensitivity=sensitivity, abstain=abstain, widen=widen, csv=csv, plot=plot,
        out=out, overwrite=overwrite,
    )  # fmt: skip
    run_whatif(session, question, data or session.workspace.data, model or [])
