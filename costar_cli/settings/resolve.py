"""Settings from flags, environment, file, preset and defaults, in that order, each with its origin.

Own code, since pydantic-settings names the field of a bad value and not the flag, variable or file that it came from,
and takes 0.14 s to import.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar, get_args

from pydantic import ValidationError

from costar_cli.config.choices import ExperimentName, PresetName
from costar_cli.config.models import Config, FinetuneConfig, nested
from costar_cli.config.nearest import did_you_mean, nearest, nearest_by_edits
from costar_cli.config.toml import read_toml
from costar_cli.data.registry import installed
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import MOST_DETAILS, UsageError, complaint, cut
from costar_cli.methods.registry import METHODS
from costar_cli.settings.keys import VERBS, all_keys, all_sections, key_of, keys_of, model_of, section_of
from costar_cli.settings.presets import DEFAULT_PRESET, preset_settings
from costar_cli.settings.protocols import read_protocol

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
                section = section_of(model)
                key = keys_of(section)[f"{section}.{name}"]
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
    chosen = {name: value for name, value in sorted(environ.items()) if name.startswith("COSTAR_") and value.strip()}
    if chosen.keys() <= set(RESERVED):  # all settings, those of methods among them, take 40 ms to import
        return source
    known = {key.env: str(key) for key in all_keys().values()}
    prefixes = sorted(("COSTAR_" + section.upper().replace(".", "_") + "_" for section in all_sections()), key=len)
    for name, value in chosen.items():
        if name in RESERVED:
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


C = TypeVar("C", bound=Config)

SHARED: Final = ("epochs", "patience", "batch_size", "learning_rate")  # of all networks of a method
INHERITED: Final = ("epochs", "patience")  # by networks that have none of their own


class Sections(Mapping[str, Config]):
    """Valid settings by section: of presets alone when they are used, the others, in which a key was set, at once."""

    def __init__(self, values: Mapping[str, object], built: Mapping[str, Config]) -> None:
        self._values, self._built = values, dict(built)

    def __getitem__(self, section: str) -> Config:
        if section not in self._built:
            self._built[section] = model_of(section).model_validate(_of_section(section, self._values))
        return self._built[section]

    def __iter__(self) -> Iterator[str]:
        return iter(all_sections())

    def __len__(self) -> int:
        return len(all_sections())


@dataclass(frozen=True)
class Settings:
    """Resolved settings: `settings[PretrainConfig]` is valid, `settings.origins` says who set a key that is no default.

    `set_aside` are a preset's `updates` by section where somebody chose `epochs` instead.
    """

    configs: Mapping[str, Config]
    origins: Mapping[str, str]
    preset: PresetName
    warnings: tuple[Diagnostic, ...]
    set_aside: Mapping[str, int]

    def __getitem__(self, model: type[C]) -> C:
        config = self.configs[section_of(model)]
        if not isinstance(config, model):
            raise KeyError(model.__name__)
        return config

    def is_chosen(self, name: str) -> bool:
        """Return whether somebody set a key by flag, environment or file, not a preset, a protocol or the default."""
        origin = self.origins.get(name, "default")
        return origin != "default" and not origin.startswith(("preset ", "protocol "))

    def any_chosen(self, prefix: str) -> bool:
        """Return whether somebody set any key that starts so."""
        return any(self.is_chosen(name) for name in self.origins if name.startswith(prefix))

    def describe(self, models: Iterable[type[Config]]) -> dict[str, dict[str, object]]:
        """Return every setting of some models as plain data: its value and who set it."""
        described: dict[str, dict[str, object]] = {}
        for section in map(section_of, models):
            values = self.configs[section].model_dump(mode="json")
            for name, key in keys_of(section).items():
                value: Any = values
                for part in key.path:  # the default of one that is left out where it is off
                    value = None if value is None else value.get(part, key.default)
                described[name] = {"value": value, "origin": self.origins.get(name, "default")}
        return described


def resolve(
    flags: Mapping[type[Config], Mapping[str, object]] | Source,
    *,
    preset: PresetName | None = None,
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    dataset: str | None = None,
    protocol: ExperimentName | None = None,
) -> Settings:
    """Resolve every setting, and report all problems of all sources at once.

    Args:
        flags: values given as flags, by configuration model, where None means not given; or the arguments of a Python
            function, as `sources.from_arguments` reads them.
        preset: the preset asked for; otherwise the file's, otherwise `default`.
        file: a TOML file with sections such as `[pretrain.encoder]`.
        environ: the environment; none by default.
        dataset: name of the data set at hand, which has a say in what a preset means.
        protocol: a published experiment, whose settings overrule those of the preset.

    Raises:
        UsageError: an unknown key, or a value of the wrong type or out of bounds.
    """
    read = from_file(file) if file is not None else Source()
    name = preset or read.preset or DEFAULT_PRESET
    given = flags if isinstance(flags, Source) else from_flags(flags)
    published = read_protocol(protocol).values if protocol else {}
    of_protocol = Source({key: (value, f"protocol {protocol}") for key, value in published.items()})
    sources = [Source(preset_settings(name, dataset)), of_protocol, read, from_environment(environ or {}), given]
    problems = [problem for source in sources for problem in source.problems]
    of_preset, *chosen = sources  # presets are valid, so that their methods need not be imported
    origins = {name: origin for name, (_, origin) in of_preset.values.items()}
    values = {name: value for name, (value, _) in of_preset.values.items()}
    for source in chosen:
        for full_name, (value, origin) in source.values.items():
            key = key_of(full_name)
            try:
                values[full_name] = key.check(value, text=source.text)
                origins[full_name] = origin
            except ValidationError:
                problems.append(f"{full_name} = {value!r} ({origin}): expected {key.expected}")
    set_aside: dict[str, int] = {}
    for section in ("pretrain", "finetune"):  # with a preset's `updates`, chosen epochs would say nothing of the length
        epochs, updates = (origins.get(f"{section}.{key}", "default") for key in ("epochs", "updates"))
        if updates.startswith("preset ") and epochs != "default" and not epochs.startswith("preset "):
            if isinstance(updates_of_preset := values.pop(f"{section}.updates"), int):
                set_aside[section] = updates_of_preset
            origins[f"{section}.updates"] = epochs
    built = _build(values, origins, problems)
    if problems:
        fix = "`costar settings` lists every setting with what it accepts"
        raise UsageError.of(problems, f"{len(problems)} settings are not valid", fix=fix)
    problems_of_plugins = (*installed().problems, *METHODS.installed.problems)
    left_out = [Diagnostic.of("plugin-left-out", problem=problem) for problem in problems_of_plugins]
    warnings = [*left_out, *(warning for source in sources for warning in source.warnings)]
    return Settings(Sections(values, built), origins, name, tuple(warnings), set_aside)


def method_settings(chosen: Settings, name: str, shared: FinetuneConfig) -> Config | None:
    """Return a method's own settings; a choice for all methods overrules presets of its networks."""
    method = METHODS[name]
    if method.settings_class is None:
        return None
    settings = chosen[method.settings_class]
    overruled = [key for key in SHARED if chosen.is_chosen(f"finetune.{key}")]
    document = settings.model_dump()
    for network, values in document.items():
        if not isinstance(values, dict):
            continue
        for key in overruled:
            if key in values and not chosen.is_chosen(f"{method.section}.{network}.{key}"):
                values[key] = getattr(shared, key)
        values |= {key: getattr(shared, key) for key in INHERITED if values.get(key, 0) is None}
    return method.settings_class.model_validate(document)


