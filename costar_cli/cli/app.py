"""The `costar` command: its verbs, and the one place that turns an exception into a message and an exit code."""

import contextlib
import io
import os
import re
import sys
from collections import UserDict
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Annotated, Any, Final, cast

import typer
from typer.core import TyperCommand, TyperGroup

from costar_cli.cli.groups import MAKERS, VerbApp, VerbGroup
from costar_cli.config import VERSION
from costar_cli.config.nearest import did_you_mean, nearest
from costar_cli.errors import (
    ExitCode,
    Termination,
    UsageError,
    as_costar_error,
)
from costar_cli.reporting import launched
from costar_cli.reporting.output import Output, abandon, aside, tell_failure

PROGRAM = "costar"
TOGETHER = ("pretrain", "finetune")  # the verbs that `torchrun` may start in several processes
PAGES = frozenset({"--help", "-h", "--version"})  # flags that print a page and do nothing else
NUMBERS = {  # what the parser says of a text that is none, and what costar says elsewhere
    "Input should be a valid integer, unable to parse string as an integer": "expected a whole number",
    "Input should be a valid number, unable to parse string as a number": "expected a number",
}
# In the order in which they are used; a verb is a file of its name. What each does is said here for the list of them,
# which would take twice as long if it imported them all; tests hold it to the verb's own help.
VERBS: Final[Mapping[str, str]] = {
    "simulate": "Simulate a cohort with known counterfactual outcomes.",
    "ingest": "Import your own data.",
    "check": "Say in ten lines whether a table, or a data set (`.h5`), can answer what-if questions, before any model.",
    "pretrain": "Pretrain encoders on the source domain's series, self-supervised.",
    "finetune": "Fit a method to labelled subjects.",
    "evaluate": "Score the models: RMSE by horizon in the set-ups that apply, with intervals and plots.",
    "score": "Score predictions of other programs for the queries that `costar inspect --export` writes.",
    "whatif": "Estimate the outcomes of a subject, or of many, under treatment plans, and the differences between "
    "plans.",
    "search": "Find the treatment plan that makes an outcome best, with its uncertainty.",
    "explore": "Compare treatment plans for a subject in the browser: click a calendar, and see outcomes, bands and "
    "support.",
    "effect": "Estimate mean outcomes under treatment plans in a population, and their differences, from data in which "
    "treatment reacts to the course: no model is needed.",
    "benchmark": "Compare methods on a data set: the paper's tables, with paired tests and costs, beside the published "
    "rows.",
    "merge": "Bring together the parts that `costar benchmark`, `evaluate` or `whatif` made with --shard I/N.",
    "inspect": "Show an artifact's kind, lineage and variables; no array is read.",
    "verify": "Check every byte of an artifact against its digest.",
    "settings": "List the sections of settings, or what each setting of a section accepts, its default, and what it "
    "means.",
    "doctor": "Check Python, packages, devices, memory, disk, and the files of the workspace.",
}


class Commands(UserDict[str, Any]):
    """The verbs by name, each imported and built when it is first asked for: all of them take 0.06 s."""

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(VERBS))

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - of Typer's own Click
        """Return the command of a verb."""
        if self.data[name] is None:
            verb, built = getattr(import_module(f"costar_cli.cli.{name}"), name), VerbApp()
            if isinstance(verb, typer.Typer):
                built.add_typer(verb, name=name)
            else:
                built.command()(verb)
            self.data.update(typer.main.get_group(built).commands)
        return self.data[name]


class CostarGroup(VerbGroup):
    """The verbs in the order in which they are used."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - Typer's own
        super().__init__(**settings)
        self.commands = Commands()

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]  # noqa: ARG002 - Typer's signature
        """Return what makes data first."""
        return list(VERBS)

    def format_help(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]  # noqa: ANN401
        """Write the page with what each verb does, and import none of them."""
        verbs, self.commands = self.commands, {name: TyperCommand(name, help=does) for name, does in VERBS.items()}
        try:
            super().format_help(ctx, formatter)
        finally:
            self.commands = verbs


app = VerbApp(name=PROGRAM, cls=CostarGroup)
_command = cache(typer.main.get_command)  # whose verbs are built when they are asked for


def _version(value: bool) -> None:
    if value:
        sys.stdout.write(f"{PROGRAM} {VERSION}\n")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def root(
    ctx: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", envvar="COSTAR_DEBUG", help="Show tracebacks of errors")] = False,
    version: Annotated[  # noqa: ARG001 - handled by its callback
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit")
    ] = False,
) -> None:
    """Estimate what an outcome would have been, or become, under another treatment plan.

    One experiment is one folder, the workspace: each verb finds its inputs there and says what to do next.
    """
    if isinstance(ctx.obj, Output):
        ctx.obj.debug = ctx.obj.debug or debug
    if ctx.invoked_subcommand is None:
        with aside(), contextlib.redirect_stdout(sys.stderr):
            sys.stdout.write(ctx.get_help())  # Typer prints it by itself where it draws frames
        raise UsageError(
            "no command given", fix=f"choose one of {', '.join(cast(TyperGroup, ctx.command).list_commands(ctx))}"
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        argv: arguments after the program's name; those of the process by default.
    """
    args = list(sys.argv[1:] if argv is None else argv)
    # Before torch is loaded: threads that wait must sleep, or a second process on the machine slows both many times.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # Likewise those of OpenBLAS, which cannot sleep: on an idle machine its products, small ones, gain nothing by them.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # it reads the metadata of all packages to find some
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a name that the terminal cannot show is no reason to stop
    options = args[: args.index("--")] if "--" in args else args
    out = Output(json="--json" in options)
    out.debug = os.environ.get("COSTAR_DEBUG", "0") not in {"", "0", "false"}
    words = [arg for arg in args if not arg.startswith("-")]  # the verb is needed before arguments are parsed
    verb = " ".join(words[: 1 + (words[0] in MAKERS)]) if words and words[0] in VERBS else ""
    with Termination() as termination:
        try:
            return _ended(args, out, verb)
        except (KeyboardInterrupt, typer.Abort):
            return tell_failure(out, termination.as_error(verb), verb)
        finally:
            termination.tell()
            out.close()


