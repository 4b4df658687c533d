"""`costar settings`: what each setting accepts, its default and what it means."""

from collections import Counter
from typing import Annotated

import typer

from costar_cli.cli.groups import MAKERS
from costar_cli.cli.options import JsonFlag, QuietFlag
from costar_cli.cli.session import open_output
from costar_cli.config.nearest import did_you_mean
from costar_cli.errors import UsageError

ALL = "all"
SCHEMA = "schema"  # of `costar ingest table`: keys of its file, no settings


def settings(
    ctx: typer.Context,
    name: Annotated[
        str,
        typer.Argument(
            help="Section such as pretrain.encoder, or setting; `all` of them; `schema`: keys of a table's schema",
            show_default=False,
        ),
    ] = "",
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """List the sections of settings, or what each setting of a section accepts, its default, and what it means.

    Any of them can be set in a TOML file (`--config`) or by an environment variable; many have a flag.
    """
    out = open_output(ctx, json=json, quiet=quiet)
    if name == SCHEMA:
        from costar_cli.data.table.schema_file import accepts, default_text, keys

        rows = [[key, accepts(of).replace("`", ""), default_text(of), of.description or ""] for key, of in keys()]
    else:
        rows = _settings("" if name == ALL else name)
    if name:
        lines: list[str] = []
        for key, accepted, default, meaning in rows:
            lines += [f"{key}  (default {default})" if default else key, f"   {meaning}", f"   accepts {accepted}"]
        out.text(*lines)
    else:
        from costar_cli.methods.registry import METHODS

        methods = {method.section for method in METHODS.values()}
        kinds: dict[str, Counter[str]] = {}
        for first, second, *_ in (row[0].split(".") for row in rows):
            kind = "data" if first in MAKERS else "methods" if first in methods else "verbs"
            kinds.setdefault(kind, Counter())[f"{first}.{second}" if kind == "data" else first] += 1
        width = max(map(len, kinds))
        listed = {kind: ", ".join(f"{section} ({n})" for section, n in of.items()) for kind, of in kinds.items()}
        out.text(*(f"{kind:<{width}}  {sections}" for kind, sections in listed.items()))
        out.next("costar settings SECTION", "costar settings all")
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
            + f"`costar settings all` lists all of them, `costar settings {SCHEMA}` the keys of a table's schema"
        )
        raise UsageError(f"no such setting or section: {name}", where="NAME", fix=fix)
    defaults = ["" if key.default is None else str(key.default) for key in chosen]
    return [
        [str(key), key.expected.replace("`", ""), default, key.field.description or ""]
        for key, default in zip(chosen, defaults, strict=True)
    ]
