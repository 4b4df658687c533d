"""`costar simulate`: simulate a cohort with known counterfactual outcomes.

The commands of data sets, those of `costar ingest` too, are built from their entries in the registry: an option per
setting with the setting's description as its help, the files that the entry declares, and what every verb has.
"""

import inspect
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, cast, get_args, get_origin

import typer

from costar_cli.cli import options
from costar_cli.cli.dataset import make_source
from costar_cli.cli.groups import VerbApp, VerbGroup, say_which
from costar_cli.cli.options import EXPERT, FILES
from costar_cli.cli.session import open_session
from costar_cli.cli.workspace import DEFAULT_WORKSPACE
from costar_cli.errors import UsageError

if TYPE_CHECKING:
    from costar_cli.data.base import DataSource

# What the settings of every data set call so, is what other verbs call so.
SHARED: Final = {"horizon": options.HorizonOpt, "seed": options.SeedOpt}
OF_EVERY_VERB: Final[dict[str, tuple[Any, Any]]] = {
    "preset": (options.PresetOpt, None),
    "config": (options.ConfigFileOpt, None),
    "out": (options.OutOpt, None),
    "overwrite": (options.OverwriteFlag, False),
    "workspace": (options.WorkspaceOpt, DEFAULT_WORKSPACE),
    "json": (options.JsonFlag, False),
    "quiet": (options.QuietFlag, False),
}
METAVARS: Final = {int: "INTEGER", float: "NUMBER", str: "TEXT"}


class DataSetGroup(VerbGroup):
    """A verb with a command per data set that it makes, built when it is first asked for; packages can add some."""

    _declared: MutableMapping[str, Any]
    _built: MutableMapping[str, Any] | None

    @property
    def commands(self) -> MutableMapping[str, Any]:
        """Return the commands by name: those of the registry, then those that are declared."""
        if self._built is None:
            from costar_cli.data.registry import sources

            app = VerbApp()
            for name, source in sources(cast(Literal["simulate", "ingest"], self.name)).items():
                app.command(name)(command_of(source))
            self._built = {**typer.main.get_group(app).commands, **self._declared}
        return self._built

    @commands.setter
    def commands(self, declared: MutableMapping[str, Any]) -> None:
        self._declared, self._built = declared, None

    def get_command(self, ctx: typer.Context, cmd_name: str) -> Any:  # type: ignore[override]  # noqa: ANN401
        """Return a command.

        Raises:
            UsageError: a package brings the data set, but it cannot be used.
        """
        if cmd_name not in self.commands:
            from costar_cli.data.registry import installed

            problem = next((text for text in installed().problems if f"`{cmd_name}`" in text), None)
            if problem:
                raise UsageError(problem, where=f"`{ctx.command_path}`", fix="correct the package, or uninstall it")
        return super().get_command(ctx, cmd_name)


def command_of(source: "DataSource") -> Callable[..., None]:
    """Return the function of a data set's command, with the signature that Typer reads its options from."""

    def make(ctx: typer.Context, **given: Any) -> None:  # noqa: ANN401
        settings = {name: given[name] for name in source.settings.model_fields if name in given}
        for name in mixed:
            with suppress(ValueError):  # the settings say what else than a number may stand there
                settings[name] = None if settings[name] is None else float(settings[name])
        places = {name: given[name] for name in ("workspace", "json", "quiet", "preset", "config")}
        session = open_session(ctx, {source.settings: settings}, **places)
        file = given[source.input.name] if source.input else None
        export = given[source.export.name] if source.export else None
        if source.input and file is not None:
            of_simulation = [*source.input.idle, *([source.export.name] if source.export else [])]
            if idle := [_flag(name) for name in of_simulation if given.get(name) is not None]:
                problem = f"{idle[0]} is about {source.input.stands_for}"
                raise UsageError(problem, where=_flag(source.input.name), fix="leave one out")
        like = given.get("like")
        if like is not None and (others := [_flag(name) for name, value in settings.items() if value is not None]):
            problem = f"`--like` reads the file as the data of the model were, so {' and '.join(others)} say nothing"
            raise UsageError(problem, where="--like", fix="leave one out")
        made = {"overwrite": given["overwrite"], "file": file, "export": export, "like": like}
        make_source(session, source, given["out"], **made)

    mixed = [name for name, field in source.settings.model_fields.items() if _kind(field.annotation)[1]]
    parameters = list(_parameters(source))
    make.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    make.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    make.__doc__ = source.summary
    return make


def _parameters(source: "DataSource") -> Iterator[inspect.Parameter]:
    """Yield what a data set's command takes, in the order of its help."""
    yield _parameter("ctx", typer.Context)
    if source.input and source.make is None:
        argument = typer.Argument(metavar=source.input.metavar, help=source.input.help)
        yield _parameter(source.input.name, Annotated[Path, argument])
    for name, field in source.settings.model_fields.items():
        kind, metavar = _kind(field.annotation)
        if kind is not None:
            extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
            flag = str(extra.get("flag") or (f"{_flag(name)}/--no-{_flag(name)[2:]}" if kind is bool else _flag(name)))
            option = typer.Option(
                flag,
                metavar=metavar,
                help=field.description,
                rich_help_panel=EXPERT if extra.get("expert") else source.panel,
            )
            yield _parameter(name, SHARED.get(name, Annotated[kind | None, option]), None)
    for files in (source.input if source.make else None, source.export):
        if files:
            option = typer.Option(_flag(files.name), help=files.help, rich_help_panel=FILES)
            yield _parameter(files.name, Annotated[Path | None, option], None)
    if source.input and source.input.like:
        yield _parameter("like", options.LikeOpt, None)
    for name, (annotation, default) in OF_EVERY_VERB.items():
        yield _parameter(name, annotation, default)


def _parameter(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:  # noqa: ANN401
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _kind(annotation: Any) -> tuple[Any, str | None]:  # noqa: ANN401
    """Return the type of an option for values of a setting, and what stands for a value that may be of several types.

    Tables and lists have no option: a file or a variable sets them.
    """
    from costar_cli.settings.keys import kinds_of

    kinds = [get_args(kind)[0] if get_origin(kind) is Annotated else kind for kind in kinds_of(annotation)[0]]
    if len(kinds) == 1:
        known = kinds[0] in {bool, int, float, str} or get_origin(kinds[0]) is Literal
        return (kinds[0] if known else None), None
    words = [word for kind in kinds for word in (get_args(kind) or [METAVARS.get(kind)])]
    return (str, "|".join(map(str, words))) if all(isinstance(word, str) for word in words) else (None, None)


simulate = VerbApp(cls=DataSetGroup, help="Simulate a cohort with known counterfactual outcomes.")


@simulate.callback(invoke_without_command=True)
def which(ctx: typer.Context) -> None:
    """Simulate a cohort with known counterfactual outcomes."""
    if ctx.invoked_subcommand is None:
        raise say_which(ctx, "simulate")
