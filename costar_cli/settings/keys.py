"""The settings as a flat list of keys: `pretrain.encoder.width` and what it accepts."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import ConfigDict, TypeAdapter
from pydantic.fields import FieldInfo

from costar_cli.config.models import (
    BenchmarkConfig,
    Config,
    EvaluateConfig,
    FinetuneConfig,
    PretrainConfig,
    RefuteConfig,
    RuntimeConfig,
)
from costar_cli.data.registry import all_sources
from costar_cli.methods.registry import METHODS

_WORDS = {int: "an integer", float: "a number", bool: "true or false", str: "text"}
_BOUNDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}


@dataclass(frozen=True, eq=False)
class Key:
    """One setting: where it lives, how it is written in each source, and what it accepts."""

    section: str
    path: tuple[str, ...]
    field: FieldInfo

    def __str__(self) -> str:
        return ".".join((self.section, *self.path))

    @property
    def env(self) -> str:
        """Return the environment variable that sets the key."""
        return "COSTAR_" + str(self).upper().replace(".", "_")

    @property
    def flag(self) -> str:
        """Return the flag that sets the key, where its verb has one."""
        return "--" + "-".join(self.path).replace("_", "-")

    @property
    def default(self) -> Any:  # noqa: ANN401 - a setting can be a number, a word, a switch, or nothing
        """Return the value that holds when nobody says otherwise."""
        return self.field.get_default(call_default_factory=True)

    @property
    def expected(self) -> str:
        """Say what the key accepts, for messages and the reference: `an integer, at least 1`."""
        kinds, optional = kinds_of(self.field.annotation)
        accepted = []
        for kind in kinds:
            if get_origin(kind) is Literal:
                choices = [f"`{choice}`" for choice in get_args(kind)]
                accepted.append(choices[0] if len(choices) == 1 else f"one of {', '.join(choices)}")
                continue
            plain, bounds = kind, self.field.metadata
            if get_origin(kind) is Annotated:
                plain, *fields = get_args(kind)
                bounds = [item for field in fields for item in getattr(field, "metadata", [field])]
            texts = [_WORDS.get(plain, str(plain))]
            for item in bounds:
                named = [(words, getattr(item, name, None)) for name, words in _BOUNDS.items()]
                texts += [f"{words} {bound}" for words, bound in named if bound is not None]
                texts += ["not empty"] * bool(getattr(item, "min_length", None))
            accepted.append(", ".join(texts))
        return ", or ".join([*accepted, "nothing"] if optional else accepted)

    def check(self, value: object, *, text: bool) -> object:
        """Return the value as its type, or raise pydantic's ValidationError.

        With `text` the source knows only text (environment variables), so `"6"` is the number 6.
        """
        adapter = _adapter(self)
        if text:
            return adapter.validate_strings(str(value).strip())
        return adapter.validate_python(value, strict=True)


VERBS: Final[Mapping[str, type[Config]]] = {  # settings of verbs and all methods, which are imported here
    "pretrain": PretrainConfig,
    "finetune": FinetuneConfig,
    "evaluate": EvaluateConfig,
    "refute": RefuteConfig,
    "benchmark": BenchmarkConfig,
    "runtime": RuntimeConfig,
}


@cache
def all_sections() -> Mapping[str, type[Config]]:
    """Return the settings of every data set, verb and method, those of installed packages included, by section."""
    return {
        **{source.section: source.settings for source in all_sources()},
        **VERBS,
        **{method.section: method.settings_class for method in METHODS.values() if method.settings_class},
    }


@cache
def all_keys() -> Mapping[str, Key]:
    """Return every setting by its full name, in the order of the models."""
    return {name: key for section in all_sections() for name, key in keys_of(section).items()}


@cache
def keys_of(section: str) -> Mapping[str, Key]:
    """Return the settings of a section by their full names."""
    return {str(key): key for key in _leaves(section, model_of(section), ())}


def model_of(section: str) -> type[Config]:
    """Return the configuration model of a section; those of methods are imported only where one is asked for."""
    return VERBS[section] if section in VERBS else all_sections()[section]


def key_of(name: str) -> Key:
    """Return the setting of a full name, which there must be."""
    section = name.partition(".")[0]
    return (keys_of(section) if section in VERBS else all_keys())[name]


def section_of(model: type[Config]) -> str:
    """Return the section that a configuration model stands for."""
    sections = VERBS if model in VERBS.values() else all_sections()
    return next(section for section, known in sections.items() if known is model)


def _leaves(section: str, model: type[Config], path: tuple[str, ...]) -> Iterator[Key]:
    for name, field in model.model_fields.items():
        (kind, *_), _ = kinds_of(field.annotation)
        if isinstance(kind, type) and issubclass(kind, Config):
            yield from _leaves(section, kind, (*path, name))
        else:
            yield Key(section, (*path, name), field)


def kinds_of(annotation: Any) -> tuple[list[Any], bool]:  # noqa: ANN401 - annotations have no common type
    """Return `([int], True)` for `int | None`: what a value may be, and whether it may be nothing."""
    if get_origin(annotation) not in (Union, UnionType):
        return [annotation], False
    kinds = [kind for kind in get_args(annotation) if kind is not type(None)]
    return kinds, len(kinds) < len(get_args(annotation))


@cache
def _adapter(key: Key) -> TypeAdapter[Any]:
    annotation: Any = Annotated[key.field.annotation, key.field]
    return TypeAdapter(annotation, config=ConfigDict(allow_inf_nan=False))
