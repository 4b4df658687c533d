"""`costar pretrain`: learn representations of histories without labels."""

from typing import TYPE_CHECKING

import typer

from costar_cli.cli import options
from costar_cli.cli.session import open_session
from costar_cli.cli.training import run_pretrain
from costar_cli.cli.workspace import DEFAULT_WORKSPACE, Workspace

if TYPE_CHECKING:
    from costar_cli.cli.session import Flags


def pretrain(
    ctx: typer.Context,
    data: options.DataOpt = None,
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
    device: options.DeviceOpt = None,
    precision: options.PrecisionOpt = None,
    threads: options.ThreadsOpt = None,
    group: options.GroupOpt = None,
    max_memory: options.MemoryOpt = None,
    json: options.JsonFlag = False,
    quiet: options.QuietFlag = False,
) -> None:
    """Pretrain encoders on the source domain's series, self-supervised.

    Interrupted, the same command continues where it stopped.
    """
    from costar_cli.config.models import PretrainConfig, RuntimeConfig

    training = {"epochs": epochs, "patience": patience, "batch_size": batch_size, "learning_rate": learning_rate}
    flags: Flags = {
        PretrainConfig: {**training, "members": members, "seed": seed},
        RuntimeConfig: {
            "device": device,
            "precision": precision,
            "threads": threads,
            "group": group,
            "max_memory": max_memory,
        },
    }
    place = Workspace(workspace)
    source = data or place.data
    session = open_session(
        ctx, flags, workspace=workspace, json=json, quiet=quiet, preset=preset, config=config, data=source
    )
    run_pretrain(session, source, out or place.encoder, overwrite=overwrite, fresh=fresh, log=log)