def unused_settings(chosen: Settings, name: str) -> list[str]:
    """Return the shared settings that flags and files chose and that models of a method do not depend on, as written.

    Variables of the environment are left out: they are set once, for all methods.
    """
    method = METHODS[name]
    if method.pretrained or method.combines:
        return []
    own = method.default_settings()
    networks = [values for values in own.model_dump().values() if isinstance(values, dict)] if own else []
    used = {key for key in SHARED if any(key in values for values in networks)}
    used |= method.shared_settings(dict.fromkeys(FinetuneConfig.model_fields)).keys()
    found = []
    for full, origin in chosen.origins.items():
        section, _, key = full.partition(".")
        if section == "finetune" and key.partition(".")[0] not in used and chosen.is_chosen(full):
            if origin.startswith("--"):
                found.append(f"`{origin}`")
            elif not origin.startswith("COSTAR_"):
                found.append(f"`{full}` ({origin})")
    return list(dict.fromkeys(found))  # chosen epochs are the origin of `updates`, too


def _build(values: Mapping[str, object], origins: Mapping[str, str], problems: list[str]) -> dict[str, Config]:
    """Validate the sections in which somebody set a key; what presets say together is valid."""
    chosen = {key_of(name).section for name in values if not origins[name].startswith("preset ")}
    built: dict[str, Config] = {}
    for section in VERBS if chosen <= VERBS.keys() else all_sections():
        if section in chosen:
            try:
                built[section] = model_of(section).model_validate(_of_section(section, values))
            except ValidationError as error:  # of settings that are valid one by one but not together
                for item in error.errors():
                    table = ".".join((section, *map(str, item["loc"])))
                    given = {who for name, who in origins.items() if name.startswith(table)}
                    problems.append(f"[{table}] ({', '.join(sorted(given)) or 'default'}): {complaint(item)}")
    return built


def _of_section(section: str, values: Mapping[str, object]) -> dict[str, Any]:
    """Return the values of a section as its model takes them."""
    return nested({".".join(key.path): values[name] for name, key in keys_of(section).items() if name in values})
