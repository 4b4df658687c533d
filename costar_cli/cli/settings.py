"""`costar settings`: what each setting accepts, its default and what it means."""

from typing import Annotated

import typer

from costar_cli.cli.options import JsonFlag, QuietFlag
from costar_cli.cli.session import open_output
from costar_cli.config.nearest import did_you_mean
from costar_cli.errors import UsageError

SCHEMA = "schema"  # of `costar ingest table`: keys of its file, no settings


def settings(
    ctx: typer.Context,
    name: Annotated[
        str, typer.Argument(help="Setting, or section such as pretrain.encoder; `schema`: keys of a table's schema")
    ] = "",
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """List settings: what each accepts, its default, and what it means.

    Any of them can be set in a TOML file (`--config`) or by an environment variable; many have a flag.
    """
    out = open_output(ctx, json=json, quiet=quiet)
    rows = _schema_keys() if name == SCHEMA else _settings(name)
    out.table(["setting", "accepts", "default", "meaning"], rows, keys=1)
    fields = ("name", "accepts", "default", "meaning")
    out.done({"settings": [dict(zip(fields, row, strict=True)) for row in rows]})


def _settings(name: str) -> list[list[str]]:
    from costar_cli.settings.keys import all_keys

    keys = all_keys()
    chosen = [key for text, key in keys.items() if not name or text == name or text.startswith(f"{name}.")]
    if not chosen:
        sections = {".".join(text.split(".")[:depth]): None for text in keys for depth in range(1, text.count(".") + 1)}
        near = did_you_mean(name, [*sections, *keys, SCHEMA])
        fix = (
            near
            + " " * bool(near)
            + f"`costar settings` lists all of them, `costar settings {SCHEMA}` the keys of a table's schema"
        )
        raise UsageError(f"no such setting or section: {name}", where="NAME", fix=fix)
    defaults = ["" if key.default is None else str(key.default) for key in chosen]
    return [
        [str(key), key.expected.replace("`", ""), default, key.field.description or ""]
        for key, default in zip(chosen, defaults, strict=True)
    ]


def _schema_keys() -> list[list[str]]:
    from costar_cli.data.table.schema_file import accepts, default_text, keys

    return [
        [key, accepts(field).replace("`", ""), default_text(field), field.description or ""] for key, field in keys()
    ]
