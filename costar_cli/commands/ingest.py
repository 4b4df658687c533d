"""`costar ingest`: bring data of your own."""

import typer

from costar_cli.commands.ingest_icu import mimic
from costar_cli.commands.ingest_m5 import m5
from costar_cli.commands.ingest_table import table
from costar_cli.errors import UsageError

__all__ = ["ingest"]

ingest = typer.Typer(help="Bring data of your own", pretty_exceptions_enable=False)


@ingest.callback(invoke_without_command=True)
def which(ctx: typer.Context) -> None:
    """Bring data of your own, as a data set that the other verbs understand."""
    if ctx.invoked_subcommand is None:
        raise UsageError(
            "say what to ingest", where="`costar ingest`", fix="`costar ingest table FILE --schema schema.toml`"
        )


ingest.command()(m5)
ingest.command()(mimic)
ingest.command()(table)
