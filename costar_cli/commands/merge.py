"""`costar merge`: the parts of a benchmark as one."""

from pathlib import Path
from typing import Annotated

import typer

from costar_cli.commands.options import JsonFlag, QuietFlag
from costar_cli.steps.session import open_output


def merge(
    ctx: typer.Context,
    whole: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of the benchmark, in which its parts are")],
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Bring the parts that `costar benchmark --shard I/N` made into the benchmark's folder.

    The same benchmark without --shard then finds its cells, and writes the tables.
    """
    from costar_cli.benchmark.shards import merge_shards

    out = open_output(ctx, json=json, quiet=quiet)
    copied = merge_shards(whole)
    out.text(f"{len(copied)} files merged into {whole}")
    out.done(
        {"folder": str(whole), "merged": [str(path) for path in copied]}, status="done" if copied else "up_to_date"
    )
