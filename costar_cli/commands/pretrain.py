"""`costar pretrain`: learn representations of histories without labels."""

from typing import TYPE_CHECKING

import typer

from costar_cli.commands.options import (
    BatchSizeOpt,
    ConfigFileOpt,
    DataOpt,
    DeviceOpt,
    EpochsOpt,
    FreshFlag,
    GroupOpt,
    JsonFlag,
    LearningRateOpt,
    MembersOpt,
    OutOpt,
    OverwriteFlag,
    PatienceOpt,
    PrecisionOpt,
    PresetOpt,
    QuietFlag,
    SeedOpt,
    ThreadsOpt,
    WorkspaceOpt,
)
from costar_cli.steps.session import open_session
from costar_cli.steps.training import run_pretrain
from costar_cli.workspace import DEFAULT_WORKSPACE, Workspace

if TYPE_CHECKING:
    from costar_cli.steps.session import Flags


def pretrain(
    ctx: typer.Context,
    data: DataOpt = None,
    out: OutOpt = None,
    overwrite: OverwriteFlag = False,
    fresh: FreshFlag = False,
    workspace: WorkspaceOpt = DEFAULT_WORKSPACE,
    preset: PresetOpt = None,
    config: ConfigFileOpt = None,
    seed: SeedOpt = None,
    members: MembersOpt = None,
    epochs: EpochsOpt = None,
    patience: PatienceOpt = None,
    batch_size: BatchSizeOpt = None,
    learning_rate: LearningRateOpt = None,
    device: DeviceOpt = None,
    precision: PrecisionOpt = None,
    threads: ThreadsOpt = None,
    group: GroupOpt = None,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Pretrain encoders on the source domain's series, self-supervised.

    Interrupted, the same command continues where it stopped.
    """
    from costar_cli.config.models import PretrainConfig, RuntimeConfig

    training = {"epochs": epochs, "patience": patience, "batch_size": batch_size, "learning_rate": learning_rate}
    flags: Flags = {
        PretrainConfig: {**training, "members": members, "seed": seed},
        RuntimeConfig: {"device": device, "precision": precision, "threads": threads, "group": group},
    }
    place = Workspace(workspace)
    source = data or place.data
    session = open_session(
        ctx, flags, workspace=workspace, json=json, quiet=quiet, preset=preset, config=config, data=source
    )
    run_pretrain(session, source, out or place.encoder, overwrite=overwrite, fresh=fresh)