def _ended(args: list[str], out: Output, verb: str) -> int:
    """Run the verb, tell what it could not do, and return the exit code."""
    try:
        with contextlib.ExitStack() as silent:
            if launched("RANK"):  # only the first process says how it goes; why another one failed is said after this
                nothing = silent.enter_context(open(os.devnull, "w", encoding="utf-8"))
                silent.enter_context(contextlib.redirect_stdout(nothing))
                silent.enter_context(contextlib.redirect_stderr(nothing))
                silent.enter_context(contextlib.closing(out))
            if verb and verb not in TOGETHER and (several := launched("WORLD_SIZE", 1)) > 1:
                fix = "run it without `torchrun`, which is for `costar pretrain` and `costar finetune`"
                problem = f"{several} processes were started to do the same"  # and would write the same files
                raise UsageError(problem, where=f"`{PROGRAM} {verb}`", fix=fix)
            return _run(args, out)
    except (typer.Abort, KeyboardInterrupt, SystemExit):
        raise
    except typer.TyperException as error:
        return tell_failure(out, _usage_error(error, verb), verb)
    except BaseException as error:  # polars' panics are no `Exception`
        Termination.stop_if_signalled()  # libraries wrap what a signal's handler raises, as pydantic and polars do
        return tell_failure(out, as_costar_error(error), verb)


def _run(args: list[str], out: Output) -> int:
    try:
        code = _command(app).main(args, prog_name=PROGRAM, standalone_mode=False, obj=out)
    except SystemExit as error:
        if not (isinstance(error.__context__, BrokenPipeError) and PAGES.intersection(args)):
            raise
        abandon(sys.stdout)  # the reader of a page has left, which is no error
        return ExitCode.OK
    if code == ExitCode.INTERRUPTED:  # Typer's translation of Ctrl-C
        raise KeyboardInterrupt
    sys.stdout.flush()
    return int(code or 0)


def _usage_error(error: typer.TyperException, verb: str) -> UsageError:
    """Turn Typer's own complaint into one of ours: the problem, the nearest flag or verb, and where to read on."""
    fields: dict[str, Any] = vars(error)
    context = fields.get("ctx")
    command = context.command_path if context is not None else f"{PROGRAM} {verb}".strip()
    listed = "commands" if isinstance(getattr(context, "command", None), TyperGroup) else "options"
    fix = f"`{command} --help` lists its {listed}"
    if "possibilities" in fields:
        place = {PROGRAM: "the command", **{f"{PROGRAM} {maker}": "the name of a data set" for maker in MAKERS}}.get(
            command
        )
        if place and str(fields["option_name"]) in {"--json", "--quiet", "-q"}:
            return UsageError(f"{fields['option_name']} goes after {place}", where=f"`{command}`", fix=fix)
        flags = {flag.lstrip("-"): flag for flag in fields["possibilities"] or ()}  # by letters: all share the dashes
        near = nearest(fields["option_name"].lstrip("-"), flags)
        guess = f"did you mean `{flags[near]}`? " if near else ""
        return UsageError(f"no such option: {fields['option_name']}", where=f"`{command}`", fix=guess + fix)
    value, found, choices = error.format_message().partition("' is not one of ")
    if found and (choice := did_you_mean(value.rpartition("'")[2], re.findall(r"'([^']+)'", choices))):
        fix = f"{choice} {fix}"
    problem = " ".join(error.format_message().split()).rstrip(".").replace("Value error, ", "")
    problem = re.sub(r" \(env var: '(\w+)'\)", lambda named: named[0] if named[1] in os.environ else "", problem)
    for theirs, ours in NUMBERS.items():
        problem = problem.replace(theirs, ours)
    return UsageError(problem[:1].lower() + problem[1:], where=f"`{command}`", fix=fix)
