"""The body of `costar pretrain`: what an encoder is made from, and making it."""

from pathlib import Path
from typing import TYPE_CHECKING

from costar_cli.steps.model import MAKE_DATA, identity_config, say_up_to_date, store_trained
from costar_cli.steps.session import BuildStep, Session

if TYPE_CHECKING:
    from costar_cli.artifact import Artifact

__all__ = ["make_encoder", "plan_encoder"]


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
