"""`costar finetune`: learn to predict outcomes under treatment plans."""

from pathlib import Path
from typing import Annotated

import typer

from costar_cli.cli import options
from costar_cli.cli.model import FinetuneFiles, combination, run_finetune
from costar_cli.cli.options import EXPERT, FILES, expanded, setting
from costar_cli.cli.session import TrainingFlags
from costar_cli.cli.workspace import Workspace
from costar_cli.config.choices import DomainName, InitName, StepWeights
from costar_cli.methods.registry import REFERENCE


@expanded
def finetune(
    ctx: typer.Context,
    run: TrainingFlags,
    domain: Annotated[
        DomainName,
        typer.Option("--domain", help="Train on the source domain, or adapt its model to few target subjects"),
    ] = "source",
    init: Annotated[
        InitName | None,
        typer.Option("--from", help="Start COSTAR from the pretrained encoder (default), or from random weights"),
    ] = None,
    method: options.MethodOpt = REFERENCE,
    data: options.DataOpt = None,
    start: Annotated[
        Path | None,
        typer.Option(
            "--start", help="Encoder or source model to start from (default: the workspace's)", rich_help_panel=FILES
        ),
    ] = None,
    out: options.OutOpt = None,
    parts: options.PartsOpt = None,
    minutes: options.MinutesOpt = None,
    step_weights: Annotated[StepWeights | None, setting("--step-weights", panel=EXPERT)] = None,
) -> None:
    """Fit a method to labelled subjects.

    Interrupted, the same command continues where it stopped.
    """
    from costar_cli.config.models import FinetuneConfig

    method, combined = combination(method, parts, minutes)
    files = FinetuneFiles.choose(Workspace(run.workspace), method, init, domain, data=data, start=start, out=out)
    session = run.start(ctx, FinetuneConfig, files.data, {**combined, FinetuneConfig: {"step_weights": step_weights}})
    run_finetune(session, files, method, domain, init=init, overwrite=run.overwrite, fresh=run.fresh, log=run.log)
