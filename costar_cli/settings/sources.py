"""Where settings come from: presets, TOML files, environment variables, flags, arguments of Python functions."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from costar_cli.config.choices import PresetName
from costar_cli.config.models import Config
from costar_cli.config.nearest import did_you_mean, nearest, nearest_by_edits
from costar_cli.config.toml import read_toml
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import MOST_DETAILS, cut
from costar_cli.settings.keys import all_keys, all_sections, section_of

LONGEST = 200  # of a key that a message repeats
MOST_MEANT = 3  # variables that a warning names
RESERVED = ("COSTAR_CONFIG", "COSTAR_DEBUG", "COSTAR_PRESET", "COSTAR_WORKSPACE")


@dataclass
class Source:
    """What one source says: values by full key with their origin, and what it got wrong."""

    values: dict[str, tuple[object, str]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    warnings: list[Diagnostic] = field(default_factory=list)
    preset: PresetName | None = None
    text: bool = False


def from_flags(flags: Mapping[type[Config], Mapping[str, object]]) -> Source:
    """Return the flags that were given; None means not given."""
    source = Source()
    for model, values in flags.items():
        for name, value in values.items():
            if value is not None:
                key = all_keys()[f"{section_of(model)}.{name}"]
                source.values[str(key)] = (value, key.flag)
    return source


def from_arguments(arguments: Mapping[str, object], sections: Sequence[str]) -> Source:
    """Return what keyword arguments of a Python function set.

    Arguments are tables by section, as a file has them (`pretrain={"epochs": 3}`), and single settings, which the first
    of the `sections` that knows them has.
    """
    source = Source()
    for name, value in arguments.items():
        if isinstance(value, Mapping) and name in all_sections():
            _read_tables(source, {name: value}, f"`{name}=`")
        else:
            home = next((section for section in sections if f"{section}.{name}" in all_keys()), None)
            home = home or next((section for section in sections if _is_table(f"{section}.{name}")), None)
            if home is None:
                known = [path for section in sections for path in _inside(section)]
                source.problems.append(f"`{name}=`: no such setting{did_you_mean(name, known, lead=', ')}")
            else:
                _read_tables(source, {home: {name: value}}, f"`{name}=`")
    return source


def from_environment(environ: Mapping[str, str]) -> Source:
    """Return what `COSTAR_<SECTION>_<KEY>` variables set; an empty variable counts as unset."""
    source = Source(text=True)
    known = {key.env: str(key) for key in all_keys().values()}
    prefixes = sorted(("COSTAR_" + section.upper().replace(".", "_") + "_" for section in all_sections()), key=len)
    for name, value in sorted(environ.items()):
        if not name.startswith("COSTAR_") or name in RESERVED or not value.strip():
            continue
        if name in known:
            source.values[known[name]] = (value, name)
            continue
        begun = next((prefix for prefix in reversed(prefixes) if name.startswith(prefix)), None)
        if begun:  # the first letters, those of all its like, say nothing
            near = nearest(
                name.removeprefix(begun), [one.removeprefix(begun) for one in known if one.startswith(begun)]
            )
            source.problems.append(f"{name}: no such setting" + (f", did you mean `{begun}{near}`?" if near else ""))
        else:
            source.warnings.append(Diagnostic.of("variable-ignored", name, meant=_meant(name)))
    return source


def from_file(path: Path) -> Source:
    """Return what a TOML file sets.

    Raises:
        UsageError: the file is missing or is not TOML.
    """
    _, tables = read_toml(path, "config file", fix="give a TOML file; `costar settings` lists every setting")
    source = Source()
    name = tables.pop("preset", None)
    if name in get_args(PresetName):
        source.preset = name
    elif name is not None:
        words = ", ".join(f"`{choice}`" for choice in get_args(PresetName))
        source.problems.append(f"preset = {name!r} ({path}): expected one of {words}")
    _read_tables(source, tables, str(path))
    return source


def _read_tables(source: Source, tables: Mapping[str, Any], origin: str) -> None:
    known, unknown = all_keys(), 0
    for name, value in _flatten(tables, ()):
        if name in known:
            source.values[name] = (value, origin)
        elif (unknown := unknown + 1) <= MOST_DETAILS:
            table, _, leaf = name.rpartition(".")
            siblings = list(_inside(table)) if table else []
            if _is_table(name):
                problem = f"expected a table, `[{name}]`"
            elif siblings:
                problem = f"no such setting{did_you_mean(leaf, siblings, lead=', ')}"
            else:
                problem = f"no such section{did_you_mean(name, all_sections(), lead=', ')}"
            source.problems.append(f"{cut(name, LONGEST)} ({origin}): {problem}")
    if unknown > MOST_DETAILS:
        source.problems.append(f"{origin}: {unknown - MOST_DETAILS:,} more unknown settings")


def _meant(name: str) -> str:
    """Return which variables one of no section may mean, by how their names end: `COSTAR_EPOCH` names no verb."""
    endings: dict[str, list[list[str]]] = {}  # each with the names that end so
    names = [[variable.removeprefix("COSTAR_")] for variable in RESERVED]
    for words in [*names, *(str(key).upper().split(".") for key in all_keys().values())]:
        for start in range(len(words)):
            endings.setdefault("_".join(words[start:]), []).append(words)
    full: dict[str, list[str]] = {}
    for end, found in endings.items():  # those of the fewest words: a verb's before a stage's
        fewest = min(map(len, found))
        full[end] = ["_".join(words) for words in found if len(words) == fewest]
    ending = name.removeprefix("COSTAR_")
    near = nearest_by_edits(ending, full) or nearest(ending, [name for name, found in full.items() if name in found])
    if near is None:
        return "`costar settings` lists them"
    *others, last = [f"`COSTAR_{found}`" for found in full[near][:MOST_MEANT]]
    return f"did you mean {', '.join(others)}{' or ' if others else ''}{last}?"


def _flatten(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[str, object]]:
    for name, value in table.items():
        here = (*path, name)
        if isinstance(value, Mapping) and _is_table(".".join(here)):
            yield from _flatten(value, here)
        else:
            yield ".".join(here), value


def _inside(table: str) -> Iterator[str]:
    """Yield the settings of a table, without its name."""
    return (name.removeprefix(f"{table}.") for name in all_keys() if name.startswith(f"{table}."))


def _is_table(name: str) -> bool:
    return any(key.startswith(name + ".") for key in all_keys())
