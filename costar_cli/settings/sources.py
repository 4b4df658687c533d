"""Where settings come from: presets, TOML files, environment variables, flags, arguments of Python functions."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from costar_cli.settings.presets import preset_settings

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


def from_preset(name: PresetName, dataset: str | None = None) -> Source:
    """Return what a preset sets, for a data set of this name where that is known."""
    return Source(preset_settings(name, dataset))


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
        if begun:
            source.problems.append(f"{name}: no such setting{_nearest_variable(name, known, begun)}")
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
    _read_preset(source, tables, path)
    _read_tables(source, tables, str(path))
    return source


def _read_tables(source: Source, tables: Mapping[str, Any], origin: str) -> None:
    known, unknown = all_keys(), 0
    for name, value in _flatten(tables, ()):
        if name in known:
            source.values[name] = (value, origin)
        elif (unknown := unknown + 1) <= MOST_DETAILS:
            source.problems.append(f"{cut(name, LONGEST)} ({origin}): {_unknown(name)}")
    if unknown > MOST_DETAILS:
        source.problems.append(f"{origin}: {unknown - MOST_DETAILS:,} more unknown settings")


def _nearest_variable(name: str, known: Iterable[str], shared: str) -> str:
    """Return the suggestion for a variable, whose first letters, those of all its like, say nothing."""
    rests = [other.removeprefix(shared) for other in known if other.startswith(shared)]
    near = nearest(name.removeprefix(shared), rests)
    return f", did you mean `{shared}{near}`?" if near else ""


def _meant(name: str) -> str:
    """Return which variables one of no section may mean, by how their names end: `COSTAR_EPOCH` names no verb."""
    ending, full = name.removeprefix("COSTAR_"), _endings()
    near = nearest_by_edits(ending, full) or nearest(ending, [name for name, found in full.items() if name in found])
    if near is None:
        return "`costar settings` lists them"
    *others, last = [f"`COSTAR_{found}`" for found in full[near][:MOST_MEANT]]
    return f"did you mean {', '.join(others)}{' or ' if others else ''}{last}?"


def _endings() -> dict[str, list[str]]:
    """Return what the names of variables end with, each with those of the fewest words: a verb's before a stage's."""
    endings: dict[str, list[list[str]]] = {}
    names = [[variable.removeprefix("COSTAR_")] for variable in RESERVED]
    names += [str(key).upper().split(".") for key in all_keys().values()]
    for words in names:
        for start in range(len(words)):
            endings.setdefault("_".join(words[start:]), []).append(words)
    fewest = {ending: min(map(len, found)) for ending, found in endings.items()}
    return {e: ["_".join(words) for words in found if len(words) == fewest[e]] for e, found in endings.items()}


def _read_preset(source: Source, tables: dict[str, Any], path: Path) -> None:
    name = tables.pop("preset", None)
    if name in get_args(PresetName):
        source.preset = name
    elif name is not None:
        words = ", ".join(f"`{choice}`" for choice in get_args(PresetName))
        source.problems.append(f"preset = {name!r} ({path}): expected one of {words}")


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


def _unknown(name: str) -> str:
    if _is_table(name):
        return f"expected a table, `[{name}]`"
    table, _, leaf = name.rpartition(".")
    siblings = list(_inside(table))
    if table and siblings:
        return f"no such setting{did_you_mean(leaf, siblings, lead=', ')}"
    return f"no such section{did_you_mean(name, all_sections(), lead=', ')}"
