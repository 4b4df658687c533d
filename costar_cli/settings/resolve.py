"""Settings from flags, environment, file, preset and defaults, in that order, each with its origin."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from costar_cli.config.choices import PresetName
from costar_cli.config.models import Config, FinetuneConfig, nested
from costar_cli.data.registry import installed
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import UsageError, complaint
from costar_cli.methods.registry import METHODS
from costar_cli.settings.keys import all_keys, all_sections, section_of
from costar_cli.settings.presets import DEFAULT_PRESET, preset_settings
from costar_cli.settings.sources import Source, from_environment, from_file, from_flags

C = TypeVar("C", bound=Config)

SHARED: Final = ("epochs", "patience", "batch_size", "learning_rate")  # of all networks of a method
INHERITED: Final = ("epochs", "patience")  # by networks that have none of their own


class Sections(Mapping[str, Config]):
    """Valid settings by section: of presets alone when they are used, the others, in which a key was set, at once."""

    def __init__(self, values: Mapping[str, object], built: Mapping[str, Config]) -> None:
        self._values, self._built = values, dict(built)

    def __getitem__(self, section: str) -> Config:
        if section not in self._built:
            self._built[section] = all_sections()[section].model_validate(_of_section(section, self._values))
        return self._built[section]

    def __iter__(self) -> Iterator[str]:
        return iter(all_sections())

    def __len__(self) -> int:
        return len(all_sections())


@dataclass(frozen=True)
class Settings:
    """Resolved settings: `settings[PretrainConfig]` is valid, `settings.origins` says who set each key.

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
        """Return whether somebody set a key by flag, environment or file, rather than a preset or the default."""
        origin = self.origins[name]
        return origin != "default" and not origin.startswith("preset ")

    def any_chosen(self, prefix: str) -> bool:
        """Return whether somebody set any key that starts so."""
        return any(self.is_chosen(name) for name in self.origins if name.startswith(prefix))

    def describe(self, models: Iterable[type[Config]]) -> dict[str, dict[str, object]]:
        """Return every setting of some models as plain data: its value and who set it."""
        described: dict[str, dict[str, object]] = {}
        for section in map(section_of, models):
            values = self.configs[section].model_dump(mode="json")
            for name, key in all_keys().items():
                if key.section == section:
                    value: Any = values
                    for part in key.path:  # the default of one that is left out where it is off
                        value = None if value is None else value.get(part, key.default)
                    described[name] = {"value": value, "origin": self.origins[name]}
        return described


def resolve(
    flags: Mapping[type[Config], Mapping[str, object]] | Source,
    *,
    preset: PresetName | None = None,
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    dataset: str | None = None,
) -> Settings:
    """Resolve every setting, and report all problems of all sources at once.

    Args:
        flags: values given as flags, by configuration model, where None means not given; or the arguments of a Python
            function, as `sources.from_arguments` reads them.
        preset: the preset asked for; otherwise the file's, otherwise `default`.
        file: a TOML file with sections such as `[pretrain.encoder]`.
        environ: the environment; none by default.
        dataset: name of the data set at hand, which has a say in what a preset means.

    Raises:
        UsageError: an unknown key, or a value of the wrong type or out of bounds.
    """
    read = from_file(file) if file is not None else Source()
    name = preset or read.preset or DEFAULT_PRESET
    given = flags if isinstance(flags, Source) else from_flags(flags)
    sources = [Source(preset_settings(name, dataset)), read, from_environment(environ or {}), given]
    problems = [problem for source in sources for problem in source.problems]
    values: dict[str, object] = {}
    origins = dict.fromkeys(all_keys(), "default")
    for source in sources:
        for full_name, (value, origin) in source.values.items():
            key = all_keys()[full_name]
            try:
                values[full_name] = key.check(value, text=source.text)
                origins[full_name] = origin
            except ValidationError:
                problems.append(f"{full_name} = {value!r} ({origin}): expected {key.expected}")
    set_aside = _let_epochs_count(values, origins)
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


def _let_epochs_count(values: dict[str, object], origins: dict[str, str]) -> dict[str, int]:
    """Drop a preset's `updates` where somebody chose `epochs`: with both, epochs would say nothing of the length.

    What is dropped is returned by section.
    """
    dropped: dict[str, int] = {}
    for section in ("pretrain", "finetune"):
        epochs, updates = (origins[f"{section}.{name}"] for name in ("epochs", "updates"))
        if updates.startswith("preset ") and epochs != "default" and not epochs.startswith("preset "):
            if isinstance(updates_of_preset := values.pop(f"{section}.updates"), int):
                dropped[section] = updates_of_preset
            origins[f"{section}.updates"] = epochs
    return dropped


def _build(values: Mapping[str, object], origins: Mapping[str, str], problems: list[str]) -> dict[str, Config]:
    """Validate the sections in which somebody set a key; what presets say together is valid."""
    chosen = {all_keys()[name].section for name in values if not origins[name].startswith("preset ")}
    built: dict[str, Config] = {}
    for section, model in all_sections().items():
        if section in chosen:
            try:
                built[section] = model.model_validate(_of_section(section, values))
            except ValidationError as error:  # of settings that are valid one by one but not together
                for item in error.errors():
                    table = ".".join((section, *map(str, item["loc"])))
                    given = {who for name, who in origins.items() if name.startswith(table) and who != "default"}
                    problems.append(f"[{table}] ({', '.join(sorted(given)) or 'default'}): {complaint(item)}")
    return built


def _of_section(section: str, values: Mapping[str, object]) -> dict[str, Any]:
    """Return the values of a section as its model takes them."""
    keys = all_keys()
    return nested({".".join(keys[name].path): v for name, v in values.items() if keys[name].section == section})
