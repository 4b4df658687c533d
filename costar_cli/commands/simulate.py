"""`costar simulate`: simulate a cohort with known counterfactual outcomes."""

import typer

from costar_cli.commands.data_sets import DataSetGroup
from costar_cli.commands.verb import VerbApp, say_which

__all__ = ["simulate"]

simulate = VerbApp(cls=DataSetGroup, help="Simulate a cohort with known counterfactual outcomes")


@simulate.callback(invoke_without_command=True)
def which(ctx: typer.Context) -> None:
    """Simulate a cohort with known counterfactual outcomes."""
    if ctx.invoked_subcommand is None:
        raise say_which(ctx, "simulate")
