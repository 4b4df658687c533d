"""`costar ingest`: bring data of your own."""

import typer

from costar_cli.commands.ingest_icu import mimic
from costar_cli.commands.ingest_m5 import m5
from costar_cli.commands.ingest_table import table
from costar_cli.commands.verb import VerbApp, say_which

__all__ = ["ingest"]

ingest = VerbApp(help="Import your own data")


@ingest.callback(invoke_without_command=True)
def which(ctx: typer.Context) -> None:
    """Import your own data, as a data set that the other verbs understand."""
    if ctx.invoked_subcommand is None:
        raise say_which(ctx, "ingest")


ingest.command()(m5)
ingest.command()(mimic)
ingest.command()(table)
