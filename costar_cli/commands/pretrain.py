"""`costar pretrain`: learn representations of histories without labels."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from costar_cli.commands.hints import other_than
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
from costar_cli.commands.session import BuildStep, Session, open_session
from costar_cli.commands.training import MAKE_DATA, identity_config, say_up_to_date, show_training, store_trained
from costar_cli.workspace import DEFAULT_WORKSPACE, Workspace

if TYPE_CHECKING:
    from costar_cli.artifact import Artifact
    from costar_cli.commands.session import Flags

__all__ = ["make_encoder", "plan_encoder", "pretrain"]


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
    step = plan_encoder(session, source, out or place.encoder)
    artifact, status = make_encoder(session, source, step, overwrite=overwrite, fresh=fresh)
    files = {"data": other_than(source, place.data), "start": other_than(step.path, place.encoder)}
    show_training(session, artifact, status, session.next_command("finetune", **files))


def plan_encoder(session: Session, data: Path, path: Path) -> BuildStep:
    """Return what the encoder is made from.

    Raises:
        ArtifactError: the data set is missing.
    """
    from costar_cli.config.models import PretrainConfig, RuntimeConfig

    header = session.read("dataset", data, "dataset", MAKE_DATA)
    identity = identity_config(session.settings[PretrainConfig], session.settings[RuntimeConfig])
    return session.step("encoder", path, parents={"dataset": header.digest}, config=identity)


def make_encoder(
    session: Session, data: Path, step: BuildStep, *, overwrite: bool, fresh: bool
) -> tuple["Artifact", str]:
    """Pretrain and store an encoder, or see that it is up to date; return it and which of the two."""
    from costar_cli.config.models import PretrainConfig, RuntimeConfig

    with session.making(step, overwrite=overwrite, again=fresh) as artifact:
        if artifact:
            say_up_to_date(session, step, artifact)
            return artifact, "up_to_date"
        from costar_cli.panel import Part
        from costar_cli.panel.store import read_dataset
        from costar_cli.train import pretrain as train

        parts = [Part("source", "train"), Part("source", "val")]
        trained = train(
            read_dataset(data, queries=False, truth=False, parts=parts),
            session.settings[PretrainConfig],
            session.settings[RuntimeConfig],
            checkpoint=session.workspace.run_state(step.path),
            identity=step.identity,
            reporter=session.reporter,
            fresh=fresh,
        )
        return store_trained(session, step, trained, overwrite=overwrite or fresh), "done"
