"""`costar pretrain`: learn representations of histories without labels."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from costar_cli.cli import options
from costar_cli.cli.hints import next_command, other_than
from costar_cli.cli.options import expanded
from costar_cli.cli.session import BuildStep, Session, TrainingFlags
from costar_cli.cli.training import make_trained, show_training
from costar_cli.cli.workspace import Workspace

if TYPE_CHECKING:
    from costar_cli.files import Artifact
    from costar_cli.training import Trained, TrainingLog

# Held to the stored ablations by tests/docs/test_reproduction_numbers.py.
GAINS_LITTLE: Final = (
    "on three simulated worlds such pretraining lowered errors by less than 1 %: `--from scratch` goes without it"
)


@expanded
def pretrain(ctx: typer.Context, run: TrainingFlags, data: options.DataOpt = None, out: options.OutOpt = None) -> None:
    """Pretrain encoders on the source domain's series, self-supervised.

    Interrupted, the same command continues where it stopped.
    """
    from costar_cli.config.models import PretrainConfig
    from costar_cli.data.record import ModelRecord

    place = Workspace(run.workspace)
    source = data or place.data
    session = run.start(ctx, PretrainConfig, source)
    step = plan_encoder(session, source, out or place.encoder)
    artifact, status = make_encoder(session, source, step, overwrite=run.overwrite, fresh=run.fresh, log=run.log)
    files = {"data": other_than(source, place.data), "start": other_than(step.path, place.encoder)}
    commands = [next_command(session.given, "finetune", **files)]
    if session.settings[PretrainConfig].encoder.inputs == "relative":  # as `quick` and `default` have it
        session.out.note(GAINS_LITTLE)
        commands += [next_command(session.given, "finetune", "--from", "scratch", data=files["data"])]
    show_training(session, ModelRecord.of(artifact), status, *commands)


def plan_encoder(session: Session, data: Path, path: Path) -> BuildStep:
    """Return what the encoder is made from.

    Raises:
        ArtifactError: the data set is missing.
    """
    from costar_cli.api.fitting import plan_pretraining

    plan = plan_pretraining(session.settings, session.read("dataset", data).digest)
    return session.step("encoder", path, parents=plan.parents, config=plan.identity)


def make_encoder(
    session: Session, data: Path, step: BuildStep, *, overwrite: bool, fresh: bool, log: Path | None = None
) -> tuple["Artifact", str]:
    """Pretrain and store an encoder, or see that it is up to date; return it and which of the two."""

    def train(to: "TrainingLog | None") -> "Trained":
        from costar_cli.api.fitting import plan_pretraining

        plan = plan_pretraining(session.settings, step.parents["dataset"])
        dataset = session.load_dataset(data, queries=False, truth=False, parts=plan.parts)
        return plan.run(dataset, checkpoint=step.run, reporter=session.reporter, fresh=fresh, log=to)

    return make_trained(session, step, train, overwrite=overwrite, fresh=fresh, log=log)
