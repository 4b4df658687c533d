"""`costar merge`: the parts of a benchmark, or of a table of answers, as one."""

from pathlib import Path
from typing import Annotated

import typer

from costar_cli.cli.options import JsonFlag, QuietFlag
from costar_cli.cli.session import open_output
from costar_cli.errors import UsageError
from costar_cli.reporting.progress import OutputReporter


def merge(
    ctx: typer.Context,
    whole: Annotated[
        Path,
        typer.Argument(metavar="WHOLE", help="Folder of a benchmark, FILE.parquet of answers, or an evaluation's file"),
    ],
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Bring together the parts that `costar benchmark`, `evaluate` or `whatif` made with --shard I/N.

    The same benchmark without --shard then finds its cells, and writes the tables. Parts of answers, such as
    answers.shard-1-of-8.parquet, become one file; so do those of an evaluation, which the same `costar evaluate`
    without --shard then shows and draws.
    """
    out = open_output(ctx, json=json, quiet=quiet)
    if whole.suffix.lower() == ".parquet" and not whole.is_dir():
        from costar_cli.cli.merging import merge_answers

        merged, place = merge_answers(whole), "file"
    elif whole.suffix.lower() == ".h5" and not whole.is_dir():
        from costar_cli.cli.merging import merge_evaluation

        merged, place = merge_evaluation(whole, OutputReporter(out)), "file"
    elif whole.is_file():
        fix = "give the folder of a benchmark, FILE.parquet of answers, or an evaluation's FILE.h5"
        raise UsageError("files of this kind have no parts", where=str(whole), fix=fix)
    else:
        from costar_cli.cli.benchmarking.shards import merge_shards

        merged, place = merge_shards(whole), "folder"
    out.text(f"{len(merged)} files merged into {whole}")
    out.done({place: str(whole), "merged": [str(path) for path in merged]}, status="done" if merged else "up_to_date")
