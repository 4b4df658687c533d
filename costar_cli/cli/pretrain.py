"""`costar pretrain`: learn representations of histories without labels."""

import typer

from costar_cli.cli import options
from costar_cli.cli.options import expanded
from costar_cli.cli.session import TrainingFlags
from costar_cli.cli.training import run_pretrain
from costar_cli.cli.workspace import Workspace


@expanded
def pretrain(ctx: typer.Context, run: TrainingFlags, data: options.DataOpt = None, out: options.OutOpt = None) -> None:
    """Pretrain encoders on the source domain's series, self-supervised.

    Interrupted, the same command continues where it stopped.
    """
    from costar_cli.config.models import PretrainConfig

    place = Workspace(run.workspace)
    source = data or place.data
    session = run.start(ctx, PretrainConfig, source)
    run_pretrain(session, source, out or place.encoder, overwrite=run.overwrite, fresh=run.fresh, log=run.log)
