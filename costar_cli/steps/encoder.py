"""The body of `costar pretrain`: what an encoder is made from, and making it."""

from pathlib import Path
from typing import TYPE_CHECKING

from costar_cli.steps.model import MAKE_DATA, say_up_to_date, store_trained
from costar_cli.steps.session import BuildStep, Session

if TYPE_CHECKING:
    from costar_cli.artifact import Artifact

__all__ = ["make_encoder", "plan_encoder"]


def plan_encoder(session: Session, data: Path, path: Path) -> BuildStep:
    """Return what the encoder is made from.

    Raises:
        ArtifactError: the data set is missing.
    """
    from costar_cli.api.fitting import plan_pretraining

    plan = plan_pretraining(session.settings, session.read("dataset", data, "dataset", MAKE_DATA).digest)
    return session.step("encoder", path, parents=plan.parents, config=plan.identity)


def make_encoder(
    session: Session, data: Path, step: BuildStep, *, overwrite: bool, fresh: bool
) -> tuple["Artifact", str]:
    """Pretrain and store an encoder, or see that it is up to date; return it and which of the two."""
    with session.making(step, overwrite=overwrite, again=fresh) as artifact:
        if artifact:
            say_up_to_date(session, step, artifact)
            return artifact, "up_to_date"
        from costar_cli.api.fitting import plan_pretraining
        from costar_cli.panel.store import read_dataset

        plan = plan_pretraining(session.settings, step.parents["dataset"])
        trained = plan.run(
            read_dataset(data, queries=False, truth=False, parts=plan.parts),
            checkpoint=session.workspace.run_state(step.path),
            reporter=session.reporter,
            fresh=fresh,
        )
        return store_trained(session, step, trained, overwrite=overwrite or fresh), "done"
