"""`costar check`: is a table suitable, before any model?"""

import tomllib
from pathlib import Path
from shutil import get_terminal_size
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated

import typer

from costar_cli.cli.hints import next_command
from costar_cli.cli.options import FILES, JsonFlag, QuietFlag
from costar_cli.cli.session import open_output
from costar_cli.errors import CostarError, UsageError

if TYPE_CHECKING:
    from costar_cli.data import Dataset

MARKS = {"ok": " ", "care": "?", "stop": "!"}
INDENT = " " * 13


def check(
    ctx: typer.Context,
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE", help="CSV, Parquet, Arrow or Excel: a row per subject and time")
    ],
    schema: Annotated[
        Path | None,
        typer.Option("--schema", help="TOML file that describes each column", rich_help_panel=FILES),
    ] = None,
    statics: Annotated[
        Path | None, typer.Option("--statics", help="Table with a row per subject", rich_help_panel=FILES)
    ] = None,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Say in ten lines whether a table, or a data set (`.h5`), can answer what-if questions, before any model.

    Without `--schema`, roles are guessed as `ingest table --init` does; nothing is written.
    """
    from costar_cli.inference.suitability import assess

    out = open_output(ctx, json=json, quiet=quiet)
    if files[0].suffix == ".h5":
        if len(files) > 1 or schema or statics:
            raise UsageError("a data set is checked alone", where=str(files[0]), fix="omit the other files")
        from costar_cli.data.store import read_dataset

        dataset, doubts = read_dataset(files[0], truth=False), list[str]()
        quick = ("finetune", "--method", "auto") if dataset.schema.outcomes else ("effect", "--plan", "plans.json")
        then = next_command({}, *quick, data=files[0])
    else:
        dataset, doubts = _read(files, schema, statics)
        words = [*map(str, files), *([] if schema else ["--init"])]
        then = next_command({}, "ingest table", *words, schema=schema, statics=statics)
    suitability = assess(dataset)
    width = min(get_terminal_size().columns, 100)
    guessed = f"; {len(doubts)} of its roles are guesses" if doubts else ""
    out.text(f"{dataset.name}: {suitability.verdict}{guessed}")
    for criterion in suitability.criteria:
        sentence = f"{criterion.text}: {criterion.fix}" if criterion.fix else criterion.text
        head = f"{MARKS[criterion.rating]} {criterion.name:<10} "
        out.text(*wrap(sentence, width, initial_indent=head, subsequent_indent=INDENT))
    out.text(*wrap("  assumed    no hidden confounding, which no table shows", width, subsequent_indent=INDENT))
    out.next(then)
    out.done(suitability.to_json() | {"name": dataset.name, "guessed": list(doubts)})


def _read(files: list[Path], schema: Path | None, statics: Path | None) -> "tuple[Dataset, list[str]]":
    """Return the data set that the tables would become, and what was guessed about them, a sentence each."""
    from costar_cli.data.table import TableInputs, ingest_table
    from costar_cli.data.table.guess import guess_schema
    from costar_cli.data.table.schema_file import parse_schema, read_schema
    from costar_cli.reporting import NullReporter

    inputs = TableInputs(files, statics)
    if schema is not None:
        return ingest_table(inputs, read_schema(schema, accept_guesses=True), NullReporter()), []
    guessed = guess_schema(files, statics)
    try:
        parsed = parse_schema(tomllib.loads(guessed.text), where="the schema that was guessed")
        return ingest_table(inputs, parsed, NullReporter()), list(guessed.doubts)
    except CostarError as error:  # what the guess lacks, a schema can say
        draft = next_command({}, "ingest table", *map(str, files), "--init", statics=statics)
        error.fix = f"{error.fix}; `{draft}` writes the schema to change, for `costar check --schema`"
        raise
