"""What to do next: commands that are true when pasted, with the workspace, settings and files of this run."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from shlex import join
from typing import Final

import typer

__all__ = ["CARRIED", "LACKS", "next_command", "other_than", "repeated_flags"]

CARRIED: Final = ("workspace", "preset", "config")  # what a later verb has to be told again
LACKS: Final[Mapping[str, tuple[str, ...]]] = {  # of these, what a verb that is suggested does not take
    "ingest table": ("preset", "config"),
    "evaluate": ("preset",),
    "whatif": ("preset",),
}

Value = Path | str | Sequence[Path] | None


def repeated_flags(ctx: typer.Context) -> dict[str, str]:
    """Return what of `CARRIED` was given as a flag; what the environment says, it says to later verbs too."""
    return {name: str(ctx.params[name]) for name in CARRIED if _is_flag(ctx, name)}


def _is_flag(ctx: typer.Context, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def next_command(given: Mapping[str, str], verb: str, *words: str, **files: Value) -> str:
    """Return a command, quoted for a shell.

    Args:
        given: the flags to repeat, by name; those that the verb does not take are left out.
        verb: for example `ingest table`.
        words: further words of the command.
        files: flags by name (`data`, `model`, `start`), each with a file or several; None leaves one out.
    """
    kept = {name: value for name, value in given.items() if name not in LACKS.get(verb, ())}
    return join(["costar", *verb.split(), *_flags(kept), *words, *_flags(files)])


def _flags(named: Mapping[str, Value]) -> Iterator[str]:
    for name, value in named.items():
        for one in [] if value is None else [value] if isinstance(value, str | Path) else value:
            yield from (f"--{name}", str(one))


def other_than(path: Path, *defaults: Path) -> Path | None:
    """Return a file that a verb has to be told of, None for one that it finds by itself."""
    return None if path.resolve() in {default.resolve() for default in defaults} else path
