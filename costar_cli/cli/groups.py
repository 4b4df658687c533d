"""Names under which there are verbs: `costar` itself, and those with a command per data set.

Nothing here imports what verbs do, for the list of them.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import typer
from typer.core import TyperGroup, TyperOption

from costar_cli.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])

CONTEXT = {"help_option_names": ["-h", "--help"]}
MAKERS = ("simulate", "ingest")  # each with a command per data set


def without_types_of_switches(params: list[Any]) -> list[Any]:
    """Return parameters whose switches are shown in the help without `<bool>`."""
    for param in params:
        if isinstance(param, TyperOption) and param.is_flag:
            param.metavar = ""
    return params


class VerbGroup(TyperGroup):
    """Verbs under one name."""

    def get_params(self, ctx: typer.Context) -> list[Any]:  # type: ignore[override]
        """Return the parameters, `--help` among them."""
        return without_types_of_switches(super().get_params(ctx))


class VerbApp(typer.Typer):
    """An app whose commands are verbs."""

    def __init__(self, *, cls: type[VerbGroup] = VerbGroup, **settings: Any) -> None:  # noqa: ANN401 - Typer's own
        super().__init__(cls=cls, context_settings=CONTEXT, pretty_exceptions_enable=False, **settings)

    def command(self, name: str | None = None, **settings: Any) -> Callable[[F], F]:  # noqa: ANN401
        """Return a decorator that adds a verb."""
        from costar_cli.cli.verb import Verb

        return super().command(name, cls=Verb, **settings)


def say_which(ctx: typer.Context, verb: str) -> UsageError:
    """Return the error of a command that needs a data set's name: the names, and what each is."""
    from costar_cli.cli.verb import examples_of

    commands = cast(TyperGroup, ctx.command).commands
    width = max(map(len, commands))
    about = {name: (command.help or "").strip().splitlines()[0].rstrip(".") for name, command in commands.items()}
    details = [f"{name:<{width}}  {text}" for name, text in about.items()]
    fix = f"for example `{examples_of(f'{verb} {next(iter(commands))}')[0]}`"
    return UsageError(f"say what to {verb}", where=f"`{ctx.command_path}`", fix=fix, details=details)
