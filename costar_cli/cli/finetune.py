"""`costar finetune`: learn to predict outcomes under treatment plans."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from costar_cli.cli import options
from costar_cli.cli.model import FinetuneFiles, combination, run_finetune
from costar_cli.cli.options import FILES, TRAINING, setting
from costar_cli.cli.session import open_session
from costar_cli.cli.workspace import DEFAULT_WORKSPACE, Workspace
from costar_cli.config.choices import DomainName, InitName, StepWeights
from costar_cli.methods.registry import REFERENCE

if TYPE_CHECKING:
    from costar_cli.cli.session import Flags


def finetune(
    ctx: typer.Context,
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
    log: options.LogOpt = None,
    overwrite: options.OverwriteFlag = False,
    fresh: options.FreshFlag = False,
    workspace: options.WorkspaceOpt = DEFAULT_WORKSPACE,
    preset: options.PresetOpt = None,
    config: options.ConfigFileOpt = None,
    seed: options.SeedOpt = None,
    members: options.MembersOpt = None,
    epochs: options.EpochsOpt = None,
    patience: options.PatienceOpt = None,
    batch_size: options.BatchSizeOpt = None,
    learning_rate: options.LearningRateOpt = None,
    parts: options.PartsOpt = None,
    minutes: options.MinutesOpt = None,
    step_weights: Annotated[StepWeights | None, setting("--step-weights", panel=TRAINING)] = None,
    device: options.DeviceOpt = None,
    precision: options.PrecisionOpt = None,
    threads: options.ThreadsOpt = None,
    group: options.GroupOpt = None,
    max_memory: options.MemoryOpt = None,
    json: options.JsonFlag = False,
    quiet: options.QuietFlag = False,
) -> None:
    """Fit a method to labelled subjects.

    Interrupted, the same command continues where it stopped.
    """
    from costar_cli.config.models import FinetuneConfig, RuntimeConfig

    training = {"epochs": epochs, "patience": patience, "batch_size": batch_size, "learning_rate": learning_rate}
    method, combined = combination(method, parts, minutes)
    flags: Flags = {
        **combined,
        FinetuneConfig: {**training, "members": members, "seed": seed, "step_weights": step_weights},
        RuntimeConfig: {
            "device": device,
            "precision": precision,
            "threads": threads,
            "group": group,
            "max_memory": max_memory,
        },
    }
    files = FinetuneFiles.choose(Workspace(workspace), method, init, domain, data=data, start=start, out=out)
    session = open_session(
        ctx, flags, workspace=workspace, json=json, quiet=quiet, preset=preset, config=config, data=files.data
    )
    run_finetune(session, files, method, domain, init=init, overwrite=overwrite, fresh=fresh, log=log)
