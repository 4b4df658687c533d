"""`costar ingest`: import your own data, from files that costar knows, a table with a schema, or a log of events."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from costar_cli.api.outputs import check_outputs
from costar_cli.cli import options
from costar_cli.cli.dataset import make_dataset, make_new, read_inputs, read_like
from costar_cli.cli.groups import VerbApp, say_which
from costar_cli.cli.hints import next_command, other_than
from costar_cli.cli.options import FILES, expanded
from costar_cli.cli.session import Session, open_session
from costar_cli.cli.simulate import DataSetGroup
from costar_cli.cli.workspace import DEFAULT_WORKSPACE
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import UsageError

if TYPE_CHECKING:
    from costar_cli.data import Dataset
    from costar_cli.data.table import TableInputs
    from costar_cli.data.table.guess import GuessedSchema
    from costar_cli.data.table.schema import TableSchema

SCHEMA, SIGNALS = Path("schema.toml"), Path("signals.toml")

SignalsOpt = Annotated[
    Path | None,
    typer.Option(
        "--signals", help="TOML file that says which events make which signal, per step", rich_help_panel=FILES
    ),
]
InitFlag = Annotated[
    bool,
    typer.Option("--init", help="Guess a schema, or signals of events, and write it to --out (by default here)"),
]
AcceptFlag = Annotated[
    bool, typer.Option("--accept-guesses", help="Accept the guesses of `--init`, including those marked CHECK")
]

ingest = VerbApp(cls=DataSetGroup, help="Import your own data.")


@ingest.callback(invoke_without_command=True)
def which(ctx: typer.Context) -> None:
    """Import your own data, as a data set that the other verbs understand."""
    if ctx.invoked_subcommand is None:
        raise say_which(ctx, "ingest")


@ingest.command()
def table(
    ctx: typer.Context,
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE", help="CSV, Parquet, Arrow or Excel: a row per subject and time")
    ],
    schema: Annotated[
        Path | None, typer.Option("--schema", help="TOML file that describes each column", rich_help_panel=FILES)
    ] = None,
    like: options.LikeOpt = None,
    statics: Annotated[
        Path | None, typer.Option("--statics", help="Table with a row per subject", rich_help_panel=FILES)
    ] = None,
    queries: Annotated[
        Path | None,
        typer.Option("--queries", help="Table of plans with known outcomes", rich_help_panel=FILES),
    ] = None,
    init: InitFlag = False,
    accept_guesses: AcceptFlag = False,
    seed: options.SeedOpt = None,
    out: options.OutOpt = None,
    overwrite: options.OverwriteFlag = False,
    workspace: options.WorkspaceOpt = DEFAULT_WORKSPACE,
    json: options.JsonFlag = False,
    quiet: options.QuietFlag = False,
) -> None:
    """Read tables of your own, one row per subject and time, as a schema says; `--init` writes one to start from."""
    session = open_session(ctx, {}, workspace=workspace, json=json, quiet=quiet)
    if like is not None:
        others = {"--schema": schema, "--queries": queries, "--init": init or None, "--seed": seed}
        if given := [flag for flag, value in others.items() if value is not None]:
            problem = f"`--like` takes only the table and `--statics`, not {' and '.join(given)}"
            raise UsageError(problem, fix=f"omit {' and '.join(given)}")
        from costar_cli.data.table import TableInputs

        _ingest_new(
            session,
            TableInputs(files, statics, scratch=(out or session.workspace.new).parent),
            like,
            out,
            overwrite=overwrite,
        )
        return
    if init:
        if schema or queries:
            raise UsageError("`--init` takes only the table and `--statics`", fix="omit --schema and --queries")
        path = out or SCHEMA
        tables = [*(("table", file) for file in files), ("table", statics)]
        check_outputs([("--out", path)], read=tables, overwrite=overwrite)
        from costar_cli.data.table.guess import guess_schema

        then = next_command(session.given, "ingest table", *map(str, files), schema=path, statics=statics)
        _write_guess(session, guess_schema(files, statics), "schema", path, then)
        return
    if schema is None:
        fix = f"`costar ingest table {quote(str(files[0]))} --init` writes a draft to start from"
        raise UsageError("no schema given", where="--schema", fix=f"{fix}; `--like MODEL` reads new subjects without")
    _check_seed(seed)
    from costar_cli.data.table import TableInputs
    from costar_cli.data.table.schema_file import read_schema

    parsed = read_schema(schema, accept_guesses=accept_guesses)
    inputs = TableInputs(files, statics, queries, scratch=(out or session.workspace.data).parent)
    _ingest(session, inputs, schema, parsed, seed, out, overwrite=overwrite)


@dataclass(frozen=True, kw_only=True)
class LogFlags:
    """The flags of every verb that reads a log of events."""

    signals: SignalsOpt = None
    like: options.LikeOpt = None
    init: InitFlag = False
    accept_guesses: AcceptFlag = False
    seed: options.SeedOpt = None
    out: options.OutOpt = None
    overwrite: options.OverwriteFlag = False
    workspace: options.WorkspaceOpt = DEFAULT_WORKSPACE
    json: options.JsonFlag = False
    quiet: options.QuietFlag = False

    def ingest(self, ctx: typer.Context, form: str, path: Path) -> None:
        """Make a data set of a log in a format of `costar_cli/data/events/log.py`, as one of three flags says."""
        session = open_session(ctx, {}, workspace=self.workspace, json=self.json, quiet=self.quiet)
        flags = {"--signals": self.signals, "--like": self.like, "--init": self.init}
        chosen = [flag for flag, value in flags.items() if value]
        if len(chosen) != 1:
            fix = f"`costar ingest {form} {quote(str(path))} --init` writes signals to start from"
            problem = f"{' and '.join(chosen)}: choose one of them" if chosen else "no signals given"
            raise UsageError(problem, where="--signals", fix=f"{fix}; `--like MODEL` reads new subjects without")
        _check_seed(self.seed)
        if self.seed is not None and self.signals is None:
            raise UsageError(f"`{chosen[0]}` splits nothing", where="--seed", fix="omit --seed")
        if self.init:
            check_outputs([("--out", self.out or SIGNALS)], read=[("log", path)], overwrite=self.overwrite)
        from costar_cli.api.events import LogCall

        log = LogCall(form, path, session.reporter)
        if self.init:
            then = next_command(session.given, f"ingest {form}", str(path), signals=self.out or SIGNALS)
            _write_guess(session, log.proposal(), "signals", self.out or SIGNALS, then)
        elif self.like is not None:
            read = read_like(session, self.like)
            session.tell_read("events", path, kind=form)
            of_log = {"events": log.digest}
            new = partial(log.new, read[0])
            make_new(session, self.out, new, like=self.like, read=read, parents=of_log, overwrite=self.overwrite)
        elif self.signals is not None:
            from costar_cli.data.events import read_signals

            schema = read_signals(self.signals, accept_guesses=self.accept_guesses)
            session.tell_read("signals", self.signals, kind="toml")
            session.tell_read("events", path, kind=form)
            config, of_log = log.config(schema, self.seed), {"events": log.digest}
            build = partial(log.dataset, schema, self.seed)
            make_dataset(session, self.out, build, config=config, parents=of_log, overwrite=self.overwrite)


@ingest.command()
@expanded
def meds(
    ctx: typer.Context,
    flags: LogFlags,
    log: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder in the Medical Event Data Standard: `data`, `metadata`")
    ],
) -> None:
    """Read clinical events (MEDS) as a file of signals says; `--init` writes one to start from."""
    flags.ingest(ctx, "meds", log)


@ingest.command()
@expanded
def omop(
    ctx: typer.Context,
    flags: LogFlags,
    database: Annotated[
        Path, typer.Argument(metavar="FOLDER|FILE", help="OMOP tables, 5.3 or 5.4: CSV, Parquet, or a DuckDB file")
    ],
) -> None:
    """Read an OMOP database as a file of signals says; `--init` writes one to start from."""
    flags.ingest(ctx, "omop", database)


def _check_seed(seed: int | None) -> None:
    if seed is not None and not 0 <= seed < 2**63:
        raise UsageError(f"{seed} is not a valid seed", where="--seed", fix="use a whole number, 0 or larger")


def _ingest(
    session: Session,
    inputs: "TableInputs",
    schema_path: Path,
    schema: "TableSchema",
    seed: int | None,
    out: Path | None,
    *,
    overwrite: bool,
) -> None:
    from costar_cli.data.table import table_config

    session.tell_read("schema", schema_path, kind="toml")
    digests = _digests(session, inputs)

    def build() -> "Dataset":
        from costar_cli.data.table import ingest_table

        return ingest_table(inputs, schema, session.reporter, seed=seed)

    def check() -> None:
        from costar_cli.data.table.inputs import check_columns

        check_columns(inputs, schema)

    config, then = table_config(schema, seed), None
    if not schema.named("outcome"):
        data = other_than(out or session.workspace.data, session.workspace.data)
        then = next_command(session.given, "effect", "--plan", "plans.json", data=data)
    make_dataset(session, out, build, config=config, overwrite=overwrite, parents=digests, then=then, check=check)


def _ingest_new(session: Session, inputs: "TableInputs", like: Path, out: Path | None, *, overwrite: bool) -> None:
    read = read_like(session, like)
    parents = _digests(session, inputs)

    def build() -> "Dataset":
        from costar_cli.data.table.new_subjects import ingest_new

        return ingest_new(inputs, read[0], session.reporter)

    def check() -> None:
        from costar_cli.data.table.new_subjects import check_new

        check_new(inputs, read[0])

    make_new(session, out, build, like=like, read=read, parents=parents, overwrite=overwrite, check=check)


def _digests(session: Session, inputs: "TableInputs") -> dict[str, str]:
    """Return the digest of each input file, and say that it is read."""
    from costar_cli.data.table import check_path

    digests: dict[str, str] = {}
    for role, path in inputs.paths.items():
        check_path(path)
        digests |= read_inputs(session, {role: path})
    return digests


def _write_guess(session: Session, guessed: "GuessedSchema", what: str, path: Path, then: str) -> None:
    """Write what `--init` guessed, show it, warn of what is to be settled, and end the verb."""
    from costar_cli.files import write_bytes

    write_bytes(path, guessed.text.encode())
    session.out.wrote(what, path, kind="toml")
    session.out.text("", guessed.text.rstrip("\n"))
    for doubt in guessed.doubts:
        session.out.say(Diagnostic.of("schema-unsure", doubt=doubt))
    session.out.note(f"resolve the CHECK lines in {path}, then: {then}")
    session.out.done({"schema": guessed.text, "doubts": list(guessed.doubts)})
