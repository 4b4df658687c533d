"""`costar pretrain`: learn representations of histories without labels."""

from pathlib import Path
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
from costar_cli.commands.session import Session, open_session
from costar_cli.commands.training import MAKE_DATA, identity_config, show_training, store_trained
from costar_cli.workspace import DEFAULT_WORKSPACE, Workspace

if TYPE_CHECKING:
    from costar_cli.commands.session import Flags

__all__ = ["pretrain"]


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
    _pretrain(session, source, out or place.encoder, overwrite=overwrite, fresh=fresh)


def _pretrain(session: Session, data: Path, path: Path, *, overwrite: bool, fresh: bool) -> None:
    from costar_cli.config.models import PretrainConfig, RuntimeConfig

    config, runtime = session.settings[PretrainConfig], session.settings[RuntimeConfig]
    header = session.read("dataset", data, "dataset", MAKE_DATA)
    parents = {"dataset": header.digest}
    step = session.step("encoder", path, parents=parents, config=identity_config(config, runtime))
    with session.writing(path):
        artifact = step.find(overwrite=overwrite, again=fresh)
        status = "up_to_date" if artifact else "done"
        if artifact:
            session.out.up_to_date("encoder", path, artifact.digest)
        else:
            from costar_cli.panel import Part
            from costar_cli.panel.store import read_dataset
            from costar_cli.train import pretrain as train

            parts = [Part("source", "train"), Part("source", "val")]
            trained = train(
                read_dataset(data, queries=False, truth=False, parts=parts),
                config,
                runtime,
                checkpoint=session.workspace.run_state(path),
                fingerprint=step.fingerprint,
                reporter=session.reporter,
                fresh=fresh,
            )
            artifact = store_trained(session, step, trained, overwrite=overwrite or fresh)
    show_training(session, artifact, status, "costar finetune")
